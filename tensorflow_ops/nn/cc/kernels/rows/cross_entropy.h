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

template <typename V>
void DescribeOptions(LabelLossOptions& o, V& v) {
  v.Types("T", "Tvalue", "Tlabels");
  v.Option("ignores", false, &o.ignores);
  v.Option("ignore_index", 0, &o.ignore_index);
  v.Option("label_smoothing", &o.label_smoothing);
  v.Option("z_loss", &o.z_loss);
  v.Option("log_prob", false, &o.log_prob);
}

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
  Value* loss;
  SoftmaxSums<Value> sums;
  int64_t* bad_row;  // in: rows; out: the first bad row. Null on a GPU.
};

template <typename T, typename V>
void Describe(LabelLossArgs<T>& a, V& v) {
  v.In("logits", "[..., classes]", &a.logits);
  v.In("labels", kPerRow, &a.labels, "Tlabels");
  DescribeOptions(a.options, v);
  v.Out("loss", kPerRow, &a.loss);
  v.Out("largest", kPerRow, &a.sums.largest);
  v.Out("rest", kPerRow, &a.sums.rest);
  DescribeLogitRows(a, v);
}

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

template <typename T, typename V>
void Describe(LabelLossGradArgs<T>& a, V& v) {
  v.In("logits", "[..., classes]", &a.logits);
  v.In("labels", kPerRow, &a.labels, "Tlabels");
  v.In("d_loss", kPerRow, &a.d_loss);
  v.In("largest", kPerRow, &a.sums.largest);
  v.In("rest", kPerRow, &a.sums.rest);
  DescribeOptions(a.options, v);
  v.Out("d_logits", "[..., classes]", &a.d_logits);
  DescribeLogitRows(a, v);
}

template <typename T>
struct CrossEntropyArgs {
  using Value = Accumulator<T>;
  static constexpr int kOutputs = 0;
  static constexpr bool kReduces = true;
  static constexpr double kCyclesPerClass = 2;
  int64_t rows, classes;
  double label_smoothing;
  const T *labels, *logits;
  Value* loss;
  SoftmaxSums<Value> sums;
  Value* label_sum;  // of the smoothed labels
};

template <typename T, typename V>
void Describe(CrossEntropyArgs<T>& a, V& v) {
  v.In("labels", "[..., classes]", &a.labels);
  v.In("logits", "[..., classes], labels' shape", &a.logits);
  v.Types("T", "Tvalue");
  v.Option("label_smoothing", &a.label_smoothing);
  v.Out("loss", kPerRow, &a.loss);
  v.Out("largest", kPerRow, &a.sums.largest);
  v.Out("rest", kPerRow, &a.sums.rest);
  v.Out("label_sum", kPerRow, &a.label_sum);
  DescribeLogitRows(a, v);
}

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
  bool to_labels = true;   // without it, d_labels is empty
};

template <typename T, typename V>
void Describe(CrossEntropyGradArgs<T>& a, V& v) {
  v.In("labels", "[..., classes]", &a.labels);
  v.In("logits", "[..., classes], labels' shape", &a.logits);
  v.In("d_loss", kPerRow, &a.d_loss);
  v.In("largest", kPerRow, &a.sums.largest);
  v.In("rest", kPerRow, &a.sums.rest);
  v.In("label_sum", kPerRow, &a.label_sum);
  v.Types("T", "Tvalue");
  v.Option("label_smoothing", &a.label_smoothing);
  v.Option("to_labels", true, &a.to_labels);
  v.Out("d_logits", "[..., classes]", &a.d_logits);
  v.Out("d_labels", a.to_labels ? "[..., classes]" : "[0]", &a.d_labels);
  if (!a.to_labels) a.d_labels = nullptr;
  DescribeLogitRows(a, v);
}

}  // namespace tfo

#define TFO_FOR_CROSS_ENTROPY_FUNCTIONS(DEFINE) \
  TFO_FOR_ROW_DTYPES(DEFINE, CrossEntropyArgs); \
  TFO_FOR_ROW_DTYPES(DEFINE, CrossEntropyGradArgs)

#define TFO_FOR_LABEL_LOSS_FUNCTIONS(DEFINE) \
  TFO_FOR_ROW_DTYPES(DEFINE, LabelLossArgs); \
  TFO_FOR_ROW_DTYPES(DEFINE, LabelLossGradArgs)

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_ROWS_CROSS_ENTROPY_H_
