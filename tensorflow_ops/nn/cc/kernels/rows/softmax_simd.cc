#include "tensorflow_ops/nn/cc/kernels/rows/rows_simd.h"
#include "tensorflow_ops/nn/cc/kernels/rows/softmax_rows.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {

TFO_FOR_SOFTMAX_FUNCTIONS(TFO_DEFINE_ROW_FUNCTION);

}  // namespace TFO_CPU_NAMESPACE
}  // namespace tfo
