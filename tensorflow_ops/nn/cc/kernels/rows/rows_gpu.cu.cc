#include "tensorflow_ops/nn/cc/kernels/rows/rows_gpu.h"

#include "tensorflow_ops/nn/cc/kernels/rows/gaussian_kl_rows.h"
#include "tensorflow_ops/nn/cc/kernels/rows/softmax_rows.h"

namespace tfo {

TFO_FOR_SOFTMAX_FUNCTIONS(TFO_INSTANTIATE_ROW_FUNCTION_ON_GPU);
TFO_FOR_GAUSSIAN_KL_FUNCTIONS(TFO_INSTANTIATE_ROW_FUNCTION_ON_GPU);

}  // namespace tfo
