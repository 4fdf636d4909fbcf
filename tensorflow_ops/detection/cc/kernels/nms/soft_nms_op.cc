// The OpKernel of SoftNms.
#include <type_traits>

#include "tensorflow_ops/core/cc/counted_output.h"
#include "tensorflow_ops/core/cc/op_util.h"
#include "tensorflow_ops/detection/cc/kernels/nms/nms_inputs_op.h"
#include "tensorflow_ops/detection/cc/kernels/nms/soft_nms.h"

namespace tfo {
namespace {

using ::tensorflow::OpKernelConstruction;
using ::tensorflow::OpKernelContext;
using ::tensorflow::Tensor;

template <typename T>
absl::Status ReadSoftNmsArgs(OpKernelContext* ctx, SoftNmsArgs<T>* args) {
  TF_RETURN_IF_ERROR(ReadBoxesAndScores<T>(ctx, args));
  TF_RETURN_IF_ERROR(ReadScalar(ctx, "sigma", &args->sigma));
  if (!(args->sigma > 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("sigma is ", args->sigma, ", expected above 0"));
  }
  TF_RETURN_IF_ERROR(ReadIouThreshold(ctx, &args->iou_threshold));
  TF_RETURN_IF_ERROR(
      ReadScalar(ctx, "score_threshold", &args->score_threshold));
  return ReadLimit(ctx, "max_outputs", -1, &args->max_outputs);
}

template <typename Device, typename T>
class SoftNmsOp : public CountedKernel<Device> {
 public:
  explicit SoftNmsOp(OpKernelConstruction* ctx) : CountedKernel<Device>(ctx) {
    OP_REQUIRES_OK(ctx, ReadEnum(ctx, "method",
                                 {{"linear", SoftNmsMethod::kLinear},
                                  {"gaussian", SoftNmsMethod::kGaussian}},
                                 &method_));
    OP_REQUIRES_OK(ctx, ReadBoxFormat(ctx, &format_));
  }

 protected:
  absl::Status Run(OpKernelContext* ctx, CountedOutputs* results) override {
    SoftNmsArgs<T> args;
    args.format = format_;
    args.method = method_;
    TF_RETURN_IF_ERROR(ReadSoftNmsArgs(ctx, &args));
    TF_RETURN_IF_ERROR(results->Allocate(ctx, args.num_boxes, &args.count,
                                         &args.indices, &args.taken_scores));
    Device device = GetDevice<Device>(ctx);
    Tensor scratch;
    if constexpr (std::is_same_v<Device, Gpu>) {
      TF_RETURN_IF_ERROR(
          AllocateScratch(ctx, SoftNmsScratchBytes(args), &scratch, &device));
    }
    return ToStatus(SoftNms(device, args));
  }

 private:
  BoxFormat format_;
  SoftNmsMethod method_;
};

// clang-format off
TFO_REGISTER_WIDE_KERNELS("SoftNms", SoftNmsOp,
                         .HostMemory("sigma")
                         .HostMemory("iou_threshold")
                         .HostMemory("score_threshold")
                         .HostMemory("max_outputs"));
// clang-format on

}  // namespace
}  // namespace tfo
