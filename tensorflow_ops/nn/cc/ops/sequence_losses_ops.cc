// The ops of label sequences: names, inputs, attrs, outputs, shapes.
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow_ops/core/cc/named_dims.h"
#include "tensorflow_ops/nn/cc/kernels/sequence_losses/sequence_inputs_op.h"

namespace tfo {
namespace {

using ::tensorflow::shape_inference::DimensionHandle;
using ::tensorflow::shape_inference::InferenceContext;

// Logits of frames, or of nodes.
constexpr char kFrames[] = "[batch, frames, classes]";
constexpr char kNodes[] = "[batch, frames, labels + 1, classes]";
constexpr char kFrameRows[] = "[batch, frames]";
constexpr char kNodeRows[] = "[batch, frames, labels + 1]";

// Reads labels, logits, label_lengths and logit_lengths, inputs 0 to 3.
absl::Status ReadSequences(InferenceContext* c, const std::string& logits,
                           NamedDims* dims) {
  TF_RETURN_IF_ERROR(dims->Read(
      0, {"labels must be [batch, labels]",
          "logits must be " + logits + " with labels' batch",
          "label_lengths must be [batch]", "logit_lengths must be [batch]"}));
  int64_t blank;
  TF_RETURN_IF_ERROR(c->GetAttr("blank_index", &blank));
  const DimensionHandle classes = (*dims)["classes"];
  if (!c->ValueKnown(classes)) return absl::OkStatus();
  return ReadBlank(blank, c->Value(classes), &blank);
}

template <const char* logits, const char* rows>
absl::Status InferLoss(InferenceContext* c) {
  NamedDims dims(c);
  TF_RETURN_IF_ERROR(ReadSequences(c, logits, &dims));
  return dims.Write({"[batch]", rows, rows});
}

template <const char* logits, const char* rows>
absl::Status InferLossGrad(InferenceContext* c) {
  NamedDims dims(c);
  TF_RETURN_IF_ERROR(ReadSequences(c, logits, &dims));
  TF_RETURN_IF_ERROR(dims.Read(
      4, {"d_loss must be [batch]", std::string("largest must be ") + rows,
          std::string("rest must be ") + rows}));
  return dims.Write({logits});
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
    .SetShapeFn(InferLoss<kFrames, kFrameRows>);
REGISTER_OP("TensorflowOps>CtcLossGrad")
TFO_SEQUENCE_LOSS_GRAD.SetShapeFn(InferLossGrad<kFrames, kFrameRows>);
REGISTER_OP("TensorflowOps>RnntLoss")
TFO_SEQUENCE_LOSS.SetShapeFn(InferLoss<kNodes, kNodeRows>);
REGISTER_OP("TensorflowOps>RnntLossGrad")
TFO_SEQUENCE_LOSS_GRAD.SetShapeFn(InferLossGrad<kNodes, kNodeRows>);

}  // namespace
}  // namespace tfo
