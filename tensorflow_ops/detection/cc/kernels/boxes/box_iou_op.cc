// The OpKernels of BoxIou, BoxIouLoss and their gradients.
#include "tensorflow_ops/core/cc/glue/op_spec.h"
#include "tensorflow_ops/detection/cc/kernels/boxes/box_iou.h"

namespace tfo {
namespace {

TFO_WIDE_OP_KERNELS("BoxIou", BoxIouArgs, BoxIou(device, args));
TFO_WIDE_OP_KERNELS("BoxIouGrad", BoxIouGradArgs, BoxIouGrad(device, args));
TFO_WIDE_OP_KERNELS("BoxIouLoss", BoxIouLossArgs, BoxIouLoss(device, args));
TFO_WIDE_OP_KERNELS("BoxIouLossGrad", BoxIouLossGradArgs,
                    BoxIouLossGrad(device, args));

}  // namespace
}  // namespace tfo
