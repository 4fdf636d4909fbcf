// BoxIou, BoxIouLoss and their gradients.
#include "tensorflow_ops/core/cc/glue/op_spec.h"
#include "tensorflow_ops/detection/cc/kernels/boxes/box_iou.h"

TFO_WIDE_OP("BoxIou", BoxIouArgs);
TFO_WIDE_OP("BoxIouGrad", BoxIouGradArgs);
TFO_WIDE_OP("BoxIouLoss", BoxIouLossArgs);
TFO_WIDE_OP("BoxIouLossGrad", BoxIouLossGradArgs);
