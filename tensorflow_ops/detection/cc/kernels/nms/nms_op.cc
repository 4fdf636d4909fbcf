// The OpKernels of Nms and BatchedNms.
#include <type_traits>

#include "tensorflow_ops/core/cc/counted_output.h"
#include "tensorflow_ops/core/cc/op_util.h"
#include "tensorflow_ops/detection/cc/kernels/nms/nms.h"
#include "tensorflow_ops/detection/cc/kernels/nms/nms_inputs_op.h"

namespace tfo {
namespace {

using ::tensorflow::OpKernelConstruction;
using ::tensorflow::OpKernelContext;
using ::tensorflow::Tensor;

template <typename T>
absl::Status ReadNmsArgs(OpKernelContext* ctx, BoxFormat format,
                         NmsArgs<T>* args) {
  args->format = format;
  TF_RETURN_IF_ERROR(ReadBoxesAndScores<T>(ctx, args));
  if (ctx->op_kernel().type_string() == "TensorflowOps>BatchedNms") {
    const Tensor& ids = ctx->input(2);
    if (ids.dtype() == ::tensorflow::DT_INT64) {
      args->groups.ids64 = Data<int64_t>(ids);
    } else {
      args->groups.ids32 = Data<int32_t>(ids);
    }
  }
  TF_RETURN_IF_ERROR(ReadIouThreshold(ctx, &args->iou_threshold));
  TF_RETURN_IF_ERROR(
      ReadScalar(ctx, "score_threshold", &args->score_threshold));
  return ReadLimit(ctx, "max_outputs", -1, &args->max_outputs);
}

template <typename Device, typename T>
class NmsOp : public CountedKernel<Device> {
 public:
  explicit NmsOp(OpKernelConstruction* ctx) : CountedKernel<Device>(ctx) {
    OP_REQUIRES_OK(ctx, ReadBoxFormat(ctx, &format_));
  }

 protected:
  absl::Status Run(OpKernelContext* ctx, CountedOutputs* results) override {
    NmsArgs<T> args;
    TF_RETURN_IF_ERROR(ReadNmsArgs(ctx, format_, &args));
    TF_RETURN_IF_ERROR(
        results->Allocate(ctx, args.num_boxes, &args.count, &args.kept));
    Device device = GetDevice<Device>(ctx);
    Tensor scratch;
    if constexpr (std::is_same_v<Device, Gpu>) {
      TF_RETURN_IF_ERROR(
          AllocateScratch(ctx, NmsScratchBytes(args), &scratch, &device));
    }
    return ToStatus(Nms(device, args));
  }

 private:
  BoxFormat format_;
};

// clang-format off
TFO_REGISTER_WIDE_KERNELS("Nms", NmsOp,
                         .HostMemory("iou_threshold")
                         .HostMemory("score_threshold")
                         .HostMemory("max_outputs"));
TFO_REGISTER_WIDE_KERNELS("BatchedNms", NmsOp,
                         .HostMemory("iou_threshold")
                         .HostMemory("score_threshold")
                         .HostMemory("max_outputs"));
// clang-format on

}  // namespace
}  // namespace tfo
