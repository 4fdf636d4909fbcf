// GatherTree.
#include "tensorflow_ops/core/cc/glue/op_spec.h"
#include "tensorflow_ops/seq2seq/cc/kernels/gather_tree/gather_tree.h"

TFO_INDEX_OP("GatherTree", GatherTreeArgs);
