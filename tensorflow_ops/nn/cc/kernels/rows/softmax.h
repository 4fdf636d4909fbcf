// Softmax, log-softmax and the entropy of a softmax along rows, with their
// gradients.
//
// Where all logits of a row are -inf, its softmax is 0, its log-softmax -inf,
// its entropy 0, and its gradients are 0. A NaN or +inf logit makes all results
// of its row NaN.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_ROWS_SOFTMAX_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_ROWS_SOFTMAX_H_

#include "tensorflow_ops/nn/cc/kernels/rows/rows.h"

namespace tfo {

// T is float, double, Half or BFloat16; matrices are [rows, classes].
// RunRowFunction (rows.h) computes what an Args describes.

template <typename T>
struct SoftmaxArgs {
  using Value = Accumulator<T>;
  static constexpr int kOutputs = 1;
  static constexpr bool kReduces = true;
  static constexpr double kCyclesPerClass = 2;
  int64_t rows, classes;
  bool log;  // computes the logarithm of the softmax
  const T* logits;
  T* output;
};

template <typename T, typename V>
void Describe(SoftmaxArgs<T>& a, V& v) {
  v.Option("log", false, &a.log);
  v.In("logits", "[..., classes]", &a.logits);
  v.Types("T");
  v.Out("output", "[..., classes]", &a.output);
  DescribeLogitRows(a, v);
}

template <typename T>
struct SoftmaxGradArgs {
  using Value = Accumulator<T>;
  static constexpr int kOutputs = 1;
  static constexpr bool kReduces = true;
  static constexpr double kCyclesPerClass = 1.5;
  int64_t rows, classes;
  bool log;
  const T *d_output, *output;
  T* d_logits;
};

template <typename T, typename V>
void Describe(SoftmaxGradArgs<T>& a, V& v) {
  v.Option("log", false, &a.log);
  v.In("d_output", "[..., classes]", &a.d_output);
  v.In("output", "[..., classes], the shape of d_output", &a.output);
  v.Types("T");
  v.Out("d_logits", "[..., classes]", &a.d_logits);
  v.Size("...", &a.rows);
  v.Size("classes", &a.classes);
}

// Per row: the largest logit and sum e^(logit - largest) - 1.
template <typename Value>
struct SoftmaxSums {
  Value *largest, *rest;
};

template <typename T>
struct EntropyArgs {
  using Value = Accumulator<T>;
  static constexpr int kOutputs = 0;
  static constexpr bool kReduces = true;
  static constexpr double kCyclesPerClass = 1.5;
  int64_t rows, classes;
  const T* logits;
  Value* entropy;  // in nats
  SoftmaxSums<Value> sums;
};

template <typename T, typename V>
void Describe(EntropyArgs<T>& a, V& v) {
  v.In("logits", "[..., classes]", &a.logits);
  v.Types("T", "Tvalue");
  v.Out("entropy", kPerRow, &a.entropy);
  v.Out("largest", kPerRow, &a.sums.largest);
  v.Out("rest", kPerRow, &a.sums.rest);
  DescribeLogitRows(a, v);
}

template <typename T>
struct EntropyGradArgs {
  using Value = Accumulator<T>;
  static constexpr int kOutputs = 1;
  static constexpr bool kReduces = false;
  static constexpr double kCyclesPerClass = 1.5;
  int64_t rows, classes;
  const Value* d_entropy;
  const T* logits;
  const Value* entropy;
  SoftmaxSums<const Value> sums;
  T* d_logits;
};

template <typename T, typename V>
void Describe(EntropyGradArgs<T>& a, V& v) {
  v.In("logits", "[..., classes]", &a.logits);
  v.In("d_entropy", kPerRow, &a.d_entropy);
  v.In("entropy", kPerRow, &a.entropy);
  v.In("largest", kPerRow, &a.sums.largest);
  v.In("rest", kPerRow, &a.sums.rest);
  v.Types("T", "Tvalue");
  v.Out("d_logits", "[..., classes]", &a.d_logits);
  DescribeLogitRows(a, v);
}

}  // namespace tfo

#define TFO_FOR_SOFTMAX_FUNCTIONS(DEFINE)      \
  TFO_FOR_ROW_DTYPES(DEFINE, SoftmaxArgs);     \
  TFO_FOR_ROW_DTYPES(DEFINE, SoftmaxGradArgs); \
  TFO_FOR_ROW_DTYPES(DEFINE, EntropyArgs);     \
  TFO_FOR_ROW_DTYPES(DEFINE, EntropyGradArgs)

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_ROWS_SOFTMAX_H_
