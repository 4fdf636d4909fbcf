// The OpKernels of Lstm, Gru and their gradients.
#include "tensorflow_ops/core/cc/glue/op_spec.h"
#include "tensorflow_ops/nn/cc/kernels/recurrent/gru.h"
#include "tensorflow_ops/nn/cc/kernels/recurrent/lstm.h"

namespace tfo {
namespace {

TFO_WIDE_OP_KERNELS("Lstm", LstmArgs, Lstm(device, args));
TFO_WIDE_OP_KERNELS("LstmGrad", LstmGradArgs, LstmGrad(device, args));
TFO_WIDE_OP_KERNELS("Gru", GruArgs, Gru(device, args));
TFO_WIDE_OP_KERNELS("GruGrad", GruGradArgs, GruGrad(device, args));

}  // namespace
}  // namespace tfo
