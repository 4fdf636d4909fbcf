#include "tensorflow_ops/nn/cc/kernels/rows/rows_gpu.h"
#include "tensorflow_ops/nn/cc/kernels/softmax/softmax_rows.h"

namespace tfo {

TFO_FOR_SOFTMAX_FUNCTIONS(TFO_INSTANTIATE_ROW_FUNCTION_ON_GPU);

}  // namespace tfo
