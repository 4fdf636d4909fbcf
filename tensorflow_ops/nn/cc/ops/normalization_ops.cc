// Layer, root-mean-square and group normalization, by Python's layer_norm,
// rms_norm and group_norm.
#include "tensorflow_ops/core/cc/glue/op_spec.h"
#include "tensorflow_ops/nn/cc/kernels/normalization/normalization.h"

TFO_OP("Normalization", NormalizationArgs);
TFO_OP("NormalizationGrad", NormalizationGradArgs);
