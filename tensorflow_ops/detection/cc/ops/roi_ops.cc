// The region pooling ops: names, inputs, attrs, outputs, shapes.
#include <vector>

#include "absl/strings/str_cat.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow_ops/core/cc/glue/named_dims.h"

namespace tfo {
namespace {

using ::tensorflow::shape_inference::DimensionHandle;
using ::tensorflow::shape_inference::InferenceContext;
using ::tensorflow::shape_inference::ShapeHandle;

// Boxes [K,4] and box_indices [K], two inputs in a row: K.
absl::Status BoxCount(InferenceContext* c, int boxes_input,
                      DimensionHandle* count) {
  NamedDims dims(c);
  TF_RETURN_IF_ERROR(dims.Read(
      boxes_input,
      {"boxes must be [K, 4]", "box_indices must be [K] with boxes' K"}));
  *count = dims["K"];
  return absl::OkStatus();
}

// Feature maps must be [N, H, W, C], with one N and C. Merges their C into
// `channels`.
absl::Status CheckMaps(InferenceContext* c,
                       const std::vector<ShapeHandle>& shapes,
                       DimensionHandle* channels) {
  DimensionHandle batch = c->UnknownDim();
  for (const ShapeHandle& shape : shapes) {
    ShapeHandle map;
    TF_RETURN_IF_ERROR(
        Expect("features must be 4-D", c->WithRank(shape, 4, &map)));
    const char* const kSame =
        "features must have the same batch size and channels";
    TF_RETURN_IF_ERROR(Expect(kSame, c->Merge(batch, c->Dim(map, 0), &batch)));
    TF_RETURN_IF_ERROR(
        Expect(kSame, c->Merge(*channels, c->Dim(map, 3), channels)));
    const DimensionHandle height = c->Dim(map, 1), width = c->Dim(map, 2);
    DimensionHandle pixels;
    const absl::Status status = c->Multiply(height, width, &pixels);
    constexpr int64_t kMax = INT32_MAX;
    if (!status.ok() || c->Value(height) > kMax || c->Value(width) > kMax ||
        c->Value(pixels) > kMax) {
      return absl::InvalidArgumentError(
          "features must have height * width below 2^31");
    }
  }
  return absl::OkStatus();
}

// `shape`, of input `name`, must be [boxes, height, width, C] as pooled of maps
// with C `channels`; position-sensitive ops pool from C * height * width.
absl::Status CheckPooled(InferenceContext* c, const char* name,
                         DimensionHandle boxes, DimensionHandle channels,
                         bool position_sensitive, ShapeHandle* shape) {
  DimensionHandle merged, bins;
  TF_RETURN_IF_ERROR(Expect(absl::StrCat(name, " must be 4-D"),
                            c->WithRank(*shape, 4, shape)));
  TF_RETURN_IF_ERROR(Expect(absl::StrCat(name, " must have boxes' K"),
                            c->Merge(c->Dim(*shape, 0), boxes, &merged)));
  TF_RETURN_IF_ERROR(c->ReplaceDim(*shape, 0, merged, shape));
  const std::string as_features =
      absl::StrCat(name, " must have the channels of the forward op");
  DimensionHandle of_maps = c->Dim(*shape, 3);
  if (position_sensitive) {
    TF_RETURN_IF_ERROR(Expect(
        as_features, c->Multiply(c->Dim(*shape, 1), c->Dim(*shape, 2), &bins)));
    return Expect(as_features, [&]() -> absl::Status {
      TF_RETURN_IF_ERROR(c->Multiply(bins, of_maps, &of_maps));
      return c->Merge(of_maps, channels, &merged);
    }());
  }
  TF_RETURN_IF_ERROR(Expect(as_features, c->Merge(of_maps, channels, &merged)));
  return c->ReplaceDim(*shape, 3, merged, shape);
}

// Inputs [begin, end).
std::vector<ShapeHandle> Inputs(InferenceContext* c, int begin, int end) {
  std::vector<ShapeHandle> shapes;
  for (int i = begin; i < end; ++i) shapes.push_back(c->input(i));
  return shapes;
}

// Sets the shapes of all outputs of a forward op. The inputs are features,
// boxes, box_indices and output_size; with attr L, features are L maps with
// equal batch and channels. Position-sensitive ops have ph * pw times as many
// channels in as out.
template <bool position_sensitive>
absl::Status PooledShape(InferenceContext* c) {
  const int maps = c->num_inputs() - 3;
  DimensionHandle boxes, two, channels = c->UnknownDim();
  TF_RETURN_IF_ERROR(CheckMaps(c, Inputs(c, 0, maps), &channels));
  TF_RETURN_IF_ERROR(BoxCount(c, maps, &boxes));
  const int size_input = maps + 2;
  ShapeHandle size_shape, size;
  const char* const kSize = "output_size must be (height, width)";
  TF_RETURN_IF_ERROR(
      Expect(kSize, c->WithRank(c->input(size_input), 1, &size_shape)));
  TF_RETURN_IF_ERROR(
      Expect(kSize, c->WithValue(c->Dim(size_shape, 0), 2, &two)));
  // As far as output_size is a constant, its values.
  TF_RETURN_IF_ERROR(
      Expect(kSize, c->MakeShapeFromShapeTensor(size_input, &size)));
  TF_RETURN_IF_ERROR(c->WithRank(size, 2, &size));
  const DimensionHandle height = c->Dim(size, 0), width = c->Dim(size, 1);
  if (position_sensitive) {
    DimensionHandle bins;
    TF_RETURN_IF_ERROR(c->Multiply(height, width, &bins));
    if (c->ValueKnown(bins) && c->Value(bins) > 0) {
      TF_RETURN_IF_ERROR(
          Expect("features must have a multiple of ph * pw channels",
                 c->Divide(channels, c->Value(bins),
                           /*evenly_divisible=*/true, &channels)));
    } else {
      channels = c->UnknownDim();
    }
  }
  const ShapeHandle pooled = c->MakeShape({boxes, height, width, channels});
  for (int i = 0; i < c->num_outputs(); ++i) c->set_output(i, pooled);
  return absl::OkStatus();
}

// d_output, boxes, box_indices, and a shape for each d_features.
template <bool position_sensitive>
absl::Status AverageGradShape(InferenceContext* c) {
  ShapeHandle d_output = c->input(0);
  DimensionHandle boxes, channels = c->UnknownDim();
  TF_RETURN_IF_ERROR(BoxCount(c, 1, &boxes));
  std::vector<ShapeHandle> maps(c->num_outputs());
  for (int i = 0; i < c->num_outputs(); ++i) {
    TF_RETURN_IF_ERROR(ReadShapeInput(c, "features_shape", 3 + i, 4, &maps[i]));
    c->set_output(i, maps[i]);
  }
  TF_RETURN_IF_ERROR(CheckMaps(c, maps, &channels));
  return CheckPooled(c, "d_output", boxes, channels, position_sensitive,
                     &d_output);
}

// d_output, features (as many as there are), boxes, box_indices: as boxes.
template <bool position_sensitive>
absl::Status BoxesGradShape(InferenceContext* c) {
  const int boxes_input = c->num_inputs() - 2;
  ShapeHandle d_output = c->input(0);
  DimensionHandle boxes, channels = c->UnknownDim();
  TF_RETURN_IF_ERROR(CheckMaps(c, Inputs(c, 1, boxes_input), &channels));
  TF_RETURN_IF_ERROR(BoxCount(c, boxes_input, &boxes));
  TF_RETURN_IF_ERROR(CheckPooled(c, "d_output", boxes, channels,
                                 position_sensitive, &d_output));
  c->set_output(0, c->MakeShape({boxes, c->MakeDim(4)}));
  return absl::OkStatus();
}

absl::Status RoiPoolGradShape(InferenceContext* c) {
  ShapeHandle pooled, features;
  DimensionHandle boxes, channels = c->UnknownDim();
  TF_RETURN_IF_ERROR(Expect("argmax must have d_output's shape",
                            c->Merge(c->input(0), c->input(1), &pooled)));
  TF_RETURN_IF_ERROR(BoxCount(c, 2, &boxes));
  TF_RETURN_IF_ERROR(ReadShapeInput(c, "features_shape", 4, 4, &features));
  TF_RETURN_IF_ERROR(CheckMaps(c, {features}, &channels));
  TF_RETURN_IF_ERROR(
      CheckPooled(c, "d_output", boxes, channels, false, &pooled));
  TF_RETURN_IF_ERROR(c->ReplaceDim(features, 3, c->Dim(pooled, 3), &features));
  c->set_output(0, features);
  return absl::OkStatus();
}

absl::Status RoiPoolGradGradShape(InferenceContext* c) {
  ShapeHandle pooled = c->input(1);
  DimensionHandle boxes, channels = c->UnknownDim();
  TF_RETURN_IF_ERROR(CheckMaps(c, Inputs(c, 0, 1), &channels));
  TF_RETURN_IF_ERROR(BoxCount(c, 2, &boxes));
  TF_RETURN_IF_ERROR(CheckPooled(c, "argmax", boxes, channels, false, &pooled));
  c->set_output(0, pooled);
  return absl::OkStatus();
}

// clang-format off
#define TFO_FORMAT_ATTRS                         \
  .Attr("box_format: {'xyxy', 'yxyx'} = 'xyxy'") \
  .Attr("T: {half, bfloat16, float, double}")    \
  .Attr("Tboxes: {float, double}")
#define TFO_ROI_ATTRS                            \
  .Attr("spatial_scale: float = 1.0")            \
  TFO_FORMAT_ATTRS
#define TFO_SAMPLING_ATTRS                       \
  .Attr("sampling_ratio: int >= 0 = 0")          \
  .Attr("aligned: bool = true")
#define TFO_CHANNEL_ORDER_ATTR                   \
  .Attr("channel_order: {'channel_major', 'bin_major'} = 'channel_major'")
#define TFO_PYRAMID_ATTRS                        \
  .Attr("L: int >= 1")                           \
  .Attr("strides: list(float)")                  \
  .Attr("canonical_box_size: float = 224.0")     \
  .Attr("canonical_stride: float = 16.0")
// Pooling, and the gradients of averages, in one map, or in L with prefix
// "L * ".
#define TFO_BOXES                                \
  .Input("boxes: Tboxes")                        \
  .Input("box_indices: int32")
#define TFO_POOL(L)                              \
  .Input("features: " L "T")                     \
  TFO_BOXES                                      \
  .Input("output_size: int32")                   \
  .Output("output: T")
#define TFO_FEATURES_GRAD(features_shape, L)     \
  .Input("d_output: T")                          \
  TFO_BOXES                                      \
  .Input(features_shape ": " L "int32")          \
  .Output("d_features: " L "T")
#define TFO_BOXES_GRAD(L)                        \
  .Input("d_output: T")                          \
  .Input("features: " L "T")                     \
  TFO_BOXES                                      \
  .Output("d_boxes: Tboxes")

REGISTER_OP("TensorflowOps>RoiPool")
    TFO_POOL("")
    .Output("argmax: int32")
    TFO_ROI_ATTRS
    .SetShapeFn(PooledShape<false>)
    .Doc(R"doc(
Max pooling of boxes into bins: RoI pooling of Fast R-CNN.

features: [N, H, W, C].
boxes: [K, 4], in pixels of the input image; double with double features.
box_indices: [K], each box's image.
output_size: (height, width) of the bins.
output: [K, ph, pw, C].
argmax: y * W + x of each maximum in its plane, -1 where the bin has no pixel.
spatial_scale: feature pixels per image pixel.
)doc");

REGISTER_OP("TensorflowOps>RoiPoolGrad")
    .Input("d_output: T")
    .Input("argmax: int32")
    TFO_BOXES
    .Input("features_shape: int32")
    .Output("d_features: T")
    TFO_ROI_ATTRS
    .SetShapeFn(RoiPoolGradShape)
    .Doc("The gradient of RoiPool to its features.");

REGISTER_OP("TensorflowOps>RoiPoolGradGrad")
    .Input("dd_features: T")
    .Input("argmax: int32")
    TFO_BOXES
    .Output("dd_output: T")
    TFO_ROI_ATTRS
    .SetShapeFn(RoiPoolGradGradShape)
    .Doc("The gradient of RoiPoolGrad to its d_output.");

REGISTER_OP("TensorflowOps>RoiAlign")
    TFO_POOL("")
    TFO_ROI_ATTRS TFO_SAMPLING_ATTRS
    .SetShapeFn(PooledShape<false>)
    .Doc(R"doc(
The average of bilinear samples in each bin: RoIAlign of Mask R-CNN. Inputs as those of RoiPool.

sampling_ratio: samples of a bin on each axis; 0: as many as it is pixels long, rounded up.
aligned: pixel i's centre is at i + 0.5; else at i.
)doc");

REGISTER_OP("TensorflowOps>RoiAlignGrad")
    TFO_FEATURES_GRAD("features_shape", "")
    TFO_ROI_ATTRS TFO_SAMPLING_ATTRS
    .SetShapeFn(AverageGradShape<false>)
    .Doc("The gradient of RoiAlign to its features.");

REGISTER_OP("TensorflowOps>RoiAlignBoxesGrad")
    TFO_BOXES_GRAD("")
    TFO_ROI_ATTRS TFO_SAMPLING_ATTRS
    .SetShapeFn(BoxesGradShape<false>)
    .Doc("The gradient of RoiAlign to its boxes.");

REGISTER_OP("TensorflowOps>PsRoiPool")
    TFO_POOL("")
    TFO_ROI_ATTRS TFO_CHANNEL_ORDER_ATTR
    .SetShapeFn(PooledShape<true>)
    .Doc(R"doc(
The mean of each bin's pixels, in channels of its own: position-sensitive RoI pooling of R-FCN. Inputs as those of RoiPool.

features: [N, H, W, ph * pw * C].
channel_order: of features: [C, ph, pw] (channel_major) or [ph, pw, C] (bin_major).
)doc");

REGISTER_OP("TensorflowOps>PsRoiPoolGrad")
    TFO_FEATURES_GRAD("features_shape", "")
    TFO_ROI_ATTRS TFO_CHANNEL_ORDER_ATTR
    .SetShapeFn(AverageGradShape<true>)
    .Doc("The gradient of PsRoiPool to its features.");

REGISTER_OP("TensorflowOps>PsRoiAlign")
    TFO_POOL("")
    TFO_ROI_ATTRS TFO_CHANNEL_ORDER_ATTR
    .Attr("sampling_ratio: int >= 0 = 0")
    .SetShapeFn(PooledShape<true>)
    .Doc("The average of bilinear samples in each bin, in channels of its own. Inputs as those of PsRoiPool.");

REGISTER_OP("TensorflowOps>PsRoiAlignGrad")
    TFO_FEATURES_GRAD("features_shape", "")
    TFO_ROI_ATTRS TFO_CHANNEL_ORDER_ATTR
    .Attr("sampling_ratio: int >= 0 = 0")
    .SetShapeFn(AverageGradShape<true>)
    .Doc("The gradient of PsRoiAlign to its features.");

REGISTER_OP("TensorflowOps>PsRoiAlignBoxesGrad")
    TFO_BOXES_GRAD("")
    TFO_ROI_ATTRS TFO_CHANNEL_ORDER_ATTR
    .Attr("sampling_ratio: int >= 0 = 0")
    .SetShapeFn(BoxesGradShape<true>)
    .Doc("The gradient of PsRoiAlign to its boxes.");

REGISTER_OP("TensorflowOps>MultiscaleRoiAlign")
    TFO_POOL("L * ")
    TFO_FORMAT_ATTRS TFO_SAMPLING_ATTRS TFO_PYRAMID_ATTRS
    .SetShapeFn(PooledShape<false>)
    .Doc(R"doc(
RoiAlign of each box on the level of a feature pyramid that fits its size. Inputs as those of RoiPool.

features: a map for each level, [N, H, W, C]; one N and one C.
strides: of each level, rising.
)doc");

REGISTER_OP("TensorflowOps>MultiscaleRoiAlignGrad")
    TFO_FEATURES_GRAD("features_shapes", "L * ")
    TFO_FORMAT_ATTRS TFO_SAMPLING_ATTRS TFO_PYRAMID_ATTRS
    .SetShapeFn(AverageGradShape<false>)
    .Doc("The gradient of MultiscaleRoiAlign to its features.");

REGISTER_OP("TensorflowOps>MultiscaleRoiAlignBoxesGrad")
    TFO_BOXES_GRAD("L * ")
    TFO_FORMAT_ATTRS TFO_SAMPLING_ATTRS TFO_PYRAMID_ATTRS
    .SetShapeFn(BoxesGradShape<false>)
    .Doc("The gradient of MultiscaleRoiAlign to its boxes.");
// clang-format on

}  // namespace
}  // namespace tfo
