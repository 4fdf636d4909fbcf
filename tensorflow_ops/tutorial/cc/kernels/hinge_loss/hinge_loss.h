// The multiclass squared hinge loss of each row of logits (Weston and Watkins,
// 1999):
//
//   loss = sum of max(0, 1 + x_c - x_label)^2 over the classes c != label
//
// and the label's rank: how many classes have greater logits.
#ifndef TENSORFLOW_OPS_TUTORIAL_CC_KERNELS_HINGE_LOSS_HINGE_LOSS_H_
#define TENSORFLOW_OPS_TUTORIAL_CC_KERNELS_HINGE_LOSS_HINGE_LOSS_H_

#include <cstdint>

#include "tensorflow_ops/core/cc/device.h"
#include "tensorflow_ops/core/cc/float16.h"

namespace tfo {

// T is float, double, Half or BFloat16.
template <typename T>
struct HingeLossArgs {
  int64_t rows, classes, ignore_index;
  const T* logits;
  const int64_t* labels;
  T* loss;
  int32_t* rank;
};

// core/cc/describe.h says who reads this.
template <typename T, typename V>
void Describe(HingeLossArgs<T>& a, V& v) {
  v.In("logits", "[rows, classes]", &a.logits);
  v.In("labels", "[rows]", &a.labels);
  v.Out("loss", "[rows]", &a.loss);
  v.Out("rank", "[rows]", &a.rank);
  v.Size("rows", &a.rows);
  v.Size("classes", &a.classes);
  v.Option("ignore_index", -1, &a.ignore_index);
  v.Types("T");
}

template <typename T>
struct HingeLossGradArgs {
  int64_t rows, classes, ignore_index;
  const T *d_loss, *logits;
  const int64_t* labels;
  T* d_logits;
};

template <typename T, typename V>
void Describe(HingeLossGradArgs<T>& a, V& v) {
  v.In("d_loss", "[rows]", &a.d_loss);
  v.In("logits", "[rows, classes]", &a.logits);
  v.In("labels", "[rows]", &a.labels);
  v.Out("d_logits", "[rows, classes]", &a.d_logits);
  v.Size("rows", &a.rows);
  v.Size("classes", &a.classes);
  v.Option("ignore_index", -1, &a.ignore_index);
  v.Types("T");
}

// Whether a row has a loss. The results of another row are zeros, whatever its
// logits are: its label is ignore_index, or no class.
template <typename Args>
TFO_HOST_DEVICE static inline bool HasHingeLoss(const Args& args, int64_t row) {
  const int64_t label = args.labels[row];
  return label >= 0 && label < args.classes && label != args.ignore_index;
}

// Write all that is not const, in the same bits for any number of threads.
// Return null or the launch's error; the Gpu overloads only enqueue.
template <typename T>
Error HingeLoss(const Cpu& cpu, const HingeLossArgs<T>& args);
template <typename T>
Error HingeLossGrad(const Cpu& cpu, const HingeLossGradArgs<T>& args);
template <typename T>
Error HingeLoss(const Gpu& gpu, const HingeLossArgs<T>& args);
template <typename T>
Error HingeLossGrad(const Gpu& gpu, const HingeLossGradArgs<T>& args);

}  // namespace tfo

#endif  // TENSORFLOW_OPS_TUTORIAL_CC_KERNELS_HINGE_LOSS_HINGE_LOSS_H_
