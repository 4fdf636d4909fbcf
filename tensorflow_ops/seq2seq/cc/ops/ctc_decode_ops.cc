// CtcGreedyDecode, CtcBeamSearchDecode, CtcBeamSearchStep: names, inputs,
// attrs, outputs, shapes.
#include <initializer_list>
#include <limits>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow_ops/core/cc/op_util.h"
#include "tensorflow_ops/nn/cc/kernels/sequence_losses/sequence_inputs_op.h"
#include "tensorflow_ops/seq2seq/cc/kernels/ctc_decode/ctc_decode.h"

namespace tfo {
namespace {

using ::tensorflow::shape_inference::DimensionHandle;
using ::tensorflow::shape_inference::InferenceContext;
using ::tensorflow::shape_inference::ShapeHandle;

// Refuses an attr blank_index that is no class, and classes beyond int32.
absl::Status CheckCtcBlank(InferenceContext* c, DimensionHandle classes) {
  int64_t blank;
  TF_RETURN_IF_ERROR(c->GetAttr("blank_index", &blank));
  if (!c->ValueKnown(classes)) return absl::OkStatus();
  if (c->Value(classes) > std::numeric_limits<int32_t>::max()) {
    return absl::InvalidArgumentError(
        absl::StrCat("logits have ", c->Value(classes),
                     " classes, expected at most 2147483647"));
  }
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
  ShapeHandle logits, weights;
  TF_RETURN_IF_ERROR(Expect("logits must be [batch, classes]",
                            c->WithRank(c->input(0), 2, &logits)));
  const DimensionHandle classes = c->Dim(logits, 1);
  TF_RETURN_IF_ERROR(CheckCtcBlank(c, classes));
  TF_RETURN_IF_ERROR(Expect("weights must be [batch, beam_width, 3]",
                            c->WithRank(c->input(2), 3, &weights)));
  const DimensionHandle width = c->Dim(weights, 1);
  if (c->ValueKnown(width) && c->Value(width) == 0) {
    return absl::InvalidArgumentError("beam_width is 0, expected at least 1");
  }
  DimensionHandle batch;
  TF_RETURN_IF_ERROR(
      Expect("weights must be [batch, beam_width, 3]",
             c->Merge(c->Dim(logits, 0), c->Dim(weights, 0), &batch)));
  for (const auto& [input, expected, dims] :
       std::initializer_list<std::tuple<int, const char*, ShapeHandle>>{
           {1, "is_frame must be [batch]", c->Vector(batch)},
           {2, "weights must be [batch, beam_width, 3]",
            c->MakeShape({batch, width, c->MakeDim(kCtcWeights)})},
           {3, "prefixes must be [batch, beam_width, 5]",
            c->MakeShape({batch, width, c->MakeDim(kCtcPrefixIds)})},
           {4, "label_scores must be [batch, beam_width, classes]",
            c->MakeShape({batch, width, classes})},
           {5, "lm_weight must be a scalar", c->Scalar()},
           {6, "label_bonus must be a scalar", c->Scalar()}}) {
    ShapeHandle merged;
    TF_RETURN_IF_ERROR(
        Expect(expected, c->Merge(c->input(input), dims, &merged)));
    if (input == 2 || input == 3) c->set_output(input - 2, merged);
  }
  c->set_output(2, c->Matrix(batch, width));
  c->set_output(3, c->Matrix(batch, width));
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
