// The loss of connectionist temporal classification (Graves et al. 2006): minus
// the logarithm of the probability of all paths, one class a frame, that give
// the labels after merging repeats and dropping blanks.
//
// A path's probability is a number with a large exponent (scaled.h), so nothing
// underflows; it needs no logarithms but those of the softmax. Impossible
// labels have probability 0, an infinite loss and a gradient of 0. A NaN or
// +inf logit within an example's length makes the example's loss and gradient
// NaN.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_SEQUENCE_LOSSES_CTC_LOSS_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_SEQUENCE_LOSSES_CTC_LOSS_H_

#include "tensorflow_ops/nn/cc/kernels/sequence_losses/label_sequences.h"

namespace tfo {

// T is float, double, Half or BFloat16. On a GPU, labels and lengths out of
// their ranges make the example NaN; the CPU's caller has checked them.
template <typename T>
struct CtcArgs {
  using Value = Accumulator<T>;
  LabelSequences sequences;
  bool zero_infinity;     // infinite losses are 0
  const T* logits;        // [batch, frames, classes]
  Value* loss;            // [batch]
  Value *largest, *rest;  // [batch, frames], sums of softmaxes (row_sums.h)
};

template <typename T>
struct CtcGradArgs {
  using Value = Accumulator<T>;
  LabelSequences sequences;
  const T* logits;
  const Value* d_loss;          // [batch]
  const Value *largest, *rest;  // what CtcLoss wrote
  T* d_logits;                  // [batch, frames, classes], all is written
};

template <typename T>
Error CtcLoss(const Cpu& cpu, const CtcArgs<T>& args);
template <typename T>
Error CtcLoss(const Gpu& gpu, const CtcArgs<T>& args);

template <typename T>
Error CtcLossGrad(const Cpu& cpu, const CtcGradArgs<T>& args);
template <typename T>
Error CtcLossGrad(const Gpu& gpu, const CtcGradArgs<T>& args);

// Returns the bytes of gpu.scratch that the call needs.
template <typename T>
int64_t CtcScratchBytes(const CtcArgs<T>& args);
template <typename T>
int64_t CtcScratchBytes(const CtcGradArgs<T>& args);

}  // namespace tfo

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_SEQUENCE_LOSSES_CTC_LOSS_H_
