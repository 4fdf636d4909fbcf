// ApplyGradients: names, inputs, shape.
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow_ops/core/cc/glue/op_util.h"
#include "tensorflow_ops/optimizers/cc/kernels/apply_gradients/apply_gradients.h"

namespace tfo {
namespace {

using ::tensorflow::shape_inference::InferenceContext;
using ::tensorflow::shape_inference::ShapeHandle;

std::string OptimizerAttr() {
  std::string names;
  for (const OptimizerTraits& optimizer : kOptimizers) {
    absl::StrAppend(&names, names.empty() ? "'" : ", '", optimizer.name, "'");
  }
  return absl::StrCat("optimizer: {", names, "}");
}

absl::Status ApplyGradientsShape(InferenceContext* c) {
  std::vector<ShapeHandle> gradients, ids, scalars;
  TF_RETURN_IF_ERROR(c->input("gradients", &gradients));
  TF_RETURN_IF_ERROR(c->input("ids", &ids));
  TF_RETURN_IF_ERROR(c->input("scalars", &scalars));
  ShapeHandle unused;
  TF_RETURN_IF_ERROR(
      Expect("scalars must be [n]", c->WithRank(scalars[0], 1, &unused)));
  if (ids.size() > gradients.size()) {
    return absl::InvalidArgumentError(
        "ids must be at most as many as gradients");
  }
  const char* const kIds =
      "ids must be [n] for gradients [n, ...] of the first variables";
  for (size_t i = 0; i < ids.size(); ++i) {
    TF_RETURN_IF_ERROR(Expect(kIds, c->WithRank(ids[i], 1, &unused)));
    TF_RETURN_IF_ERROR(
        Expect(kIds, c->WithRankAtLeast(gradients[i], 1, &unused)));
    ::tensorflow::shape_inference::DimensionHandle merged;
    TF_RETURN_IF_ERROR(Expect(
        kIds, c->Merge(c->Dim(ids[i], 0), c->Dim(gradients[i], 0), &merged)));
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace tfo

// `slots` has the first slots of all variables, then the second ones. The first
// K gradients are of rows.
REGISTER_OP("TensorflowOps>ApplyGradients")
    .Input("variables: N * resource")
    .Input("slots: M * resource")
    .Input("gradients: N * T")
    .Input("ids: K * int64")
    .Input("scalars: Tvalue")
    .Attr("N: int >= 1")
    .Attr("M: int >= 0")
    .Attr("K: int >= 0")
    .Attr("T: {half, bfloat16, float, double}")
    .Attr("Tvalue: {float, double}")
    .Attr(tfo::OptimizerAttr())
    .Attr("decays: list(bool)")
    .Attr("lazy: bool = false")
    .SetIsStateful()
    .SetShapeFn(tfo::ApplyGradientsShape);
