// The ops of COCO's average precision: names, inputs, outputs, shapes.
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow_ops/core/cc/glue/named_dims.h"

namespace tfo {
namespace {

using ::tensorflow::shape_inference::InferenceContext;

absl::Status MatchDetectionsShape(InferenceContext* c) {
  NamedDims dims(c);
  TF_RETURN_IF_ERROR(dims.Read(
      0,
      {"boxes must be [N, D, 4]", "scores must be [N, D] with boxes' N and D",
       "classes must be [N, D] with boxes' N and D",
       "true_boxes must be [N, G, 4] with boxes' N",
       "true_classes must be [N, G] with true_boxes' N and G",
       "true_areas must be [N, G] with true_boxes' N and G",
       "is_crowd must be [N, G] with true_boxes' N and G",
       "iou_thresholds must be [T]", "area_ranges must be [A, 2]",
       "max_detections must be a scalar"}));
  return dims.Write({"[N, D, A, T]", "[N, D]", "[N, G, A]"});
}

absl::Status AveragePrecisionShape(InferenceContext* c) {
  NamedDims dims(c);
  TF_RETURN_IF_ERROR(dims.Read(
      0, {"scores must be [D]", "class_indices must be [D] with scores' D",
          "ranks must be [D] with scores' D",
          "outcomes must be [D, A, T] with scores' D",
          "object_counts must be [C, A] with outcomes' A",
          "max_detections must be [M]", "recall_thresholds must be [R]"}));
  return dims.Write({"[C, A, T]", "[C, A, M, T]"});
}

}  // namespace
}  // namespace tfo

REGISTER_OP("TensorflowOps>MatchDetections")
    .Input("boxes: double")
    .Input("scores: double")
    .Input("classes: int64")
    .Input("true_boxes: double")
    .Input("true_classes: int64")
    .Input("true_areas: double")
    .Input("is_crowd: bool")
    .Input("iou_thresholds: double")
    .Input("area_ranges: double")
    .Input("max_detections: int32")
    .Output("outcomes: uint8")
    .Output("ranks: int32")
    .Output("counts: bool")
    .SetShapeFn(tfo::MatchDetectionsShape)
    .Doc(R"doc(
Matches detections with ground truth as COCO does, in each image and class.

boxes: [N, D, 4], x, y, width, height.
scores: [N, D].
classes: [N, D], negative for padding.
true_boxes: [N, G, 4], x, y, width, height.
true_classes: [N, G], negative for padding.
true_areas: [N, G].
is_crowd: [N, G].
iou_thresholds: [T].
area_ranges: [A, 2], least and greatest area.
max_detections: of an image and class.
outcomes: [N, D, A, T]: 0 wrong, 1 right, 2 ignored.
ranks: [N, D], by falling score in the image and class, -1 if left out.
counts: [N, G, A], whether an object counts.
)doc");

REGISTER_OP("TensorflowOps>AveragePrecision")
    .Input("scores: double")
    .Input("class_indices: int32")
    .Input("ranks: int32")
    .Input("outcomes: uint8")
    .Input("object_counts: int64")
    .Input("max_detections: int32")
    .Input("recall_thresholds: double")
    .Output("precision: double")
    .Output("recall: double")
    .SetShapeFn(tfo::AveragePrecisionShape)
    .Doc(R"doc(
COCO's average precision and recall of matched detections.

scores: [D].
class_indices: [D]; those outside [0, C) take no part.
ranks: [D], of MatchDetections.
outcomes: [D, A, T], of MatchDetections.
object_counts: [C, A].
max_detections: [M], for recalls.
recall_thresholds: [R].
precision: [C, A, T], the mean over recall thresholds; -1 without objects.
recall: [C, A, M, T]; -1 without objects.
)doc");
