// LinearSumAssignment: name, inputs, attrs, outputs, shapes.
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow_ops/core/cc/op_util.h"

namespace tfo {
namespace {

using ::tensorflow::shape_inference::DimensionHandle;
using ::tensorflow::shape_inference::InferenceContext;
using ::tensorflow::shape_inference::ShapeHandle;

absl::Status AssignmentShape(InferenceContext* c) {
  ShapeHandle costs, batch = c->UnknownShape();
  TF_RETURN_IF_ERROR(Expect("costs must be [.., rows, columns]",
                            c->WithRankAtLeast(c->input(0), 2, &costs)));
  DimensionHandle rows = c->UnknownDim(), columns = c->UnknownDim();
  if (c->RankKnown(costs)) {
    TF_RETURN_IF_ERROR(c->Subshape(costs, 0, -2, &batch));
    rows = c->Dim(costs, -2);
    columns = c->Dim(costs, -1);
  }
  constexpr int64_t kMost = int64_t{1} << 31;
  if (c->Value(rows) >= kMost || c->Value(columns) >= kMost) {
    return absl::InvalidArgumentError(absl::StrCat(
        "costs are ", c->DebugString(costs),
        ", expected fewer than 2^31 rows and columns: indices are int32"));
  }
  std::optional<ShapeHandle> counts;
  TF_RETURN_IF_ERROR(OptionalInput(c, "counts", &counts));
  if (counts.has_value()) {
    TF_RETURN_IF_ERROR(
        Expect(absl::StrCat("counts must be of the leading dims of costs ",
                            c->DebugString(costs)),
               c->Merge(batch, *counts, &batch)));
  }
  for (const auto& [output, dim] :
       {std::pair(0, rows), std::pair(1, columns)}) {
    ShapeHandle shape;
    TF_RETURN_IF_ERROR(c->Concatenate(batch, c->Vector(dim), &shape));
    c->set_output(output, shape);
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace tfo

REGISTER_OP("TensorflowOps>LinearSumAssignment")
    .Input("costs: T")
    .Input("counts: has_counts * int64")
    .Output("columns: int32")
    .Output("rows: int32")
    .Attr("maximize: bool = false")
    .Attr("T: {half, bfloat16, float, double}")
    .Attr("has_counts: int >= 0")
    .SetShapeFn(tfo::AssignmentShape);
