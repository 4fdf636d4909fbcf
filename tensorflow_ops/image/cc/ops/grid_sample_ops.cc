// GridSample and its gradients: names, inputs, attrs, outputs, shapes.
#include "absl/strings/str_cat.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow_ops/core/cc/glue/op_util.h"
#include "tensorflow_ops/image/cc/kernels/grid_sample/grid_sample_args.h"

namespace tfo {
namespace {

using ::tensorflow::shape_inference::DimensionHandle;
using ::tensorflow::shape_inference::InferenceContext;
using ::tensorflow::shape_inference::ShapeHandle;

// What messages call the inputs: as the public function does.
struct Names {
  bool flow;
  const char *images, *grid;
};

absl::Status ReadNames(InferenceContext* c, Names* names) {
  std::string coordinates;
  TF_RETURN_IF_ERROR(c->GetAttr("coordinates", &coordinates));
  if (coordinates == "flow") {
    *names = {true, "images",
              "flow must be [N, H, W, 2] with images' N, H and W"};
  } else if (coordinates == "indices") {
    *names = {false, "images",
              "coordinates must be [N, d1, ..., dk, 2] with images' N"};
  } else {
    *names = {false, "features",
              "grid must be [N, d1, ..., dk, 2] with features' N"};
  }
  return absl::OkStatus();
}

absl::Status CheckPadding(InferenceContext* c) {
  std::string mode, padding;
  TF_RETURN_IF_ERROR(c->GetAttr("mode", &mode));
  TF_RETURN_IF_ERROR(c->GetAttr("padding_mode", &padding));
  const bool has_cubic =
      padding == "zeros" || padding == "border" || padding == "reflection";
  if (mode != "bicubic" || has_cubic) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("padding_mode is ", padding,
                   ", expected zeros, border or reflection with mode bicubic"));
}

// Checks the height and width of features of rank 4, as far as they are known.
absl::Status CheckSides(InferenceContext* c, const char* name,
                        const ShapeHandle& features) {
  int64_t pixels = 1;
  for (int i = 1; i < 3; ++i) {
    const int64_t size = c->Value(c->Dim(features, i));
    if (size == 0 || size > kMaxSampledSide) {
      return absl::InvalidArgumentError(absl::StrCat(
          name, " are ", c->DebugString(features),
          ", expected height and width in [1, ", kMaxSampledSide, "]"));
    }
    if (size > 0) pixels *= size;
  }
  if (pixels > kMaxSampledPixels) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, " are ", c->DebugString(features),
                     ", expected height * width below 2^31"));
  }
  return absl::OkStatus();
}

// Checks the grid, and merges its first dim with `batch`, and those of a flow
// with the height and width of features.
absl::Status MergeGrid(InferenceContext* c, int input, ShapeHandle features,
                       const Names& names, ShapeHandle* grid,
                       DimensionHandle* batch) {
  DimensionHandle merged;
  const bool flow = names.flow;
  const char* const what = names.grid;
  TF_RETURN_IF_ERROR(
      Expect(what, flow ? c->WithRank(c->input(input), 4, grid)
                        : c->WithRankAtLeast(c->input(input), 3, grid)));
  if (!c->RankKnown(*grid)) return absl::OkStatus();
  TF_RETURN_IF_ERROR(Expect(what, c->WithValue(c->Dim(*grid, -1), 2, &merged)));
  for (int i = 1; flow && i < 3; ++i) {
    TF_RETURN_IF_ERROR(
        Expect(what, c->Merge(c->Dim(*grid, i), c->Dim(features, i), &merged)));
    TF_RETURN_IF_ERROR(c->ReplaceDim(*grid, i, merged, grid));
  }
  return Expect(what, c->Merge(c->Dim(*grid, 0), *batch, batch));
}

// The shape of the samples of features, whose rank is 4 or unknown, at a grid,
// input `grid_input`. Merges the batch of both.
absl::Status SampledShape(InferenceContext* c, ShapeHandle features,
                          int grid_input, ShapeHandle* grid,
                          DimensionHandle* batch, ShapeHandle* output) {
  Names names;
  TF_RETURN_IF_ERROR(ReadNames(c, &names));
  TF_RETURN_IF_ERROR(CheckPadding(c));
  TF_RETURN_IF_ERROR(Expect(absl::StrCat(names.images, " must be 4-D"),
                            c->WithRank(features, 4, &features)));
  TF_RETURN_IF_ERROR(CheckSides(c, names.images, features));
  *batch = c->Dim(features, 0);
  TF_RETURN_IF_ERROR(MergeGrid(c, grid_input, features, names, grid, batch));
  *output = c->UnknownShape();
  if (!c->RankKnown(*grid)) return absl::OkStatus();
  TF_RETURN_IF_ERROR(c->Subshape(*grid, 0, -1, output));
  TF_RETURN_IF_ERROR(c->ReplaceDim(*output, 0, *batch, output));
  return c->Concatenate(*output, c->Vector(c->Dim(features, 3)), output);
}

absl::Status GridSampleShape(InferenceContext* c) {
  ShapeHandle grid, output;
  DimensionHandle batch;
  TF_RETURN_IF_ERROR(SampledShape(c, c->input(0), 1, &grid, &batch, &output));
  c->set_output(0, output);
  return absl::OkStatus();
}

absl::Status GridSampleTangentShape(InferenceContext* c) {
  ShapeHandle unused;
  TF_RETURN_IF_ERROR(Expect("direction must have grid's shape",
                            c->Merge(c->input(1), c->input(2), &unused)));
  return GridSampleShape(c);
}

// Merges an upstream gradient, input 0, with the output's shape.
absl::Status MergeGradient(InferenceContext* c, ShapeHandle output) {
  return Expect("the upstream gradient must have the samples' shape",
                c->Merge(c->input(0), output, &output));
}

absl::Status GridSampleGradShape(InferenceContext* c) {
  ShapeHandle shape, grid, output;
  DimensionHandle batch;
  TF_RETURN_IF_ERROR(ReadShapeInput(c, "features_shape", 2, 4, &shape));
  TF_RETURN_IF_ERROR(SampledShape(c, shape, 1, &grid, &batch, &output));
  TF_RETURN_IF_ERROR(MergeGradient(c, output));
  TF_RETURN_IF_ERROR(c->ReplaceDim(shape, 0, batch, &shape));
  c->set_output(0, shape);
  return absl::OkStatus();
}

absl::Status GridSampleGridGradShape(InferenceContext* c) {
  ShapeHandle grid, output;
  DimensionHandle batch;
  TF_RETURN_IF_ERROR(SampledShape(c, c->input(1), 2, &grid, &batch, &output));
  TF_RETURN_IF_ERROR(MergeGradient(c, output));
  c->set_output(0, grid);
  return absl::OkStatus();
}

}  // namespace
}  // namespace tfo

#define TFO_GRID_SAMPLE_ATTRS                                         \
  .Attr("mode: {'bilinear', 'nearest', 'bicubic'} = 'bilinear'")      \
      .Attr(                                                          \
          "padding_mode: {'zeros', 'border', 'reflection', "          \
          "'constant', 'wrap', 'grid_wrap'} = 'zeros'")               \
      .Attr("align_corners: bool = false")                            \
      .Attr(                                                          \
          "coordinates: {'normalized', 'pixels', 'flow', 'indices'} " \
          "= 'normalized'")                                           \
      .Attr("T: {half, bfloat16, float, double}")                     \
      .Attr("Tvalue: {float, double}")

// Of pixels outside: the numbers add up to it.
constexpr char kFillValue[] = "fill_value: list(float) = []";

REGISTER_OP("TensorflowOps>GridSample")
    .Input("features: T")
    .Input("grid: Tvalue")
    .Output("output: T") TFO_GRID_SAMPLE_ATTRS.Attr(kFillValue)
    .SetShapeFn(tfo::GridSampleShape);

// How the output changes as the grid moves along a direction.
REGISTER_OP("TensorflowOps>GridSampleTangent")
    .Input("features: T")
    .Input("grid: Tvalue")
    .Input("direction: Tvalue")
    .Output("output: T") TFO_GRID_SAMPLE_ATTRS.Attr(kFillValue)
    .SetShapeFn(tfo::GridSampleTangentShape);

REGISTER_OP("TensorflowOps>GridSampleGrad")
    .Input("d_output: T")
    .Input("grid: Tvalue")
    .Input("features_shape: int32")
    .Output("d_features: T")
        TFO_GRID_SAMPLE_ATTRS.SetShapeFn(tfo::GridSampleGradShape);

REGISTER_OP("TensorflowOps>GridSampleGridGrad")
    .Input("d_output: T")
    .Input("features: T")
    .Input("grid: Tvalue")
    .Output("d_grid: Tvalue") TFO_GRID_SAMPLE_ATTRS.Attr(kFillValue)
    .SetShapeFn(tfo::GridSampleGridGradShape);
