// MultiscaleDeformableAttention and its gradient: names, inputs, attrs,
// outputs, shapes.
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow_ops/core/cc/op_util.h"

namespace tfo {
namespace {

using ::tensorflow::shape_inference::DimensionHandle;
using ::tensorflow::shape_inference::InferenceContext;
using ::tensorflow::shape_inference::ShapeHandle;

constexpr char kFits[] =
    "values and attention_weights must have fewer than 2^63 numbers in [N, Q, "
    "heads * channels]";

// Merges what sampling_locations and attention_weights, inputs `first` on, have
// in common with each other, with values and with the levels.
absl::Status MergePoints(InferenceContext* c, int first, DimensionHandle levels,
                         DimensionHandle* batch, DimensionHandle* queries,
                         DimensionHandle* heads) {
  std::vector<int64_t> num_points;
  TF_RETURN_IF_ERROR(c->GetAttr("num_points", &num_points));
  const bool by_level = num_points.empty();
  const std::string weights_text =
      by_level ? "attention_weights must be [N, Q, heads, levels, points]"
               : "attention_weights must be [N, Q, heads, sum of num_points]";
  const std::string locations_text =
      "sampling_locations must be (x, y) for each of the attention_weights";
  ShapeHandle locations, weights, pairs;
  const int rank = by_level ? 5 : 4;
  TF_RETURN_IF_ERROR(
      Expect(weights_text, c->WithRank(c->input(first + 1), rank, &weights)));
  TF_RETURN_IF_ERROR(Expect(
      locations_text, c->WithRank(c->input(first), rank + 1, &locations)));
  TF_RETURN_IF_ERROR(c->Concatenate(weights, c->Vector(2), &pairs));
  TF_RETURN_IF_ERROR(
      Expect(locations_text, c->Merge(locations, pairs, &locations)));
  TF_RETURN_IF_ERROR(
      Expect(weights_text, c->Merge(*batch, c->Dim(locations, 0), batch)));
  TF_RETURN_IF_ERROR(
      Expect(weights_text, c->Merge(*heads, c->Dim(locations, 2), heads)));
  *queries = c->Dim(locations, 1);
  DimensionHandle unused;
  if (by_level) {
    return Expect(weights_text,
                  c->Merge(levels, c->Dim(locations, 3), &unused));
  }
  int64_t points = 0;
  for (int64_t n : num_points) points += n;
  TF_RETURN_IF_ERROR(Expect(
      weights_text, c->WithValue(c->Dim(locations, 3), points, &unused)));
  return Expect("num_points must have a number for each level",
                c->WithValue(levels, num_points.size(), &unused));
}

// The output's shape, from values, spatial_shapes, sampling_locations and
// attention_weights, inputs `first` on.
absl::Status SetAttentionShape(InferenceContext* c, int first,
                               ShapeHandle* output) {
  ShapeHandle values, levels;
  TF_RETURN_IF_ERROR(Expect("values must be [N, S, heads, channels]",
                            c->WithRank(c->input(first), 4, &values)));
  TF_RETURN_IF_ERROR(Expect("spatial_shapes must be [levels, 2]",
                            c->WithRank(c->input(first + 1), 2, &levels)));
  DimensionHandle two, batch = c->Dim(values, 0), heads = c->Dim(values, 2);
  TF_RETURN_IF_ERROR(Expect("spatial_shapes must be [levels, 2]",
                            c->WithValue(c->Dim(levels, 1), 2, &two)));
  DimensionHandle queries, channels;
  TF_RETURN_IF_ERROR(
      MergePoints(c, first + 2, c->Dim(levels, 0), &batch, &queries, &heads));
  // Inputs without elements may have sides of any size.
  DimensionHandle size = batch;
  TF_RETURN_IF_ERROR(
      Expect(kFits, c->Multiply(heads, c->Dim(values, 3), &channels)));
  TF_RETURN_IF_ERROR(Expect(kFits, c->Multiply(size, queries, &size)));
  TF_RETURN_IF_ERROR(Expect(kFits, c->Multiply(size, channels, &size)));
  *output = c->MakeShape({batch, queries, channels});
  return absl::OkStatus();
}

}  // namespace
}  // namespace tfo

#define TFO_ATTENTION_ATTRS                       \
  .Attr("num_points: list(int) = []")             \
      .Attr("T: {half, bfloat16, float, double}") \
      .Attr("Tvalue: {float, double}")

// Without num_points, locations and weights have a dim for the levels.
REGISTER_OP("TensorflowOps>MultiscaleDeformableAttention")
    .Input("values: T")
    .Input("spatial_shapes: int64")
    .Input("sampling_locations: Tvalue")
    .Input("attention_weights: Tvalue")
    .Output("output: T") TFO_ATTENTION_ATTRS.SetShapeFn(
        [](::tensorflow::shape_inference::InferenceContext* c) {
          ::tensorflow::shape_inference::ShapeHandle output;
          TF_RETURN_IF_ERROR(tfo::SetAttentionShape(c, 0, &output));
          c->set_output(0, output);
          return absl::OkStatus();
        });

REGISTER_OP("TensorflowOps>MultiscaleDeformableAttentionGrad")
    .Input("d_output: T")
    .Input("values: T")
    .Input("spatial_shapes: int64")
    .Input("sampling_locations: Tvalue")
    .Input("attention_weights: Tvalue")
    .Output("d_values: T")
    .Output("d_sampling_locations: Tvalue")
    .Output("d_attention_weights: Tvalue") TFO_ATTENTION_ATTRS
    .SetShapeFn([](::tensorflow::shape_inference::InferenceContext* c) {
      ::tensorflow::shape_inference::ShapeHandle output;
      TF_RETURN_IF_ERROR(tfo::SetAttentionShape(c, 1, &output));
      TF_RETURN_IF_ERROR(tfo::Expect("d_output must have the output's shape",
                                     c->Merge(c->input(0), output, &output)));
      c->set_output(0, c->input(1));
      c->set_output(1, c->input(3));
      c->set_output(2, c->input(4));
      return absl::OkStatus();
    });
