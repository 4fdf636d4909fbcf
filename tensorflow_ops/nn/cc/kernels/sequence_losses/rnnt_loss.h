// The loss of a transducer (Graves 2012): minus the logarithm of the
// probability of all ways through a lattice of frames and labels. A node (t, u)
// has emitted u labels before frame t; it emits blank and goes to (t + 1, u),
// or the next label and goes to (t, u + 1). A way ends with the blank of the
// last node.
//
// Probabilities of ways are numbers with a large exponent (scaled.h). A NaN or
// +inf logit at a node within an example's lengths makes the example's loss and
// gradient NaN. Labels of probability 0 have an infinite loss and a gradient of
// 0.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_SEQUENCE_LOSSES_RNNT_LOSS_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_SEQUENCE_LOSSES_RNNT_LOSS_H_

#include "tensorflow_ops/nn/cc/kernels/sequence_losses/label_sequences.h"

namespace tfo {

// T is float, double, Half or BFloat16. On a GPU, labels and lengths out of
// their ranges make the example NaN; the CPU's caller has checked them.
template <typename T>
struct RnntArgs {
  using Value = Accumulator<T>;
  LabelSequences sequences;
  const T* logits;        // [batch, frames, max_labels + 1, classes]
  Value* loss;            // [batch]
  Value *largest, *rest;  // [batch, frames, max_labels + 1] (row_sums.h)
};

template <typename T>
struct RnntGradArgs {
  using Value = Accumulator<T>;
  LabelSequences sequences;
  const T* logits;
  const Value* d_loss;          // [batch]
  const Value *largest, *rest;  // what RnntLoss wrote
  T* d_logits;                  // of logits' shape; all is written
};

template <typename T>
Error RnntLoss(const Cpu& cpu, const RnntArgs<T>& args);
template <typename T>
Error RnntLoss(const Gpu& gpu, const RnntArgs<T>& args);

template <typename T>
Error RnntLossGrad(const Cpu& cpu, const RnntGradArgs<T>& args);
template <typename T>
Error RnntLossGrad(const Gpu& gpu, const RnntGradArgs<T>& args);

// Returns the bytes of gpu.scratch that the call needs.
template <typename T>
int64_t RnntScratchBytes(const RnntArgs<T>& args);
template <typename T>
int64_t RnntScratchBytes(const RnntGradArgs<T>& args);

}  // namespace tfo

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_SEQUENCE_LOSSES_RNNT_LOSS_H_
