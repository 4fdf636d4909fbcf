#include "tensorflow_ops/nn/cc/kernels/rows/rows_op.h"

#include <vector>

#include "absl/strings/str_cat.h"

namespace tfo {

using ::tensorflow::OpKernelConstruction;
using ::tensorflow::OpKernelContext;
using ::tensorflow::Tensor;
using ::tensorflow::TensorShape;

absl::Status ReadRows(const char* name, const Tensor& tensor, RowsOf* rows) {
  rows->shape = tensor.shape();
  if (rows->shape.dims() == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, " must have at least one dim, got []"));
  }
  const int last = rows->shape.dims() - 1;
  rows->classes = rows->shape.dim_size(last);
  rows->rows_shape = rows->shape;
  rows->rows_shape.RemoveDim(last);
  rows->rows = rows->rows_shape.num_elements();
  return absl::OkStatus();
}

absl::Status ReadLogits(const Tensor& logits, RowsOf* rows) {
  TF_RETURN_IF_ERROR(ReadRows("logits", logits, rows));
  if (rows->classes > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "logits must have at least one class, got ", rows->shape.DebugString()));
}

absl::Status CheckSameShape(const char* name, const Tensor& tensor,
                            const TensorShape& shape) {
  if (tensor.shape() == shape) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(name, " must be ",
                                                 shape.DebugString(), ", got ",
                                                 tensor.shape().DebugString()));
}

absl::Status CheckInputShapes(OpKernelContext* ctx, int first,
                              std::initializer_list<const char*> names,
                              const TensorShape& shape) {
  for (const char* const name : names) {
    TF_RETURN_IF_ERROR(CheckSameShape(name, ctx->input(first++), shape));
  }
  return absl::OkStatus();
}

absl::Status ReadNumber(OpKernelConstruction* ctx, const char* name,
                        double* number) {
  std::vector<float> parts;
  TF_RETURN_IF_ERROR(ctx->GetAttr(name, &parts));
  *number = 0;
  for (const float part : parts) *number += part;
  return absl::OkStatus();
}

}  // namespace tfo
