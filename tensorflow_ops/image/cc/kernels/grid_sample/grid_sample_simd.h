// The inner loops of grid_sample, compiled once per CPU level. They work on
// blocks of samples: taps first, then channels.
#ifndef TENSORFLOW_OPS_IMAGE_CC_KERNELS_GRID_SAMPLE_GRID_SAMPLE_SIMD_H_
#define TENSORFLOW_OPS_IMAGE_CC_KERNELS_GRID_SAMPLE_GRID_SAMPLE_SIMD_H_

#include "tensorflow_ops/core/cc/simd/cpu_dispatch.h"
#include "tensorflow_ops/image/cc/kernels/grid_sample/grid_sample_args.h"

namespace tfo {

inline constexpr int kSampleBlock = 64;
inline constexpr int kMaxSampleTaps = 16;

// The samples of a block, all of one image: those in `list`, or consecutive
// ones from `first` on.
struct SampleSpan {
  const int64_t* list;  // or null
  int64_t first;
  int64_t count;  // at most kSampleBlock
};

// The taps of a block's samples. Tap t of sample i must be skipped if its
// weight, or both slopes, are 0, although its pixel is in the image. Aligned,
// because loading a number of a vector that was stored across two cache lines
// stalls.
template <typename C>
struct alignas(64) SampleTaps {
  int32_t pixel[kMaxSampleTaps][kSampleBlock];
  C weight[kMaxSampleTaps][kSampleBlock];
  C start[kSampleBlock];  // what pixels outside add; NaN if the sample is NaN
  int count;              // of a sample
};
template <typename C>
struct alignas(64) SampleSlopes {
  C y[kMaxSampleTaps][kSampleBlock], x[kMaxSampleTaps][kSampleBlock];
  C start_y[kSampleBlock], start_x[kSampleBlock];  // if fill_value is not 0
};
// For each tap, the sum over channels of upstream gradient times pixel.
template <typename C>
struct alignas(64) SampleDots {
  C values[kMaxSampleTaps][kSampleBlock];
};

// Pixels of an image that are read soon: of the next block's samples, the tap
// that neighboring samples have not read yet.
template <typename T>
struct PixelsAhead {
  const T* image;
  const int32_t* pixel;
  int64_t count;
};

// Rows of pixels of an image that a thread sums, as a range of pixels.
struct PixelBand {
  int64_t begin, end;
};

TFO_PER_CPU_LEVEL(
    // Finds the taps of samples of an image, whose grid begins at `grid`, and
    // their slopes unless null.
    template <typename C>
    void FindTaps(const GridSampleSpec& args, const C* grid,
                  const SampleSpan& span, SampleTaps<C>* taps,
                  SampleSlopes<C>* slopes);

    // The first and last row that each sample reads, with weights other than
    // 0; first > last if it reads none.
    template <typename C>
    void FindRows(const GridSampleSpec& args, const C* grid,
                  const SampleSpan& span, int32_t* first, int32_t* last);

    // Prefetches pixels of `channels` channels. Of large ones, only the first
    // channels: the processor foresees the others.
    template <typename T>
    void FetchPixels(const PixelsAhead<T>& ahead, int64_t channels);

    // Writes samples [count, channels] of an image; past the caches if `stream`
    // and where the alignment allows. Prefetches `ahead` meanwhile.
    template <typename T>
    void SamplePixels(const SampleTaps<Accumulator<T>>& taps, int64_t count,
                      const T* image, const GridSampleSpec& args,
                      const PixelsAhead<T>& ahead, bool stream, T* output);

    // Adds gradients of samples of an image to the pixels of a band, from
    // sums[0] on.
    template <typename T>
    void AddToPixels(const SampleTaps<Accumulator<T>>& taps,
                     const SampleSpan& span, const T* d_output,
                     const GridSampleSpec& args, const PixelBand& band,
                     Accumulator<T>* sums);

    // Writes the dots of samples, whose upstream gradients are [count,
    // channels].
    template <typename T>
    void DotPixels(const SampleTaps<Accumulator<T>>& taps,
                   const SampleSlopes<Accumulator<T>>& slopes, int64_t count,
                   const T* d_output, const T* image,
                   const GridSampleSpec& args,
                   SampleDots<Accumulator<T>>* dots);

    // Sums slopes times dots over taps, but for slopes of 0. Writes whole
    // vectors.
    template <typename C>
    void SumSlopes(int taps, const SampleSlopes<C>& slopes,
                   const SampleDots<C>& dots, int64_t count, C* y, C* x);)

}  // namespace tfo

#endif  // TENSORFLOW_OPS_IMAGE_CC_KERNELS_GRID_SAMPLE_GRID_SAMPLE_SIMD_H_
