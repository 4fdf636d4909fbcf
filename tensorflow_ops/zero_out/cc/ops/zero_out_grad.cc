// The gradient of ZeroOutWithIndex as a graph function, in C++. TensorFlow's
// C++ side uses it (the SymbolicGradient op); Python's tape reaches it through
// python/ops/zero_out_grad.py.
#include "tensorflow/core/framework/function.h"

namespace tfo {
namespace {

// An op with N inputs and M outputs has a gradient function with N + M
// arguments, here 1 + 2: the op's inputs, then a gradient for each output. It
// returns a gradient for each input. `index` is an integer: its gradient is an
// argument nevertheless, and unused.
//
// zeroed is linear in x, so dx is the op itself, applied to d_zeroed.
absl::Status ZeroOutWithIndexGrad(const ::tensorflow::AttrSlice& attrs,
                                  ::tensorflow::FunctionDef* gradient) {
  *gradient = ::tensorflow::FunctionDefHelper::Define(
      /*arg_def=*/{"x: T", "d_zeroed: T", "d_index: int32"},
      /*ret_def=*/{"dx: T"},
      /*attr_def=*/{"T: type", "preserve_index: int"},
      /*node_def=*/
      {{/*ret=*/{"dx", "index"}, "TensorflowOps>ZeroOutWithIndex",
        /*arg=*/{"d_zeroed"},
        /*attr=*/{{"T", "$T"}, {"preserve_index", "$preserve_index"}}}});
  return absl::OkStatus();
}

REGISTER_OP_GRADIENT("TensorflowOps>ZeroOutWithIndex", ZeroOutWithIndexGrad);

}  // namespace
}  // namespace tfo
