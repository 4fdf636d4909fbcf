// The inner loop of CtcGreedyDecode, compiled per CPU level.
#ifndef TENSORFLOW_OPS_SEQ2SEQ_CC_KERNELS_CTC_DECODE_CTC_GREEDY_SIMD_H_
#define TENSORFLOW_OPS_SEQ2SEQ_CC_KERNELS_CTC_DECODE_CTC_GREEDY_SIMD_H_

#include "tensorflow_ops/core/cc/cpu_dispatch.h"
#include "tensorflow_ops/core/cc/float16.h"

namespace tfo {

template <typename Value>
struct GreedyClass {
  Value rest;     // the sum is (1 + rest) e^(the largest logit)
  int64_t index;  // of the first class with the largest logit
};

TFO_PER_CPU_LEVEL(
    // `rest` is NaN, and nothing else is known, if a logit is NaN or +inf.
    template <typename T> GreedyClass<Accumulator<T>> ReadGreedyClass(
        const T* row, int64_t classes);)

}  // namespace tfo

#endif  // TENSORFLOW_OPS_SEQ2SEQ_CC_KERNELS_CTC_DECODE_CTC_GREEDY_SIMD_H_
