// CrfLogLikelihood, its gradient, CrfMarginals, CrfDecode: names, inputs,
// attrs, outputs, shapes.
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow_ops/core/cc/named_dims.h"

namespace tfo {
namespace {

using ::tensorflow::shape_inference::DimensionHandle;
using ::tensorflow::shape_inference::InferenceContext;

// Reads logits, transitions and lengths, inputs `first` on.
absl::Status ReadCrf(InferenceContext* c, int first, NamedDims* dims) {
  TF_RETURN_IF_ERROR(dims->Read(
      first, {"logits must be [batch, frames, tags]",
              "transitions must be [tags, tags]", "lengths must be [batch]"}));
  const DimensionHandle tags = (*dims)["tags"];
  if (c->ValueKnown(tags) && c->Value(tags) == 0) {
    return absl::InvalidArgumentError("logits must have at least one tag");
  }
  return absl::OkStatus();
}

// The same after labels.
absl::Status ReadLabeledCrf(InferenceContext* c, NamedDims* dims) {
  TF_RETURN_IF_ERROR(ReadCrf(c, 1, dims));
  return dims->Read(0, {"labels must be [batch, frames]"});
}

#define TFO_CRF_ATTRS                         \
  .Attr("T: {half, bfloat16, float, double}") \
      .Attr("Tvalue: {float, double}")        \
      .Attr("Tlengths: {int32, int64}")

REGISTER_OP("TensorflowOps>CrfLogLikelihood")
    .Input("labels: Tlabels")
    .Input("logits: T")
    .Input("transitions: Tvalue")
    .Input("lengths: Tlengths")
    .Output("log_likelihood: Tvalue") TFO_CRF_ATTRS
    .Attr("Tlabels: {int32, int64}")
    .SetShapeFn([](InferenceContext* c) {
      NamedDims dims(c);
      TF_RETURN_IF_ERROR(ReadLabeledCrf(c, &dims));
      return dims.Write({"[batch]"});
    });

REGISTER_OP("TensorflowOps>CrfLogLikelihoodGrad")
    .Input("labels: Tlabels")
    .Input("logits: T")
    .Input("transitions: Tvalue")
    .Input("lengths: Tlengths")
    .Input("d_log_likelihood: Tvalue")
    .Output("d_logits: T")
    .Output("d_transitions: Tvalue") TFO_CRF_ATTRS
    .Attr("Tlabels: {int32, int64}")
    .SetShapeFn([](InferenceContext* c) {
      NamedDims dims(c);
      TF_RETURN_IF_ERROR(ReadLabeledCrf(c, &dims));
      TF_RETURN_IF_ERROR(dims.Read(4, {"d_log_likelihood must be [batch]"}));
      return dims.Write({"[batch, frames, tags]", "[tags, tags]"});
    });

REGISTER_OP("TensorflowOps>CrfMarginals")
    .Input("logits: T")
    .Input("transitions: Tvalue")
    .Input("lengths: Tlengths")
    .Output("marginals: Tvalue")
        TFO_CRF_ATTRS.SetShapeFn([](InferenceContext* c) {
          NamedDims dims(c);
          TF_RETURN_IF_ERROR(ReadCrf(c, 0, &dims));
          return dims.Write({"[batch, frames, tags]"});
        });

REGISTER_OP("TensorflowOps>CrfDecode")
    .Input("logits: T")
    .Input("transitions: Tvalue")
    .Input("lengths: Tlengths")
    .Output("labels: int32")
    .Output("scores: Tvalue") TFO_CRF_ATTRS.SetShapeFn([](InferenceContext* c) {
      NamedDims dims(c);
      TF_RETURN_IF_ERROR(ReadCrf(c, 0, &dims));
      return dims.Write({"[batch, frames]", "[batch]"});
    });

}  // namespace
}  // namespace tfo
