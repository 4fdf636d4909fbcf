// Values that the lanes of a warp exchange. For .cu.cc files. All lanes of the
// warp must call.
#ifndef TENSORFLOW_OPS_CORE_CC_CUDA_WARP_GPU_H_
#define TENSORFLOW_OPS_CORE_CC_CUDA_WARP_GPU_H_

#include <cmath>
#include <cstdint>

#include "tensorflow_ops/core/cc/cuda/cuda_launch.h"

namespace tfo {

inline constexpr int kWarp = 32;
inline constexpr uint32_t kAllLanes = 0xFFFFFFFF;

// Joins the values of each group of kLanes lanes, kStride apart; both are
// powers of two. All lanes of a group get the same bits.
template <int kLanes = kWarp, int kStride = 1, typename V, typename Join>
__device__ V JoinLanes(V v, const Join& join) {
#pragma unroll
  for (int lanes = kLanes / 2; lanes > 0; lanes /= 2) {
    v = join(v, __shfl_xor_sync(kAllLanes, v, lanes * kStride));
  }
  return v;
}
template <int kLanes = kWarp, int kStride = 1, typename V>
__device__ V SumOfLanes(V v) {
  return JoinLanes<kLanes, kStride>(v, [](V a, V b) { return a + b; });
}
// Ignores NaNs unless all are.
template <int kLanes = kWarp, int kStride = 1, typename V>
__device__ V GreatestOfLanes(V v) {
  return JoinLanes<kLanes, kStride>(v,
                                    [](V a, V b) { return std::fmax(a, b); });
}

}  // namespace tfo

#endif  // TENSORFLOW_OPS_CORE_CC_CUDA_WARP_GPU_H_
