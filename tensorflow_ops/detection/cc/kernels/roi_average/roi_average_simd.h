// The inner loops of roi_average, compiled once per CPU level.
#ifndef TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_AVERAGE_ROI_AVERAGE_SIMD_H_
#define TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_AVERAGE_ROI_AVERAGE_SIMD_H_

#include "tensorflow_ops/core/cc/cpu_dispatch.h"
#include "tensorflow_ops/detection/cc/kernels/roi/roi_views.h"
#include "tensorflow_ops/detection/cc/kernels/roi_average/roi_average.h"

namespace tfo {

// The weight of a row or a column of pixels in a bin.
template <typename C>
struct Tap {
  int32_t pixel;
  C weight;
};
// The same, and how the weight changes with the box's beginning and end.
template <typename C>
struct SlopedTap {
  int32_t pixel;
  C weight, low, high;
};

// A bin's taps on one axis.
template <typename Tap>
struct TapSpan {
  const Tap *begin, *end;
};

// The taps of `count` neighboring bins: bin i has [begin[i], begin[i + 1]).
template <typename Tap>
struct BinTaps {
  const Tap* taps;
  const int64_t* begin;
  int64_t count;
};
template <typename Tap>
static inline TapSpan<Tap> TapsOf(const BinTaps<Tap>& bins, int64_t i) {
  return {bins.taps + bins.begin[i], bins.taps + bins.begin[i + 1]};
}

TFO_PER_CPU_LEVEL(
    // A row of bins. `image` begins at the first bin's first channel;
    // `rows` are the taps of the row of bins. Writes of.count channels of
    // each bin of `output`; past the caches if `stream`, which is for outputs
    // larger than them.
    template <typename T>
    void AverageBinRow(const ImageView<const T>& image,
                       TapSpan<Tap<Accumulator<T>>> rows,
                       const BinTaps<Tap<Accumulator<T>>>& columns,
                       const BinChannels& of, RowView<T> output, bool stream);

    // The transpose of AverageBinRow in one row of pixels, whose tap has
    // `weight`: adds to `sums`, which begin at the first bin's first channel.
    // Prefetches d_output `ahead` elements further, where the caller continues.
    template <typename T>
    void AddBinRow(RowView<const T> d_output, Accumulator<T> weight,
                   const BinTaps<Tap<Accumulator<T>>>& columns,
                   const BinChannels& of, int64_t ahead,
                   RowView<Accumulator<T>> sums);

    // Adds to d_box (y1, x1, y2, x2) the derivative of sum(d_output * averages)
    // of a row of bins, as AverageBinRow.
    template <typename T>
    void AddBoxGradOfBinRow(RowView<const T> d_output,
                            const ImageView<const T>& image,
                            TapSpan<SlopedTap<Accumulator<T>>> rows,
                            const BinTaps<SlopedTap<Accumulator<T>>>& columns,
                            const BinChannels& of, double* d_box);)

}  // namespace tfo

#endif  // TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_AVERAGE_ROI_AVERAGE_SIMD_H_
