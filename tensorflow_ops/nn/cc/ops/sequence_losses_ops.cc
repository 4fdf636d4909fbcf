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
  ShapeHandle logits;
  ShapeHandle losses;  // [B]
  ShapeHandle rows;    // all dims of the logits but classes
};

// logits are [B, T, V] or, of nodes, [B, T, U + 1, V].
absl::Status ReadDims(InferenceContext* c, bool nodes, SequenceDims* dims) {
  ShapeHandle labels, lengths;
  DimensionHandle batch;
  TF_RETURN_IF_ERROR(Expect("labels must be [batch, labels]",
                            c->WithRank(c->input(0), 2, &labels)));
  const char* const logits_shape =
      nodes ? "logits must be [batch, frames, labels + 1, classes]"
            : "logits must be [batch, frames, classes]";
  TF_RETURN_IF_ERROR(Expect(
      logits_shape, c->WithRank(c->input(1), nodes ? 4 : 3, &dims->logits)));
  TF_RETURN_IF_ERROR(
      Expect("labels and logits must have the same batch",
             c->Merge(c->Dim(labels, 0), c->Dim(dims->logits, 0), &batch)));
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
    TF_RETURN_IF_ERROR(
        Expect(expected, c->Merge(c->Dim(lengths, 0), batch, &batch)));
  }
  TF_RETURN_IF_ERROR(c->ReplaceDim(dims->logits, 0, batch, &dims->logits));
  dims->losses = c->Vector(batch);
  TF_RETURN_IF_ERROR(c->Subshape(dims->logits, 0, -1, &dims->rows));
  int64_t blank;
  TF_RETURN_IF_ERROR(c->GetAttr("blank_index", &blank));
  const DimensionHandle classes = c->Dim(dims->logits, -1);
  if (!c->ValueKnown(classes)) return absl::OkStatus();
  return ReadBlank(blank, c->Value(classes), &blank);
}

template <bool kNodes>
absl::Status InferLoss(InferenceContext* c) {
  SequenceDims dims;
  TF_RETURN_IF_ERROR(ReadDims(c, kNodes, &dims));
  c->set_output(0, dims.losses);
  c->set_output(1, dims.rows);
  c->set_output(2, dims.rows);
  return absl::OkStatus();
}

template <bool kNodes>
absl::Status InferLossGrad(InferenceContext* c) {
  SequenceDims dims;
  TF_RETURN_IF_ERROR(ReadDims(c, kNodes, &dims));
  const char* const names[] = {"d_loss", "largest", "rest"};
  for (int i = 0; i < 3; ++i) {
    ShapeHandle merged;
    TF_RETURN_IF_ERROR(Expect(
        absl::StrCat(names[i], " must have the loss's shape"),
        c->Merge(c->input(4 + i), i == 0 ? dims.losses : dims.rows, &merged)));
  }
  c->set_output(0, dims.logits);
  return absl::OkStatus();
}

#define TFO_SEQUENCE_LOSS_ATTRS               \
  .Attr("T: {half, bfloat16, float, double}") \
      .Attr("Tvalue: {float, double}")        \
      .Attr("Tlabels: {int32, int64}")        \
      .Attr("Tlengths: {int32, int64}")       \
      .Attr("blank_index: int = 0")

// `largest` and `rest` of a row of logits: its largest logit, and the sum of
// e^(logit - largest) minus 1.
#define TFO_SEQUENCE_LOSS               \
  .Input("labels: Tlabels")             \
      .Input("logits: T")               \
      .Input("label_lengths: Tlengths") \
      .Input("logit_lengths: Tlengths") \
      .Output("loss: Tvalue")           \
      .Output("largest: Tvalue")        \
      .Output("rest: Tvalue") TFO_SEQUENCE_LOSS_ATTRS
#define TFO_SEQUENCE_LOSS_GRAD          \
  .Input("labels: Tlabels")             \
      .Input("logits: T")               \
      .Input("label_lengths: Tlengths") \
      .Input("logit_lengths: Tlengths") \
      .Input("d_loss: Tvalue")          \
      .Input("largest: Tvalue")         \
      .Input("rest: Tvalue")            \
      .Output("d_logits: T") TFO_SEQUENCE_LOSS_ATTRS

REGISTER_OP("TensorflowOps>CtcLoss")
TFO_SEQUENCE_LOSS.Attr("zero_infinity: bool = false")
    .SetShapeFn(InferLoss</*kNodes=*/false>);
REGISTER_OP("TensorflowOps>CtcLossGrad")
TFO_SEQUENCE_LOSS_GRAD.SetShapeFn(InferLossGrad</*kNodes=*/false>);
REGISTER_OP("TensorflowOps>RnntLoss")
TFO_SEQUENCE_LOSS.SetShapeFn(InferLoss</*kNodes=*/true>);
REGISTER_OP("TensorflowOps>RnntLossGrad")
TFO_SEQUENCE_LOSS_GRAD.SetShapeFn(InferLossGrad</*kNodes=*/true>);

}  // namespace
}  // namespace tfo
