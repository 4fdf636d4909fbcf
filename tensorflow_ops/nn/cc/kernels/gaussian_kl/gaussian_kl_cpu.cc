#include "tensorflow_ops/nn/cc/kernels/gaussian_kl/gaussian_kl.h"
#include "tensorflow_ops/nn/cc/kernels/rows/rows_cpu.h"

namespace tfo {

TFO_FOR_GAUSSIAN_KL_FUNCTIONS(TFO_INSTANTIATE_ROW_FUNCTION_ON_CPU);

}  // namespace tfo
