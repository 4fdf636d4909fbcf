// Shared by the CUDA kernels of the nms family.
#ifndef TENSORFLOW_OPS_DETECTION_CC_KERNELS_NMS_NMS_GPU_H_
#define TENSORFLOW_OPS_DETECTION_CC_KERNELS_NMS_NMS_GPU_H_

#include "tensorflow_ops/core/cc/cuda_launch.h"
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

// Arrays in scratch memory: the same calls add up its size and, with memory,
// return the places.
class ScratchArrays {
 public:
  explicit ScratchArrays(void* memory) : memory_(static_cast<char*>(memory)) {}

  template <typename T>
  T* Add(int64_t count) {
    T* const place =
        memory_ == nullptr ? nullptr : reinterpret_cast<T*>(memory_ + bytes_);
    bytes_ += (count * static_cast<int64_t>(sizeof(T)) + 15) / 16 * 16;
    return place;
  }
  int64_t bytes() const { return bytes_; }

 private:
  char* const memory_;
  int64_t bytes_ = 0;
};

// Calls run(std::bool_constant<is the format rotated?>).
template <typename Run>
auto WithRotated(BoxFormat format, const Run& run) {
  return format == BoxFormat::kRotated ? run(std::true_type())
                                       : run(std::false_type());
}

}  // namespace tfo

#endif  // TENSORFLOW_OPS_DETECTION_CC_KERNELS_NMS_NMS_GPU_H_
