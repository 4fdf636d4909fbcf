// BiasActivation and its gradient.
#include "tensorflow_ops/core/cc/glue/op_spec.h"
#include "tensorflow_ops/nn/cc/kernels/activations/activations.h"

TFO_OP("BiasActivation", BiasActivationArgs);
TFO_OP("BiasActivationGrad", BiasActivationGradArgs);
