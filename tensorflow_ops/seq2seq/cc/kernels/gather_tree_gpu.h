// gather_tree.h on a GPU.
#ifndef TENSORFLOW_OPS_SEQ2SEQ_CC_KERNELS_GATHER_TREE_GPU_H_
#define TENSORFLOW_OPS_SEQ2SEQ_CC_KERNELS_GATHER_TREE_GPU_H_

#include "tensorflow_ops/seq2seq/cc/kernels/gather_tree.h"

namespace tfo {

// Bad beams are padded, and nobody is told. Only enqueues.
template <typename Id>
Error GatherTree(const Gpu& gpu, const GatherTreeArgs<Id>& args);

}  // namespace tfo

#endif  // TENSORFLOW_OPS_SEQ2SEQ_CC_KERNELS_GATHER_TREE_GPU_H_
