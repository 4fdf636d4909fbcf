// The cross entropy between targets and the softmax of logits, row by row, and
// its gradients. Targets are a label or a distribution t; smoothing by s makes
// (1 - s) t + s / classes of them.
//
// loss = sum_v t_v (lse - x_v), where 0 * inf counts as 0. A row whose logits
// are all -inf has no class: its loss is infinite and its gradients are 0. NaN
// or +inf among a row's logits makes its results NaN.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_CROSS_ENTROPY_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_CROSS_ENTROPY_H_

#include "tensorflow_ops/nn/cc/kernels/softmax.h"

namespace tfo {

// What the loss with labels and its gradient share.
struct LabelLossOptions {
  bool ignores = false;  // rows with the label ignore_index: 0, no gradient
  int64_t ignore_index = 0;
  double label_smoothing = 0;
  double z_loss = 0;  // times lse^2 is added
  // The label's log-probability in place of the loss: minus the loss.
  bool log_prob = false;
};

// A label that is neither a class nor ignored makes its row NaN. On the
// processor the first such row is told, too.
template <typename T, typename Label>
struct LabelLossArgs {
  using Value = Accumulator<T>;
  static constexpr int kOutputs = 0;
  static constexpr double kCyclesPerClass = 1.5;
  int64_t rows, classes;
  LabelLossOptions options;
  const T* logits;
  const Label* labels;
  Value* loss;  // [rows]
  SoftmaxSums<Value> sums;
  int64_t* bad_row;          // starts as `rows`; null on a GPU
  Value* scratch = nullptr;  // on a GPU: RowScratch(rows, classes) values
};

template <typename T, typename Label>
struct LabelLossGradArgs {
  using Value = Accumulator<T>;
  static constexpr int kOutputs = 1;
  static constexpr double kCyclesPerClass = 1.5;
  int64_t rows, classes;
  LabelLossOptions options;
  const Value* d_loss;
  const T* logits;
  const Label* labels;
  SoftmaxSums<const Value> sums;
  T* d_logits;
  int64_t* bad_row;
};

template <typename T>
struct CrossEntropyArgs {
  using Value = Accumulator<T>;
  static constexpr int kOutputs = 0;
  static constexpr double kCyclesPerClass = 2;
  int64_t rows, classes;
  double label_smoothing;
  const T *labels, *logits;
  Value* loss;  // [rows]
  SoftmaxSums<Value> sums;
  Value* label_sum;          // [rows], of the smoothed labels
  Value* scratch = nullptr;  // on a GPU: RowScratch(rows, classes) values
};

template <typename T>
struct CrossEntropyGradArgs {
  using Value = Accumulator<T>;
  static constexpr int kOutputs = 2;
  static constexpr double kCyclesPerClass = 2;
  int64_t rows, classes;
  double label_smoothing;
  const Value* d_loss;
  const T *labels, *logits;
  SoftmaxSums<const Value> sums;
  const Value* label_sum;
  T *d_logits, *d_labels;  // null: not asked for
};

template <typename T, typename Label>
Error LabelLoss(const Cpu& cpu, const LabelLossArgs<T, Label>& args);
template <typename T, typename Label>
Error LabelLoss(const Gpu& gpu, const LabelLossArgs<T, Label>& args);
template <typename T, typename Label>
Error LabelLossGrad(const Cpu& cpu, const LabelLossGradArgs<T, Label>& args);
template <typename T, typename Label>
Error LabelLossGrad(const Gpu& gpu, const LabelLossGradArgs<T, Label>& args);
template <typename T>
Error CrossEntropy(const Cpu& cpu, const CrossEntropyArgs<T>& args);
template <typename T>
Error CrossEntropy(const Gpu& gpu, const CrossEntropyArgs<T>& args);
template <typename T>
Error CrossEntropyGrad(const Cpu& cpu, const CrossEntropyGradArgs<T>& args);
template <typename T>
Error CrossEntropyGrad(const Gpu& gpu, const CrossEntropyGradArgs<T>& args);

}  // namespace tfo

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_CROSS_ENTROPY_H_
