// CtcGreedyDecode, CtcBeamSearchDecode, CtcBeamSearchStep: names, inputs,
// attrs, outputs, shapes.
#include "absl/strings/str_cat.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow_ops/core/cc/op_util.h"
#include "tensorflow_ops/nn/cc/kernels/sequence_losses/sequence_inputs_op.h"

namespace tfo {
namespace {

using ::tensorflow::shape_inference::DimensionHandle;
using ::tensorflow::shape_inference::InferenceContext;
using ::tensorflow::shape_inference::ShapeHandle;

// Ok, or that attr blank_index is no class.
absl::Status CheckCtcBlank(InferenceContext* c, DimensionHandle classes) {
  int64_t blank;
  TF_RETURN_IF_ERROR(c->GetAttr("blank_index", &blank));
  if (!c->ValueKnown(classes)) return absl::OkStatus();
  return ReadBlank(blank, c->Value(classes), &blank);
}

// Of inputs logits [B, T, V] and logit_lengths [B].
absl::Status ReadCtcDims(InferenceContext* c, DimensionHandle* batch,
                         DimensionHandle* frames) {
  ShapeHandle logits, lengths;
  TF_RETURN_IF_ERROR(Expect("logits must be [batch, frames, classes]",
                            c->WithRank(c->input(0), 3, &logits)));
  TF_RETURN_IF_ERROR(CheckCtcBlank(c, c->Dim(logits, 2)));
  const char* const of_batch = "logit_lengths must be [batch]";
  TF_RETURN_IF_ERROR(Expect(of_batch, c->WithRank(c->input(1), 1, &lengths)));
  *frames = c->Dim(logits, 1);
  return Expect(of_batch,
                c->Merge(c->Dim(lengths, 0), c->Dim(logits, 0), batch));
}

absl::Status CtcGreedyDecodeShape(InferenceContext* c) {
  DimensionHandle batch, frames;
  TF_RETURN_IF_ERROR(ReadCtcDims(c, &batch, &frames));
  c->set_output(0, c->Matrix(batch, frames));
  c->set_output(1, c->Vector(batch));
  c->set_output(2, c->Vector(batch));
  return absl::OkStatus();
}

absl::Status CtcBeamSearchDecodeShape(InferenceContext* c) {
  DimensionHandle batch, frames;
  TF_RETURN_IF_ERROR(ReadCtcDims(c, &batch, &frames));
  ShapeHandle unused;
  TF_RETURN_IF_ERROR(Expect("label_bonus must be a scalar",
                            c->WithRank(c->input(2), 0, &unused)));
  int64_t paths;
  TF_RETURN_IF_ERROR(c->GetAttr("top_paths", &paths));
  c->set_output(0, c->MakeShape({batch, c->MakeDim(paths), frames}));
  for (int i = 1; i < 4; ++i) {
    c->set_output(i, c->Matrix(batch, c->MakeDim(paths)));
  }
  return absl::OkStatus();
}

absl::Status CtcBeamSearchStepShape(InferenceContext* c) {
  ShapeHandle logits, is_frame, weights, prefixes, scores, unused;
  TF_RETURN_IF_ERROR(Expect("logits must be [batch, classes]",
                            c->WithRank(c->input(0), 2, &logits)));
  TF_RETURN_IF_ERROR(CheckCtcBlank(c, c->Dim(logits, 1)));
  TF_RETURN_IF_ERROR(Expect("is_frame must be a vector",
                            c->WithRank(c->input(1), 1, &is_frame)));
  TF_RETURN_IF_ERROR(Expect("weights must be [batch, beam_width, 3]",
                            c->WithRank(c->input(2), 3, &weights)));
  TF_RETURN_IF_ERROR(Expect("prefixes must be [batch, beam_width, 5]",
                            c->WithRank(c->input(3), 3, &prefixes)));
  TF_RETURN_IF_ERROR(Expect("label_scores must be [batch, beam_width, classes]",
                            c->WithRank(c->input(4), 3, &scores)));
  for (int i = 5; i < 7; ++i) {
    TF_RETURN_IF_ERROR(Expect("lm_weight and label_bonus must be scalars",
                              c->WithRank(c->input(i), 0, &unused)));
  }
  c->set_output(0, weights);
  c->set_output(1, prefixes);
  TF_RETURN_IF_ERROR(c->Subshape(weights, 0, 2, &weights));
  c->set_output(2, weights);
  c->set_output(3, weights);
  return absl::OkStatus();
}

}  // namespace
}  // namespace tfo

#define TFO_CTC_ATTRS                         \
  .Attr("T: {half, bfloat16, float, double}") \
      .Attr("Tvalue: {float, double}")        \
      .Attr("blank_index: int >= -1")

REGISTER_OP("TensorflowOps>CtcGreedyDecode")
    .Input("logits: T")
    .Input("logit_lengths: Tlengths")
    .Output("labels: int32")
    .Output("lengths: int32")
    .Output("log_probs: Tvalue") TFO_CTC_ATTRS.Attr("Tlengths: {int32, int64}")
    .Attr("merge_repeated: bool")
    .Attr("pad_id: int")
    .SetShapeFn(tfo::CtcGreedyDecodeShape);

REGISTER_OP("TensorflowOps>CtcBeamSearchDecode")
    .Input("logits: T")
    .Input("logit_lengths: Tlengths")
    .Input("label_bonus: double")
    .Output("labels: int32")
    .Output("lengths: int32")
    .Output("scores: Tvalue")
    .Output("log_probs: Tvalue") TFO_CTC_ATTRS.Attr("Tlengths: {int32, int64}")
    .Attr("beam_width: int >= 1")
    .Attr("top_paths: int >= 1")
    .Attr("pad_id: int")
    .SetShapeFn(tfo::CtcBeamSearchDecodeShape);

// A frame of the search with label scores. weights and prefixes are the beam
// (ctc_decode.h).
REGISTER_OP("TensorflowOps>CtcBeamSearchStep")
    .Input("logits: T")
    .Input("is_frame: bool")
    .Input("weights: double")
    .Input("prefixes: int64")
    .Input("label_scores: Tvalue")
    .Input("lm_weight: double")
    .Input("label_bonus: double")
    .Output("next_weights: double")
    .Output("next_prefixes: int64")
    .Output("parents: int32")
    .Output("labels: int32")
        TFO_CTC_ATTRS.SetShapeFn(tfo::CtcBeamSearchStepShape);

#undef TFO_CTC_ATTRS
