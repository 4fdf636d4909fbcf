// The OpKernels of COCO's average precision. They have no CUDA kernels: metrics
// collect their values on the host.
#include "absl/strings/str_cat.h"
#include "tensorflow_ops/core/cc/glue/op_util.h"
#include "tensorflow_ops/metrics/cc/kernels/average_precision/average_precision.h"
#include "tensorflow_ops/metrics/cc/kernels/average_precision/match_detections.h"

namespace tfo {
namespace {

using ::tensorflow::DEVICE_CPU;
using ::tensorflow::OpKernelConstruction;
using ::tensorflow::OpKernelContext;
using ::tensorflow::Tensor;

class MatchDetectionsOp : public OpKernel {
 public:
  explicit MatchDetectionsOp(OpKernelConstruction* ctx) : OpKernel(ctx) {}

  void Compute(OpKernelContext* ctx) override {
    const Tensor &boxes = ctx->input(0), &true_boxes = ctx->input(3);
    MatchDetectionsArgs args;
    args.images = boxes.dim_size(0);
    args.detections = boxes.dim_size(1);
    args.objects = true_boxes.dim_size(1);
    args.thresholds = ctx->input(7).dim_size(0);
    args.areas = ctx->input(8).dim_size(0);
    args.max_detections = ctx->input(9).scalar<int32_t>()();
    OP_REQUIRES(ctx, args.max_detections >= 0,
                absl::InvalidArgumentError(
                    absl::StrCat("max_detections is ", args.max_detections,
                                 ", expected at least 0")));
    args.boxes = Data<double>(boxes);
    args.scores = Data<double>(ctx->input(1));
    args.classes = Data<int64_t>(ctx->input(2));
    args.true_boxes = Data<double>(true_boxes);
    args.true_classes = Data<int64_t>(ctx->input(4));
    args.true_areas = Data<double>(ctx->input(5));
    args.is_crowd = Data<bool>(ctx->input(6));
    args.iou_thresholds = Data<double>(ctx->input(7));
    args.area_ranges = Data<double>(ctx->input(8));
    OP_REQUIRES_OK(
        ctx, AllocateOutputs(ctx, &args.outcomes, &args.ranks, &args.counts));
    OP_REQUIRES_OK(ctx, ToStatus(MatchDetections(GetDevice<Cpu>(ctx), args)));
  }
};

class AveragePrecisionOp : public OpKernel {
 public:
  explicit AveragePrecisionOp(OpKernelConstruction* ctx) : OpKernel(ctx) {}

  void Compute(OpKernelContext* ctx) override {
    const Tensor &outcomes = ctx->input(3), &object_counts = ctx->input(4);
    AveragePrecisionArgs args;
    args.detections = outcomes.dim_size(0);
    args.areas = outcomes.dim_size(1);
    args.thresholds = outcomes.dim_size(2);
    args.classes = object_counts.dim_size(0);
    args.limits = ctx->input(5).dim_size(0);
    args.recalls = ctx->input(6).dim_size(0);
    args.scores = Data<double>(ctx->input(0));
    args.class_indices = Data<int32_t>(ctx->input(1));
    args.ranks = Data<int32_t>(ctx->input(2));
    args.outcomes = Data<uint8_t>(outcomes);
    args.object_counts = Data<int64_t>(object_counts);
    args.max_detections = Data<int32_t>(ctx->input(5));
    args.recall_thresholds = Data<double>(ctx->input(6));
    OP_REQUIRES_OK(ctx, AllocateOutputs(ctx, &args.precision, &args.recall));
    OP_REQUIRES_OK(ctx, ToStatus(AveragePrecision(GetDevice<Cpu>(ctx), args)));
  }
};

REGISTER_KERNEL_BUILDER(
    Name("TensorflowOps>MatchDetections").Device(DEVICE_CPU),
    CheckedKernel<MatchDetectionsOp>);
REGISTER_KERNEL_BUILDER(
    Name("TensorflowOps>AveragePrecision").Device(DEVICE_CPU),
    CheckedKernel<AveragePrecisionOp>);

}  // namespace
}  // namespace tfo
