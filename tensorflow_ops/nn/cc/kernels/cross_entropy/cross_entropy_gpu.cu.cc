#include "tensorflow_ops/nn/cc/kernels/cross_entropy/cross_entropy_rows.h"
#include "tensorflow_ops/nn/cc/kernels/cross_entropy/label_loss_rows.h"
#include "tensorflow_ops/nn/cc/kernels/rows/rows_gpu.h"

namespace tfo {

TFO_FOR_CROSS_ENTROPY_FUNCTIONS(TFO_INSTANTIATE_ROW_FUNCTION_ON_GPU);
TFO_FOR_LABEL_LOSS_FUNCTIONS(TFO_INSTANTIATE_ROW_FUNCTION_ON_GPU);

}  // namespace tfo
