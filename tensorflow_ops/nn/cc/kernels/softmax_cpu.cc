#include "tensorflow_ops/nn/cc/kernels/softmax.h"
#include "tensorflow_ops/nn/cc/rows/rows_cpu.h"

namespace tfo {

TFO_FOR_SOFTMAX_FUNCTIONS(TFO_INSTANTIATE_ROW_FUNCTION_ON_CPU);

}  // namespace tfo
