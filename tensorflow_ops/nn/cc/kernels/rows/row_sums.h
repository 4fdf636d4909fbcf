// The passes over logits of the sequence losses, row by row: log-sum-exps, and
// the softmax in gradients.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_ROWS_ROW_SUMS_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_ROWS_ROW_SUMS_H_

#include "tensorflow_ops/nn/cc/kernels/rows/rows.h"

namespace tfo {

// Per row: the largest logit and sum e^(logit - largest) - 1 (state.h).
template <typename T>
struct RowSumsArgs {
  using Value = Accumulator<T>;
  static constexpr int kOutputs = 0;
  static constexpr bool kReduces = true;
  static constexpr double kCyclesPerClass = 1.5;
  int64_t rows, classes;
  const T* logits;
  Value *largest, *rest;  // [rows]
};

// d_logits = scale * softmax(logits). Where scale is 0, logits are not used.
template <typename T>
struct ScaledSoftmaxArgs {
  using Value = Accumulator<T>;
  static constexpr int kOutputs = 1;
  static constexpr bool kReduces = false;
  static constexpr double kCyclesPerClass = 1.5;
  int64_t rows, classes;
  const T* logits;
  const Value *scale, *largest, *rest;  // [rows]
  T* d_logits;
};

}  // namespace tfo

#define TFO_FOR_ROW_SUMS_FUNCTIONS(DEFINE) \
  TFO_FOR_ROW_DTYPES(DEFINE, RowSumsArgs); \
  TFO_FOR_ROW_DTYPES(DEFINE, ScaledSoftmaxArgs)

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_ROWS_ROW_SUMS_H_
