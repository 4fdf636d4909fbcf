// Attention, its gradients and DecodeAttention: names, inputs, attrs, outputs,
// shapes.
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow_ops/core/cc/glue/named_dims.h"

namespace tfo {
namespace {

using ::tensorflow::shape_inference::DimensionHandle;
using ::tensorflow::shape_inference::InferenceContext;
using ::tensorflow::shape_inference::ShapeHandle;

bool IsRagged(InferenceContext* c) {
  int splits;
  return c->GetAttr("is_ragged", &splits).ok() && splits > 0;
}

// The mask or the bias: each dim is 1 or of its name.
absl::Status ReadBroadcast(InferenceContext* c, const char* name,
                           NamedDims* dims) {
  std::optional<ShapeHandle> given;
  TF_RETURN_IF_ERROR(OptionalInput(c, name, &given));
  if (!given.has_value()) return absl::OkStatus();
  std::string text = absl::StrCat(name, " must broadcast to [B, heads, T, S]");
  ShapeHandle shape;
  TF_RETURN_IF_ERROR(Expect(text, c->WithRank(*given, 4, &shape)));
  int i = 0;
  // Ragged: T and S are unknown here; the kernel compares them with `longest`.
  for (const char* dim : {"B", "heads", "T", "S"}) {
    const DimensionHandle found = c->Dim(shape, i++);
    DimensionHandle size = (*dims)[dim];
    if (!c->ValueKnown(found) || c->Value(found) == 1) continue;
    const absl::Status fits = c->Merge(size, found, &size);
    // Keras's mask of padding, [B, S].
    if (!fits.ok() && i == 3 && c->Value((*dims)["B"]) == c->Value(found)) {
      text += ", for padding of keys pass mask[:, None, None] or key_lengths";
    }
    TF_RETURN_IF_ERROR(Expect(text, fits));
  }
  return absl::OkStatus();
}

// Checks alibi_slopes and sinks, and that heads are a multiple of key heads.
absl::Status ReadHeads(InferenceContext* c, const char* batch, const char* key,
                       NamedDims* dims) {
  TF_RETURN_IF_ERROR(dims->ReadOptional(
      {"sinks must be [heads]", "alibi_slopes must be [slopes, heads]"}));
  DimensionHandle slopes = (*dims)["slopes"];
  if (c->ValueKnown(slopes) && c->Value(slopes) != 1) {
    TF_RETURN_IF_ERROR(Expect(
        absl::StrCat("alibi_slopes must be [1, heads] or [", batch, ", heads]"),
        c->Merge((*dims)[batch], slopes, &slopes)));
  }
  const DimensionHandle heads = (*dims)["heads"],
                        key_heads = (*dims)["key_heads"];
  if (!c->ValueKnown(heads) || !c->ValueKnown(key_heads)) {
    return absl::OkStatus();
  }
  const int64_t n = c->Value(heads), k = c->Value(key_heads);
  if (k > 0 ? n % k == 0 : n == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("query has ", n, " heads and ", key, " ", k,
                   ", expected a multiple of those of ", key));
}

// Checks the inputs that all three ops have, and names their dims.
absl::Status ReadOperands(InferenceContext* c, NamedDims* dims) {
  if (IsRagged(c)) {
    TF_RETURN_IF_ERROR(dims->Read(0, {"query must be [queries, heads, D]",
                                      "key must be [keys, key_heads, D]",
                                      "value must be [keys, key_heads, Dv]"}));
  } else {
    TF_RETURN_IF_ERROR(dims->Read(0, {"query must be [B, T, heads, D]",
                                      "key must be [B, S, key_heads, D]",
                                      "value must be [B, S, key_heads, Dv]"}));
  }
  TF_RETURN_IF_ERROR(dims->ReadOptional(
      {"query_splits must be [B + 1]", "key_splits must be [B + 1]",
       "lengths must be [B]", "key_lengths must be [B]",
       "query_offset must be [B]", "seed must be [2]", "longest must be [2]"}));
  for (const char* name : {"mask", "bias"}) {
    TF_RETURN_IF_ERROR(ReadBroadcast(c, name, dims));
  }
  return ReadHeads(c, "B", "key", dims);
}

// The dims of the output and of log_sum_exp, for NamedDims.
const char* OutputDims(InferenceContext* c) {
  return IsRagged(c) ? "[queries, heads, Dv]" : "[B, T, heads, Dv]";
}
const char* SumDims(InferenceContext* c) {
  return IsRagged(c) ? "[heads, queries]" : "[B, heads, T]";
}

absl::Status SetAttentionShapes(InferenceContext* c) {
  NamedDims dims(c);
  TF_RETURN_IF_ERROR(ReadOperands(c, &dims));
  return dims.Write({OutputDims(c), SumDims(c)});
}

absl::Status ReadGradInputs(InferenceContext* c) {
  NamedDims dims(c);
  TF_RETURN_IF_ERROR(ReadOperands(c, &dims));
  const std::string output = OutputDims(c), sums = SumDims(c);
  return dims.Read(
      c->num_inputs() - 4,
      {"output must be " + output, "log_sum_exp must be " + sums,
       "d_output must be " + output, "d_log_sum_exp must be " + sums});
}

absl::Status SetAttentionGradShapes(InferenceContext* c) {
  TF_RETURN_IF_ERROR(ReadGradInputs(c));
  for (int i = 0; i < 3; ++i) c->set_output(i, c->input(i));
  std::optional<ShapeHandle> sinks;
  TF_RETURN_IF_ERROR(OptionalInput(c, "sinks", &sinks));
  if (sinks.has_value()) c->set_output(3, *sinks);
  return absl::OkStatus();
}

absl::Status SetAttentionBiasGradShapes(InferenceContext* c) {
  TF_RETURN_IF_ERROR(ReadGradInputs(c));
  std::optional<ShapeHandle> bias;
  TF_RETURN_IF_ERROR(OptionalInput(c, "bias", &bias));
  if (!bias.has_value()) {
    return absl::InvalidArgumentError("bias has no tensors, expected one");
  }
  c->set_output(0, *bias);
  return absl::OkStatus();
}

// With ancestors, the rows are beams.
absl::Status SetDecodeAttentionShapes(InferenceContext* c) {
  NamedDims dims(c);
  TF_RETURN_IF_ERROR(dims.Read(
      0, {"query must be [R, T, heads, D]", "keys must be [R, S, key_heads, D]",
          "values must be [R, S, key_heads, Dv]", "lengths must be [R]"}));
  TF_RETURN_IF_ERROR(ReadHeads(c, "R", "keys", &dims));
  TF_RETURN_IF_ERROR(dims.ReadOptional({"ancestors must be [B, W, S]"}));
  std::optional<ShapeHandle> ancestors;
  TF_RETURN_IF_ERROR(OptionalInput(c, "ancestors", &ancestors));
  if (ancestors.has_value()) {
    DimensionHandle rows;
    TF_RETURN_IF_ERROR(c->Multiply(dims["B"], dims["W"], &rows));
    TF_RETURN_IF_ERROR(Expect("ancestors must be [B, W, S] with B * W = R",
                              c->Merge(rows, dims["R"], &rows)));
  }
  return dims.Write({"[R, T, heads, Dv]"});
}

}  // namespace
}  // namespace tfo

// Optional inputs are lists of no tensor or of one; attrs count them. Ragged
// query, key and value are the flat values of RaggedTensors; `longest` has the
// most queries and the most keys of an example, on the host.
#define TFO_ATTENTION_INPUTS                            \
  .Input("query: T")                                    \
      .Input("key: T")                                  \
      .Input("value: T")                                \
      .Input("mask: has_mask * bool")                   \
      .Input("bias: has_bias * T")                      \
      .Input("alibi_slopes: has_alibi_slopes * Theads") \
      .Input("sinks: has_sinks * Theads")               \
      .Input("query_splits: is_ragged * int64")         \
      .Input("key_splits: is_ragged * int64")           \
      .Input("lengths: has_lengths * int32")            \
      .Input("key_lengths: has_key_lengths * int32")    \
      .Input("query_offset: has_query_offset * int32")  \
      .Input("seed: has_dropout * int32")               \
      .Input("longest: is_ragged * int64")

// scale, softcap and dropout are the sums of floats (ReadNumber); without scale
// it is 1 / sqrt(D). left and right are the window, -1 if without bound. Theads
// is Tvalue where alibi_slopes or sinks are given.
#define TFO_ATTENTION_ATTRS                       \
  .Attr("scale: list(float) = []")                \
      .Attr("softcap: list(float) = []")          \
      .Attr("dropout: list(float) = []")          \
      .Attr("left: int >= -1 = -1")               \
      .Attr("right: int >= -1 = -1")              \
      .Attr("has_mask: int >= 0")                 \
      .Attr("has_bias: int >= 0")                 \
      .Attr("has_alibi_slopes: int >= 0")         \
      .Attr("has_sinks: int >= 0")                \
      .Attr("is_ragged: int >= 0")                \
      .Attr("has_lengths: int >= 0")              \
      .Attr("has_key_lengths: int >= 0")          \
      .Attr("has_query_offset: int >= 0")         \
      .Attr("has_dropout: int >= 0")              \
      .Attr("T: {half, bfloat16, float, double}") \
      .Attr("Tvalue: {float, double}")            \
      .Attr("Theads: {float, double} = DT_FLOAT")

#define TFO_ATTENTION_GRAD_INPUTS         \
  TFO_ATTENTION_INPUTS.Input("output: T") \
      .Input("log_sum_exp: Tvalue")       \
      .Input("d_output: T")               \
      .Input("d_log_sum_exp: Tvalue")

REGISTER_OP("TensorflowOps>Attention")
TFO_ATTENTION_INPUTS.Output("output: T")
    .Output("log_sum_exp: Tvalue")
        TFO_ATTENTION_ATTRS.SetShapeFn(tfo::SetAttentionShapes);

REGISTER_OP("TensorflowOps>AttentionGrad")
TFO_ATTENTION_GRAD_INPUTS.Output("d_query: T")
    .Output("d_key: T")
    .Output("d_value: T")
    .Output("d_sinks: has_sinks * Tvalue")
        TFO_ATTENTION_ATTRS.SetShapeFn(tfo::SetAttentionGradShapes);

// An op of its own, because a bias often needs no gradient. It needs the bias.
REGISTER_OP("TensorflowOps>AttentionBiasGrad")
TFO_ATTENTION_GRAD_INPUTS.Output("d_bias: T")
    TFO_ATTENTION_ATTRS.SetShapeFn(tfo::SetAttentionBiasGradShapes);

// Causal attention to a cache, where query t has the position lengths - T + t.
REGISTER_OP("TensorflowOps>DecodeAttention")
    .Input("query: T")
    .Input("keys: T")
    .Input("values: T")
    .Input("lengths: int32")
    .Input("alibi_slopes: has_alibi_slopes * Theads")
    .Input("sinks: has_sinks * Theads")
    .Input("ancestors: has_ancestors * int32")
    .Output("output: T")
    .Attr("scale: list(float) = []")
    .Attr("softcap: list(float) = []")
    .Attr("left: int >= -1 = -1")
    .Attr("has_alibi_slopes: int >= 0")
    .Attr("has_sinks: int >= 0")
    .Attr("has_ancestors: int >= 0")
    .Attr("T: {half, bfloat16, float, double}")
    .Attr("Theads: {float, double} = DT_FLOAT")
    .SetShapeFn(tfo::SetDecodeAttentionShapes);
