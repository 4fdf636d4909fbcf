// The op gather_tree: names, inputs, attrs, outputs, shape.
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow_ops/core/cc/op_util.h"

namespace tfo {
namespace {

using ::tensorflow::shape_inference::InferenceContext;
using ::tensorflow::shape_inference::ShapeHandle;

absl::Status GatherTreeShape(InferenceContext* c) {
  ShapeHandle tree, beams, of_beams, time, unused;
  TF_RETURN_IF_ERROR(Expect("token_ids must be [time, batch, beams]",
                            c->WithRank(c->input(0), 3, &tree)));
  TF_RETURN_IF_ERROR(Expect("parent_ids must have token_ids' shape",
                            c->Merge(tree, c->input(1), &tree)));
  TF_RETURN_IF_ERROR(c->Subshape(tree, 1, 3, &of_beams));
  TF_RETURN_IF_ERROR(Expect("lengths must be [batch, beams]",
                            c->Merge(of_beams, c->input(2), &beams)));
  TF_RETURN_IF_ERROR(
      Expect("pad_id must be a scalar", c->WithRank(c->input(3), 0, &unused)));
  TF_RETURN_IF_ERROR(c->Subshape(tree, 0, 1, &time));
  TF_RETURN_IF_ERROR(c->Concatenate(time, beams, &tree));
  c->set_output(0, tree);
  return absl::OkStatus();
}

}  // namespace
}  // namespace tfo

REGISTER_OP("TensorflowOps>GatherTree")
    .Input("token_ids: T")
    .Input("parent_ids: T")
    .Input("lengths: int32")
    .Input("pad_id: T")
    .Output("sequences: T")
    .Attr("T: {int32, int64}")
    .SetShapeFn(tfo::GatherTreeShape);
