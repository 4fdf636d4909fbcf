// Lstm, Gru and their gradients: names, inputs, attrs, outputs, shapes.
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow_ops/core/cc/named_dims.h"

namespace tfo {
namespace {

using ::tensorflow::shape_inference::InferenceContext;

#define TFO_RECURRENT_ATTRS                                               \
  .Attr(                                                                  \
      "activation: {'tanh', 'sigmoid', 'relu', 'linear', 'hard_sigmoid'}" \
      " = 'tanh'")                                                        \
      .Attr(                                                              \
          "recurrent_activation: {'tanh', 'sigmoid', 'relu', 'linear', "  \
          "'hard_sigmoid'} = 'sigmoid'")                                  \
      .Attr("has_mask: int >= 0")                                         \
      .Attr("T: {float, double}")

// gates and cells are for the gradient.
REGISTER_OP("TensorflowOps>Lstm")
    .Input("gate_inputs: T")
    .Input("recurrent_kernel: T")
    .Input("bias: T")
    .Input("h0: T")
    .Input("c0: T")
    .Input("mask: has_mask * bool")
    .Output("outputs: T")
    .Output("h: T")
    .Output("c: T")
    .Output("gates: T")
    .Output("cells: T") TFO_RECURRENT_ATTRS.SetShapeFn([](InferenceContext* c) {
      NamedDims dims(c);
      TF_RETURN_IF_ERROR(
          dims.Read(0, {"gate_inputs must be [batch, steps, 4, units]",
                        "recurrent_kernel must be [units, 4, units]",
                        "bias must be [4, units]", "h0 must be [batch, units]",
                        "c0 must be [batch, units]"}));
      TF_RETURN_IF_ERROR(dims.ReadOptional({"mask must be [batch, steps]"}));
      return dims.Write({"[batch, steps, units]", "[batch, units]",
                         "[batch, units]", "[batch, steps, 4, units]",
                         "[batch, steps, units]"});
    });

REGISTER_OP("TensorflowOps>LstmGrad")
    .Input("gates: T")
    .Input("recurrent_kernel: T")
    .Input("c0: T")
    .Input("cells: T")
    .Input("d_outputs: T")
    .Input("d_h: T")
    .Input("d_c: T")
    .Input("mask: has_mask * bool")
    .Output("d_gate_inputs: T")
    .Output("d_h0: T")
    .Output("d_c0: T") TFO_RECURRENT_ATTRS.SetShapeFn([](InferenceContext* c) {
      NamedDims dims(c);
      TF_RETURN_IF_ERROR(dims.Read(
          0,
          {"gates must be [batch, steps, 4, units]",
           "recurrent_kernel must be [units, 4, units]",
           "c0 must be [batch, units]", "cells must be [batch, steps, units]",
           "d_outputs must be [batch, steps, units]",
           "d_h must be [batch, units]", "d_c must be [batch, units]"}));
      TF_RETURN_IF_ERROR(dims.ReadOptional({"mask must be [batch, steps]"}));
      return dims.Write(
          {"[batch, steps, 4, units]", "[batch, units]", "[batch, units]"});
    });

// gates and resets are for the gradient.
REGISTER_OP("TensorflowOps>Gru")
    .Input("gate_inputs: T")
    .Input("recurrent_kernel: T")
    .Input("bias: T")
    .Input("h0: T")
    .Input("mask: has_mask * bool")
    .Output("outputs: T")
    .Output("h: T")
    .Output("gates: T")
    .Output("resets: T") TFO_RECURRENT_ATTRS.Attr("reset_after: bool = true")
    .SetShapeFn([](InferenceContext* c) {
      NamedDims dims(c);
      TF_RETURN_IF_ERROR(dims.Read(
          0, {"gate_inputs must be [batch, steps, 3, units]",
              "recurrent_kernel must be [units, 3, units]",
              "bias must be [2, 3, units]", "h0 must be [batch, units]"}));
      TF_RETURN_IF_ERROR(dims.ReadOptional({"mask must be [batch, steps]"}));
      return dims.Write({"[batch, steps, units]", "[batch, units]",
                         "[batch, steps, 3, units]", "[batch, steps, units]"});
    });

REGISTER_OP("TensorflowOps>GruGrad")
    .Input("gates: T")
    .Input("recurrent_kernel: T")
    .Input("h0: T")
    .Input("outputs: T")
    .Input("resets: T")
    .Input("d_outputs: T")
    .Input("d_h: T")
    .Input("mask: has_mask * bool")
    .Output("d_gate_inputs: T")
    .Output("d_recurrent_sums: T")
    .Output("d_h0: T") TFO_RECURRENT_ATTRS.Attr("reset_after: bool = true")
    .SetShapeFn([](InferenceContext* c) {
      NamedDims dims(c);
      TF_RETURN_IF_ERROR(dims.Read(
          0,
          {"gates must be [batch, steps, 3, units]",
           "recurrent_kernel must be [units, 3, units]",
           "h0 must be [batch, units]", "outputs must be [batch, steps, units]",
           "resets must be [batch, steps, units]",
           "d_outputs must be [batch, steps, units]",
           "d_h must be [batch, units]"}));
      TF_RETURN_IF_ERROR(dims.ReadOptional({"mask must be [batch, steps]"}));
      return dims.Write({"[batch, steps, 3, units]", "[batch, steps, 3, units]",
                         "[batch, units]"});
    });

}  // namespace
}  // namespace tfo
