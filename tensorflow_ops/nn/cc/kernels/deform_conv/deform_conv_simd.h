// Inner loops of deform_conv.h: columns are the sampled features, a row of
// them for each output, ordered as the filters' rows.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_DEFORM_CONV_DEFORM_CONV_SIMD_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_DEFORM_CONV_DEFORM_CONV_SIMD_H_

#include <cstdint>

#include "tensorflow_ops/core/cc/cpu_dispatch.h"
#include "tensorflow_ops/core/cc/float16.h"
#include "tensorflow_ops/nn/cc/kernels/deform_conv/deform_conv.h"

namespace tfo {

// The use of taps. kOutput: a tap with a NaN offset has a NaN weight; for other
// uses, nothing is read there. kSlopes: corners of weight 0 count, too.
enum class TapUse { kOutput, kSlopes, kFilters };

// Where a tap of an output reads. Corner i of its cell is (i / 2, i % 2).
template <typename C>
struct DeformTap {
  int32_t pixels[4];  // -1: outside, or of weight 0 where slopes do not matter
  C weights[4];
  C y_fraction, x_fraction, mask;
};

// The taps that one call reads: of `rows` outputs, `stride` apart.
template <typename C>
struct TapRows {
  const DeformTap<C>* taps;
  int64_t stride, rows;
};

// `count` channels of an image, from the first of them on.
template <typename T>
struct ChannelsView {
  const T* data;
  int64_t pixel_stride, count;
  const T* zeros;  // [count]: read in place of pixels outside
};

TFO_PER_CPU_LEVEL(
    // Finds all taps of `count` outputs of an image from `first` on, [count]
    // [tap][offset group]. `offsets` and `mask` are the first output's.
    template <TapUse kUse, typename T, typename C = Accumulator<T>>
    void FindTaps(const DeformConvShape& shape, const C* offsets, const T* mask,
                  int64_t first, int64_t count, DeformTap<C>* taps);

    // Writes the samples times the mask to columns, a row of kGemmStride each.
    template <typename T, typename C = Accumulator<T>>
    void SampleColumns(const TapRows<C>& taps, const ChannelsView<T>& features,
                       C* columns);

    // Adds the dot products of d_columns with the four corners to dots, which
    // has four numbers for each of the taps.
    template <typename T, typename C = Accumulator<T>>
    void DotColumns(const TapRows<C>& taps, const ChannelsView<T>& features,
                    const C* d_columns, int64_t d_stride, C* dots);

    // Adds `count` channels of d_columns, of taps that are `tap_stride` apart,
    // to the corners with pixels in [begin, end) of `sums`.
    template <typename C>
    void ScatterColumns(const TapRows<C>& taps, int64_t num_taps,
                        int64_t tap_step, const C* d_columns, int64_t d_stride,
                        int64_t tap_stride, int64_t count, int64_t begin,
                        int64_t end, C* sums, int64_t pixel_stride);)

}  // namespace tfo

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_DEFORM_CONV_DEFORM_CONV_SIMD_H_
