// The region pooling ops: names, inputs, attrs, outputs, shapes.
#include "absl/strings/str_cat.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace tfo {
namespace {

using ::tensorflow::shape_inference::DimensionHandle;
using ::tensorflow::shape_inference::InferenceContext;
using ::tensorflow::shape_inference::ShapeHandle;

// Is the op's data_format NCHW?
absl::Status ChannelsFirst(InferenceContext* c, bool* channels_first) {
  std::string data_format;
  TF_RETURN_IF_ERROR(c->GetAttr("data_format", &data_format));
  *channels_first = data_format == "NCHW";
  return absl::OkStatus();
}

// TensorFlow's own words on a shape, after ours on what it is of.
absl::Status Expect(const char* expectation, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::InvalidArgumentError(
      absl::StrCat(expectation, ": ", status.message()));
}

// Boxes [K,4] and box_indices [K], two inputs in a row: K.
absl::Status BoxCount(InferenceContext* c, int boxes_input,
                      DimensionHandle* count) {
  ShapeHandle boxes, box_indices;
  DimensionHandle four;
  const char* const kBoxes = "boxes must be [K, 4]";
  const char* const kIndices = "box_indices must be [K] with boxes' K";
  TF_RETURN_IF_ERROR(
      Expect(kBoxes, c->WithRank(c->input(boxes_input), 2, &boxes)));
  TF_RETURN_IF_ERROR(Expect(kBoxes, c->WithValue(c->Dim(boxes, 1), 4, &four)));
  TF_RETURN_IF_ERROR(Expect(
      kIndices, c->WithRank(c->input(boxes_input + 1), 1, &box_indices)));
  return Expect(kIndices,
                c->Merge(c->Dim(boxes, 0), c->Dim(box_indices, 0), count));
}

absl::Status RoiPoolShape(InferenceContext* c) {
  bool channels_first;
  ShapeHandle features, size_shape, size;
  DimensionHandle boxes, two;
  TF_RETURN_IF_ERROR(ChannelsFirst(c, &channels_first));
  TF_RETURN_IF_ERROR(
      Expect("features must be 4-D", c->WithRank(c->input(0), 4, &features)));
  TF_RETURN_IF_ERROR(BoxCount(c, 1, &boxes));
  const char* const kSize = "output_size must be (height, width)";
  TF_RETURN_IF_ERROR(Expect(kSize, c->WithRank(c->input(3), 1, &size_shape)));
  TF_RETURN_IF_ERROR(
      Expect(kSize, c->WithValue(c->Dim(size_shape, 0), 2, &two)));
  // As far as output_size is a constant, its values.
  TF_RETURN_IF_ERROR(c->MakeShapeFromShapeTensor(3, &size));
  TF_RETURN_IF_ERROR(c->WithRank(size, 2, &size));
  const DimensionHandle channels = c->Dim(features, channels_first ? 1 : 3);
  const DimensionHandle height = c->Dim(size, 0), width = c->Dim(size, 1);
  const ShapeHandle pooled =
      channels_first ? c->MakeShape({boxes, channels, height, width})
                     : c->MakeShape({boxes, height, width, channels});
  c->set_output(0, pooled);
  c->set_output(1, pooled);
  return absl::OkStatus();
}

absl::Status RoiPoolGradShape(InferenceContext* c) {
  bool channels_first;
  ShapeHandle d_output, argmax, pooled, features;
  DimensionHandle boxes, merged;
  TF_RETURN_IF_ERROR(ChannelsFirst(c, &channels_first));
  TF_RETURN_IF_ERROR(
      Expect("d_output must be 4-D", c->WithRank(c->input(0), 4, &d_output)));
  TF_RETURN_IF_ERROR(Expect("argmax must have d_output's shape",
                            c->Merge(d_output, c->input(1), &pooled)));
  TF_RETURN_IF_ERROR(BoxCount(c, 2, &boxes));
  TF_RETURN_IF_ERROR(c->Merge(c->Dim(pooled, 0), boxes, &merged));
  TF_RETURN_IF_ERROR(c->MakeShapeFromShapeTensor(4, &features));
  TF_RETURN_IF_ERROR(c->WithRank(features, 4, &features));
  const int channel_dim = channels_first ? 1 : 3;
  TF_RETURN_IF_ERROR(c->Merge(c->Dim(features, channel_dim),
                              c->Dim(pooled, channel_dim), &merged));
  TF_RETURN_IF_ERROR(c->ReplaceDim(features, channel_dim, merged, &features));
  c->set_output(0, features);
  return absl::OkStatus();
}

absl::Status RoiPoolGradGradShape(InferenceContext* c) {
  bool channels_first;
  ShapeHandle dd_features, pooled;
  DimensionHandle boxes, merged;
  TF_RETURN_IF_ERROR(ChannelsFirst(c, &channels_first));
  TF_RETURN_IF_ERROR(Expect("dd_features must be 4-D",
                            c->WithRank(c->input(0), 4, &dd_features)));
  TF_RETURN_IF_ERROR(
      Expect("argmax must be 4-D", c->WithRank(c->input(1), 4, &pooled)));
  TF_RETURN_IF_ERROR(BoxCount(c, 2, &boxes));
  TF_RETURN_IF_ERROR(c->Merge(c->Dim(pooled, 0), boxes, &boxes));
  TF_RETURN_IF_ERROR(c->ReplaceDim(pooled, 0, boxes, &pooled));
  const int channel_dim = channels_first ? 1 : 3;
  TF_RETURN_IF_ERROR(c->Merge(c->Dim(dd_features, channel_dim),
                              c->Dim(pooled, channel_dim), &merged));
  TF_RETURN_IF_ERROR(c->ReplaceDim(pooled, channel_dim, merged, &pooled));
  c->set_output(0, pooled);
  return absl::OkStatus();
}

// clang-format off
#define TFO_ROI_ATTRS                            \
  .Attr("spatial_scale: float = 1.0")            \
  .Attr("data_format: {'NHWC', 'NCHW'} = 'NHWC'") \
  .Attr("box_format: {'xyxy', 'yxyx'} = 'xyxy'")  \
  .Attr("T: {half, bfloat16, float, double}")    \
  .Attr("Tboxes: {float, double}")
// clang-format on

REGISTER_OP("TensorflowOps>RoiPool")
    .Input("features: T")
    .Input("boxes: Tboxes")
    .Input("box_indices: int32")
    .Input("output_size: int32")
    .Output("output: T")
    .Output("argmax: int32") TFO_ROI_ATTRS.SetShapeFn(RoiPoolShape)
    .Doc(R"doc(
Max pooling of boxes into bins: RoI pooling of Fast R-CNN.

features: [N, H, W, C], or [N, C, H, W] with data_format NCHW.
boxes: [K, 4], in pixels of the input image; double with double features.
box_indices: [K], each box's image.
output_size: (height, width) of the bins.
output: [K, ph, pw, C], or [K, C, ph, pw].
argmax: y * W + x of each maximum in its plane, -1 where the bin has no pixel.
spatial_scale: feature pixels per image pixel.
)doc");

REGISTER_OP("TensorflowOps>RoiPoolGrad")
    .Input("d_output: T")
    .Input("argmax: int32")
    .Input("boxes: Tboxes")
    .Input("box_indices: int32")
    .Input("features_shape: int64")
    .Output("d_features: T") TFO_ROI_ATTRS.SetShapeFn(RoiPoolGradShape)
    .Doc(R"doc(
The gradient of RoiPool to its features.

features_shape: the shape of the forward op's features.
)doc");

REGISTER_OP("TensorflowOps>RoiPoolGradGrad")
    .Input("dd_features: T")
    .Input("argmax: int32")
    .Input("boxes: Tboxes")
    .Input("box_indices: int32")
    .Output("dd_output: T") TFO_ROI_ATTRS.SetShapeFn(RoiPoolGradGradShape)
    .Doc(R"doc(
The gradient of RoiPoolGrad to its d_output.
)doc");

}  // namespace
}  // namespace tfo
