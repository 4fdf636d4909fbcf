// CtcLoss, RnntLoss and their gradients.
#include "tensorflow_ops/core/cc/glue/op_spec.h"
#include "tensorflow_ops/nn/cc/kernels/sequence_losses/sequence_loss.h"

TFO_OP("CtcLoss", CtcLossArgs);
TFO_OP("CtcLossGrad", CtcLossGradArgs);
TFO_OP("RnntLoss", RnntLossArgs);
TFO_OP("RnntLossGrad", RnntLossGradArgs);
