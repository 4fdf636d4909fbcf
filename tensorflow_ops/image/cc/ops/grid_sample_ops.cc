// GridSample and its gradients: names, inputs, attrs, outputs, shapes.
#include "absl/strings/str_cat.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow_ops/core/cc/op_util.h"
#include "tensorflow_ops/image/cc/kernels/grid_sample/grid_sample_args.h"

namespace tfo {
namespace {

using ::tensorflow::shape_inference::DimensionHandle;
using ::tensorflow::shape_inference::InferenceContext;
using ::tensorflow::shape_inference::ShapeHandle;

constexpr char kGrid[] = "grid must be [N, d1, ..., dk, 2] with features' N";
// dense_image_warp's names.
constexpr char kFlow[] = "flow must be [N, H, W, 2] with images' N, H and W";

absl::Status ChannelDim(InferenceContext* c, int* dim) {
  std::string data_format;
  TF_RETURN_IF_ERROR(c->GetAttr("data_format", &data_format));
  *dim = data_format == "NCHW" ? 1 : 3;
  return absl::OkStatus();
}

absl::Status IsFlow(InferenceContext* c, bool* flow) {
  std::string coordinates;
  TF_RETURN_IF_ERROR(c->GetAttr("coordinates", &coordinates));
  *flow = coordinates == "flow";
  return absl::OkStatus();
}

// Checks the grid, and merges its first dim with `batch`, and those of a flow
// with the height and width of features.
absl::Status MergeGrid(InferenceContext* c, int input, ShapeHandle features,
                       ShapeHandle* grid, DimensionHandle* batch) {
  DimensionHandle merged;
  bool flow;
  int channel_dim = 0;
  TF_RETURN_IF_ERROR(IsFlow(c, &flow));
  TF_RETURN_IF_ERROR(ChannelDim(c, &channel_dim));
  const char* const what = flow ? kFlow : kGrid;
  TF_RETURN_IF_ERROR(
      Expect(what, flow ? c->WithRank(c->input(input), 4, grid)
                        : c->WithRankAtLeast(c->input(input), 3, grid)));
  if (!c->RankKnown(*grid)) return absl::OkStatus();
  TF_RETURN_IF_ERROR(Expect(what, c->WithValue(c->Dim(*grid, -1), 2, &merged)));
  for (int i = 1; flow && i < 3; ++i) {
    const int of_features = channel_dim == 1 ? i + 1 : i;
    TF_RETURN_IF_ERROR(Expect(
        what,
        c->Merge(c->Dim(*grid, i), c->Dim(features, of_features), &merged)));
    TF_RETURN_IF_ERROR(c->ReplaceDim(*grid, i, merged, grid));
  }
  return Expect(what, c->Merge(c->Dim(*grid, 0), *batch, batch));
}

absl::Status GridSampleShape(InferenceContext* c) {
  int channel_dim = 0;
  TF_RETURN_IF_ERROR(ChannelDim(c, &channel_dim));
  ShapeHandle features, grid;
  bool flow;
  TF_RETURN_IF_ERROR(IsFlow(c, &flow));
  const char* const name = flow ? "images" : "features";
  TF_RETURN_IF_ERROR(Expect(absl::StrCat(name, " must be 4-D"),
                            c->WithRank(c->input(0), 4, &features)));
  const int first = channel_dim == 1 ? 2 : 1;
  for (int i = first; i < first + 2; ++i) {
    const int64_t size = c->Value(c->Dim(features, i));
    if (size == 0 || size > kMaxSampledSide) {
      return absl::InvalidArgumentError(absl::StrCat(
          name, " are ", c->DebugString(features),
          ", expected height and width in [1, ", kMaxSampledSide, "]"));
    }
  }
  DimensionHandle batch = c->Dim(features, 0);
  TF_RETURN_IF_ERROR(MergeGrid(c, 1, features, &grid, &batch));
  if (!c->RankKnown(grid)) {
    c->set_output(0, c->UnknownShape());
    return absl::OkStatus();
  }
  const ShapeHandle channels = c->Vector(c->Dim(features, channel_dim));
  ShapeHandle places, output;
  TF_RETURN_IF_ERROR(c->Subshape(grid, 1, -1, &places));
  TF_RETURN_IF_ERROR(channel_dim == 1
                         ? c->Concatenate(channels, places, &output)
                         : c->Concatenate(places, channels, &output));
  TF_RETURN_IF_ERROR(c->Concatenate(c->Vector(batch), output, &output));
  c->set_output(0, output);
  return absl::OkStatus();
}

absl::Status GridSampleTangentShape(InferenceContext* c) {
  ShapeHandle unused;
  TF_RETURN_IF_ERROR(Expect("direction must have grid's shape",
                            c->Merge(c->input(1), c->input(2), &unused)));
  return GridSampleShape(c);
}

absl::Status GridSampleGradShape(InferenceContext* c) {
  ShapeHandle grid, shape;
  DimensionHandle batch = c->UnknownDim();
  TF_RETURN_IF_ERROR(ReadShapeInput(c, "features_shape", 2, 4, &shape));
  TF_RETURN_IF_ERROR(MergeGrid(c, 1, shape, &grid, &batch));
  TF_RETURN_IF_ERROR(c->ReplaceDim(shape, 0, batch, &shape));
  c->set_output(0, shape);
  return absl::OkStatus();
}

absl::Status GridSampleGridGradShape(InferenceContext* c) {
  ShapeHandle features, grid;
  TF_RETURN_IF_ERROR(
      Expect("features must be 4-D", c->WithRank(c->input(1), 4, &features)));
  DimensionHandle batch = c->Dim(features, 0);
  TF_RETURN_IF_ERROR(MergeGrid(c, 2, features, &grid, &batch));
  c->set_output(0, grid);
  return absl::OkStatus();
}

}  // namespace
}  // namespace tfo

#define TFO_GRID_SAMPLE_ATTRS                                               \
  .Attr("mode: {'bilinear', 'nearest', 'bicubic'} = 'bilinear'")            \
      .Attr("padding_mode: {'zeros', 'border', 'reflection'} = 'zeros'")    \
      .Attr("align_corners: bool = false")                                  \
      .Attr("coordinates: {'normalized', 'pixels', 'flow'} = 'normalized'") \
      .Attr("data_format: {'NHWC', 'NCHW'} = 'NHWC'")                       \
      .Attr("T: {half, bfloat16, float, double}")                           \
      .Attr("Tvalue: {float, double}")

REGISTER_OP("TensorflowOps>GridSample")
    .Input("features: T")
    .Input("grid: Tvalue")
    .Output("output: T") TFO_GRID_SAMPLE_ATTRS.SetShapeFn(tfo::GridSampleShape);

// How the output changes as the grid moves along a direction.
REGISTER_OP("TensorflowOps>GridSampleTangent")
    .Input("features: T")
    .Input("grid: Tvalue")
    .Input("direction: Tvalue")
    .Output("output: T")
        TFO_GRID_SAMPLE_ATTRS.SetShapeFn(tfo::GridSampleTangentShape);

REGISTER_OP("TensorflowOps>GridSampleGrad")
    .Input("d_output: T")
    .Input("grid: Tvalue")
    .Input("features_shape: int64")
    .Output("d_features: T")
        TFO_GRID_SAMPLE_ATTRS.SetShapeFn(tfo::GridSampleGradShape);

REGISTER_OP("TensorflowOps>GridSampleGridGrad")
    .Input("d_output: T")
    .Input("features: T")
    .Input("grid: Tvalue")
    .Output("d_grid: Tvalue")
        TFO_GRID_SAMPLE_ATTRS.SetShapeFn(tfo::GridSampleGridGradShape);
