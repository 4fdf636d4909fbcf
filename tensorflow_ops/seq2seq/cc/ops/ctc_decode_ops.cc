// CtcGreedyDecode, CtcBeamSearchDecode, CtcBeamSearchStep.
#include "tensorflow_ops/core/cc/glue/op_spec.h"
#include "tensorflow_ops/seq2seq/cc/kernels/ctc_decode/ctc_decode.h"

TFO_OP("CtcGreedyDecode", CtcGreedyArgs);
TFO_OP("CtcBeamSearchDecode", CtcBeamSearchArgs);
TFO_OP("CtcBeamSearchStep", CtcBeamSearchStepArgs);
