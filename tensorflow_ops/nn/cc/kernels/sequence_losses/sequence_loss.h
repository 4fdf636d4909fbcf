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
  static constexpr char kLogits[] =
      "[batch, frames, classes] with labels' batch";
  static constexpr char kRows[] = "[batch, frames]";
  static constexpr int64_t kLeastFrames = 0;
};

// A transducer (Graves 2012): a path leads through a lattice of frames and
// labels. A node (t, u) has emitted u labels before frame t; it emits blank and
// goes to (t + 1, u), or the next label and goes to (t, u + 1). A path ends
// with the blank of the last node.
struct Rnnt {
  static constexpr bool kHasNodes = true;
  static constexpr char kLogits[] =
      "[batch, frames, labels + 1, classes] with labels' batch";
  static constexpr char kRows[] = "[batch, frames, labels + 1]";
  static constexpr int64_t kLeastFrames = 1;
};

// Padding, beyond a sequence's lengths, is not read. On a GPU, labels and
// lengths out of their ranges make the example NaN; the CPU's caller has
// checked them.
struct LabelSequences {
  int64_t batch, frames, max_labels, classes;
  int64_t blank;  // in [0, classes)
  IndexArray labels, label_lengths, logit_lengths;

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

// Sets a blank of -1 to the last class.
template <typename V>
void CheckBlank(int64_t classes, int64_t* blank, V& v) {
  v.Check(classes != 0, "logits have 0 classes, expected at least 1");
  v.Check(classes < 0 || (*blank >= -1 && *blank < classes), "blank_index is ",
          *blank, ", expected [0, ", classes, "), or -1: the last class");
  if (*blank == -1) *blank = classes - 1;
}

template <typename Loss, typename T, typename V>
void DescribeSequences(LabelSequences& s, const T** logits, V& v) {
  v.In("labels", "[batch, labels]", &s.labels, "Tlabels");
  v.In("logits", Loss::kLogits, logits);
  v.In("label_lengths", "[batch]", &s.label_lengths, "Tlengths");
  v.In("logit_lengths", "[batch]", &s.logit_lengths, "Tlengths");
  v.Types("T", "Tvalue", "Tlabels", "Tlengths");
  v.Size("batch", &s.batch);
  v.Size("frames", &s.frames);
  v.Size("labels", &s.max_labels);
  v.Size("classes", &s.classes);
  v.Option("blank_index", 0, &s.blank);
  CheckBlank(s.classes, &s.blank, v);
}

// Loss is Ctc or Rnnt; T is float, double, Half or BFloat16.
template <typename Loss, typename T>
struct SequenceLossArgs {
  using Value = Accumulator<T>;
  LabelSequences sequences;
  const T* logits;
  Value* loss;
  Value *largest, *rest;  // of logits' rows: sums of softmaxes (row_sums.h)
  bool zero_infinity;     // infinite losses are 0
};
template <typename T>
using CtcLossArgs = SequenceLossArgs<Ctc, T>;
template <typename T>
using RnntLossArgs = SequenceLossArgs<Rnnt, T>;

template <typename Loss, typename T, typename V>
void Describe(SequenceLossArgs<Loss, T>& a, V& v) {
  DescribeSequences<Loss>(a.sequences, &a.logits, v);
  if (!Loss::kHasNodes) v.Option("zero_infinity", false, &a.zero_infinity);
  v.Out("loss", "[batch]", &a.loss);
  v.Out("largest", Loss::kRows, &a.largest);
  v.Out("rest", Loss::kRows, &a.rest);
}

template <typename Loss, typename T>
struct SequenceLossGradArgs {
  using Value = Accumulator<T>;
  LabelSequences sequences;
  const T* logits;
  const Value *d_loss, *largest, *rest;
  T* d_logits;  // all is written
};
template <typename T>
using CtcLossGradArgs = SequenceLossGradArgs<Ctc, T>;
template <typename T>
using RnntLossGradArgs = SequenceLossGradArgs<Rnnt, T>;

template <typename Loss, typename T, typename V>
void Describe(SequenceLossGradArgs<Loss, T>& a, V& v) {
  DescribeSequences<Loss>(a.sequences, &a.logits, v);
  v.In("d_loss", "[batch]", &a.d_loss);
  v.In("largest", Loss::kRows, &a.largest);
  v.In("rest", Loss::kRows, &a.rest);
  v.Out("d_logits", Loss::kLogits, &a.d_logits);
}

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
