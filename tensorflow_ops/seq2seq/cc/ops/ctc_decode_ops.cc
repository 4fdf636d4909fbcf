// CtcGreedyDecode, CtcBeamSearchDecode, CtcBeamSearchStep: names, inputs,
// attrs, outputs, shapes.
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow_ops/core/cc/named_dims.h"
#include "tensorflow_ops/nn/cc/kernels/sequence_losses/sequence_inputs_op.h"
#include "tensorflow_ops/seq2seq/cc/kernels/ctc_decode/ctc_decode.h"

namespace tfo {
namespace {

using ::tensorflow::shape_inference::InferenceContext;

// Refuses an attr blank_index that is no class, and classes beyond int32.
absl::Status CheckCtcBlank(InferenceContext* c, NamedDims* dims) {
  int64_t blank;
  TF_RETURN_IF_ERROR(c->GetAttr("blank_index", &blank));
  const int64_t classes = c->Value((*dims)["classes"]);
  if (classes < 0) return absl::OkStatus();
  if (classes > INT32_MAX) {
    return absl::InvalidArgumentError(absl::StrCat(
        "logits have ", classes, " classes, expected at most 2147483647"));
  }
  return ReadBlank(blank, classes, &blank);
}

// Reads logits and logit_lengths.
absl::Status ReadFrames(InferenceContext* c, NamedDims* dims) {
  TF_RETURN_IF_ERROR(dims->Read(0, {"logits must be [batch, frames, classes]",
                                    "logit_lengths must be [batch]"}));
  return CheckCtcBlank(c, dims);
}

absl::Status CtcGreedyDecodeShape(InferenceContext* c) {
  NamedDims dims(c);
  TF_RETURN_IF_ERROR(ReadFrames(c, &dims));
  return dims.Write({"[batch, frames]", "[batch]", "[batch]"});
}

absl::Status CtcBeamSearchDecodeShape(InferenceContext* c) {
  NamedDims dims(c);
  TF_RETURN_IF_ERROR(ReadFrames(c, &dims));
  TF_RETURN_IF_ERROR(dims.Read(2, {"label_bonus must be a scalar"}));
  int64_t paths;
  TF_RETURN_IF_ERROR(c->GetAttr("top_paths", &paths));
  dims["paths"] = c->MakeDim(paths);
  constexpr char kPaths[] = "[batch, paths]";
  return dims.Write({"[batch, paths, frames]", kPaths, kPaths, kPaths});
}

absl::Status CtcBeamSearchStepShape(InferenceContext* c) {
  static_assert(kCtcWeights == 3 && kCtcPrefixIds == 5);
  NamedDims dims(c);
  TF_RETURN_IF_ERROR(dims.Read(
      0, {"logits must be [batch, classes]", "is_frame must be [batch]",
          "weights must be [batch, beam_width, 3]",
          "prefixes must be [batch, beam_width, 5]",
          "label_scores must be [batch, beam_width, classes]",
          "lm_weight must be a scalar", "label_bonus must be a scalar"}));
  TF_RETURN_IF_ERROR(CheckCtcBlank(c, &dims));
  if (c->Value(dims["beam_width"]) == 0) {
    return absl::InvalidArgumentError("beam_width is 0, expected at least 1");
  }
  return dims.Write({"[batch, beam_width, 3]", "[batch, beam_width, 5]",
                     "[batch, beam_width]", "[batch, beam_width]"});
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
