// Converts arrays from the type of computation to the type of storage.
#ifndef TENSORFLOW_OPS_CORE_CC_SIMD_CONVERT_SIMD_H_
#define TENSORFLOW_OPS_CORE_CC_SIMD_CONVERT_SIMD_H_

#include <cstdint>

#include "tensorflow_ops/core/cc/float16.h"
#include "tensorflow_ops/core/cc/simd/cpu_dispatch.h"

namespace tfo {

TFO_PER_CPU_LEVEL(
    // Rounds each value to the nearest, ties to even.
    template <typename T>
    void NarrowArray(const Accumulator<T>* from, T* to, int64_t n);)

}  // namespace tfo

#endif  // TENSORFLOW_OPS_CORE_CC_SIMD_CONVERT_SIMD_H_
