// UpdateCache: names, inputs, outputs, shape.
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow_ops/core/cc/glue/op_util.h"

namespace tfo {
namespace {

using ::tensorflow::shape_inference::DimensionHandle;
using ::tensorflow::shape_inference::InferenceContext;
using ::tensorflow::shape_inference::ShapeHandle;

absl::Status UpdateCacheShape(InferenceContext* c) {
  ShapeHandle cache, rows, positions;
  const char* const kCache = "cache must be [batch, length, ...]";
  const char* const kRows =
      "rows must be [batch, count, ...], of the cache's batch and inner dims";
  const char* const kPositions = "positions must be [batch]";
  TF_RETURN_IF_ERROR(
      Expect(kCache, c->WithRankAtLeast(c->input(0), 2, &cache)));
  TF_RETURN_IF_ERROR(Expect(kRows, c->WithRankAtLeast(c->input(1), 2, &rows)));
  TF_RETURN_IF_ERROR(
      Expect(kPositions, c->WithRank(c->input(2), 1, &positions)));
  if (!c->RankKnown(cache) || !c->RankKnown(rows)) {
    c->set_output(0, c->RankKnown(cache) ? cache : c->UnknownShape());
    return absl::OkStatus();
  }
  const DimensionHandle length = c->Dim(cache, 1), count = c->Dim(rows, 1);
  // Rows of the cache's length have its shape.
  TF_RETURN_IF_ERROR(c->ReplaceDim(rows, 1, length, &rows));
  TF_RETURN_IF_ERROR(Expect(kRows, c->Merge(cache, rows, &cache)));
  DimensionHandle batch;
  TF_RETURN_IF_ERROR(Expect(
      kPositions, c->Merge(c->Dim(cache, 0), c->Dim(positions, 0), &batch)));
  TF_RETURN_IF_ERROR(c->ReplaceDim(cache, 0, batch, &cache));
  if (c->ValueKnown(length) && c->ValueKnown(count) &&
      c->Value(count) > c->Value(length)) {
    return absl::InvalidArgumentError(
        absl::StrCat("rows have ", c->Value(count),
                     " positions, and the cache ", c->Value(length)));
  }
  c->set_output(0, cache);
  return absl::OkStatus();
}

}  // namespace
}  // namespace tfo

REGISTER_OP("TensorflowOps>UpdateCache")
    .Input("cache: T")
    .Input("rows: T")
    .Input("positions: int32")
    .Output("output: T")
    .Attr("T: {numbertype, bool}")
    .SetShapeFn(tfo::UpdateCacheShape);
