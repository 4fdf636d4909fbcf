#include "tensorflow_ops/nn/cc/kernels/rows/rows_gpu.h"
#include "tensorflow_ops/nn/cc/kernels/sequence_losses/row_sums_rows.h"

namespace tfo {

TFO_FOR_SEQUENCE_ROWS(TFO_INSTANTIATE_ROW_FUNCTION_ON_GPU);

}  // namespace tfo
