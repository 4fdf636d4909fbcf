// The inner loops of roi_average, compiled once per CPU level.
#ifndef TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_AVERAGE_SIMD_H_
#define TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_AVERAGE_SIMD_H_

#include "tensorflow_ops/core/cc/cpu_dispatch.h"
#include "tensorflow_ops/core/cc/float16.h"

namespace tfo {

// What a bin takes of a row or a column of pixels.
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

// The taps of bins in a row: bin i has [begin[i], begin[i + 1]).
template <typename Tap>
struct BinTaps {
  const Tap* taps;
  const int64_t* begin;
};

template <typename Tap>
static inline BinTaps<Tap> From(BinTaps<Tap> bins, int64_t first) {
  return {bins.taps, bins.begin + first};
}

// The channels of a bin in a pixel: `count` of them, from the first, `step`
// apart; those of the next bin begin `next_bin` further.
struct BinChannels {
  int64_t count, step, next_bin;
};

TFO_PER_CPU_LEVEL(
    // A row of bins, NHWC. `image` [.., width, channels] begins at the first
    // bin's first channel, `rows` are of this row of bins. Writes output [bins,
    // output_channels], the first channels of each bin; past the caches if
    // `stream`, which is for outputs that no cache holds.
    template <typename T>
    void AverageBinRow(const T* image, int64_t width, int64_t channels,
                       const Tap<Accumulator<T>>* rows_begin,
                       const Tap<Accumulator<T>>* rows_end,
                       BinTaps<Tap<Accumulator<T>>> columns, int64_t bins,
                       BinChannels of, int64_t output_channels, bool stream,
                       T* output);

    // All bins [bins_y, bins_x] of a box in one plane, NCHW: `plane` [..,
    // width], of which `readable` elements may be read. `scratch` has room for
    // width + bins_x + 32 elements.
    template <typename T>
    void AveragePlane(const T* plane, int64_t readable, int64_t width,
                      BinTaps<Tap<Accumulator<T>>> rows, int64_t bins_y,
                      BinTaps<Tap<Accumulator<T>>> columns, int64_t bins_x,
                      Accumulator<T>* scratch, T* output);

    // The transpose of AverageBinRow in one row of pixels, `sums` [width,
    // channels], which begins at the first bin's first channel: adds `weight`
    // times what each pixel gave to the bins. What lies `ahead` elements
    // further in d_output is fetched: it is what the caller adds next.
    template <typename T>
    void AddBinRow(const T* d_output, int64_t output_channels,
                   Accumulator<T> weight, BinTaps<Tap<Accumulator<T>>> columns,
                   int64_t bins, BinChannels of, int64_t channels,
                   int64_t ahead, Accumulator<T>* sums);

    // The transpose of AveragePlane: adds to `sums` [.., width]. `scratch` has
    // room for width + 32 elements.
    template <typename T>
    void AddPlane(const T* d_output, BinTaps<Tap<Accumulator<T>>> rows,
                  int64_t bins_y, BinTaps<Tap<Accumulator<T>>> columns,
                  int64_t bins_x, int64_t width, Accumulator<T>* scratch,
                  Accumulator<T>* sums);

    // Adds to d_box (y1, x1, y2, x2) the derivative of sum(d_output * averages)
    // of a row of bins, NHWC, as AverageBinRow.
    template <typename T>
    void AddBoxGradOfBinRow(const T* d_output, int64_t output_channels,
                            const T* image, int64_t width, int64_t channels,
                            const SlopedTap<Accumulator<T>>* rows_begin,
                            const SlopedTap<Accumulator<T>>* rows_end,
                            BinTaps<SlopedTap<Accumulator<T>>> columns,
                            int64_t bins, BinChannels of, double* d_box);

    // The same of all bins in one plane, NCHW, as AveragePlane. `scratch` has
    // room for 3 * (width + 16) elements.
    template <typename T> void AddBoxGradOfPlane(
        const T* d_output, const T* plane, int64_t readable, int64_t width,
        BinTaps<SlopedTap<Accumulator<T>>> rows, int64_t bins_y,
        BinTaps<SlopedTap<Accumulator<T>>> columns, int64_t bins_x,
        Accumulator<T>* scratch, double* d_box);)

}  // namespace tfo

#endif  // TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_AVERAGE_SIMD_H_
