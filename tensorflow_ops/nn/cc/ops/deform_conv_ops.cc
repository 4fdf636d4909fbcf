// DeformConv2d and its gradient: names, inputs, attrs, outputs, shapes.
#include <optional>

#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow_ops/core/cc/glue/named_dims.h"
#include "tensorflow_ops/nn/cc/kernels/deform_conv/deform_conv_shapes_op.h"

namespace tfo {
namespace {

using ::tensorflow::shape_inference::DimensionHandle;
using ::tensorflow::shape_inference::InferenceContext;
using ::tensorflow::shape_inference::ShapeHandle;

// Copies the dims of a shape of rank 4 if all are known.
bool KnownDims(InferenceContext* c, ShapeHandle shape, FourDims* dims) {
  for (int i = 0; i < 4; ++i) {
    (*dims)[i] = c->RankKnown(shape) ? c->Value(c->Dim(shape, i)) : -1;
    if ((*dims)[i] < 0) return false;
  }
  return true;
}

// The output's shape from features, offsets and filters, inputs `first` on, the
// mask and the bias, as far as known.
absl::Status ConvolvedShape(InferenceContext* c, int first,
                            ShapeHandle* output) {
  ConvAttrs attrs;
  TF_RETURN_IF_ERROR(attrs.Read(c));
  std::optional<ShapeHandle> mask;
  TF_RETURN_IF_ERROR(OptionalInput(c, "mask", &mask));
  constexpr const char* kNames[] = {"features", "offsets", "filters", "mask"};
  ShapeHandle shapes[4];
  FourDims dims[4];
  bool known = true;
  for (int i = 0; i < (mask.has_value() ? 4 : 3); ++i) {
    shapes[i] = i < 3 ? c->input(first + i) : *mask;
    TF_RETURN_IF_ERROR(Expect(absl::StrCat(kNames[i], " must be 4-D"),
                              c->WithRank(shapes[i], 4, &shapes[i])));
    known &= KnownDims(c, shapes[i], &dims[i]);
  }
  if (known) {
    DeformConvShape args;
    TF_RETURN_IF_ERROR(CheckDeformConv(attrs, dims[0], dims[1], dims[2],
                                       mask.has_value() ? &dims[3] : nullptr,
                                       &args));
  }
  DimensionHandle batch, places[2];
  const char* const kExpected =
      "offsets must have features' batch and the "
      "output's height and width";
  TF_RETURN_IF_ERROR(Expect(
      kExpected, c->Merge(c->Dim(shapes[0], 0), c->Dim(shapes[1], 0), &batch)));
  for (int axis = 0; axis < 2; ++axis) {
    const DimensionHandle size = c->Dim(shapes[0], 1 + axis);
    const DimensionHandle kernel = c->Dim(shapes[2], axis);
    places[axis] = c->Dim(shapes[1], 1 + axis);
    if (!c->ValueKnown(size) || !c->ValueKnown(kernel)) continue;
    int64_t before;
    const int64_t length = std::max<int64_t>(
        0, attrs.OutputSize(axis, c->Value(size), c->Value(kernel), &before));
    TF_RETURN_IF_ERROR(Expect(
        kExpected, c->Merge(places[axis], c->MakeDim(length), &places[axis])));
  }
  NamedDims names(c);
  names["channels"] = c->Dim(shapes[2], 3);
  TF_RETURN_IF_ERROR(names.ReadOptional(
      {"bias must be [channels]: a number for each output channel of "
       "filters"}));
  *output = c->MakeShape({batch, places[0], places[1], names["channels"]});
  return absl::OkStatus();
}

absl::Status SetDeformConvShape(InferenceContext* c) {
  ShapeHandle output;
  TF_RETURN_IF_ERROR(ConvolvedShape(c, 0, &output));
  c->set_output(0, output);
  return absl::OkStatus();
}

absl::Status SetDeformConvGradShapes(InferenceContext* c) {
  ShapeHandle output;
  TF_RETURN_IF_ERROR(ConvolvedShape(c, 1, &output));
  TF_RETURN_IF_ERROR(Expect("d_output must have the output's shape",
                            c->Merge(c->input(0), output, &output)));
  for (int i = 0; i < c->num_outputs(); ++i) c->set_output(i, c->input(i + 1));
  return absl::OkStatus();
}

}  // namespace
}  // namespace tfo

#define TFO_DEFORM_CONV_ATTRS                                   \
  .Attr("strides: list(int) = [1, 1]")                          \
      .Attr("dilations: list(int) = [1, 1]")                    \
      .Attr("padding: {'SAME', 'VALID', 'EXPLICIT'} = 'VALID'") \
      .Attr("paddings: list(int) = [0, 0, 0, 0]")               \
      .Attr("has_mask: int >= 0")                               \
      .Attr("has_bias: int >= 0")                               \
      .Attr("T: {half, bfloat16, float, double}")               \
      .Attr("Tvalue: {float, double}")

// mask and bias are lists of no tensor or of one; attrs count them.
REGISTER_OP("TensorflowOps>DeformConv2d")
    .Input("features: T")
    .Input("offsets: Tvalue")
    .Input("filters: T")
    .Input("mask: has_mask * T")
    .Input("bias: has_bias * T")
    .Output("output: T")
        TFO_DEFORM_CONV_ATTRS.SetShapeFn(tfo::SetDeformConvShape);

REGISTER_OP("TensorflowOps>DeformConv2dGrad")
    .Input("d_output: T")
    .Input("features: T")
    .Input("offsets: Tvalue")
    .Input("filters: T")
    .Input("mask: has_mask * T")
    .Input("bias: has_bias * T")
    .Output("d_features: T")
    .Output("d_offsets: Tvalue")
    .Output("d_filters: T")
    .Output("d_mask: has_mask * T")
    .Output("d_bias: has_bias * T")
        TFO_DEFORM_CONV_ATTRS.SetShapeFn(tfo::SetDeformConvGradShapes);
