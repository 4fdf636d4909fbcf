// The OpKernel of LinearSumAssignment.
#include "absl/strings/str_cat.h"
#include "tensorflow_ops/core/cc/glue/op_spec.h"
#include "tensorflow_ops/detection/cc/kernels/assignment/assignment.h"

namespace tfo {
namespace {

// Errors read "counts[0,2] is 9, expected [0, 4]: ...".
template <typename T>
absl::Status CheckCounts(::tensorflow::OpKernelContext* ctx,
                         const AssignmentArgs<T>& args) {
  for (int64_t i = 0; args.counts != nullptr && i < args.batch; ++i) {
    const int64_t count = args.counts[i];
    if (count >= 0 && count <= args.columns) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "counts", PlaceText(*OptionalInput(ctx, "counts"), i), " is ", count,
        ", expected [0, ", args.columns, "]: the columns of costs"));
  }
  return absl::OkStatus();
}

template <typename Device, typename T>
absl::Status Assign(::tensorflow::OpKernelContext* ctx,
                    const AssignmentArgs<T>& args) {
  if (std::is_same_v<Device, Cpu>) {
    TF_RETURN_IF_ERROR(CheckCounts(ctx, args));
  }
  if (args.batch == 0 || args.rows + args.columns == 0) return absl::OkStatus();
  return RunWithScratch<Device>(
      ctx, [&](const Gpu&) { return AssignmentScratchBytes(args); },
      [&](const Device& device) { return LinearSumAssignment(device, args); });
}

TFO_OP_KERNELS("LinearSumAssignment", AssignmentArgs,
               Assign<Device>(ctx, args));

}  // namespace
}  // namespace tfo
