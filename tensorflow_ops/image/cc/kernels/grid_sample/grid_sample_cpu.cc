#include <algorithm>
#include <cstring>
#include <type_traits>
#include <vector>

#include "tensorflow_ops/core/cc/simd/convert_simd.h"
#include "tensorflow_ops/image/cc/kernels/grid_sample/grid_sample.h"
#include "tensorflow_ops/image/cc/kernels/grid_sample/grid_sample_simd.h"
#include "tensorflow_ops/image/cc/kernels/grid_sample/sample_bands.h"

namespace tfo {
namespace {

constexpr int64_t kLine = 64;  // bytes of a cache line

// Prefetches values that are read soon, in order.
template <typename T>
void Fetch(const T* from, int64_t count) {
  const char* const at = reinterpret_cast<const char*>(from);
  const int64_t bytes = count * sizeof(T);
  for (int64_t line = 0; line < bytes; line += kLine) {
    __builtin_prefetch(at + line, 0, 2);
  }
}

// Estimates a sample's cost.
double CyclesPerSample(const GridSampleSpec& args) {
  const double taps = TapsOnAxis(args.mode) * TapsOnAxis(args.mode);
  return 10 + taps * (2 + args.channels / 8.0);
}

// The taps of a block of samples of an image.
template <typename C>
struct FoundBlock {
  int64_t image;
  SampleSpan span;
  SampleTaps<C> taps;
  SampleSlopes<C> slopes;
};

// The tap whose row most samples read first: the last one if an image's samples
// go down.
template <typename C>
int FirstReadTap(const GridSampleSpec& args, const C* grid) {
  const int y_at = YIsFirst(args.coordinates) ? 0 : 1;
  const bool down = args.coordinates == SampleCoordinates::kFlow ||
                    grid[2 * args.samples - 2 + y_at] > grid[y_at];
  const int on_axis = TapsOnAxis(args.mode);
  return down ? on_axis * (on_axis - 1) : 0;
}

// Calls find(block), then body(*block, ahead), for blocks of samples, in
// parallel. `ahead` are pixels of the next block, to be prefetched.
template <typename T, typename Args, typename Find, typename Body>
void ForBlocks(const Cpu& cpu, const Args& args, double cycles,
               const Find& find, const Body& body) {
  const int64_t blocks = (args.samples + kSampleBlock - 1) / kSampleBlock;
  cpu.ParallelFor(
      args.batch * blocks, cycles * kSampleBlock,
      [&](int64_t begin, int64_t end) {
        FoundBlock<Accumulator<T>> found[2];
        const auto prepare = [&](int64_t unit) -> PixelsAhead<T> {
          auto& block = found[unit % 2];
          const int64_t first = unit % blocks * kSampleBlock;
          block.image = unit / blocks;
          block.span = {nullptr, first,
                        std::min<int64_t>(kSampleBlock, args.samples - first)};
          find(&block);
          const int tap =
              FirstReadTap(args, args.grid + 2 * block.image * args.samples);
          return {args.features + block.image * args.Pixels() * args.channels,
                  block.taps.pixel[tap], block.span.count};
        };
        if (begin < end) prepare(begin);
        for (int64_t unit = begin; unit < end; ++unit) {
          PixelsAhead<T> ahead = {};
          if (unit + 1 < end) ahead = prepare(unit + 1);
          body(found[unit % 2], ahead);
        }
      });
}

// Sums bands of images: their sums are written to d_features, after the samples
// were added in order.
template <typename T>
class BandSums {
 public:
  using Sum = Accumulator<T>;

  explicit BandSums(const GridSampleGradArgs<T>& args) : args_(args) {}

  void Run(int64_t image, const PixelBand& band, const SampleList& list) {
    const int64_t size = (band.end - band.begin) * args_.channels;
    T* const to = args_.d_features +
                  (image * args_.Pixels() + band.begin) * args_.channels;
    if constexpr (std::is_same_v<T, Sum>) {
      cleared_ = band.begin;
      Add(image, band, list, to);
      Clear(band.end, band, to);
    } else {
      scratch_.assign(size, 0);
      cleared_ = band.end;
      Add(image, band, list, scratch_.data());
      TFO_DISPATCH(NarrowArray<T>)(scratch_.data(), to, size);
    }
  }

 private:
  // Clears sums up to pixel `end` of the band, if they are not yet: just before
  // they are added to, so that they stay in the cache.
  void Clear(int64_t end, const PixelBand& band, Sum* sums) {
    end = std::min(end, band.end);
    if (end <= cleared_) return;
    std::memset(sums + (cleared_ - band.begin) * args_.channels, 0,
                (end - cleared_) * args_.channels * sizeof(Sum));
    cleared_ = end;
  }

  int64_t LastPixel(int64_t count) const {
    int32_t last = 0;
    for (int t = 0; t < taps_.count; ++t) {
      for (int64_t i = 0; i < count; ++i) {
        last = std::max(last, taps_.pixel[t][i]);
      }
    }
    return last;
  }

  static SampleSpan SpanAt(const SampleList& list, int64_t first) {
    return {list.samples == nullptr ? nullptr : list.samples + first, first,
            std::min<int64_t>(kSampleBlock, list.count - first)};
  }

  // Prefetches the upstream gradients of samples. The processor itself finds
  // rows shorter than a cache line in time.
  void FetchGradients(const SampleSpan& span, const T* d_output) const {
    const int64_t channels = args_.channels;
    if (channels * sizeof(T) < kLine) return;
    for (int64_t i = 0; i < span.count; ++i) {
      const int64_t sample =
          span.list == nullptr ? span.first + i : span.list[i];
      Fetch(d_output + sample * channels, channels);
    }
  }

  void Add(int64_t image, const PixelBand& band, const SampleList& list,
           Sum* sums) {
    const Sum* const grid = args_.grid + 2 * image * args_.samples;
    const T* const d_output =
        args_.d_output + image * args_.samples * args_.channels;
    for (int64_t first = 0; first < list.count; first += kSampleBlock) {
      const SampleSpan span = SpanAt(list, first);
      FetchGradients(SpanAt(list, first + kSampleBlock), d_output);
      TFO_DISPATCH(FindTaps<Sum>)(args_, grid, span, &taps_, nullptr);
      if (cleared_ < band.end) Clear(LastPixel(span.count) + 1, band, sums);
      TFO_DISPATCH(AddToPixels<T>)(taps_, span, d_output, args_, band, sums);
    }
  }

  const GridSampleGradArgs<T>& args_;
  SampleTaps<Sum> taps_;
  int64_t cleared_ = 0;  // the first pixel whose sums are not cleared yet
  std::vector<Sum> scratch_;
};

// Returns the shift of the bands that the gradient to features is shared out
// by: a band has 2^shift rows.
int BandShift(const Cpu& cpu, const GridSampleSpec& args, bool is_16_bit) {
  const int64_t wanted = cpu.num_threads == 1 ? 1 : 4 * cpu.num_threads;
  int64_t rows = args.height;
  const int64_t images = std::max<int64_t>(args.batch, 1);
  // Bands need the samples sorted.
  const int64_t bands = images >= 2 * cpu.num_threads ? 1 : wanted / images;
  if (bands > 1) rows = std::max<int64_t>(args.height / bands, 4);
  if (is_16_bit) {
    // Sums of at most 4 MB.
    const int64_t row_bytes = 4 * args.width * args.channels;
    rows = std::min(rows, std::max<int64_t>((4 << 20) / row_bytes, 1));
  }
  if (rows >= args.height) return 30;
  int shift = 0;
  while ((int64_t{2} << shift) <= rows) ++shift;
  return shift;
}

// Prefetches the coordinates of samples that follow those of a block.
template <typename C>
void FetchCoordinates(const GridSampleSpec& args, const C* grid,
                      const SampleSpan& span) {
  const int64_t first = span.first + 2 * kSampleBlock;
  Fetch(grid + 2 * first,
        2 * std::min<int64_t>(kSampleBlock, args.samples - first));
}

// Replaces weights by their derivatives along a direction of the grid.
template <typename C>
void UseSlopesAsWeights(const GridSampleSpec& args, const C* direction,
                        int64_t count, const SampleSlopes<C>& slopes,
                        SampleTaps<C>* taps) {
  const int y_at = YIsFirst(args.coordinates) ? 0 : 1;
  for (int64_t i = 0; i < count; ++i) {
    const C y = direction[2 * i + y_at], x = direction[2 * i + 1 - y_at];
    const auto along = [&](C slope_y, C slope_x) {
      return (slope_y == 0 ? 0 : slope_y * y) +
             (slope_x == 0 ? 0 : slope_x * x);
    };
    taps->start[i] =
        args.fill_value != 0 ? along(slopes.start_y[i], slopes.start_x[i]) : 0;
    for (int t = 0; t < taps->count; ++t) {
      taps->weight[t][i] = along(slopes.y[t][i], slopes.x[t][i]);
    }
  }
}

}  // namespace

template <typename T>
Error GridSample(const Cpu& cpu, const GridSampleArgs<T>& args) {
  using Sum = Accumulator<T>;
  const auto find = [&](FoundBlock<Sum>* block) {
    const int64_t first = 2 * block->image * args.samples;
    FetchCoordinates(args, args.grid + first, block->span);
    TFO_DISPATCH(FindTaps<Sum>)
    (args, args.grid + first, block->span, &block->taps,
     args.direction == nullptr ? nullptr : &block->slopes);
    if (args.direction != nullptr) {
      UseSlopesAsWeights(args, args.direction + first + 2 * block->span.first,
                         block->span.count, block->slopes, &block->taps);
    }
  };
  const bool stream = args.batch * args.samples * args.channels *
                          static_cast<int64_t>(sizeof(T)) >=
                      kStreamBytes;
  const auto sample = [&](const FoundBlock<Sum>& block,
                          const PixelsAhead<T>& ahead) {
    const int64_t first = block.image * args.samples + block.span.first;
    TFO_DISPATCH(SamplePixels<T>)
    (block.taps, block.span.count,
     args.features + block.image * args.Pixels() * args.channels, args, ahead,
     stream, args.output + first * args.channels);
  };
  ForBlocks<T>(cpu, args, CyclesPerSample(args), find, sample);
  return nullptr;
}

template <typename T>
Error GridSampleGrad(const Cpu& cpu, const GridSampleGradArgs<T>& args) {
  const SampleBands<Accumulator<T>> bands(cpu, args, args.grid,
                                          BandShift(cpu, args, sizeof(T) == 2));
  const int64_t count = args.batch * bands.count();
  const double cycles = CyclesPerSample(args) * args.samples * args.batch /
                        std::max<int64_t>(count, 1);
  cpu.ParallelFor(count, cycles, [&](int64_t begin, int64_t end) {
    BandSums<T> sums(args);
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t band = unit % bands.count(), image = unit / bands.count();
      sums.Run(image, bands.Pixels(band), bands.Samples(image, band));
    }
  });
  return nullptr;
}

template <typename T>
Error GridSampleGridGrad(const Cpu& cpu,
                         const GridSampleGridGradArgs<T>& args) {
  using Sum = Accumulator<T>;
  const int y_at = YIsFirst(args.coordinates) ? 0 : 1;
  const auto find = [&](FoundBlock<Sum>* block) {
    const int64_t first = block->image * args.samples;
    FetchCoordinates(args, args.grid + 2 * first, block->span);
    TFO_DISPATCH(FindTaps<Sum>)
    (args, args.grid + 2 * first, block->span, &block->taps, &block->slopes);
    if (args.channels * sizeof(T) < kLine) return;
    Fetch(args.d_output + (first + block->span.first) * args.channels,
          block->span.count * args.channels);
  };
  const auto differentiate = [&](const FoundBlock<Sum>& block,
                                 const PixelsAhead<T>& ahead) {
    TFO_DISPATCH(FetchPixels<T>)(ahead, args.channels);
    SampleDots<Sum> dots;  // lanes beyond the samples: any
    const int64_t count = block.span.count;
    const int64_t first = block.image * args.samples + block.span.first;
    TFO_DISPATCH(DotPixels<T>)
    (block.taps, block.slopes, count, args.d_output + first * args.channels,
     args.features + block.image * args.Pixels() * args.channels, args, &dots);
    Sum sums[2][kSampleBlock];
    TFO_DISPATCH(SumSlopes<Sum>)
    (block.taps.count, block.slopes, dots, count, sums[y_at], sums[1 - y_at]);
    const int64_t filled = args.fill_value != 0 ? count : 0;
    for (int64_t i = 0; i < filled; ++i) {
      const Sum start_y = block.slopes.start_y[i];
      const Sum start_x = block.slopes.start_x[i];
      if (start_y == 0 && start_x == 0) continue;
      Sum up = 0;
      for (int64_t c = 0; c < args.channels; ++c) {
        up += Widen(args.d_output[(first + i) * args.channels + c]);
      }
      if (start_y != 0) sums[y_at][i] += start_y * up;
      if (start_x != 0) sums[1 - y_at][i] += start_x * up;
    }
    Sum* const to = args.d_grid + 2 * first;
    for (int64_t i = 0; i < count; ++i) {
      to[2 * i] = sums[0][i];
      to[2 * i + 1] = sums[1][i];
    }
  };
  ForBlocks<T>(cpu, args, 2 * CyclesPerSample(args), find, differentiate);
  return nullptr;
}

TFO_INSTANTIATE_ALGORITHM(GridSample, Cpu, GridSampleArgs);
TFO_INSTANTIATE_ALGORITHM(GridSampleGrad, Cpu, GridSampleGradArgs);
TFO_INSTANTIATE_ALGORITHM(GridSampleGridGrad, Cpu, GridSampleGridGradArgs);

}  // namespace tfo
