// The cross entropy between targets and the softmax of logits, row by row, and
// its gradients. Targets are a label or a distribution t; smoothing by s
// replaces t by (1 - s) t + s / classes.
//
// loss = sum_v t_v (lse - x_v), where 0 * inf is 0. Where all logits of a row
// are -inf, its loss is infinite and its gradients are 0. A NaN or +inf logit
// makes all results of its row NaN.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_ROWS_CROSS_ENTROPY_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_ROWS_CROSS_ENTROPY_H_

#include "tensorflow_ops/nn/cc/kernels/rows/index_array.h"
#include "tensorflow_ops/nn/cc/kernels/rows/softmax.h"

namespace tfo {

// Options of the loss with labels and its gradient.
struct LabelLossOptions {
  bool ignores = false;  // zeros loss and gradient where label == ignore_index
  int64_t ignore_index = 0;
  double label_smoothing = 0;
  double z_loss = 0;  // adds z_loss * lse^2
  // Computes the label's log probability, which is minus the loss.
  bool log_prob = false;
};

// A label that is neither a class nor ignored makes its row NaN. The CPU also
// reports the first such row.
template <typename T>
struct LabelLossArgs {
  using Value = Accumulator<T>;
  static constexpr int kOutputs = 0;
  static constexpr bool kReduces = true;
  static constexpr double kCyclesPerClass = 1.5;
  int64_t rows, classes;
  LabelLossOptions options;
  const T* logits;
  IndexArray labels;
  Value* loss;  // [rows]
  SoftmaxSums<Value> sums;
  int64_t* bad_row;  // in: rows; out: the first bad row. Null on a GPU.
};

template <typename T>
struct LabelLossGradArgs {
  using Value = Accumulator<T>;
  static constexpr int kOutputs = 1;
  static constexpr bool kReduces = false;
  static constexpr double kCyclesPerClass = 1.5;
  int64_t rows, classes;
  LabelLossOptions options;
  const Value* d_loss;
  const T* logits;
  IndexArray labels;
  SoftmaxSums<const Value> sums;
  T* d_logits;
  int64_t* bad_row;
};

template <typename T>
struct CrossEntropyArgs {
  using Value = Accumulator<T>;
  static constexpr int kOutputs = 0;
  static constexpr bool kReduces = true;
  static constexpr double kCyclesPerClass = 2;
  int64_t rows, classes;
  double label_smoothing;
  const T *labels, *logits;
  Value* loss;  // [rows]
  SoftmaxSums<Value> sums;
  Value* label_sum;  // [rows], of the smoothed labels
};

template <typename T>
struct CrossEntropyGradArgs {
  using Value = Accumulator<T>;
  static constexpr int kOutputs = 2;
  static constexpr bool kReduces = false;
  static constexpr double kCyclesPerClass = 2;
  int64_t rows, classes;
  double label_smoothing;
  const Value* d_loss;
  const T *labels, *logits;
  SoftmaxSums<const Value> sums;
  const Value* label_sum;
  T *d_logits, *d_labels;  // null if not requested
};

}  // namespace tfo

#define TFO_FOR_CROSS_ENTROPY_FUNCTIONS(DEFINE) \
  TFO_FOR_ROW_DTYPES(DEFINE, CrossEntropyArgs); \
  TFO_FOR_ROW_DTYPES(DEFINE, CrossEntropyGradArgs)

#define TFO_FOR_LABEL_LOSS_FUNCTIONS(DEFINE) \
  TFO_FOR_ROW_DTYPES(DEFINE, LabelLossArgs); \
  TFO_FOR_ROW_DTYPES(DEFINE, LabelLossGradArgs)

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_ROWS_CROSS_ENTROPY_H_
