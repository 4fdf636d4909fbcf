// The recursions of CTC over one example. The extended label, which has
// blanks between labels, is stored as two rows: blanks 0 .. labels, where blank
// u precedes label u, and labels 0 .. labels - 1. A vector holds consecutive
// states.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_SEQUENCE_LOSSES_CTC_LOSS_SIMD_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_SEQUENCE_LOSSES_CTC_LOSS_SIMD_H_

#include "tensorflow_ops/core/cc/cpu_dispatch.h"
#include "tensorflow_ops/nn/cc/kernels/sequence_losses/scaled.h"

namespace tfo {

template <typename Value>
struct CtcLattice {
  using Exponent = typename ScaledLimits<Value>::Exponent;
  int64_t frames, labels;
  int64_t stride;        // of rows of states
  int64_t first_row;     // of the example in `largest` and `rest`
  const int64_t* label;  // [labels]
  // [stride + kStateGuard]: -1 if label u differs from label u - 1, else 0; 0
  // for u = 0.
  const Exponent* skips;

  ScaledRows<Value> emissions;  // [frames, stride], of labels
  ScaledRows<Value> blanks;     // [frames]
  // Row t + 1 has the forward sums (alpha) after frame t, row 0 those before
  // the first frame; without keep_all_frames, these are two alternating rows.
  // Posteriors overwrite them: those of labels, and the sum of blanks in the
  // first value of each row.
  bool keep_all_frames;
  ScaledRows<Value> alpha_blank, alpha_label;
  ScaledRows<Value> scratch;  // 4 rows and a guard
  // [frames, 2, stride], if CtcBackward keeps them: backward sums (beta) of
  // blanks and labels.
  ScaledRows<Value> beta;

  int64_t RowOf(int64_t t) const {
    return (keep_all_frames ? t + 1 : (t + 1) & 1) * stride + kStateGuard;
  }
};

// The inputs of a frame's probabilities.
template <typename T>
struct CtcFrames {
  const T* logits;  // of the example
  int64_t classes, blank;
  const Accumulator<T>*largest, *rest;  // [batch, frames]
};

TFO_PER_CPU_LEVEL(
    // Sets emissions and blanks of frames [begin, end). Lowers `lowest` to
    // their exponents. Returns whether all logits are below infinity.
    template <typename T, typename Value>
    bool CtcEmissions(const CtcFrames<T>& frames,
                      const CtcLattice<Value>& lattice, int64_t begin,
                      int64_t end, int64_t* lowest);
    // Computes alpha_blank and alpha_label. Returns the loss, and sets the
    // total probability.
    template <typename Value>
    double CtcForward(const CtcLattice<Value>& lattice,
                      ScaledTotal<Value>* total);
    // Computes beta and, with it, turns alpha into posteriors, and the
    // mantissas of emissions and blanks into probabilities. If `total` is null,
    // keeps beta for CtcPosteriors instead, and does not depend on CtcForward.
    template <typename Value> void CtcBackward(const CtcLattice<Value>& lattice,
                                               const ScaledTotal<Value>* total);
    // The rest, with the same bits, for frames [begin, end).
    template <typename Value>
    void CtcPosteriors(const CtcLattice<Value>& lattice, int64_t begin,
                       int64_t end, const ScaledTotal<Value>& total);)

}  // namespace tfo

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_SEQUENCE_LOSSES_CTC_LOSS_SIMD_H_
