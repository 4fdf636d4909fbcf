#include "tensorflow_ops/nn/cc/kernels/rows/rows_simd.h"
#include "tensorflow_ops/nn/cc/kernels/sequence_losses/row_sums_rows.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {

TFO_FOR_SEQUENCE_ROWS(TFO_DEFINE_ROW_FUNCTION);

}  // namespace TFO_CPU_NAMESPACE
}  // namespace tfo
