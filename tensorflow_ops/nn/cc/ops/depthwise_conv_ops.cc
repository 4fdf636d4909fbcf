// DepthwiseConv2d and its gradient: names, inputs, attrs, outputs, shapes.
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow_ops/nn/cc/kernels/depthwise_conv/depthwise_conv_shapes_op.h"

namespace tfo {
namespace {

using ::tensorflow::shape_inference::DimensionHandle;
using ::tensorflow::shape_inference::InferenceContext;
using ::tensorflow::shape_inference::ShapeHandle;

// The output's shape from the input and the filter, inputs `first` on.
absl::Status DepthwiseConvolvedShape(InferenceContext* c, int first,
                                     ShapeHandle* output) {
  ConvAttrs attrs;
  TF_RETURN_IF_ERROR(attrs.Read(c));
  ShapeHandle input, filter;
  TF_RETURN_IF_ERROR(
      Expect("input must be 4-D", c->WithRank(c->input(first), 4, &input)));
  TF_RETURN_IF_ERROR(Expect("filter must be 3-D",
                            c->WithRank(c->input(first + 1), 3, &filter)));
  for (int i = 0; i < 3; ++i) {
    const DimensionHandle size = c->Dim(filter, i);
    if (c->ValueKnown(size) && c->Value(size) < 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("filter must be [height, width, channels], "
                       "all at least 1, got ",
                       c->DebugString(filter)));
    }
  }
  DimensionHandle channels, places[2];
  TF_RETURN_IF_ERROR(
      Expect("filter must be [height, width, channels], with input's channels",
             c->Merge(c->Dim(input, 3), c->Dim(filter, 2), &channels)));
  for (int axis = 0; axis < 2; ++axis) {
    const DimensionHandle size = c->Dim(input, 1 + axis);
    const DimensionHandle taps = c->Dim(filter, axis);
    places[axis] = c->UnknownDim();
    if (c->ValueKnown(size) && c->ValueKnown(taps)) {
      const int64_t outputs =
          AxisOf(attrs, axis, c->Value(size), c->Value(taps)).outputs;
      if (outputs < 0) {
        return absl::InvalidArgumentError(
            "input must be at least as large as the filter");
      }
      places[axis] = c->MakeDim(outputs);
    }
  }
  *output = c->MakeShape({c->Dim(input, 0), places[0], places[1], channels});
  return absl::OkStatus();
}

absl::Status SetDepthwiseConvShape(InferenceContext* c) {
  ShapeHandle output;
  TF_RETURN_IF_ERROR(DepthwiseConvolvedShape(c, 0, &output));
  c->set_output(0, output);
  return absl::OkStatus();
}

absl::Status SetDepthwiseConvGradShapes(InferenceContext* c) {
  ShapeHandle output;
  TF_RETURN_IF_ERROR(DepthwiseConvolvedShape(c, 1, &output));
  TF_RETURN_IF_ERROR(Expect("d_output must have the output's shape",
                            c->Merge(c->input(0), output, &output)));
  for (int i = 0; i < 2; ++i) c->set_output(i, c->input(i + 1));
  return absl::OkStatus();
}

}  // namespace
}  // namespace tfo

#define TFO_DEPTHWISE_CONV_ATTRS                                \
  .Attr("strides: list(int) = [1, 1]")                          \
      .Attr("dilations: list(int) = [1, 1]")                    \
      .Attr("padding: {'SAME', 'VALID', 'EXPLICIT'} = 'VALID'") \
      .Attr("paddings: list(int) = [0, 0, 0, 0]")               \
      .Attr("T: {half, bfloat16, float, double}")

REGISTER_OP("TensorflowOps>DepthwiseConv2d")
    .Input("input: T")
    .Input("filter: T")
    .Output("output: T")
        TFO_DEPTHWISE_CONV_ATTRS.SetShapeFn(tfo::SetDepthwiseConvShape);

REGISTER_OP("TensorflowOps>DepthwiseConv2dGrad")
    .Input("d_output: T")
    .Input("input: T")
    .Input("filter: T")
    .Output("d_input: T")
    .Output("d_filter: T")
        TFO_DEPTHWISE_CONV_ATTRS.SetShapeFn(tfo::SetDepthwiseConvGradShapes);
