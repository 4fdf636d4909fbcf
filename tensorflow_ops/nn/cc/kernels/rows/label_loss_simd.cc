#include "tensorflow_ops/nn/cc/kernels/rows/label_loss_rows.h"
#include "tensorflow_ops/nn/cc/kernels/rows/rows_simd.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {

TFO_FOR_LABEL_LOSS_FUNCTIONS(TFO_DEFINE_ROW_FUNCTION);

}  // namespace TFO_CPU_NAMESPACE
}  // namespace tfo
