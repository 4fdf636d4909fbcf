// The inner loops of grid_sample, compiled once per CPU level. They work on
// blocks of samples: taps first, then channels.
#ifndef TENSORFLOW_OPS_IMAGE_CC_KERNELS_GRID_SAMPLE_GRID_SAMPLE_SIMD_H_
#define TENSORFLOW_OPS_IMAGE_CC_KERNELS_GRID_SAMPLE_GRID_SAMPLE_SIMD_H_

#include "tensorflow_ops/core/cc/cpu_dispatch.h"
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

// The taps of a block's samples. Index is int32_t for planes of fewer than 2^31
// pixels, else int64_t. Tap t of sample i must be skipped if its weight, or
// both slopes, are 0, although its pixel is in the plane. Aligned, because
// loading a number of a vector that was stored across two cache lines stalls.
template <typename C, typename Index>
struct alignas(64) SampleTaps {
  Index pixel[kMaxSampleTaps][kSampleBlock];
  C weight[kMaxSampleTaps][kSampleBlock];
  C nan[kSampleBlock];  // NaN if the sample is NaN, else 0
  int count;            // of a sample
};
template <typename C>
struct alignas(64) SampleSlopes {
  C y[kMaxSampleTaps][kSampleBlock], x[kMaxSampleTaps][kSampleBlock];
};
// For each tap, the sum over channels of upstream gradient times pixel.
template <typename C>
struct alignas(64) SampleDots {
  C values[kMaxSampleTaps][kSampleBlock];
};

// Channels of images: neighboring samples and channels of a tensor [samples,
// channels], or [channels, samples], and of the plane or pixels.
struct SampledPlanes {
  int64_t channels;
  int64_t width;    // of a plane
  int64_t pixels;   // of a plane
  int64_t samples;  // of an image
};

// Rows of pixels of an image that a thread sums, as a range of pixels.
struct PixelBand {
  int64_t begin, end;
};

TFO_PER_CPU_LEVEL(
    // Finds the taps of samples of an image, whose grid begins at `grid`, and
    // their slopes unless null.
    template <typename C, typename Index>
    void FindTaps(const GridSampleArgs& args, const C* grid,
                  const SampleSpan& span, SampleTaps<C, Index>* taps,
                  SampleSlopes<C>* slopes);

    // The first and last row that each sample reads, with weights other than
    // 0; first > last if it reads none.
    template <typename C>
    void FindRows(const GridSampleArgs& args, const C* grid,
                  const SampleSpan& span, int32_t* first, int32_t* last);

    // Prefetches pixels of an image [pixels, channels]: the first and the last
    // tap of each sample, or only `new_tap` if a cache line has many pixels;
    // neighboring samples read the other taps.
    template <typename T, typename Index>
    void FetchPixels(const SampleTaps<Accumulator<T>, Index>& taps,
                     int64_t count, int new_tap, const T* image,
                     int64_t channels);

    // Writes samples [count, channels] of an image [pixels, channels]; if
    // `stream`, past the caches where the alignment allows.
    template <typename T, typename Index>
    void SampleChannelsLast(const SampleTaps<Accumulator<T>, Index>& taps,
                            int64_t count, const T* image,
                            const SampledPlanes& of, bool stream, T* output);
    // Writes samples [channels, count], `of.samples` apart, of [channels,
    // pixels].
    template <typename T, typename Index>
    void SamplePlanes(const SampleTaps<Accumulator<T>, Index>& taps,
                      int64_t count, const T* image, const SampledPlanes& of,
                      T* output);

    // Adds gradients of samples to the pixels of a band, from sums[0] on.
    // `d_output` is an image's, or a plane's with of.channels = 1.
    template <typename T, typename Index>
    void AddChannelsLast(const SampleTaps<Accumulator<T>, Index>& taps,
                         const SampleSpan& span, const T* d_output,
                         const SampledPlanes& of, const PixelBand& band,
                         Accumulator<T>* sums);

    // Writes the dots of samples, whose upstream gradients are [count,
    // channels], or [channels, count] `of.samples` apart.
    template <typename T, typename Index>
    void DotChannelsLast(const SampleTaps<Accumulator<T>, Index>& taps,
                         const SampleSlopes<Accumulator<T>>& slopes,
                         int64_t count, const T* d_output, const T* image,
                         const SampledPlanes& of,
                         SampleDots<Accumulator<T>>* dots);
    template <typename T, typename Index>
    void DotPlanes(const SampleTaps<Accumulator<T>, Index>& taps,
                   const SampleSlopes<Accumulator<T>>& slopes, int64_t count,
                   const T* d_output, const T* image, const SampledPlanes& of,
                   SampleDots<Accumulator<T>>* dots);

    // Sums slopes times dots over taps, but for slopes of 0. Writes whole
    // vectors.
    template <typename C>
    void SumSlopes(int taps, const SampleSlopes<C>& slopes,
                   const SampleDots<C>& dots, int64_t count, C* y, C* x);)

}  // namespace tfo

#endif  // TENSORFLOW_OPS_IMAGE_CC_KERNELS_GRID_SAMPLE_GRID_SAMPLE_SIMD_H_
