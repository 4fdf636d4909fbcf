// Registers HingeLoss and HingeLossGrad.
#include "tensorflow_ops/core/cc/glue/op_spec.h"
#include "tensorflow_ops/tutorial/cc/kernels/hinge_loss/hinge_loss.h"

TFO_OP("HingeLoss", HingeLossArgs);
TFO_OP("HingeLossGrad", HingeLossGradArgs);
