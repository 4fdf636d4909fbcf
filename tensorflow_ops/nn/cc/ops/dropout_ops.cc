// Dropout and its gradient: names, inputs, outputs, shapes.
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow_ops/core/cc/glue/op_util.h"

namespace tfo {
namespace {

using ::tensorflow::shape_inference::DimensionHandle;
using ::tensorflow::shape_inference::InferenceContext;
using ::tensorflow::shape_inference::ShapeHandle;

// The mask of a tensor of a shape: a bit a number.
absl::Status MaskShape(InferenceContext* c, ShapeHandle numbers,
                       ShapeHandle* mask) {
  DimensionHandle bytes = c->UnknownDim();
  if (c->RankKnown(numbers)) {
    bytes = c->MakeDim(1);
    for (int i = 0; i < c->Rank(numbers); ++i) {
      TF_RETURN_IF_ERROR(c->Multiply(bytes, c->Dim(numbers, i), &bytes));
    }
    TF_RETURN_IF_ERROR(c->Add(bytes, 7, &bytes));
    TF_RETURN_IF_ERROR(c->Divide(bytes, 8, /*evenly_divisible=*/false, &bytes));
  }
  *mask = c->Vector(bytes);
  return absl::OkStatus();
}

absl::Status DropoutShape(InferenceContext* c) {
  ShapeHandle mask, known;
  TF_RETURN_IF_ERROR(
      Expect("key must be [1]", c->Merge(c->input(1), c->Vector(1), &known)));
  TF_RETURN_IF_ERROR(Expect("counter must be [2]",
                            c->Merge(c->input(2), c->Vector(2), &known)));
  TF_RETURN_IF_ERROR(MaskShape(c, c->input(0), &mask));
  c->set_output(0, c->input(0));
  c->set_output(1, mask);
  return absl::OkStatus();
}

absl::Status DropoutGradShape(InferenceContext* c) {
  ShapeHandle mask;
  TF_RETURN_IF_ERROR(MaskShape(c, c->input(0), &mask));
  TF_RETURN_IF_ERROR(Expect("mask must have a bit for each number of d_output",
                            c->Merge(c->input(1), mask, &mask)));
  c->set_output(0, c->input(0));
  return absl::OkStatus();
}

}  // namespace
}  // namespace tfo

// `least` and `scale` are the rate: a number is kept whose random bits are at
// least rate * 2^bits (dropout.h), and multiplied by 1 / (1 - rate), the sum of
// floats (ReadNumber).
REGISTER_OP("TensorflowOps>Dropout")
    .Input("inputs: T")
    .Input("key: uint64")
    .Input("counter: uint64")
    .Output("output: T")
    .Output("mask: uint8")
    .Attr("least: int >= 0")
    .Attr("scale: list(float)")
    .Attr("T: {half, bfloat16, float, double}")
    .SetShapeFn(tfo::DropoutShape);

REGISTER_OP("TensorflowOps>DropoutGrad")
    .Input("d_output: T")
    .Input("mask: uint8")
    .Output("d_inputs: T")
    .Attr("scale: list(float)")
    .Attr("T: {half, bfloat16, float, double}")
    .SetShapeFn(tfo::DropoutGradShape);
