// Shared by all CUDA kernels of region pooling: how a row of bins is divided
// among the threads of a block. For .cu.cc files.
#ifndef TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_ROI_CHANNELS_GPU_H_
#define TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_ROI_CHANNELS_GPU_H_

#include "tensorflow_ops/core/cc/cuda/cuda_launch.h"
#include "tensorflow_ops/detection/cc/kernels/roi/roi_box.h"

namespace tfo {

// The most threads of a block that has a row of bins.
constexpr int kRowThreads = 128;

// Threads of a block that has a row of `bins`: fewer, where the last step would
// leave many idle.
inline unsigned RowThreads(int64_t bins, int64_t packs) {
  const int64_t units = packs * (bins < 64 ? bins : 64);
  if (units >= 8 * kRowThreads) return kRowThreads;
  const int64_t threads = (units + 63) / 64 * 64;
  return 10 * units >= 7 * threads ? 64 : 32;
}

// The indices (outer, inner) of [.., inner_size] that one thread of a block
// visits: from its own number on, in steps of the block. Divides once.
class BlockStride {
 public:
  int outer, inner;

  __device__ explicit BlockStride(int inner_size)
      : outer(threadIdx.x / inner_size),
        inner(threadIdx.x % inner_size),
        inner_size_(inner_size),
        outer_step_(blockDim.x / inner_size),
        inner_step_(blockDim.x % inner_size) {}
  __device__ void Next() {
    outer += outer_step_;
    inner += inner_step_;
    if (inner >= inner_size_) {
      inner -= inner_size_;
      ++outer;
    }
  }

 private:
  int inner_size_, outer_step_, inner_step_;
};

// Calls visit(i, pack) for each i of `bins` and each of `packs` packs of
// channels, on one thread of the block: neighboring threads have neighboring
// packs.
template <typename Visit>
__device__ void VisitPacks(int bins, int64_t packs, const Visit& visit) {
  constexpr int kMaxPacks = 1 << 20;  // 32 bits then hold their number
  for (int64_t pack0 = 0; pack0 < packs; pack0 += kMaxPacks) {
    const int some =
        packs - pack0 < kMaxPacks ? static_cast<int>(packs - pack0) : kMaxPacks;
    for (BlockStride at(some); at.outer < bins; at.Next()) {
      visit(at.outer, pack0 + at.inner);
    }
  }
}

}  // namespace tfo

#endif  // TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_ROI_CHANNELS_GPU_H_
