// The OpKernels of Softmax, SoftmaxEntropy and their gradients.
#include "tensorflow_ops/core/cc/glue/op_spec.h"
#include "tensorflow_ops/nn/cc/kernels/rows/rows_op.h"
#include "tensorflow_ops/nn/cc/kernels/rows/softmax.h"

namespace tfo {
namespace {

TFO_OP_KERNELS("Softmax", SoftmaxArgs, RunOnRows<Device>(ctx, args));
TFO_OP_KERNELS("SoftmaxGrad", SoftmaxGradArgs,
               args.rows* args.classes == 0 ? absl::OkStatus()
                                            : RunOnRows<Device>(ctx, args));
TFO_OP_KERNELS("SoftmaxEntropy", EntropyArgs, RunOnRows<Device>(ctx, args));
TFO_OP_KERNELS("SoftmaxEntropyGrad", EntropyGradArgs,
               RunOnRows<Device>(ctx, args));

}  // namespace
}  // namespace tfo
