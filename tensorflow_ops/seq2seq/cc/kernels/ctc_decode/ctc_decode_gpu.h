// Shared by the CUDA kernels of the CTC decoders. For .cu.cc files.
#ifndef TENSORFLOW_OPS_SEQ2SEQ_CC_KERNELS_CTC_DECODE_CTC_DECODE_GPU_H_
#define TENSORFLOW_OPS_SEQ2SEQ_CC_KERNELS_CTC_DECODE_CTC_DECODE_GPU_H_

#include "tensorflow_ops/nn/cc/kernels/rows/partition.h"
#include "tensorflow_ops/nn/cc/kernels/sequence_losses/sequence_gpu.h"
#include "tensorflow_ops/seq2seq/cc/kernels/beam_search/beam_search_step.h"
#include "tensorflow_ops/seq2seq/cc/kernels/beam_search/counted_sums.h"
#include "tensorflow_ops/seq2seq/cc/kernels/ctc_decode/ctc_decode.h"

namespace tfo {

// Scratch memory of the softmax's sums of rows.
template <typename T>
struct RowSumsMemory {
  using Value = Accumulator<T>;
  Value *largest, *rest, *states;

  void Reserve(int64_t rows, int64_t classes, ScratchLayout* scratch) {
    scratch->Reserve(&largest, rows);
    scratch->Reserve(&rest, rows);
    scratch->Reserve(&states, GpuStateValues(rows, classes));
  }
  Error Sum(const Gpu& gpu, int64_t rows, int64_t classes,
            const T* logits) const {
    Gpu with_states = gpu;
    with_states.scratch = states;
    return SumCountedRows(with_states,
                          CountedSums<T>{rows, classes, logits, largest, rest});
  }
};

// The log probabilities of a row's classes.
template <typename T>
struct RowLogProbs {
  using Value = Accumulator<T>;
  const T* logits;
  int64_t classes;
  double largest, log_sum;

  __device__ RowLogProbs(const RowSumsMemory<T>& sums, const T* of_rows,
                         int64_t of_classes, int64_t row)
      : logits(of_rows + row * of_classes),
        classes(of_classes),
        largest(sums.largest[row]),
        log_sum(log1p(double{sums.rest[row]})) {}

  // Returns -inf if the label is not a class.
  __device__ double LogProb(int64_t label) const {
    if (label < 0 || label >= classes) return -INFINITY;
    const double logit = CountedLogit(Value{Widen(logits[label])});
    return logit > -INFINITY ? (logit - largest) - log_sum : -INFINITY;
  }
};

}  // namespace tfo

#endif  // TENSORFLOW_OPS_SEQ2SEQ_CC_KERNELS_CTC_DECODE_CTC_DECODE_GPU_H_
