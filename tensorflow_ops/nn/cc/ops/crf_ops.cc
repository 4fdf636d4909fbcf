// CrfLogLikelihood, its gradient, CrfMarginals, CrfDecode: names, inputs,
// attrs, outputs, shapes.
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow_ops/core/cc/op_util.h"

namespace tfo {
namespace {

using ::tensorflow::shape_inference::DimensionHandle;
using ::tensorflow::shape_inference::InferenceContext;
using ::tensorflow::shape_inference::ShapeHandle;

struct CrfDims {
  DimensionHandle batch, frames, tags;
};

// Of inputs logits [B, T, K], transitions [K, K] and lengths [B], from `first`
// on.
absl::Status ReadCrfDims(InferenceContext* c, int first, CrfDims* dims) {
  ShapeHandle logits, transitions, lengths;
  TF_RETURN_IF_ERROR(Expect("logits must be [batch, frames, tags]",
                            c->WithRank(c->input(first), 3, &logits)));
  *dims = {c->Dim(logits, 0), c->Dim(logits, 1), c->Dim(logits, 2)};
  const char* const square = "transitions must be [tags, tags]";
  TF_RETURN_IF_ERROR(
      Expect(square, c->WithRank(c->input(first + 1), 2, &transitions)));
  for (int i = 0; i < 2; ++i) {
    TF_RETURN_IF_ERROR(Expect(
        square, c->Merge(c->Dim(transitions, i), dims->tags, &dims->tags)));
  }
  if (c->ValueKnown(dims->tags) && c->Value(dims->tags) == 0) {
    return absl::InvalidArgumentError("logits must have at least one tag");
  }
  const char* const of_batch = "lengths must be [batch]";
  TF_RETURN_IF_ERROR(
      Expect(of_batch, c->WithRank(c->input(first + 2), 1, &lengths)));
  return Expect(of_batch,
                c->Merge(c->Dim(lengths, 0), dims->batch, &dims->batch));
}

// The same after labels [B, T].
absl::Status ReadCrfLabelDims(InferenceContext* c, CrfDims* dims) {
  TF_RETURN_IF_ERROR(ReadCrfDims(c, 1, dims));
  const char* const expected = "labels must be [batch, frames]";
  ShapeHandle labels;
  TF_RETURN_IF_ERROR(Expect(expected, c->WithRank(c->input(0), 2, &labels)));
  TF_RETURN_IF_ERROR(
      Expect(expected, c->Merge(c->Dim(labels, 0), dims->batch, &dims->batch)));
  return Expect(expected,
                c->Merge(c->Dim(labels, 1), dims->frames, &dims->frames));
}

ShapeHandle CrfCells(InferenceContext* c, const CrfDims& dims) {
  return c->MakeShape({dims.batch, dims.frames, dims.tags});
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
      CrfDims dims;
      TF_RETURN_IF_ERROR(ReadCrfLabelDims(c, &dims));
      c->set_output(0, c->Vector(dims.batch));
      return absl::OkStatus();
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
      CrfDims dims;
      TF_RETURN_IF_ERROR(ReadCrfLabelDims(c, &dims));
      ShapeHandle d;
      TF_RETURN_IF_ERROR(
          Expect("d_log_likelihood must be [batch]",
                 c->Merge(c->input(4), c->Vector(dims.batch), &d)));
      c->set_output(0, CrfCells(c, dims));
      c->set_output(1, c->Matrix(dims.tags, dims.tags));
      return absl::OkStatus();
    });

REGISTER_OP("TensorflowOps>CrfMarginals")
    .Input("logits: T")
    .Input("transitions: Tvalue")
    .Input("lengths: Tlengths")
    .Output("marginals: Tvalue")
        TFO_CRF_ATTRS.SetShapeFn([](InferenceContext* c) {
          CrfDims dims;
          TF_RETURN_IF_ERROR(ReadCrfDims(c, 0, &dims));
          c->set_output(0, CrfCells(c, dims));
          return absl::OkStatus();
        });

REGISTER_OP("TensorflowOps>CrfDecode")
    .Input("logits: T")
    .Input("transitions: Tvalue")
    .Input("lengths: Tlengths")
    .Output("labels: int32")
    .Output("scores: Tvalue") TFO_CRF_ATTRS.SetShapeFn([](InferenceContext* c) {
      CrfDims dims;
      TF_RETURN_IF_ERROR(ReadCrfDims(c, 0, &dims));
      c->set_output(0, c->Matrix(dims.batch, dims.frames));
      c->set_output(1, c->Vector(dims.batch));
      return absl::OkStatus();
    });

}  // namespace
}  // namespace tfo
