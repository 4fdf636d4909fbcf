#include "tensorflow_ops/nn/cc/kernels/gaussian_kl/gaussian_kl_rows.h"
#include "tensorflow_ops/nn/cc/kernels/rows/rows_gpu.h"

namespace tfo {

TFO_FOR_GAUSSIAN_KL_FUNCTIONS(TFO_INSTANTIATE_ROW_FUNCTION_ON_GPU);

}  // namespace tfo
