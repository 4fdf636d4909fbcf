// Sums of gradients to boxes in CUDA kernels. For .cu.cc files.
#ifndef TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_ROI_BOX_SUMS_GPU_H_
#define TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_ROI_BOX_SUMS_GPU_H_

#include "tensorflow_ops/detection/cc/kernels/roi/roi_axis.h"
#include "tensorflow_ops/detection/cc/kernels/roi/roi_channels_gpu.h"

namespace tfo {

// One thread's sums of a box's derivatives to y1, x1, y2, x2.
template <typename Sum>
struct BoxSums {
  Sum values[4] = {};

  // Adds derivatives d_y and d_x to positions that change by `y` and `x` with
  // the box.
  __device__ void Add(const BoxSlopes<Sum>& y, Sum d_y, const BoxSlopes<Sum>& x,
                      Sum d_x) {
    values[0] += y.low * d_y;
    values[1] += x.low * d_x;
    values[2] += y.high * d_y;
    values[3] += x.high * d_x;
  }
};

// Adds up the block's sums, in a fixed order, and writes a box's derivatives,
// or adds to them. All of the block must call it.
template <typename Sum>
__device__ void WriteBoxSums(bool yxyx, const BoxSums<Sum>& sums,
                             Sum (&parts)[4][kRowThreads], bool add,
                             Sum* d_box) {
  const int thread = threadIdx.x;
  __syncthreads();  // the parts before are no longer read
  for (int i = 0; i < 4; ++i) parts[i][thread] = sums.values[i];
  for (int half = kRowThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (thread >= half) continue;
    for (int i = 0; i < 4; ++i) parts[i][thread] += parts[i][thread + half];
  }
  if (thread > 0) return;
  for (int i = 0; i < 4; ++i) {
    // In xyxy, each corner's coordinates change places.
    Sum* const to = d_box + (yxyx ? i : i ^ 1);
    *to = parts[i][0] + (add ? *to : 0);
  }
}

}  // namespace tfo

#endif  // TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_ROI_BOX_SUMS_GPU_H_
