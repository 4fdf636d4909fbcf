// The inner loops of roi_pool, compiled once per CPU level.
#ifndef TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_POOL_ROI_POOL_SIMD_H_
#define TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_POOL_ROI_POOL_SIMD_H_

#include "tensorflow_ops/core/cc/cpu_dispatch.h"
#include "tensorflow_ops/detection/cc/kernels/roi/roi_box.h"
#include "tensorflow_ops/detection/cc/kernels/roi/roi_views.h"

namespace tfo {

// The pixels of neighboring bins on one axis.
struct BinRanges {
  const PixelRange* bins;
  int64_t count;
};

// The results: maxima and, unless null, their pixels' indices.
template <typename T>
struct PooledView {
  T* output;
  int32_t* argmax;
};

// A pixel and channel's sum is sums[(pixel - first) * pixel_step + channel], of
// `count` pixels from `first` on.
template <typename Sum>
struct PixelSums {
  Sum* sums;
  int64_t first, count, pixel_step;
};

TFO_PER_CPU_LEVEL(
    // One row of a box's bins: the first `count` channels of `rows` of
    // `image`. Writes them of `pooled` [columns.count, image.channels].
    template <typename T>
    void PoolBinRow(const ImageView<const T>& image, int64_t count,
                    PixelRange rows, BinRanges columns, PooledView<T> pooled);

    // For each i in [0, n), adds d_output[i] to the sum of pixel argmax[i] and
    // channel i, if there is one. Prefetches `ahead` elements further, where
    // the caller continues.
    template <typename T>
    void ScatterAdd(const T* d_output, const int32_t* argmax, int64_t n,
                    int64_t ahead, const PixelSums<Accumulator<T>>& to);)

}  // namespace tfo

#endif  // TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_POOL_ROI_POOL_SIMD_H_
