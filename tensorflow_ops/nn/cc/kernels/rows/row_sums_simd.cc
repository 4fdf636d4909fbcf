#include "tensorflow_ops/nn/cc/kernels/rows/row_sums_rows.h"
#include "tensorflow_ops/nn/cc/kernels/rows/rows_simd.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {

TFO_FOR_ROW_SUMS_FUNCTIONS(TFO_DEFINE_ROW_FUNCTION);

}  // namespace TFO_CPU_NAMESPACE
}  // namespace tfo
