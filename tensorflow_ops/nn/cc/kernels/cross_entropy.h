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

// int32 or int64 labels, told apart when they are read: a label a row is
// little, and kernels for each would be twice as many.
class Labels {
 public:
  Labels(const int32_t* labels) : narrow_(labels) {}  // NOLINT: is one
  Labels(const int64_t* labels) : wide_(labels) {}    // NOLINT
  TFO_HOST_DEVICE int64_t operator[](int64_t row) const {
    return wide_ != nullptr ? wide_[row] : narrow_[row];
  }

 private:
  const int32_t* narrow_ = nullptr;
  const int64_t* wide_ = nullptr;
};

// A label that is neither a class nor ignored makes its row NaN. On the
// processor the first such row is told, too.
template <typename T>
struct LabelLossArgs {
  using Value = Accumulator<T>;
  static constexpr int kOutputs = 0;
  static constexpr double kCyclesPerClass = 1.5;
  int64_t rows, classes;
  LabelLossOptions options;
  const T* logits;
  Labels labels;
  Value* loss;  // [rows]
  SoftmaxSums<Value> sums;
  int64_t* bad_row;          // starts as `rows`; null on a GPU
  Value* scratch = nullptr;  // on a GPU: RowScratch(rows, classes) values
};

template <typename T>
struct LabelLossGradArgs {
  using Value = Accumulator<T>;
  static constexpr int kOutputs = 1;
  static constexpr double kCyclesPerClass = 1.5;
  int64_t rows, classes;
  LabelLossOptions options;
  const Value* d_loss;
  const T* logits;
  Labels labels;
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

template <typename T>
Error LabelLoss(const Cpu& cpu, const LabelLossArgs<T>& args);
template <typename T>
Error LabelLoss(const Gpu& gpu, const LabelLossArgs<T>& args);
template <typename T>
Error LabelLossGrad(const Cpu& cpu, const LabelLossGradArgs<T>& args);
template <typename T>
Error LabelLossGrad(const Gpu& gpu, const LabelLossGradArgs<T>& args);
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
