// The OpKernels of Nms, BatchedNms and SoftNms.
#include "tensorflow_ops/core/cc/glue/counted_output.h"
#include "tensorflow_ops/core/cc/glue/op_util.h"
#include "tensorflow_ops/detection/cc/kernels/nms/nms.h"
#include "tensorflow_ops/detection/cc/kernels/nms/nms_inputs_op.h"
#include "tensorflow_ops/detection/cc/kernels/nms/soft_nms.h"

namespace tfo {
namespace {

using ::tensorflow::OpKernelConstruction;
using ::tensorflow::OpKernelContext;
using ::tensorflow::Tensor;

// The attributes, inputs and outputs that only one of the two has.

template <typename T>
absl::Status ReadMethod(OpKernelConstruction*, NmsArgs<T>*) {
  return absl::OkStatus();
}
template <typename T>
absl::Status ReadMethod(OpKernelConstruction* ctx, SoftNmsArgs<T>* args) {
  return ReadEnum(ctx, "method",
                  {{"linear", SoftNmsMethod::kLinear},
                   {"gaussian", SoftNmsMethod::kGaussian}},
                  &args->method);
}

template <typename T>
absl::Status ReadOwnInputs(OpKernelContext* ctx, NmsArgs<T>* args) {
  if (ctx->op_kernel().type_string() != "TensorflowOps>BatchedNms") {
    return absl::OkStatus();
  }
  const Tensor& ids = ctx->input(2);
  if (ids.dtype() == ::tensorflow::DT_INT64) {
    args->groups.ids64 = Data<int64_t>(ids);
  } else {
    args->groups.ids32 = Data<int32_t>(ids);
  }
  return absl::OkStatus();
}
template <typename T>
absl::Status ReadOwnInputs(OpKernelContext* ctx, SoftNmsArgs<T>* args) {
  TF_RETURN_IF_ERROR(ReadScalar(ctx, "sigma", &args->sigma));
  if (args->sigma > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("sigma is ", args->sigma, ", expected above 0"));
}

template <typename T>
absl::Status AllocateResults(OpKernelContext* ctx, CountedOutputs* results,
                             NmsArgs<T>* args) {
  return results->Allocate(ctx, args->num_boxes, &args->count, &args->kept);
}
template <typename T>
absl::Status AllocateResults(OpKernelContext* ctx, CountedOutputs* results,
                             SoftNmsArgs<T>* args) {
  return results->Allocate(ctx, args->num_boxes, &args->count, &args->indices,
                           &args->taken_scores);
}

template <typename Device, typename Args,
          Error (*kRun)(const Device&, const Args&),
          int64_t (*kScratchBytes)(const Args&)>
class CountedNmsOp : public CountedKernel<Device> {
 public:
  explicit CountedNmsOp(OpKernelConstruction* ctx)
      : CountedKernel<Device>(ctx) {
    OP_REQUIRES_OK(ctx, ReadMethod(ctx, &attrs_));
    OP_REQUIRES_OK(ctx, ReadBoxFormat(ctx, &attrs_.format));
  }

 protected:
  absl::Status Run(OpKernelContext* ctx, CountedOutputs* results) override {
    Args args = attrs_;
    TF_RETURN_IF_ERROR(ReadBoxesAndScores(ctx, &args));
    TF_RETURN_IF_ERROR(ReadOwnInputs(ctx, &args));
    TF_RETURN_IF_ERROR(ReadThresholds(ctx, &args));
    TF_RETURN_IF_ERROR(ReadLimit(ctx, "max_outputs", -1, &args.max_outputs));
    TF_RETURN_IF_ERROR(AllocateResults(ctx, results, &args));
    return RunWithScratch<Device>(
        ctx, [&](const Gpu&) { return kScratchBytes(args); },
        [&](const Device& device) { return kRun(device, args); });
  }

 private:
  Args attrs_ = {};  // without inputs
};

template <typename Device, typename T>
using NmsOp = CountedNmsOp<Device, NmsArgs<T>, Nms, NmsScratchBytes>;
template <typename Device, typename T>
using SoftNmsOp =
    CountedNmsOp<Device, SoftNmsArgs<T>, SoftNms, SoftNmsScratchBytes>;

// clang-format off
TFO_REGISTER_WIDE_KERNELS("Nms", NmsOp,
                         .HostMemory("iou_threshold")
                         .HostMemory("score_threshold")
                         .HostMemory("max_outputs"));
TFO_REGISTER_WIDE_KERNELS("BatchedNms", NmsOp,
                         .HostMemory("iou_threshold")
                         .HostMemory("score_threshold")
                         .HostMemory("max_outputs"));
TFO_REGISTER_WIDE_KERNELS("SoftNms", SoftNmsOp,
                         .HostMemory("sigma")
                         .HostMemory("iou_threshold")
                         .HostMemory("score_threshold")
                         .HostMemory("max_outputs"));
// clang-format on

}  // namespace
}  // namespace tfo
