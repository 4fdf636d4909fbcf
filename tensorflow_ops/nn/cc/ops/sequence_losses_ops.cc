// The ops of label sequences: names, inputs, attrs, outputs, shapes.
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow_ops/core/cc/op_util.h"
#include "tensorflow_ops/nn/cc/kernels/sequence_losses/sequence_inputs_op.h"

namespace tfo {
namespace {

using ::tensorflow::shape_inference::DimensionHandle;
using ::tensorflow::shape_inference::InferenceContext;
using ::tensorflow::shape_inference::ShapeHandle;

// Of inputs labels [B, U], logits, label_lengths [B] and logit_lengths [B], in
// this order.
struct SequenceDims {
  DimensionHandle batch;
  ShapeHandle logits;
};

// logits are [B, T, V] or, of nodes, [B, T, U + 1, V].
absl::Status ReadDims(InferenceContext* c, bool nodes, SequenceDims* dims) {
  ShapeHandle labels, lengths;
  TF_RETURN_IF_ERROR(Expect("labels must be [batch, labels]",
                            c->WithRank(c->input(0), 2, &labels)));
  const char* const logits_shape =
      nodes ? "logits must be [batch, frames, labels + 1, classes]"
            : "logits must be [batch, frames, classes]";
  TF_RETURN_IF_ERROR(Expect(
      logits_shape, c->WithRank(c->input(1), nodes ? 4 : 3, &dims->logits)));
  TF_RETURN_IF_ERROR(Expect(
      "labels and logits must have the same batch",
      c->Merge(c->Dim(labels, 0), c->Dim(dims->logits, 0), &dims->batch)));
  if (nodes) {
    DimensionHandle states;
    TF_RETURN_IF_ERROR(c->Add(c->Dim(labels, 1), 1, &states));
    TF_RETURN_IF_ERROR(Expect(
        logits_shape, c->Merge(c->Dim(dims->logits, 2), states, &states)));
    TF_RETURN_IF_ERROR(c->ReplaceDim(dims->logits, 2, states, &dims->logits));
  }
  for (int i = 2; i < 4; ++i) {
    const char* const expected = i == 2 ? "label_lengths must be [batch]"
                                        : "logit_lengths must be [batch]";
    TF_RETURN_IF_ERROR(Expect(expected, c->WithRank(c->input(i), 1, &lengths)));
    TF_RETURN_IF_ERROR(Expect(
        expected, c->Merge(c->Dim(lengths, 0), dims->batch, &dims->batch)));
  }
  TF_RETURN_IF_ERROR(
      c->ReplaceDim(dims->logits, 0, dims->batch, &dims->logits));
  int64_t blank;
  TF_RETURN_IF_ERROR(c->GetAttr("blank_index", &blank));
  const DimensionHandle classes = c->Dim(dims->logits, -1);
  if (!c->ValueKnown(classes)) return absl::OkStatus();
  return ReadBlank(blank, c->Value(classes), &blank);
}

// All dims of the logits but classes.
ShapeHandle RowsOf(InferenceContext* c, const SequenceDims& dims) {
  ShapeHandle rows;
  return c->Subshape(dims.logits, 0, -1, &rows).ok() ? rows : c->UnknownShape();
}

// Merges input `i` into a shape, by name.
absl::Status MergeInput(InferenceContext* c, int i, const char* name,
                        ShapeHandle shape) {
  ShapeHandle merged;
  return Expect(absl::StrCat(name, " must have the loss's shape"),
                c->Merge(c->input(i), shape, &merged));
}

#define TFO_SEQUENCE_LOSS_INPUTS        \
  .Input("labels: Tlabels")             \
      .Input("logits: T")               \
      .Input("label_lengths: Tlengths") \
      .Input("logit_lengths: Tlengths")
#define TFO_SEQUENCE_LOSS_ATTRS               \
  .Attr("T: {half, bfloat16, float, double}") \
      .Attr("Tvalue: {float, double}")        \
      .Attr("Tlabels: {int32, int64}")        \
      .Attr("Tlengths: {int32, int64}")       \
      .Attr("blank_index: int = 0")

// `largest` and `rest` of a row of logits: its largest logit, and the sum of
// e^(logit - largest) minus 1.
REGISTER_OP("TensorflowOps>CtcLoss")
TFO_SEQUENCE_LOSS_INPUTS.Output("loss: Tvalue")
    .Output("largest: Tvalue")
    .Output("rest: Tvalue") TFO_SEQUENCE_LOSS_ATTRS
    .Attr("zero_infinity: bool = false")
    .SetShapeFn([](InferenceContext* c) {
      SequenceDims dims;
      TF_RETURN_IF_ERROR(ReadDims(c, /*nodes=*/false, &dims));
      c->set_output(0, c->Vector(dims.batch));
      for (int i = 1; i < 3; ++i) {
        c->set_output(i, RowsOf(c, dims));
      }
      return absl::OkStatus();
    });

REGISTER_OP("TensorflowOps>CtcLossGrad")
TFO_SEQUENCE_LOSS_INPUTS.Input("d_loss: Tvalue")
    .Input("largest: Tvalue")
    .Input("rest: Tvalue")
    .Output("d_logits: T")
        TFO_SEQUENCE_LOSS_ATTRS.SetShapeFn([](InferenceContext* c) {
          SequenceDims dims;
          TF_RETURN_IF_ERROR(ReadDims(c, /*nodes=*/false, &dims));
          TF_RETURN_IF_ERROR(MergeInput(c, 4, "d_loss", c->Vector(dims.batch)));
          const ShapeHandle rows = RowsOf(c, dims);
          TF_RETURN_IF_ERROR(MergeInput(c, 5, "largest", rows));
          TF_RETURN_IF_ERROR(MergeInput(c, 6, "rest", rows));
          c->set_output(0, dims.logits);
          return absl::OkStatus();
        });

REGISTER_OP("TensorflowOps>RnntLoss")
TFO_SEQUENCE_LOSS_INPUTS.Output("loss: Tvalue")
    .Output("largest: Tvalue")
    .Output("rest: Tvalue")
        TFO_SEQUENCE_LOSS_ATTRS.SetShapeFn([](InferenceContext* c) {
          SequenceDims dims;
          TF_RETURN_IF_ERROR(ReadDims(c, /*nodes=*/true, &dims));
          c->set_output(0, c->Vector(dims.batch));
          for (int i = 1; i < 3; ++i) {
            c->set_output(i, RowsOf(c, dims));
          }
          return absl::OkStatus();
        });

REGISTER_OP("TensorflowOps>RnntLossGrad")
TFO_SEQUENCE_LOSS_INPUTS.Input("d_loss: Tvalue")
    .Input("largest: Tvalue")
    .Input("rest: Tvalue")
    .Output("d_logits: T")
        TFO_SEQUENCE_LOSS_ATTRS.SetShapeFn([](InferenceContext* c) {
          SequenceDims dims;
          TF_RETURN_IF_ERROR(ReadDims(c, /*nodes=*/true, &dims));
          TF_RETURN_IF_ERROR(MergeInput(c, 4, "d_loss", c->Vector(dims.batch)));
          const ShapeHandle rows = RowsOf(c, dims);
          TF_RETURN_IF_ERROR(MergeInput(c, 5, "largest", rows));
          TF_RETURN_IF_ERROR(MergeInput(c, 6, "rest", rows));
          c->set_output(0, dims.logits);
          return absl::OkStatus();
        });

}  // namespace
}  // namespace tfo
