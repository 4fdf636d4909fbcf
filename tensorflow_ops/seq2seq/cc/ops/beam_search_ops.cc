// The op of a step of beam search: names, inputs, attrs, outputs, shapes.
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow_ops/core/cc/glue/named_dims.h"

namespace tfo {
namespace {

using ::tensorflow::shape_inference::DimensionHandle;
using ::tensorflow::shape_inference::InferenceContext;

absl::Status BeamSearchStepShape(InferenceContext* c) {
  NamedDims dims(c);
  TF_RETURN_IF_ERROR(
      dims.Read(0, {"logits must be [batch, beams, vocabulary]"}));
  const int64_t tokens = c->Value(dims["vocabulary"]);
  if (tokens == 0 || c->Value(dims["beams"]) == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("logits must have at least one beam and one token, got ",
                     c->DebugString(c->input(0))));
  }
  if (tokens > INT32_MAX) {
    return absl::InvalidArgumentError(
        absl::StrCat("logits must have at most 2147483647 tokens, got ",
                     c->DebugString(c->input(0))));
  }
  TF_RETURN_IF_ERROR(dims.Read(
      1, {"log_probs must be [batch, beams]", "finished must be [batch, beams]",
          "lengths must be [batch, beams]",
          "eos_ids must be a vector [end tokens]",
          "length_penalty must be a scalar", "eos_rule must be a scalar",
          "beam_width must be a scalar"}));
  TF_RETURN_IF_ERROR(
      dims.ReadOptional({"forbidden must be [batch, beams, vocabulary]"}));
  DimensionHandle& width = dims["width"];
  TF_RETURN_IF_ERROR(Expect("beam_width must be at least 1",
                            c->MakeDimForScalarInput(7, &width)));
  if (c->ValueKnown(width) && c->Value(width) < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("beam_width must be at least 1, got ", c->Value(width)));
  }
  constexpr char kNext[] = "[batch, width]";
  return dims.Write({kNext, kNext, kNext, kNext, kNext});
}

}  // namespace
}  // namespace tfo

// eos_rule: 0, any token may follow; 1, no end token; 2, only an end token.
// F is 1 where there is a mask, else 0.
REGISTER_OP("TensorflowOps>BeamSearchStep")
    .Input("logits: T")
    .Input("log_probs: Tvalue")
    .Input("finished: bool")
    .Input("lengths: int32")
    .Input("eos_ids: int32")
    .Input("length_penalty: double")
    .Input("eos_rule: int32")
    .Input("beam_width: int32")
    .Input("forbidden: F * bool")
    .Output("next_log_probs: Tvalue")
    .Output("token_ids: int32")
    .Output("parent_ids: int32")
    .Output("next_finished: bool")
    .Output("next_lengths: int32")
    .Attr("T: {half, bfloat16, float, double}")
    .Attr("Tvalue: {float, double}")
    .Attr("F: int >= 0")
    .SetShapeFn(tfo::BeamSearchStepShape);
