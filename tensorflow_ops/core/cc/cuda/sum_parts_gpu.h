// Adds what blocks have summed in parts, in order: the same bits in each run.
#ifndef TENSORFLOW_OPS_CORE_CC_CUDA_SUM_PARTS_GPU_H_
#define TENSORFLOW_OPS_CORE_CC_CUDA_SUM_PARTS_GPU_H_

#include <cstdint>

#include "tensorflow_ops/core/cc/cuda/cuda_launch.h"
#include "tensorflow_ops/core/cc/float16.h"
#include "tensorflow_ops/core/cc/int_math.h"

namespace tfo {

inline constexpr int kSumPartsThreads = 256;

// to[i] = the sum of `parts` arrays, in order, and bias[i % channels], if any.
template <typename T, typename C = Accumulator<T>>
__global__ void SumParts(int64_t count, int64_t parts, const C* from,
                         const T* bias, int64_t channels, T* to) {
  for (int64_t i = int64_t{blockIdx.x} * kSumPartsThreads + threadIdx.x;
       i < count; i += int64_t{gridDim.x} * kSumPartsThreads) {
    C sum = from[i];
#pragma unroll 8
    for (int64_t part = 1; part < parts; ++part) sum += from[part * count + i];
    if (bias != nullptr) sum += Widen(bias[i % channels]);
    to[i] = Narrow<T>(sum);
  }
}
template <typename T, typename C = Accumulator<T>>
Error EnqueueSumParts(const Gpu& gpu, int64_t count, int64_t parts,
                      const C* from, T* to, const T* bias = nullptr,
                      int64_t channels = 1) {
  return Launch(gpu, GridSize(DivideUp(count, kSumPartsThreads)),
                kSumPartsThreads, SumParts<T>, count, parts, from, bias,
                channels, to);
}

}  // namespace tfo

#endif  // TENSORFLOW_OPS_CORE_CC_CUDA_SUM_PARTS_GPU_H_
