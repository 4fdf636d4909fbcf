// Argument checks that the nn OpKernels share.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_ROW_CHECK_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_ROW_CHECK_H_

#include "tensorflow_ops/core/cc/op_util.h"

namespace tfo {

// A tensor [..., classes].
struct RowsOf {
  int64_t rows = 0, classes = 0;
  ::tensorflow::TensorShape shape, rows_shape;
};
// Refuses a scalar, and logits without a class.
absl::Status ReadRows(const char* name, const ::tensorflow::Tensor& tensor,
                      RowsOf* rows);
absl::Status ReadLogits(const ::tensorflow::Tensor& logits, RowsOf* rows);

// Ok, or "labels must be [2], got [4]".
absl::Status CheckSameShape(const char* name,
                            const ::tensorflow::Tensor& tensor,
                            const ::tensorflow::TensorShape& shape);

// The sum of an attr's floats.
absl::Status ReadNumber(::tensorflow::OpKernelConstruction* ctx,
                        const char* name, double* number);

}  // namespace tfo

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_ROW_CHECK_H_
