// The ops of non-maximum suppression: names, inputs, attrs, outputs, shapes.
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow_ops/core/cc/glue/named_dims.h"
#include "tensorflow_ops/detection/cc/kernels/nms/nms_inputs_op.h"

namespace tfo {
namespace {

using ::tensorflow::shape_inference::DimensionHandle;
using ::tensorflow::shape_inference::InferenceContext;
using ::tensorflow::shape_inference::ShapeHandle;

// "4", or "5" for rotated boxes.
absl::Status ReadBoxSize(InferenceContext* c, std::string* size) {
  std::string format;
  TF_RETURN_IF_ERROR(c->GetAttr("box_format", &format));
  *size = format == "cxcywhr" ? "5" : "4";
  return absl::OkStatus();
}

// Inputs from `first` on are scalars.
absl::Status CheckScalars(InferenceContext* c, int first) {
  for (int i = first; i < c->num_inputs(); ++i) {
    TF_RETURN_IF_ERROR(NamedDims(c).Read(
        i, {"thresholds, sigma and max_outputs must be scalars"}));
  }
  return absl::OkStatus();
}

// Reads boxes, scores and, if there are any, group_ids. The values decide the
// size of the results, which is one.
template <bool has_groups>
absl::Status SuppressionShape(InferenceContext* c) {
  std::string size;
  TF_RETURN_IF_ERROR(ReadBoxSize(c, &size));
  NamedDims dims(c);
  TF_RETURN_IF_ERROR(dims.Read(0, {"boxes must be [K, " + size + "]",
                                   "scores must be [K] with boxes' K"}));
  if (has_groups) {
    TF_RETURN_IF_ERROR(dims.Read(2, {"group_ids must be [K] with boxes' K"}));
  }
  TF_RETURN_IF_ERROR(CheckScalars(c, has_groups ? 3 : 2));
  const ShapeHandle kept = c->Vector(c->UnknownDim());
  for (int i = 0; i < c->num_outputs(); ++i) c->set_output(i, kept);
  return absl::OkStatus();
}

absl::Status MulticlassNmsShape(InferenceContext* c) {
  std::string size;
  TF_RETURN_IF_ERROR(ReadBoxSize(c, &size));
  NamedDims dims(c);
  TF_RETURN_IF_ERROR(dims.Read(1, {"scores must be [N, K, C]"}));
  const ShapeHandle boxes = c->input(0);
  if (c->RankKnown(boxes)) {
    const std::string of_all = "[N, K, " + size + "]";
    const std::string of_each = "[N, K, C, " + size + "]";
    const bool per_class = c->Rank(boxes) == 4;
    TF_RETURN_IF_ERROR(dims.Read(
        0, {"boxes must be " + (per_class ? of_each : of_all) +
            " with scores' dims, or " + (per_class ? of_all : of_each)}));
  }
  TF_RETURN_IF_ERROR(CheckScalars(c, 2));
  TF_RETURN_IF_ERROR(Expect("max_outputs must be at least 0",
                            c->MakeDimForScalarInput(4, &dims["M"])));
  DimensionHandle of_image;
  TF_RETURN_IF_ERROR(Expect("scores must be less than 2^31 for an image",
                            c->Multiply(dims["K"], dims["C"], &of_image)));
  if (c->ValueKnown(dims["M"]) && c->ValueKnown(of_image)) {
    TF_RETURN_IF_ERROR(CheckPadding(c->Value(dims["M"]), c->Value(of_image)));
  }
  return dims.Write({"[N, M]", "[N, M]", "[N, M]", "[N]"});
}

}  // namespace
}  // namespace tfo

// clang-format off
#define TFO_NMS_ATTRS                                          \
  .Attr("T: {float, double}")                                  \
  .Attr("box_format: {'xyxy', 'yxyx', 'cxcywhr'} = 'xyxy'")
// clang-format on

REGISTER_OP("TensorflowOps>Nms")
    .Input("boxes: T")
    .Input("scores: T")
    .Input("iou_threshold: T")
    .Input("score_threshold: T")
    .Input("max_outputs: int32")
    .Output("indices: int32") TFO_NMS_ATTRS
    .SetShapeFn(tfo::SuppressionShape<false>)
    .Doc(R"doc(
Non-maximum suppression of boxes.

boxes: [K, 4]; [K, 5] with box_format cxcywhr.
scores: [K]. NaN takes no part.
iou_threshold: in [0, 1].
score_threshold: only scores above it take part; NaN: all do.
max_outputs: at most so many boxes are kept; -1: all.
indices: [M], the kept boxes by falling score.
)doc");

REGISTER_OP("TensorflowOps>BatchedNms")
    .Input("boxes: T")
    .Input("scores: T")
    .Input("group_ids: Tgroups")
    .Input("iou_threshold: T")
    .Input("score_threshold: T")
    .Input("max_outputs: int32")
    .Output("indices: int32")
    .Attr("Tgroups: {int32, int64}") TFO_NMS_ATTRS
    .SetShapeFn(tfo::SuppressionShape<true>)
    .Doc(R"doc(
Non-maximum suppression of boxes within groups. Inputs as those of Nms.

group_ids: [K], any numbers.
)doc");

REGISTER_OP("TensorflowOps>MulticlassNms")
    .Input("boxes: T")
    .Input("scores: T")
    .Input("iou_threshold: T")
    .Input("score_threshold: T")
    .Input("max_outputs: int32")
    .Input("max_outputs_per_class: int32")
    .Output("indices: int32")
    .Output("class_ids: int32")
    .Output("positions: int32")
    .Output("counts: int32") TFO_NMS_ATTRS.SetShapeFn(tfo::MulticlassNmsShape)
    .Doc(R"doc(
Non-maximum suppression in each class, and the best boxes of each image.

boxes: [N, K, 4], or [N, K, C, 4] for boxes of each class.
scores: [N, K, C].
score_threshold: only scores above it take part; NaN: all do.
max_outputs: M, of an image; at most 2^20 or K * C, whichever is more.
max_outputs_per_class: -1: no limit.
indices: [N, M], -1 behind an image's count.
class_ids: [N, M], 0 behind an image's count.
positions: [N, M], index * C + class id, 0 behind an image's count.
counts: [N].
)doc");

REGISTER_OP("TensorflowOps>SoftNms")
    .Input("boxes: T")
    .Input("scores: T")
    .Input("sigma: T")
    .Input("iou_threshold: T")
    .Input("score_threshold: T")
    .Input("max_outputs: int32")
    .Output("indices: int32")
    .Output("decayed_scores: T")
    .Attr("method: {'gaussian', 'linear'} = 'gaussian'") TFO_NMS_ATTRS
    .SetShapeFn(tfo::SuppressionShape<false>)
    .Doc(R"doc(
Soft non-maximum suppression: scores decay by the overlap with better boxes.

decayed_scores: [M], the scores when their boxes were taken.
)doc");
