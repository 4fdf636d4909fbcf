// MultiscaleDeformableAttention and its gradient: names, inputs, attrs,
// outputs, shapes.
#include <numeric>

#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow_ops/core/cc/glue/named_dims.h"

namespace tfo {
namespace {

using ::tensorflow::shape_inference::DimensionHandle;
using ::tensorflow::shape_inference::InferenceContext;
using ::tensorflow::shape_inference::ShapeHandle;

constexpr char kFits[] =
    "values and attention_weights must have fewer than 2^63 numbers in [N, Q, "
    "heads * channels]";

// The output's shape, from values, spatial_shapes, sampling_locations and
// attention_weights, inputs `first` on.
absl::Status SetAttentionShape(InferenceContext* c, int first,
                               ShapeHandle* output) {
  std::vector<int64_t> num_points;
  TF_RETURN_IF_ERROR(c->GetAttr("num_points", &num_points));
  const std::string points =
      num_points.empty() ? "levels, points" : "sum of num_points";
  NamedDims dims(c);
  TF_RETURN_IF_ERROR(dims.Read(
      first, {"values must be [N, S, heads, channels]",
              "spatial_shapes must be [levels, 2]",
              "sampling_locations must be [N, Q, heads, " + points + ", 2]",
              "attention_weights must be [N, Q, heads, " + points + "]"}));
  if (!num_points.empty()) {
    DimensionHandle unused;
    const int64_t sum =
        std::accumulate(num_points.begin(), num_points.end(), int64_t{0});
    TF_RETURN_IF_ERROR(
        Expect("attention_weights must be [N, Q, heads, sum of num_points]",
               c->WithValue(dims[points], sum, &unused)));
    TF_RETURN_IF_ERROR(
        Expect("num_points must have a number for each level",
               c->WithValue(dims["levels"], num_points.size(), &unused)));
  }
  // Inputs without elements may have sides of any size.
  DimensionHandle channels, size;
  TF_RETURN_IF_ERROR(
      Expect(kFits, c->Multiply(dims["heads"], dims["channels"], &channels)));
  TF_RETURN_IF_ERROR(Expect(kFits, c->Multiply(dims["N"], dims["Q"], &size)));
  TF_RETURN_IF_ERROR(Expect(kFits, c->Multiply(size, channels, &size)));
  *output = c->MakeShape({dims["N"], dims["Q"], channels});
  return absl::OkStatus();
}

}  // namespace
}  // namespace tfo

#define TFO_DEFORMABLE_ATTENTION_ATTRS            \
  .Attr("num_points: list(int) = []")             \
      .Attr("T: {half, bfloat16, float, double}") \
      .Attr("Tvalue: {float, double}")

// Without num_points, locations and weights have a dim for the levels.
REGISTER_OP("TensorflowOps>MultiscaleDeformableAttention")
    .Input("values: T")
    .Input("spatial_shapes: int64")
    .Input("sampling_locations: Tvalue")
    .Input("attention_weights: Tvalue")
    .Output("output: T") TFO_DEFORMABLE_ATTENTION_ATTRS.SetShapeFn(
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
    .Output("d_attention_weights: Tvalue") TFO_DEFORMABLE_ATTENTION_ATTRS
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
