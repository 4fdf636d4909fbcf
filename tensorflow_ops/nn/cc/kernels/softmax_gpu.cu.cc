#include "tensorflow_ops/nn/cc/kernels/softmax_rows.h"
#include "tensorflow_ops/nn/cc/rows/rows_gpu.h"

namespace tfo {

TFO_FOR_SOFTMAX_FUNCTIONS(TFO_INSTANTIATE_ROW_FUNCTION_ON_GPU);

}  // namespace tfo
