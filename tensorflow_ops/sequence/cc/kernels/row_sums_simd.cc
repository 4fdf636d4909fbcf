#include "tensorflow_ops/nn/cc/rows/rows_simd.h"
#include "tensorflow_ops/sequence/cc/kernels/row_sums_rows.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {

TFO_FOR_SEQUENCE_ROWS(TFO_DEFINE_ROW_FUNCTION);

}  // namespace TFO_CPU_NAMESPACE
}  // namespace tfo
