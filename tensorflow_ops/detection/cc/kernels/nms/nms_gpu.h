// Shared by the CUDA kernels of the nms family.
#ifndef TENSORFLOW_OPS_DETECTION_CC_KERNELS_NMS_NMS_GPU_H_
#define TENSORFLOW_OPS_DETECTION_CC_KERNELS_NMS_NMS_GPU_H_

#include "tensorflow_ops/core/cc/cuda/warp_gpu.h"
#include "tensorflow_ops/core/cc/int_math.h"
#include "tensorflow_ops/core/cc/scratch.h"
#include "tensorflow_ops/detection/cc/kernels/nms/nms_boxes.h"
#include "tensorflow_ops/detection/cc/kernels/nms/nms_order.h"

namespace tfo {

// Better scores come first, equal ones by rising index.
template <typename Item>
struct RanksBefore {
  __device__ bool operator()(const Item& a, const Item& b) const {
    return a.key != b.key ? a.key < b.key : a.index < b.index;
  }
};

// The item of a score; sorts after all others if the score is ignored.
template <typename T>
__device__ Ranked<ScoreKey<T>> RankedOf(T score, ScoreKey<T> limit,
                                        int64_t index) {
  const ScoreKey<T> key = KeyOfScore(score);
  return {key < limit ? key : NoScore<T>(), static_cast<int32_t>(index)};
}

constexpr int kWord = 32;  // boxes of a warp, and bits of a word

// Which of a warp's candidates, in the order of their ranks, are kept:
// `suppressing` are those before a lane's own that would suppress it. Takes as
// many turns as the longest chain of candidates that suppress the next one. All
// lanes call.
__device__ inline uint32_t KeptOf(uint32_t candidates, uint32_t suppressing) {
  const uint32_t mine = 1u << (threadIdx.x % kWord);
  uint32_t kept = 0;
  while (candidates != 0) {
    const bool is_open = (candidates & mine) != 0;
    kept |= __ballot_sync(kAllLanes,
                          is_open && (suppressing & (candidates | kept)) == 0);
    candidates &=
        ~kept & ~__ballot_sync(kAllLanes, is_open && (suppressing & kept) != 0);
  }
  return kept;
}

// How many bits of a word are before this lane's.
__device__ inline int BitsBefore(uint32_t bits) {
  return __popc(bits & ((1u << (threadIdx.x % kWord)) - 1));
}

// Calls run(std::bool_constant<is the format rotated?>).
template <typename Run>
auto WithRotated(BoxFormat format, const Run& run) {
  return format == BoxFormat::kRotated ? run(std::true_type())
                                       : run(std::false_type());
}

}  // namespace tfo

#endif  // TENSORFLOW_OPS_DETECTION_CC_KERNELS_NMS_NMS_GPU_H_
