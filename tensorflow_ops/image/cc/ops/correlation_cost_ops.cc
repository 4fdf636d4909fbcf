// CorrelationCost and its gradient: names, inputs, attrs, outputs, shapes.
#include "absl/strings/str_cat.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow_ops/core/cc/glue/op_util.h"
#include "tensorflow_ops/image/cc/kernels/correlation_cost/correlation_inputs_op.h"

namespace tfo {
namespace {

using ::tensorflow::shape_inference::InferenceContext;
using ::tensorflow::shape_inference::ShapeHandle;

// Returns an error unless `size`, a height or width, is large enough for costs.
absl::Status CheckCorrelatedSize(const CorrelationSpec& args, int64_t size,
                                 const std::string& shape) {
  if (args.OutputSize(size) > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "features are ", shape, ", too small for max_displacement ",
      args.max_displacement, ": expected height and width of at least ",
      2 * (args.Border() - args.padding) + 1, " with kernel_size ",
      args.kernel_size, " and padding ", args.padding));
}

// The costs of features of a shape of rank 4, or unknown rank.
absl::Status CostShape(InferenceContext* c, const ShapeHandle& features,
                       ShapeHandle* costs) {
  CorrelationSpec args;
  TF_RETURN_IF_ERROR(ReadCorrelationAttrs(c, &args));
  const auto size_of = [&](int i) {
    const int64_t size = c->Value(c->Dim(features, i));
    return size < 0 ? c->UnknownDim() : c->MakeDim(args.OutputSize(size));
  };
  for (int i = 1; i < 3; ++i) {
    const int64_t size = c->Value(c->Dim(features, i));
    if (size < 0) continue;
    TF_RETURN_IF_ERROR(
        CheckCorrelatedSize(args, size, c->DebugString(features)));
  }
  *costs = c->MakeShape({c->Dim(features, 0), size_of(1), size_of(2),
                         c->MakeDim(args.Displacements())});
  return absl::OkStatus();
}

absl::Status CorrelationCostShape(InferenceContext* c) {
  ShapeHandle features, other, costs;
  TF_RETURN_IF_ERROR(
      Expect("features_a must be 4-D", c->WithRank(c->input(0), 4, &features)));
  TF_RETURN_IF_ERROR(
      Expect("features_b must be 4-D", c->WithRank(c->input(1), 4, &other)));
  TF_RETURN_IF_ERROR(Expect("features_b must have features_a's shape",
                            c->Merge(features, other, &features)));
  TF_RETURN_IF_ERROR(CostShape(c, features, &costs));
  c->set_output(0, costs);
  return absl::OkStatus();
}

absl::Status CorrelationCostGradShape(InferenceContext* c) {
  ShapeHandle other, costs;
  TF_RETURN_IF_ERROR(
      Expect("other must be 4-D", c->WithRank(c->input(1), 4, &other)));
  TF_RETURN_IF_ERROR(CostShape(c, other, &costs));
  TF_RETURN_IF_ERROR(Expect("d_costs must have the shape of the costs",
                            c->Merge(c->input(0), costs, &costs)));
  c->set_output(0, other);
  return absl::OkStatus();
}

}  // namespace
}  // namespace tfo

#define TFO_CORRELATION_ATTRS       \
  .Attr("max_displacement: int")    \
      .Attr("kernel_size: int = 1") \
      .Attr("stride_1: int = 1")    \
      .Attr("stride_2: int = 1")    \
      .Attr("padding: int = 0")     \
      .Attr("T: {half, bfloat16, float, double}")

REGISTER_OP("TensorflowOps>CorrelationCost")
    .Input("features_a: T")
    .Input("features_b: T")
    .Output("costs: T")
        TFO_CORRELATION_ATTRS.SetShapeFn(tfo::CorrelationCostShape);

// The gradient to features_b if to_b, else to features_a; other is the other
// one.
REGISTER_OP("TensorflowOps>CorrelationCostGrad")
    .Input("d_costs: T")
    .Input("other: T")
    .Output("gradient: T")
    .Attr("to_b: bool")
        TFO_CORRELATION_ATTRS.SetShapeFn(tfo::CorrelationCostGradShape);
