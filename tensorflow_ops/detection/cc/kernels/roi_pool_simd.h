// The inner loops of roi_pool, compiled once per CPU level.
#ifndef TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_POOL_SIMD_H_
#define TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_POOL_SIMD_H_

#include "tensorflow_ops/core/cc/cpu_dispatch.h"
#include "tensorflow_ops/detection/cc/kernels/roi_box.h"

namespace tfo {

TFO_PER_CPU_LEVEL(
    // One row of a box's bins, NHWC: the first `count` channels of `rows` of
    // `image` [.., width, channels], the bins' columns. Writes them of output
    // and, unless null, argmax [bins, channels].
    template <typename T>
    void PoolBinRow(const T* image, int64_t width, int64_t channels,
                    int64_t count, PixelRange rows, const PixelRange* columns,
                    int64_t bins, T* output, int32_t* argmax);

    // All bins of a box in one plane, NCHW: `plane` [.., width], of which
    // `readable` elements may be read. Writes output and, unless null, argmax
    // [bins_y, bins_x]. `best` and `best_row` have room for `width` elements
    // and 16 more.
    template <typename T>
    void PoolPlane(const T* plane, int64_t readable, int64_t width,
                   const PixelRange* rows, int64_t bins_y,
                   const PixelRange* columns, int64_t bins_x,
                   Accumulator<T>* best, int32_t* best_row, T* output,
                   int32_t* argmax);

    // sums[(argmax[i] - first) * stride + i * step] += d_output[i] for each i
    // in [0, n) whose argmax lies in [first, first + count). What lies `ahead`
    // elements further is fetched: it is what the caller adds next.
    template <typename T>
    void ScatterAdd(const T* d_output, const int32_t* argmax, int64_t n,
                    int64_t first, int64_t count, int64_t stride, int64_t step,
                    int64_t ahead, Accumulator<T>* sums);)

}  // namespace tfo

#endif  // TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_POOL_SIMD_H_
