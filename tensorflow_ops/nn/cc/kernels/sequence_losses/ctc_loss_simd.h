// The recursions of ctc_loss.h over one example. The extended label, blanks
// between labels, is kept as two rows: blanks 0 .. labels, blank u in front of
// label u, and labels 0 .. labels - 1. A vector has states that follow one
// another.
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
  // [stride + kStateGuard]: is label u another than label u - 1? -1 or 0; 0 for
  // u = 0.
  const Exponent* skips;

  ScaledRows<Value> emissions;  // [frames, stride], of labels
  ScaledRows<Value> blanks;     // [frames]
  // Row t + 1 is after frame t, row 0 before the first; without `keeps`, of two
  // rows in turns. CtcBackward turns them into posteriors: of labels, and the
  // sum of blanks in the first value of each row.
  bool keeps;
  ScaledRows<Value> blank_paths, label_paths;
  ScaledRows<Value> scratch;  // 4 rows and a guard
  // [frames, 2, stride], for CtcAfter: paths that follow blanks and labels.
  ScaledRows<Value> after;

  int64_t RowOf(int64_t t) const {
    return (keeps ? t + 1 : (t + 1) & 1) * stride + kStateGuard;
  }
};

// Where a frame's probabilities come from.
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
    // Computes blank_paths and label_paths. Returns the loss; sets the
    // probability, of all paths.
    template <typename Value>
    double CtcForward(const CtcLattice<Value>& lattice, Value* mantissa,
                      int64_t* exponent);
    // Computes posteriors from what CtcForward kept, and replaces the mantissas
    // of emissions and blanks by probabilities.
    template <typename Value>
    void CtcBackward(const CtcLattice<Value>& lattice, Value mantissa,
                     int64_t exponent);
    // The same in two steps with the same bits: CtcAfter does not wait for
    // CtcForward, and threads can share the frames of CtcPosteriors.
    template <typename Value> void CtcAfter(const CtcLattice<Value>& lattice);
    template <typename Value>
    void CtcPosteriors(const CtcLattice<Value>& lattice, int64_t begin,
                       int64_t end, Value mantissa, int64_t exponent);)

}  // namespace tfo

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_SEQUENCE_LOSSES_CTC_LOSS_SIMD_H_
