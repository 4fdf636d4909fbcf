// CrfLogLikelihood, its gradient, CrfMarginals and CrfDecode.
#include "tensorflow_ops/core/cc/glue/op_spec.h"
#include "tensorflow_ops/nn/cc/kernels/crf/crf.h"

TFO_OP("CrfLogLikelihood", CrfLikelihoodArgs);
TFO_OP("CrfLogLikelihoodGrad", CrfLikelihoodGradArgs);
TFO_OP("CrfMarginals", CrfMarginalsArgs);
TFO_OP("CrfDecode", CrfDecodeArgs);
