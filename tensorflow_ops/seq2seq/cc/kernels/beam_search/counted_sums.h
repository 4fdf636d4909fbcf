// The softmax's sums of rows of logits, as decoders count them
// (beam_search_step.h), on a GPU.
#ifndef TENSORFLOW_OPS_SEQ2SEQ_CC_KERNELS_BEAM_SEARCH_COUNTED_SUMS_H_
#define TENSORFLOW_OPS_SEQ2SEQ_CC_KERNELS_BEAM_SEARCH_COUNTED_SUMS_H_

#include "tensorflow_ops/core/cc/device.h"
#include "tensorflow_ops/core/cc/float16.h"

namespace tfo {

// Per row: the largest logit and sum e^(logit - largest) - 1, which is -1
// without a logit above -inf.
template <typename T>
struct CountedSums {
  int64_t rows, classes;
  const T* logits;
  Accumulator<T>*largest, *rest;  // [rows]
};

// Only enqueues; gpu.scratch has GpuStateValues(rows, classes) values
// (partition.h) of Accumulator<T>.
template <typename T>
Error SumCountedRows(const Gpu& gpu, const CountedSums<T>& sums);

}  // namespace tfo

#endif  // TENSORFLOW_OPS_SEQ2SEQ_CC_KERNELS_BEAM_SEARCH_COUNTED_SUMS_H_
