// The recursions of rnnt_loss.h over one example. Nodes are kept by diagonals:
// row d has node (d - u, u) in column u, so that a vector has nodes that do not
// depend on one another.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_SEQUENCE_LOSSES_RNNT_LOSS_SIMD_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_SEQUENCE_LOSSES_RNNT_LOSS_SIMD_H_

#include "tensorflow_ops/core/cc/cpu_dispatch.h"
#include "tensorflow_ops/nn/cc/kernels/sequence_losses/scaled.h"

namespace tfo {

template <typename Value>
struct RnntLattice {
  int64_t frames, labels;
  int64_t stride;        // of rows of nodes
  const int64_t* label;  // [labels]

  // [frames + labels, stride]: of a node's two edges, 0 where there is no node.
  ScaledRows<Value> blanks, emissions;
  // Row d has all ways to its nodes; without `keeps`, of two rows in turns.
  bool keeps;
  ScaledRows<Value> ways;
  ScaledRows<Value> scratch;  // 2 rows and a guard

  int64_t Diagonals() const { return frames + labels; }
  int64_t RowOf(int64_t d) const {
    return (keeps ? d : d & 1) * stride + kStateGuard;
  }
  // Of a node in rows of diagonals.
  int64_t At(int64_t t, int64_t u) const {
    return (t + u) * stride + kStateGuard + u;
  }
};

// Where probabilities come from.
template <typename T>
struct RnntNodes {
  int64_t first_row;  // of the example in `logits`, `largest` and `rest`
  int64_t rows_per_frame;
  int64_t classes, blank;
  const T* logits;
  const Accumulator<T>*largest, *rest;
};

TFO_PER_CPU_LEVEL(
    // Sets blanks and emissions of frames [begin, end), of rows that are 0.
    // Lowers `lowest` to their exponents. Returns whether all logits are below
    // infinity.
    template <typename T, typename Value>
    bool RnntEmissions(const RnntNodes<T>& nodes,
                       const RnntLattice<Value>& lattice, int64_t begin,
                       int64_t end, int64_t* lowest);
    // Computes `ways`. Returns the loss; sets the probability of all ways.
    template <typename Value>
    double RnntForward(const RnntLattice<Value>& lattice, Value* mantissa,
                       int64_t* exponent);
    // From what RnntForward kept, replaces mantissas: those of ways by the
    // share s of ways through a node, those of blanks and emissions by s p
    // minus the share of ways that take the edge, p being its probability.
    template <typename Value>
    void RnntBackward(const RnntLattice<Value>& lattice, Value mantissa,
                      int64_t exponent);)

}  // namespace tfo

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_SEQUENCE_LOSSES_RNNT_LOSS_SIMD_H_
