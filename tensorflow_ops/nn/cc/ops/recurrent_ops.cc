// Lstm, Gru and their gradients.
#include "tensorflow_ops/core/cc/glue/op_spec.h"
#include "tensorflow_ops/nn/cc/kernels/recurrent/gru.h"
#include "tensorflow_ops/nn/cc/kernels/recurrent/lstm.h"

TFO_WIDE_OP("Lstm", LstmArgs);
TFO_WIDE_OP("LstmGrad", LstmGradArgs);
TFO_WIDE_OP("Gru", GruArgs);
TFO_WIDE_OP("GruGrad", GruGradArgs);
