// The op of a step of beam search: names, inputs, attrs, outputs, shapes.
#include <limits>

#include "absl/strings/str_cat.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow_ops/core/cc/op_util.h"

namespace tfo {
namespace {

using ::tensorflow::shape_inference::DimensionHandle;
using ::tensorflow::shape_inference::InferenceContext;
using ::tensorflow::shape_inference::ShapeHandle;

absl::Status BeamSearchStepShape(InferenceContext* c) {
  ShapeHandle logits, beams, unused;
  TF_RETURN_IF_ERROR(Expect("logits must be [batch, beams, vocabulary]",
                            c->WithRank(c->input(0), 3, &logits)));
  if (c->num_inputs() > 8) {
    TF_RETURN_IF_ERROR(Expect("forbidden must have logits' shape",
                              c->Merge(logits, c->input(8), &logits)));
  }
  TF_RETURN_IF_ERROR(c->Subshape(logits, 0, 2, &beams));
  for (int i = 1; i < 3; ++i) {
    const DimensionHandle size = c->Dim(logits, i);
    if (!c->ValueKnown(size)) continue;
    if (c->Value(size) == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("logits must have at least one beam and one token, got ",
                       c->DebugString(logits)));
    }
    if (i == 2 && c->Value(size) > std::numeric_limits<int32_t>::max()) {
      return absl::InvalidArgumentError(
          absl::StrCat("logits must have at most 2147483647 tokens, got ",
                       c->DebugString(logits)));
    }
  }
  for (int i = 1; i < 4; ++i) {
    TF_RETURN_IF_ERROR(
        Expect("log_probs, finished and lengths must be [batch, beams]",
               c->Merge(beams, c->input(i), &beams)));
  }
  TF_RETURN_IF_ERROR(
      Expect("eos_ids must be a vector", c->WithRank(c->input(4), 1, &unused)));
  for (int i = 5; i < 8; ++i) {
    TF_RETURN_IF_ERROR(
        Expect("length_penalty, eos_rule and beam_width must be scalars",
               c->WithRank(c->input(i), 0, &unused)));
  }
  DimensionHandle width;
  TF_RETURN_IF_ERROR(Expect("beam_width must be at least 1",
                            c->MakeDimForScalarInput(7, &width)));
  if (c->ValueKnown(width) && c->Value(width) < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("beam_width must be at least 1, got ", c->Value(width)));
  }
  for (int i = 0; i < 5; ++i) {
    c->set_output(i, c->Matrix(c->Dim(beams, 0), width));
  }
  return absl::OkStatus();
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
