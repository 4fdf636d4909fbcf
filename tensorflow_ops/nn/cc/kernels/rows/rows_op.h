// Shared by the OpKernels of row functions (rows.h): argument checks, and
// running a function on the op's device.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_ROWS_ROWS_OP_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_ROWS_ROWS_OP_H_

#include <utility>

#include "tensorflow_ops/core/cc/op_util.h"
#include "tensorflow_ops/nn/cc/kernels/rows/rows.h"

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

// Errors read "labels must be [2], got [4]".
absl::Status CheckSameShape(const char* name,
                            const ::tensorflow::Tensor& tensor,
                            const ::tensorflow::TensorShape& shape);

// CheckSameShape of inputs [first, ...) by these names.
absl::Status CheckInputShapes(::tensorflow::OpKernelContext* ctx, int first,
                              std::initializer_list<const char*> names,
                              const ::tensorflow::TensorShape& shape);

// The sum of an attr's floats.
absl::Status ReadNumber(::tensorflow::OpKernelConstruction* ctx,
                        const char* name, double* number);

// Data of output `i`, allocated with this shape.
template <typename T>
absl::Status AllocateOutput(::tensorflow::OpKernelContext* ctx, int i,
                            const ::tensorflow::TensorShape& shape, T** data) {
  ::tensorflow::Tensor* output = nullptr;
  TF_RETURN_IF_ERROR(ctx->allocate_output(i, shape, &output));
  *data = Data<T>(output);
  return absl::OkStatus();
}

// RunRowFunction on the op's device.
template <typename Device, typename Args>
absl::Status RunOnRows(::tensorflow::OpKernelContext* ctx, const Args& args) {
  Device device = GetDevice<Device>(ctx);
  ::tensorflow::Tensor scratch;
  if constexpr (std::is_same_v<Device, Gpu>) {
    TF_RETURN_IF_ERROR(
        AllocateScratch(ctx, RowScratchBytes(args), &scratch, &device));
  }
  return ToStatus(RunRowFunction(device, args));
}

}  // namespace tfo

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_ROWS_ROWS_OP_H_
