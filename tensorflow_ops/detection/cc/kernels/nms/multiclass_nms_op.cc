// The OpKernel of MulticlassNms.
#include "tensorflow_ops/core/cc/glue/op_util.h"
#include "tensorflow_ops/detection/cc/kernels/nms/multiclass_nms.h"
#include "tensorflow_ops/detection/cc/kernels/nms/nms_inputs_op.h"

namespace tfo {
namespace {

using ::tensorflow::OpKernelConstruction;
using ::tensorflow::OpKernelContext;
using ::tensorflow::Tensor;

template <typename T>
absl::Status ReadMulticlassArgs(OpKernelContext* ctx, BoxFormat format,
                                MulticlassNmsArgs<T>* args) {
  const Tensor &boxes = ctx->input(0), &scores = ctx->input(1);
  args->images = scores.dim_size(0);
  args->num_boxes = scores.dim_size(1);
  args->classes = scores.dim_size(2);
  args->format = format;
  args->boxes_per_class = boxes.dims() == 4;
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  if (args->num_boxes > kMost ||
      (args->classes > 0 && args->num_boxes > kMost / args->classes)) {
    return absl::InvalidArgumentError(
        absl::StrCat("scores are ", scores.shape().DebugString(),
                     ", expected less than 2^31 for an image"));
  }
  args->boxes = Data<T>(boxes);
  args->scores = Data<T>(scores);
  TF_RETURN_IF_ERROR(ReadThresholds(ctx, args));
  TF_RETURN_IF_ERROR(ReadLimit(ctx, "max_outputs", 0, &args->max_outputs));
  TF_RETURN_IF_ERROR(
      CheckPadding(args->max_outputs, args->num_boxes * args->classes));
  return ReadLimit(ctx, "max_outputs_per_class", -1,
                   &args->max_outputs_per_class);
}

template <typename Device, typename T>
class MulticlassNmsOp : public OpKernel {
 public:
  explicit MulticlassNmsOp(OpKernelConstruction* ctx) : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, ReadBoxFormat(ctx, &format_));
  }

  void Compute(OpKernelContext* ctx) override {
    MulticlassNmsArgs<T> args;
    OP_REQUIRES_OK(ctx, ReadMulticlassArgs(ctx, format_, &args));
    OP_REQUIRES_OK(ctx, AllocateOutputs(ctx, &args.indices, &args.class_ids,
                                        &args.positions, &args.counts));
    OP_REQUIRES_OK(
        ctx,
        RunWithScratch<Device>(
            ctx, [&](const Gpu&) { return MulticlassNmsScratchBytes(args); },
            [&](const Device& d) { return MulticlassNms(d, args); }));
  }

 private:
  BoxFormat format_;
};

// clang-format off
TFO_REGISTER_WIDE_KERNELS("MulticlassNms", MulticlassNmsOp,
                         .HostMemory("iou_threshold")
                         .HostMemory("score_threshold")
                         .HostMemory("max_outputs")
                         .HostMemory("max_outputs_per_class"));
// clang-format on

}  // namespace
}  // namespace tfo
