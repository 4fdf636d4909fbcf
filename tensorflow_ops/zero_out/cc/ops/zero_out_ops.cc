// Registers ZeroOut and ZeroOutWithIndex: inputs, attrs, outputs, and the
// shapes of outputs.
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace tfo {
namespace {

using ::tensorflow::shape_inference::InferenceContext;

REGISTER_OP("TensorflowOps>ZeroOut")
    .Input("x: T")
    .Output("zeroed: T")
    .Attr("T: numbertype")
    .SetShapeFn(::tensorflow::shape_inference::UnchangedShape)
    .Doc(R"doc(
Keeps the first element of `x`, in row-major order, and zeros the rest.

zeroed: of x's shape.
)doc");

REGISTER_OP("TensorflowOps>ZeroOutWithIndex")
    .Input("x: T")
    .Attr("preserve_index: int = 0")
    .Output("zeroed: T")
    .Output("index: int32")
    .Attr("T: numbertype")
    .SetShapeFn([](InferenceContext* c) {
      c->set_output(0, c->input(0));
      c->set_output(1, c->Vector(1));
      return absl::OkStatus();
    })
    .Doc(R"doc(
Keeps one element of `x` and zeros the rest.

preserve_index: the element kept, counted in row-major order.
zeroed: of x's shape.
index: [preserve_index].
)doc");

}  // namespace
}  // namespace tfo
