// Attention and its gradients: names, inputs, attrs, outputs, shapes.
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow_ops/core/cc/named_dims.h"

namespace tfo {
namespace {

using ::tensorflow::shape_inference::DimensionHandle;
using ::tensorflow::shape_inference::InferenceContext;
using ::tensorflow::shape_inference::ShapeHandle;

// The inputs of all three ops.
enum AttentionInput {
  kQuery,
  kKey,
  kValue,
  kMask,
  kBias,
  kAlibiSlopes,
  kSinks,
  kQuerySplits,
  kKeySplits,
  kLengths,
  kKeyLengths,
  kQueryOffset,
  kSeed,
  kLongest,
  kNumInputs,
};

bool Has(InferenceContext* c, const std::string& attr) {
  bool has;
  return c->GetAttr(attr, &has).ok() && has;
}

// A placeholder, where the attr says that the input is absent.
absl::Status ReadAbsent(int input, const std::string& name,
                        const std::string& attr, NamedDims* dims) {
  return dims->Read(
      input, {absl::StrCat(name, " must be [0] if ", attr, " is false")});
}

// An input of this shape, or a placeholder.
absl::Status ReadOptional(InferenceContext* c, int input, const char* name,
                          const char* attr, const char* shape,
                          NamedDims* dims) {
  if (!Has(c, attr)) return ReadAbsent(input, name, attr, dims);
  return dims->Read(input, {absl::StrCat(name, " must be ", shape)});
}

// The mask or the bias: each dim is 1 or of its name.
absl::Status ReadBroadcast(InferenceContext* c, int input, const char* name,
                           NamedDims* dims) {
  const std::string attr = absl::StrCat("has_", name);
  if (!Has(c, attr)) return ReadAbsent(input, name, attr, dims);
  const std::string text =
      absl::StrCat(name, " must broadcast to [B, heads, T, S]");
  ShapeHandle shape;
  TF_RETURN_IF_ERROR(Expect(text, c->WithRank(c->input(input), 4, &shape)));
  int i = 0;
  // Ragged: T and S are unknown here; the kernel compares them with `longest`.
  for (const char* dim : {"B", "heads", "T", "S"}) {
    const DimensionHandle found = c->Dim(shape, i++);
    DimensionHandle size = (*dims)[dim];
    if (!c->ValueKnown(found) || c->Value(found) == 1) continue;
    TF_RETURN_IF_ERROR(Expect(text, c->Merge(size, found, &size)));
  }
  return absl::OkStatus();
}

// Checks the inputs that all three ops have, and names their dims.
absl::Status ReadOperands(InferenceContext* c, NamedDims* dims) {
  const bool ragged = Has(c, "is_ragged");
  if (ragged) {
    TF_RETURN_IF_ERROR(
        dims->Read(kQuery, {"query must be [queries, heads, D]",
                            "key must be [keys, key_heads, D]",
                            "value must be [keys, key_heads, Dv]"}));
  } else {
    TF_RETURN_IF_ERROR(dims->Read(kQuery, {"query must be [B, T, heads, D]",
                                           "key must be [B, S, key_heads, D]",
                                           "value must be [B, S, key_heads, "
                                           "Dv]"}));
  }
  for (const auto& [input, name] :
       {std::pair{kQuerySplits, "query_splits"}, {kKeySplits, "key_splits"}}) {
    TF_RETURN_IF_ERROR(
        ReadOptional(c, input, name, "is_ragged", "[B + 1]", dims));
  }
  TF_RETURN_IF_ERROR(
      ReadOptional(c, kLengths, "lengths", "has_lengths", "[B]", dims));
  TF_RETURN_IF_ERROR(ReadOptional(c, kKeyLengths, "key_lengths",
                                  "has_key_lengths", "[B]", dims));
  TF_RETURN_IF_ERROR(ReadOptional(c, kQueryOffset, "query_offset",
                                  "has_query_offset", "[B]", dims));
  TF_RETURN_IF_ERROR(
      ReadOptional(c, kSinks, "sinks", "has_sinks", "[heads]", dims));
  TF_RETURN_IF_ERROR(
      ReadOptional(c, kSeed, "seed", "has_dropout", "[2]", dims));
  TF_RETURN_IF_ERROR(
      ReadOptional(c, kLongest, "longest", "is_ragged", "[2]", dims));
  for (const auto& [input, name] :
       {std::pair{kMask, "mask"}, {kBias, "bias"}}) {
    TF_RETURN_IF_ERROR(ReadBroadcast(c, input, name, dims));
  }
  TF_RETURN_IF_ERROR(ReadOptional(c, kAlibiSlopes, "alibi_slopes",
                                  "has_alibi_slopes", "[slopes, heads]", dims));
  DimensionHandle slopes = (*dims)["slopes"];
  if (c->ValueKnown(slopes) && c->Value(slopes) != 1) {
    TF_RETURN_IF_ERROR(Expect("alibi_slopes must be [1, heads] or [B, heads]",
                              c->Merge((*dims)["B"], slopes, &slopes)));
  }
  const DimensionHandle heads = (*dims)["heads"],
                        key_heads = (*dims)["key_heads"];
  if (!c->ValueKnown(heads) || !c->ValueKnown(key_heads)) {
    return absl::OkStatus();
  }
  const int64_t n = c->Value(heads), k = c->Value(key_heads);
  if (k > 0 ? n % k == 0 : n == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("query has ", n, " heads and key ", k,
                   ", expected a multiple of those of key"));
}

// The dims of the output and of log_sum_exp, for NamedDims.
const char* OutputDims(InferenceContext* c) {
  return Has(c, "is_ragged") ? "[queries, heads, Dv]" : "[B, T, heads, Dv]";
}
const char* SumDims(InferenceContext* c) {
  return Has(c, "is_ragged") ? "[heads, queries]" : "[B, heads, T]";
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
      kNumInputs,
      {"output must be " + output, "log_sum_exp must be " + sums,
       "d_output must be " + output, "d_log_sum_exp must be " + sums});
}

absl::Status SetAttentionGradShapes(InferenceContext* c) {
  TF_RETURN_IF_ERROR(ReadGradInputs(c));
  c->set_output(0, c->input(kQuery));
  c->set_output(1, c->input(kKey));
  c->set_output(2, c->input(kValue));
  c->set_output(3, c->input(kSinks));
  return absl::OkStatus();
}

absl::Status SetAttentionBiasGradShapes(InferenceContext* c) {
  TF_RETURN_IF_ERROR(ReadGradInputs(c));
  c->set_output(0, c->input(kBias));
  return absl::OkStatus();
}

}  // namespace
}  // namespace tfo

// An absent input is of shape [0]. Ragged query, key and value are the flat
// values of RaggedTensors; `longest` has the most queries and the most keys of
// an example, on the host.
#define TFO_ATTENTION_INPUTS         \
  .Input("query: T")                 \
      .Input("key: T")               \
      .Input("value: T")             \
      .Input("mask: bool")           \
      .Input("bias: T")              \
      .Input("alibi_slopes: Tvalue") \
      .Input("sinks: Tvalue")        \
      .Input("query_splits: int64")  \
      .Input("key_splits: int64")    \
      .Input("lengths: int32")       \
      .Input("key_lengths: int32")   \
      .Input("query_offset: int32")  \
      .Input("seed: int32")          \
      .Input("longest: int64")

// scale, softcap and dropout are the sums of floats (ReadNumber); without scale
// it is 1 / sqrt(D). left and right are the window, -1 if without bound.
#define TFO_ATTENTION_ATTRS                       \
  .Attr("scale: list(float) = []")                \
      .Attr("softcap: list(float) = []")          \
      .Attr("dropout: list(float) = []")          \
      .Attr("left: int >= -1 = -1")               \
      .Attr("right: int >= -1 = -1")              \
      .Attr("has_mask: bool = false")             \
      .Attr("has_bias: bool = false")             \
      .Attr("has_alibi_slopes: bool = false")     \
      .Attr("has_sinks: bool = false")            \
      .Attr("is_ragged: bool = false")            \
      .Attr("has_lengths: bool = false")          \
      .Attr("has_key_lengths: bool = false")      \
      .Attr("has_query_offset: bool = false")     \
      .Attr("has_dropout: bool = false")          \
      .Attr("T: {half, bfloat16, float, double}") \
      .Attr("Tvalue: {float, double}")

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
    .Output("d_sinks: Tvalue")
        TFO_ATTENTION_ATTRS.SetShapeFn(tfo::SetAttentionGradShapes);

// An op of its own, because a bias often needs no gradient.
REGISTER_OP("TensorflowOps>AttentionBiasGrad")
TFO_ATTENTION_GRAD_INPUTS.Output("d_bias: T")
    TFO_ATTENTION_ATTRS.SetShapeFn(tfo::SetAttentionBiasGradShapes);
