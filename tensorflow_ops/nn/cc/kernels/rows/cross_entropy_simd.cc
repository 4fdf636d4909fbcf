#include "tensorflow_ops/nn/cc/kernels/rows/cross_entropy_rows.h"
#include "tensorflow_ops/nn/cc/kernels/rows/rows_simd.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {

TFO_FOR_CROSS_ENTROPY_FUNCTIONS(TFO_DEFINE_ROW_FUNCTION);

}  // namespace TFO_CPU_NAMESPACE
}  // namespace tfo
