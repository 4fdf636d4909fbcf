// The recursions of RNN-T over one example. Nodes are stored by
// diagonals: row d has node (d - u, u) in column u, so the nodes in a vector do
// not depend on each other.
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
  // Row d has the forward sums (alpha) of its nodes; without keep_all_rows,
  // these are two alternating rows.
  bool keep_all_rows;
  ScaledRows<Value> alpha;
  ScaledRows<Value> scratch;  // 2 rows and a guard

  int64_t Diagonals() const { return frames + labels; }
  int64_t RowOf(int64_t d) const {
    return (keep_all_rows ? d : d & 1) * stride + kStateGuard;
  }
  // Index of a node in rows of diagonals.
  int64_t At(int64_t t, int64_t u) const {
    return (t + u) * stride + kStateGuard + u;
  }
};

// The inputs of probabilities.
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
    // Computes `alpha`. Returns the loss, and sets the total probability.
    template <typename Value>
    double RnntForward(const RnntLattice<Value>& lattice,
                       ScaledTotal<Value>* total);
    // Replaces mantissas after RnntForward: those of alpha by the posterior s
    // of the node; those of blanks and emissions by s p minus the posterior of
    // the edge, where p is the probability of the edge.
    template <typename Value>
    void RnntBackward(const RnntLattice<Value>& lattice,
                      const ScaledTotal<Value>& total);)

}  // namespace tfo

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_SEQUENCE_LOSSES_RNNT_LOSS_SIMD_H_
