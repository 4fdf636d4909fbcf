// The OpKernels of SparseSoftmaxCrossEntropy, SoftmaxCrossEntropy and their
// gradients.
#include "absl/strings/str_cat.h"
#include "tensorflow_ops/core/cc/glue/op_spec.h"
#include "tensorflow_ops/nn/cc/kernels/rows/cross_entropy.h"
#include "tensorflow_ops/nn/cc/kernels/rows/rows_op.h"

namespace tfo {
namespace {

// On the CPU, reports a bad label: "labels[3] is 7, expected [0, 2)".
template <typename Device, typename Args>
absl::Status RunLabelLoss(::tensorflow::OpKernelContext* ctx, Args* args) {
  int64_t bad_row = args->rows;
  if (std::is_same_v<Device, Cpu>) args->bad_row = &bad_row;
  TF_RETURN_IF_ERROR(RunOnRows<Device>(ctx, *args));
  if (bad_row == args->rows) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "labels[", bad_row, "] is ", args->labels[bad_row], ", expected [0, ",
      args->classes, ")",
      args->options.ignores
          ? absl::StrCat(" or ignore_index ", args->options.ignore_index)
          : "",
      ctx->input(0).dims() == 2 ? "" : " (in flattened labels)"));
}

TFO_OP_KERNELS("SparseSoftmaxCrossEntropy", LabelLossArgs,
               RunLabelLoss<Device>(ctx, &args));
TFO_OP_KERNELS("SparseSoftmaxCrossEntropyGrad", LabelLossGradArgs,
               RunLabelLoss<Device>(ctx, &args));
TFO_OP_KERNELS("SoftmaxCrossEntropy", CrossEntropyArgs,
               RunOnRows<Device>(ctx, args));
TFO_OP_KERNELS("SoftmaxCrossEntropyGrad", CrossEntropyGradArgs,
               RunOnRows<Device>(ctx, args));

}  // namespace
}  // namespace tfo
