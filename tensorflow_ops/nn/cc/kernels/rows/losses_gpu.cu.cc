// The functions of losses, apart from those of rows_gpu.cu.cc: compilation
// takes twenty seconds for each file.
#include "tensorflow_ops/nn/cc/kernels/rows/cross_entropy_rows.h"
#include "tensorflow_ops/nn/cc/kernels/rows/label_loss_rows.h"
#include "tensorflow_ops/nn/cc/kernels/rows/row_sums_rows.h"
#include "tensorflow_ops/nn/cc/kernels/rows/rows_gpu.h"

namespace tfo {

TFO_FOR_CROSS_ENTROPY_FUNCTIONS(TFO_INSTANTIATE_ROW_FUNCTION_ON_GPU);
TFO_FOR_LABEL_LOSS_FUNCTIONS(TFO_INSTANTIATE_ROW_FUNCTION_ON_GPU);
TFO_FOR_ROW_SUMS_FUNCTIONS(TFO_INSTANTIATE_ROW_FUNCTION_ON_GPU);

}  // namespace tfo
