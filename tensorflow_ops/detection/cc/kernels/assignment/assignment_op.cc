// The OpKernel of LinearSumAssignment.
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "tensorflow_ops/core/cc/op_util.h"
#include "tensorflow_ops/detection/cc/kernels/assignment/assignment.h"

namespace tfo {
namespace {

using ::tensorflow::Tensor;

// Errors read "counts[0,2] is 9, expected [0, 4]: ...".
absl::Status CheckCounts(const Tensor& counts, int64_t columns) {
  for (int64_t i = 0; i < counts.NumElements(); ++i) {
    const int64_t count = Data<int64_t>(counts)[i];
    if (count >= 0 && count <= columns) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("counts", PlaceText(counts, i), " is ", count,
                     ", expected [0, ", columns, "]: the columns of costs"));
  }
  return absl::OkStatus();
}

template <typename Device, typename T>
class LinearSumAssignmentOp : public OpKernel {
 public:
  explicit LinearSumAssignmentOp(::tensorflow::OpKernelConstruction* ctx)
      : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("maximize", &maximize_));
  }

  void Compute(::tensorflow::OpKernelContext* ctx) override {
    const Tensor& costs = ctx->input(0);
    const Tensor* const counts = OptionalInput(ctx, "counts");
    AssignmentArgs<T> args;
    OP_REQUIRES_OK(ctx, AllocateOutputs(ctx, &args.columns_of_rows,
                                        &args.rows_of_columns));
    args.batch = 1;
    for (int d = 0; d < costs.dims() - 2; ++d) args.batch *= costs.dim_size(d);
    args.rows = costs.dim_size(costs.dims() - 2);
    args.columns = costs.dim_size(costs.dims() - 1);
    args.maximize = maximize_;
    args.costs = Data<T>(costs);
    args.counts = counts == nullptr ? nullptr : Data<int64_t>(*counts);
    if constexpr (std::is_same_v<Device, Cpu>) {
      if (counts != nullptr) {
        OP_REQUIRES_OK(ctx, CheckCounts(*counts, args.columns));
      }
    }
    if (args.batch == 0 || args.rows + args.columns == 0) return;
    OP_REQUIRES_OK(
        ctx,
        RunWithScratch<Device>(
            ctx, [&](const Gpu&) { return AssignmentScratchBytes(args); },
            [&](const Device& d) { return LinearSumAssignment(d, args); }));
  }

 private:
  bool maximize_;
};

TFO_REGISTER_KERNELS("LinearSumAssignment", LinearSumAssignmentOp);

}  // namespace
}  // namespace tfo
