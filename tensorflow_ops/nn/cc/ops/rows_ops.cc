// The ops on logits and Gaussians. All work along the last axis; the axes
// before it are a batch of any rank.
#include "absl/strings/str_cat.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow_ops/core/cc/glue/op_spec.h"
#include "tensorflow_ops/nn/cc/kernels/rows/cross_entropy.h"
#include "tensorflow_ops/nn/cc/kernels/rows/softmax.h"

TFO_OP("Softmax", SoftmaxArgs);
TFO_OP("SoftmaxGrad", SoftmaxGradArgs);
TFO_OP("SoftmaxEntropy", EntropyArgs);
TFO_OP("SoftmaxEntropyGrad", EntropyGradArgs);
TFO_OP("SparseSoftmaxCrossEntropy", LabelLossArgs);
TFO_OP("SparseSoftmaxCrossEntropyGrad", LabelLossGradArgs);
TFO_OP("SoftmaxCrossEntropy", CrossEntropyArgs);
TFO_OP("SoftmaxCrossEntropyGrad", CrossEntropyGradArgs);

namespace tfo {
namespace {

using ::tensorflow::shape_inference::InferenceContext;
using ::tensorflow::shape_inference::ShapeHandle;

// All inputs from `first` on, q's and p's, have one shape, of at least a dim.
absl::Status GaussianShape(InferenceContext* c, int first, ShapeHandle* shape) {
  int p;
  TF_RETURN_IF_ERROR(c->GetAttr("P", &p));
  if (p != 0 && p != 2) {
    return absl::InvalidArgumentError(
        "p must be a mean and a log variance, or nothing");
  }
  *shape = c->UnknownShape();
  for (int i = first; i < c->num_inputs(); ++i) {
    ShapeHandle with_dims;
    TF_RETURN_IF_ERROR(
        Expect("means and log variances must have at least one dim",
               c->WithRankAtLeast(c->input(i), 1, &with_dims)));
    TF_RETURN_IF_ERROR(
        Expect("means and log variances must have the same shape",
               c->Merge(*shape, with_dims, shape)));
  }
  return absl::OkStatus();
}

// p: its mean and its log variance, or nothing: the unit Gaussian.
REGISTER_OP("TensorflowOps>GaussianKl")
    .Input("q_mean: T")
    .Input("q_log_variance: T")
    .Input("p: P * T")
    .Output("divergence: Tvalue")
    .Attr("T: {half, bfloat16, float, double}")
    .Attr("Tvalue: {float, double}")
    .Attr("P: int >= 0")
    .SetShapeFn([](InferenceContext* c) {
      ShapeHandle shape, rows;
      TF_RETURN_IF_ERROR(GaussianShape(c, 0, &shape));
      TF_RETURN_IF_ERROR(c->Subshape(shape, 0, -1, &rows));
      c->set_output(0, rows);
      return absl::OkStatus();
    });

REGISTER_OP("TensorflowOps>GaussianKlGrad")
    .Input("d_divergence: Tvalue")
    .Input("q_mean: T")
    .Input("q_log_variance: T")
    .Input("p: P * T")
    .Output("d_q_mean: T")
    .Output("d_q_log_variance: T")
    .Output("d_p: P * T")
    .Attr("T: {half, bfloat16, float, double}")
    .Attr("Tvalue: {float, double}")
    .Attr("P: int >= 0")
    .SetShapeFn([](InferenceContext* c) {
      ShapeHandle shape, rows;
      TF_RETURN_IF_ERROR(GaussianShape(c, 1, &shape));
      TF_RETURN_IF_ERROR(c->Subshape(shape, 0, -1, &rows));
      TF_RETURN_IF_ERROR(Expect(
          "d_divergence must have the shape of means without the dimensions",
          c->Merge(rows, c->input(0), &rows)));
      for (int i = 0; i < c->num_outputs(); ++i) c->set_output(i, shape);
      return absl::OkStatus();
    });

}  // namespace
}  // namespace tfo
