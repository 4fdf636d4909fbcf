// Overlaps and suppression of boxes.
#include "tensorflow_ops/detection/cc/kernels/boxes/box_iou.h"
#include "tensorflow_ops/detection/cc/kernels/nms/multiclass_nms.h"
#include "tensorflow_ops/detection/cc/kernels/nms/nms.h"
#include "tensorflow_ops/detection/cc/kernels/nms/soft_nms.h"
#include "tools/gpu/kernel_call.h"

namespace tfo::gpu {
namespace {

// Boxes are float32 or float64.
template <typename Run>
Error WithBoxType(const KernelCall& call, const Run& run) {
  const std::string dtype = call.Text("dtype");
  if (dtype == "float64") return run(double());
  if (dtype == "float32") return run(float());
  throw std::invalid_argument("unknown dtype: " + dtype);
}

BoxFormat Format(const KernelCall& call) {
  const std::string format = call.Text("box_format");
  return format == "cxcywhr" ? BoxFormat::kRotated
         : format == "yxyx"  ? BoxFormat::kYxyx
                             : BoxFormat::kXyxy;
}

BoxMetric Metric(const KernelCall& call) {
  const std::string mode = call.Text("mode");
  return mode == "giou"   ? BoxMetric::kGiou
         : mode == "diou" ? BoxMetric::kDiou
         : mode == "ciou" ? BoxMetric::kCiou
                          : BoxMetric::kIou;
}

BoxIouArgs PairArgs(const KernelCall& call) {
  return {Metric(call), Format(call), call.Int("batch"), call.Int("rows"),
          call.Int("columns")};
}

BoxIouLossArgs LossArgs(const KernelCall& call) {
  return {Metric(call), Format(call), call.Int("boxes")};
}

// Reads the arguments that nms and soft_nms have in common.
template <typename Args>
void ReadSuppression(const KernelCall& call, Args* args) {
  args->num_boxes = call.Int("boxes");
  args->format = Format(call);
  args->boxes = call[0];
  args->scores = call[1];
  args->iou_threshold = call.Number("iou_threshold");
  args->score_threshold = call.Number("score_threshold");
  args->max_outputs = call.Int("max_outputs");
}

}  // namespace

// boxes1, boxes2, overlaps
TFO_GPU_KERNEL(box_iou, call) {
  return WithBoxType(call, [&](auto t) {
    using T = decltype(t);
    return BoxIou<T>(call.Gpu(), PairArgs(call), call[0], call[1], call[2]);
  });
}

// d_overlaps, boxes1, boxes2, d_boxes1, d_boxes2
TFO_GPU_KERNEL(box_iou_grad, call) {
  return WithBoxType(call, [&](auto t) {
    using T = decltype(t);
    return BoxIouGrad<T>(call.Gpu(), PairArgs(call), call[0], call[1], call[2],
                         call[3], call[4]);
  });
}

// boxes1, boxes2, losses
TFO_GPU_KERNEL(box_iou_loss, call) {
  return WithBoxType(call, [&](auto t) {
    using T = decltype(t);
    return BoxIouLoss<T>(call.Gpu(), LossArgs(call), call[0], call[1], call[2]);
  });
}

// d_losses, boxes1, boxes2, d_boxes1, d_boxes2
TFO_GPU_KERNEL(box_iou_loss_grad, call) {
  return WithBoxType(call, [&](auto t) {
    using T = decltype(t);
    return BoxIouLossGrad<T>(call.Gpu(), LossArgs(call), call[0], call[1],
                             call[2], call[3], call[4]);
  });
}

// boxes, scores, int64 group ids or null, indices, count
TFO_GPU_KERNEL(nms, call) {
  return WithBoxType(call, [&](auto t) {
    using T = decltype(t);
    NmsArgs<T> args = {};
    ReadSuppression(call, &args);
    args.groups.ids64 = call[2];
    return Nms<T>(call.Gpu(NmsScratchBytes(args)), args, call[3], call[4]);
  });
}

// boxes, scores, indices, decayed scores, count
TFO_GPU_KERNEL(soft_nms, call) {
  return WithBoxType(call, [&](auto t) {
    using T = decltype(t);
    SoftNmsArgs<T> args = {};
    ReadSuppression(call, &args);
    args.method = call.Text("method") == "linear" ? SoftNmsMethod::kLinear
                                                  : SoftNmsMethod::kGaussian;
    args.sigma = call.Number("sigma");
    const SoftNmsResult<T> result = {call[2], call[3]};
    return SoftNms<T>(call.Gpu(SoftNmsScratchBytes(args)), args, result,
                      call[4]);
  });
}

// boxes, scores, indices, class ids, positions, counts
TFO_GPU_KERNEL(multiclass_nms, call) {
  return WithBoxType(call, [&](auto t) {
    using T = decltype(t);
    const MulticlassNmsArgs<T> args = {
        call.Int("batch"),
        call.Int("boxes"),
        call.Int("classes"),
        Format(call),
        call.Int("boxes_per_class") != 0,
        call[0],
        call[1],
        static_cast<T>(call.Number("iou_threshold")),
        static_cast<T>(call.Number("score_threshold")),
        call.Int("max_outputs"),
        call.Int("max_outputs_per_class")};
    return MulticlassNms<T>(call.Gpu(MulticlassNmsScratchBytes(args)), args,
                            {call[2], call[3], call[4], call[5]});
  });
}

}  // namespace tfo::gpu
