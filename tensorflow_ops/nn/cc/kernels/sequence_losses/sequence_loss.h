// The losses of label sequences: minus the logarithm of the probability of all
// paths that give an example's labels.
//
// A path's probability is a number with a large exponent (scaled.h), so nothing
// underflows; it needs no logarithms but those of the softmax. Labels of
// probability 0 have an infinite loss and a gradient of 0. A NaN or +inf logit
// in a row within an example's lengths makes the example's loss and gradient
// NaN.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_SEQUENCE_LOSSES_SEQUENCE_LOSS_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_SEQUENCE_LOSSES_SEQUENCE_LOSS_H_

#include "tensorflow_ops/core/cc/device.h"
#include "tensorflow_ops/nn/cc/kernels/rows/index_array.h"

namespace tfo {

// Connectionist temporal classification (Graves et al. 2006): a path is one
// class a frame, and gives labels by merging repeats and dropping blanks.
struct Ctc {
  static constexpr bool kHasNodes = false;
  static constexpr int64_t kLeastFrames = 0;
};

// A transducer (Graves 2012): a path leads through a lattice of frames and
// labels. A node (t, u) has emitted u labels before frame t; it emits blank and
// goes to (t + 1, u), or the next label and goes to (t, u + 1). A path ends
// with the blank of the last node.
struct Rnnt {
  static constexpr bool kHasNodes = true;
  static constexpr int64_t kLeastFrames = 1;
};

// Padding, beyond a sequence's lengths, is not read. On a GPU, labels and
// lengths out of their ranges make the example NaN; the CPU's caller has
// checked them.
struct LabelSequences {
  int64_t batch, frames, max_labels, classes;
  int64_t blank;             // in [0, classes)
  IndexArray labels;         // [batch, max_labels]
  IndexArray label_lengths;  // [batch]
  IndexArray logit_lengths;  // [batch]

  TFO_HOST_DEVICE int64_t Label(int64_t example, int64_t i) const {
    return labels[example * max_labels + i];
  }
  TFO_HOST_DEVICE bool IsLabel(int64_t label) const {
    return label >= 0 && label < classes && label != blank;
  }
  // Returns whether the example's lengths are in range: logit_lengths in
  // [least, frames].
  TFO_HOST_DEVICE bool HasValidLengths(int64_t example, int64_t least) const {
    return label_lengths[example] >= 0 &&
           label_lengths[example] <= max_labels &&
           logit_lengths[example] >= least && logit_lengths[example] <= frames;
  }
  // Rows of logits: one a frame or, of Rnnt, one a node.
  template <typename Loss>
  TFO_HOST_DEVICE int64_t RowsPerFrame() const {
    return Loss::kHasNodes ? max_labels + 1 : 1;
  }
  template <typename Loss>
  TFO_HOST_DEVICE int64_t Rows() const {
    return batch * frames * RowsPerFrame<Loss>();
  }
};

// Loss is Ctc or Rnnt; T is float, double, Half or BFloat16.
template <typename Loss, typename T>
struct SequenceLossArgs {
  using Value = Accumulator<T>;
  LabelSequences sequences;
  // [batch, frames, classes]; of Rnnt [batch, frames, max_labels + 1, classes].
  const T* logits;
  Value* loss;            // [batch]
  Value *largest, *rest;  // of logits' rows: sums of softmaxes (row_sums.h)
  bool zero_infinity;     // infinite losses are 0
};

template <typename Loss, typename T>
struct SequenceLossGradArgs {
  using Value = Accumulator<T>;
  LabelSequences sequences;
  const T* logits;
  const Value* d_loss;          // [batch]
  const Value *largest, *rest;  // what SequenceLoss wrote
  T* d_logits;                  // of logits' shape; all is written
};

template <typename Loss, typename T>
Error SequenceLoss(const Cpu& cpu, const SequenceLossArgs<Loss, T>& args);
template <typename Loss, typename T>
Error SequenceLoss(const Gpu& gpu, const SequenceLossArgs<Loss, T>& args);

template <typename Loss, typename T>
Error SequenceLossGrad(const Cpu& cpu,
                       const SequenceLossGradArgs<Loss, T>& args);
template <typename Loss, typename T>
Error SequenceLossGrad(const Gpu& gpu,
                       const SequenceLossGradArgs<Loss, T>& args);

// Returns the bytes of gpu.scratch that the call needs.
template <typename Loss, typename T>
int64_t SequenceLossScratchBytes(const SequenceLossArgs<Loss, T>& args);
template <typename Loss, typename T>
int64_t SequenceLossScratchBytes(const SequenceLossGradArgs<Loss, T>& args);

}  // namespace tfo

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_SEQUENCE_LOSSES_SEQUENCE_LOSS_H_
