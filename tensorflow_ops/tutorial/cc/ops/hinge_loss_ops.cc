// Registers HingeLoss and HingeLossGrad: inputs, attrs, outputs, and the shapes
// of outputs.
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow_ops/core/cc/named_dims.h"

namespace tfo {
namespace {

using ::tensorflow::shape_inference::InferenceContext;

REGISTER_OP("TensorflowOps>HingeLoss")
    .Input("logits: T")
    .Input("labels: int64")
    .Output("loss: T")
    .Output("rank: int32")
    .Attr("ignore_index: int = -1")
    .Attr("T: {half, bfloat16, float, double}")
    .SetShapeFn([](InferenceContext* c) {
      NamedDims dims(c);
      TF_RETURN_IF_ERROR(dims.Read(
          0, {"logits must be [rows, classes]", "labels must be [rows]"}));
      return dims.Write({"[rows]", "[rows]"});
    });

REGISTER_OP("TensorflowOps>HingeLossGrad")
    .Input("d_loss: T")
    .Input("logits: T")
    .Input("labels: int64")
    .Output("d_logits: T")
    .Attr("ignore_index: int = -1")
    .Attr("T: {half, bfloat16, float, double}")
    .SetShapeFn([](InferenceContext* c) {
      NamedDims dims(c);
      TF_RETURN_IF_ERROR(dims.Read(
          0, {"d_loss must be [rows]", "logits must be [rows, classes]",
              "labels must be [rows]"}));
      return dims.Write({"[rows, classes]"});
    });

}  // namespace
}  // namespace tfo
