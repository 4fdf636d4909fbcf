// Samples by the bands of rows that they read, so that one thread owns the
// gradient of a band. On the host.
#ifndef TENSORFLOW_OPS_IMAGE_CC_KERNELS_GRID_SAMPLE_SAMPLE_BANDS_H_
#define TENSORFLOW_OPS_IMAGE_CC_KERNELS_GRID_SAMPLE_SAMPLE_BANDS_H_

#include <algorithm>
#include <cstdint>

#include "tensorflow_ops/core/cc/buckets.h"
#include "tensorflow_ops/core/cc/device.h"
#include "tensorflow_ops/image/cc/kernels/grid_sample/grid_sample_args.h"
#include "tensorflow_ops/image/cc/kernels/grid_sample/grid_sample_simd.h"

namespace tfo {

// Samples of an image, rising; samples null: all.
struct SampleList {
  const int64_t* samples;
  int64_t count;
};

// Sorts all samples by counting: a sample is in the list of each band that its
// rows touch, in order, and in none if it is outside.
template <typename C>
class SampleBands {
 public:
  // Bands have 2^row_shift rows.
  SampleBands(const Cpu& cpu, const GridSampleSpec& args, const C* grid,
              int row_shift)
      : args_(args),
        grid_(grid),
        shift_(row_shift),
        count_(((args.height - 1) >> row_shift) + 1),
        chunks_((args.samples + kChunk - 1) / kChunk) {
    if (count_ == 1) return;
    samples_ = Buckets(args.batch * count_ * chunks_, [&](const auto& add) {
      cpu.ParallelFor(args.batch * chunks_, 10.0 * kChunk,
                      [&](int64_t begin, int64_t end) {
                        for (int64_t unit = begin; unit < end; ++unit) {
                          VisitChunk(unit / chunks_, unit % chunks_, add);
                        }
                      });
    });
  }

  int64_t count() const { return count_; }

  PixelBand Pixels(int64_t band) const {
    const int64_t last = std::min((band + 1) << shift_, args_.height);
    return {(band << shift_) * args_.width, last * args_.width};
  }

  SampleList Samples(int64_t image, int64_t band) const {
    if (count_ == 1) return {nullptr, args_.samples};
    const int64_t first = (image * count_ + band) * chunks_;
    const int64_t* const begin = samples_.begin(first);
    return {begin, samples_.begin(first + chunks_) - begin};
  }

 private:
  static constexpr int64_t kChunk = 4096;  // samples

  // Calls visit(bucket, sample) for the bands of each sample.
  template <typename Visit>
  void VisitChunk(int64_t image, int64_t chunk, const Visit& visit) const {
    int32_t low[kSampleBlock], high[kSampleBlock];
    const int64_t last = std::min((chunk + 1) * kChunk, args_.samples);
    for (int64_t first = chunk * kChunk; first < last; first += kSampleBlock) {
      const SampleSpan span = {nullptr, first,
                               std::min<int64_t>(kSampleBlock, last - first)};
      TFO_DISPATCH(FindRows<C>)
      (args_, grid_ + 2 * image * args_.samples, span, low, high);
      for (int64_t i = 0; i < span.count; ++i) {
        for (int64_t band = low[i] >> shift_; band <= high[i] >> shift_;
             ++band) {
          visit((image * count_ + band) * chunks_ + chunk, first + i);
        }
      }
    }
  }

  const GridSampleSpec& args_;
  const C* const grid_;
  const int shift_;
  const int64_t count_, chunks_;
  Buckets samples_;  // of each image, band and chunk
};

}  // namespace tfo

#endif  // TENSORFLOW_OPS_IMAGE_CC_KERNELS_GRID_SAMPLE_SAMPLE_BANDS_H_
