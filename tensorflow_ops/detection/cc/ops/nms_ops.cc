// The ops of non-maximum suppression: names, inputs, attrs, outputs, shapes.
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow_ops/core/cc/op_util.h"
#include "tensorflow_ops/detection/cc/kernels/nms/nms_inputs_op.h"

namespace tfo {
namespace {

using ::tensorflow::shape_inference::DimensionHandle;
using ::tensorflow::shape_inference::InferenceContext;
using ::tensorflow::shape_inference::ShapeHandle;

absl::Status BoxSizeOf(InferenceContext* c, int64_t* size) {
  std::string format;
  TF_RETURN_IF_ERROR(c->GetAttr("box_format", &format));
  *size = format == "cxcywhr" ? 5 : 4;
  return absl::OkStatus();
}

// Inputs from `first` on are scalars.
absl::Status CheckScalars(InferenceContext* c, int first) {
  ShapeHandle scalar;
  for (int i = first; i < c->num_inputs(); ++i) {
    TF_RETURN_IF_ERROR(
        Expect("thresholds, sigma and max_outputs must be scalars",
               c->WithRank(c->input(i), 0, &scalar)));
  }
  return absl::OkStatus();
}

// boxes [K, 4], `rows` inputs of [K] and scalars. The values decide the size of
// the results, which is one.
absl::Status SuppressionShape(InferenceContext* c, int rows) {
  int64_t size;
  TF_RETURN_IF_ERROR(BoxSizeOf(c, &size));
  const char* const kBoxes =
      size == 5 ? "boxes must be [K, 5]" : "boxes must be [K, 4]";
  ShapeHandle boxes, row;
  DimensionHandle count, unused;
  TF_RETURN_IF_ERROR(Expect(kBoxes, c->WithRank(c->input(0), 2, &boxes)));
  TF_RETURN_IF_ERROR(
      Expect(kBoxes, c->WithValue(c->Dim(boxes, 1), size, &unused)));
  count = c->Dim(boxes, 0);
  for (int i = 1; i <= rows; ++i) {
    const char* const expected = i == 1 ? "scores must be [K] with boxes' K"
                                        : "group_ids must be [K] with boxes' K";
    TF_RETURN_IF_ERROR(Expect(expected, c->WithRank(c->input(i), 1, &row)));
    TF_RETURN_IF_ERROR(
        Expect(expected, c->Merge(count, c->Dim(row, 0), &count)));
  }
  TF_RETURN_IF_ERROR(CheckScalars(c, rows + 1));
  const DimensionHandle kept = c->UnknownDim();
  for (int i = 0; i < c->num_outputs(); ++i) {
    c->set_output(i, c->MakeShape({kept}));
  }
  return absl::OkStatus();
}

absl::Status NmsShape(InferenceContext* c) { return SuppressionShape(c, 1); }
absl::Status BatchedNmsShape(InferenceContext* c) {
  return SuppressionShape(c, 2);
}

absl::Status MulticlassNmsShape(InferenceContext* c) {
  int64_t size;
  TF_RETURN_IF_ERROR(BoxSizeOf(c, &size));
  ShapeHandle scores, boxes = c->input(0);
  TF_RETURN_IF_ERROR(
      Expect("scores must be [N, K, C]", c->WithRank(c->input(1), 3, &scores)));
  DimensionHandle images = c->Dim(scores, 0), unused;
  if (c->RankKnown(boxes)) {
    const bool per_class = c->Rank(boxes) == 4;
    const char* const kBoxes =
        size == 5
            ? "boxes must be [N, K, 5] or [N, K, C, 5], with scores' dims"
            : "boxes must be [N, K, 4] or [N, K, C, 4], with scores' dims";
    if (!per_class) {
      TF_RETURN_IF_ERROR(Expect(kBoxes, c->WithRank(boxes, 3, &boxes)));
    }
    TF_RETURN_IF_ERROR(
        Expect(kBoxes, c->WithValue(c->Dim(boxes, -1), size, &unused)));
    for (int i = per_class ? 2 : 1; i >= 0; --i) {
      TF_RETURN_IF_ERROR(Expect(
          kBoxes, c->Merge(c->Dim(scores, i), c->Dim(boxes, i), &images)));
    }
  }
  TF_RETURN_IF_ERROR(CheckScalars(c, 2));
  DimensionHandle outputs;
  TF_RETURN_IF_ERROR(Expect("max_outputs must be at least 0",
                            c->MakeDimForScalarInput(4, &outputs)));
  DimensionHandle of_image;
  TF_RETURN_IF_ERROR(
      Expect("scores must be less than 2^31 for an image",
             c->Multiply(c->Dim(scores, 1), c->Dim(scores, 2), &of_image)));
  if (c->ValueKnown(outputs) && c->ValueKnown(of_image)) {
    TF_RETURN_IF_ERROR(CheckPadding(c->Value(outputs), c->Value(of_image)));
  }
  const ShapeHandle padded = c->MakeShape({images, outputs});
  for (int i = 0; i < 3; ++i) c->set_output(i, padded);
  c->set_output(3, c->MakeShape({images}));
  return absl::OkStatus();
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
    .Output("indices: int32") TFO_NMS_ATTRS.SetShapeFn(tfo::NmsShape)
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
    .SetShapeFn(tfo::BatchedNmsShape)
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
    .SetShapeFn(tfo::NmsShape)
    .Doc(R"doc(
Soft non-maximum suppression: scores decay by the overlap with better boxes.

decayed_scores: [M], the scores when their boxes were taken.
)doc");
