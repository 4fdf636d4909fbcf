// QuantizedMatmul and its gradient: names, inputs, attrs, outputs, shapes.
#include <algorithm>
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

// Checks the weights, inputs from `first` on, and finds W's columns. `depth` is
// that of the inputs.
absl::Status ReadWeights(InferenceContext* c, int first, DimensionHandle depth,
                         DimensionHandle* columns) {
  bool transposed;
  std::string pairs;
  int64_t block_size;
  TF_RETURN_IF_ERROR(c->GetAttr("transposed", &transposed));
  TF_RETURN_IF_ERROR(c->GetAttr("pairs", &pairs));
  TF_RETURN_IF_ERROR(c->GetAttr("block_size", &block_size));
  NamedDims names(c);
  // What the kernel's bytes hold: a pair has one byte.
  const auto halved = [&](DimensionHandle dim) {
    return c->ValueKnown(dim) ? c->MakeDim((c->Value(dim) + 1) / 2)
                              : c->UnknownDim();
  };
  names["depth"] = depth;
  names["pairs of depth"] = halved(depth);
  const bool has_pairs = pairs == "columns";
  const std::string of_depth = pairs == "depth" ? "pairs of depth" : "depth";
  const std::string of_columns = has_pairs ? "pairs of columns" : "columns";
  TF_RETURN_IF_ERROR(names.Read(
      first,
      {absl::StrCat("kernel must be [", transposed ? of_columns : of_depth,
                    ", ", transposed ? of_depth : of_columns, "]")}));
  names["groups"] = c->UnknownDim();
  const ShapeHandle scale = c->input(first + 1);
  std::optional<ShapeHandle> group_index;
  TF_RETURN_IF_ERROR(OptionalInput(c, "group_index", &group_index));
  const bool has_groups = block_size > 0 || group_index.has_value();
  const std::string scale_text =
      absl::StrCat("scale must be ", has_groups ? "" : "[columns] or ",
                   transposed ? "[columns, groups]" : "[groups, columns]");
  const bool is_known = c->RankKnown(scale);
  if (is_known) {
    DimensionHandle found;
    if (c->Rank(scale) == 2) {
      found = c->Dim(scale, transposed ? 0 : 1);
      names["groups"] = c->Dim(scale, transposed ? 1 : 0);
    } else if (c->Rank(scale) == 1 && !has_groups) {
      found = c->Dim(scale, 0);
      names["groups"] = c->MakeDim(1);
    } else {
      return absl::InvalidArgumentError(
          absl::StrCat(scale_text, ": it has rank ", c->Rank(scale)));
    }
    const DimensionHandle of_kernel = names[of_columns];
    DimensionHandle merged;
    if (!c->Merge(has_pairs ? halved(found) : found, of_kernel, &merged).ok()) {
      const int64_t n = c->Value(of_kernel);
      return absl::InvalidArgumentError(absl::StrCat(
          scale_text, " with columns = ",
          has_pairs ? absl::StrCat(std::max<int64_t>(2 * n - 1, 0), " or ")
                    : "",
          has_pairs ? 2 * n : n, ", the kernel's: it has ", c->Value(found)));
    }
    names["columns"] = has_pairs ? found : merged;
  }
  std::optional<ShapeHandle> zero;
  TF_RETURN_IF_ERROR(OptionalInput(c, "zero", &zero));
  if (zero.has_value()) {
    ShapeHandle merged;
    TF_RETURN_IF_ERROR(Expect("zero must have scale's shape",
                              c->Merge(*zero, scale, &merged)));
  }
  TF_RETURN_IF_ERROR(names.ReadOptional({"group_index must be [depth]"}));
  if (!group_index.has_value() && is_known) {
    DimensionHandle groups = c->MakeDim(1);
    std::string blocks = "1, without block_size and group_index";
    if (block_size > 0) {
      const DimensionHandle k = names["depth"];
      if (!c->ValueKnown(k)) {
        *columns = names["columns"];
        return absl::OkStatus();
      }
      const int64_t count =
          c->Value(k) / block_size + (c->Value(k) % block_size > 0 ? 1 : 0);
      groups = c->MakeDim(count);
      blocks = absl::StrCat(count, ", of depth ", c->Value(k), " in blocks of ",
                            block_size);
    }
    TF_RETURN_IF_ERROR(
        Expect(absl::StrCat(scale_text, " with groups = ", blocks),
               c->Merge(names["groups"], groups, &names["groups"])));
  }
  *columns = names["columns"];
  return absl::OkStatus();
}

absl::Status LastDim(InferenceContext* c, int input, const char* expected,
                     ShapeHandle* shape, DimensionHandle* dim) {
  TF_RETURN_IF_ERROR(
      Expect(expected, c->WithRankAtLeast(c->input(input), 1, shape)));
  *dim = c->RankKnown(*shape) ? c->Dim(*shape, -1) : c->UnknownDim();
  return absl::OkStatus();
}

absl::Status ReplaceLast(InferenceContext* c, ShapeHandle shape,
                         DimensionHandle dim, ShapeHandle* replaced) {
  if (!c->RankKnown(shape)) {
    *replaced = c->UnknownShape();
    return absl::OkStatus();
  }
  return c->ReplaceDim(shape, -1, dim, replaced);
}

absl::Status QuantizedMatmulShape(InferenceContext* c) {
  ShapeHandle inputs, outputs;
  DimensionHandle depth, columns;
  TF_RETURN_IF_ERROR(
      LastDim(c, 0, "inputs must be [.., depth]", &inputs, &depth));
  TF_RETURN_IF_ERROR(ReadWeights(c, 1, depth, &columns));
  TF_RETURN_IF_ERROR(ReplaceLast(c, inputs, columns, &outputs));
  c->set_output(0, outputs);
  return absl::OkStatus();
}

absl::Status QuantizedMatmulGradShape(InferenceContext* c) {
  ShapeHandle inputs, outputs;
  DimensionHandle depth, columns;
  TF_RETURN_IF_ERROR(
      LastDim(c, 1, "inputs must be [.., depth]", &inputs, &depth));
  TF_RETURN_IF_ERROR(ReadWeights(c, 2, depth, &columns));
  TF_RETURN_IF_ERROR(ReplaceLast(c, inputs, columns, &outputs));
  TF_RETURN_IF_ERROR(Expect("d_output must have the output's shape",
                            c->Merge(c->input(0), outputs, &outputs)));
  if (!c->RankKnown(inputs)) {
    TF_RETURN_IF_ERROR(ReplaceLast(c, outputs, depth, &inputs));
  }
  c->set_output(0, inputs);
  return absl::OkStatus();
}

}  // namespace
}  // namespace tfo

// zero and group_index are lists of no tensor or of one; attrs count them.
// Tzero is Tkernel or Tvalue.
#define TFO_QUANTIZED_MATMUL_WEIGHTS                        \
  .Input("kernel: Tkernel")                                 \
      .Input("scale: Tvalue")                               \
      .Input("zero: has_zero * Tzero")                      \
      .Input("group_index: has_group_index * int32")        \
      .Attr("block_size: int >= 0 = 0")                     \
      .Attr("transposed: bool = false")                     \
      .Attr("pairs: {'none', 'columns', 'depth'} = 'none'") \
      .Attr("has_zero: int >= 0")                           \
      .Attr("has_group_index: int >= 0")                    \
      .Attr("T: {half, bfloat16, float, double}")           \
      .Attr("Tvalue: {float, double}")                      \
      .Attr("Tkernel: {int8, uint8}")                       \
      .Attr("Tzero: {int8, uint8, float, double} = DT_INT8")

REGISTER_OP("TensorflowOps>QuantizedMatmul")
    .Input("inputs: T") TFO_QUANTIZED_MATMUL_WEIGHTS
    .Attr("quantize_inputs: bool = false")
    .Output("output: T")
    .SetShapeFn(tfo::QuantizedMatmulShape);

// Of inputs, only the shape counts.
REGISTER_OP("TensorflowOps>QuantizedMatmulGrad")
    .Input("d_output: T")
    .Input("inputs: T") TFO_QUANTIZED_MATMUL_WEIGHTS.Output("d_inputs: T")
    .SetShapeFn(tfo::QuantizedMatmulGradShape);
