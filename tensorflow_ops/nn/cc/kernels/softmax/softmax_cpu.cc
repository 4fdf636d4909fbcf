#include "tensorflow_ops/nn/cc/kernels/rows/rows_cpu.h"
#include "tensorflow_ops/nn/cc/kernels/softmax/softmax.h"

namespace tfo {

TFO_FOR_SOFTMAX_FUNCTIONS(TFO_INSTANTIATE_ROW_FUNCTION_ON_CPU);

}  // namespace tfo
