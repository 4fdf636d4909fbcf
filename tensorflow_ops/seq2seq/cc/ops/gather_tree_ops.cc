// The op gather_tree: names, inputs, attrs, outputs, shape.
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow_ops/core/cc/named_dims.h"

namespace tfo {
namespace {

using ::tensorflow::shape_inference::InferenceContext;

absl::Status GatherTreeShape(InferenceContext* c) {
  NamedDims dims(c);
  TF_RETURN_IF_ERROR(dims.Read(
      0, {"token_ids must be [time, batch, beams]",
          "parent_ids must be [time, batch, beams]",
          "lengths must be [batch, beams]", "pad_id must be a scalar"}));
  return dims.Write({"[time, batch, beams]"});
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
