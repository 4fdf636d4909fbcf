#include "tensorflow_ops/nn/cc/kernels/cross_entropy/cross_entropy.h"
#include "tensorflow_ops/nn/cc/kernels/rows/rows_cpu.h"

namespace tfo {

TFO_FOR_CROSS_ENTROPY_FUNCTIONS(TFO_INSTANTIATE_ROW_FUNCTION_ON_CPU);
TFO_FOR_LABEL_LOSS_FUNCTIONS(TFO_INSTANTIATE_ROW_FUNCTION_ON_CPU);

}  // namespace tfo
