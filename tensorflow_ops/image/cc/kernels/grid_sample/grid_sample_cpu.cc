#include <algorithm>
#include <cstring>
#include <type_traits>
#include <vector>

#include "tensorflow_ops/core/cc/convert_simd.h"
#include "tensorflow_ops/image/cc/kernels/grid_sample/grid_sample.h"
#include "tensorflow_ops/image/cc/kernels/grid_sample/grid_sample_simd.h"
#include "tensorflow_ops/image/cc/kernels/grid_sample/sample_bands.h"

namespace tfo {
namespace {

// One channel is a plane, too.
bool HasPlanes(const GridSampleArgs& args) {
  return args.channels_first || args.channels == 1;
}

// Calls run(Index()) with the type of pixels' indices.
template <typename Run>
void WithIndex(const GridSampleArgs& args, const Run& run) {
  if (args.Pixels() < int64_t{1} << 31) {
    run(int32_t{});
  } else {
    run(int64_t{});
  }
}

SampledPlanes PlanesOf(const GridSampleArgs& args) {
  return {args.channels, args.width, args.Pixels(), args.samples};
}

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
double CyclesPerSample(const GridSampleArgs& args) {
  const double taps = TapsOnAxis(args.mode) * TapsOnAxis(args.mode);
  return 10 + taps * (HasPlanes(args) ? 1.5 * args.channels
                                      : 2 + args.channels / 8.0);
}

// The taps of a block of samples of an image.
template <typename C, typename Index>
struct FoundBlock {
  int64_t image;
  SampleSpan span;
  SampleTaps<C, Index> taps;
  SampleSlopes<C> slopes;
};

// The tap whose row most samples read first: the last one if an image's samples
// go down.
template <typename C>
int FirstReadTap(const GridSampleArgs& args, const C* grid) {
  const bool down = args.coordinates == SampleCoordinates::kFlow ||
                    grid[2 * args.samples - 1] > grid[1];
  const int on_axis = TapsOnAxis(args.mode);
  return down ? on_axis * (on_axis - 1) : 0;
}

// Calls find(block), then body(*block), for blocks of samples, in parallel. The
// pixels of a block are on their way from memory while the one before it is
// worked on.
template <typename T, typename Index, typename Find, typename Body>
void ForBlocks(const Cpu& cpu, const GridSampleArgs& args, const T* features,
               const Accumulator<T>* grid, double cycles, const Find& find,
               const Body& body) {
  const int64_t blocks = (args.samples + kSampleBlock - 1) / kSampleBlock;
  cpu.ParallelFor(
      args.batch * blocks, cycles * kSampleBlock,
      [&](int64_t begin, int64_t end) {
        FoundBlock<Accumulator<T>, Index> found[2];
        const auto prepare = [&](int64_t unit) {
          auto& block = found[unit % 2];
          const int64_t first = unit % blocks * kSampleBlock;
          block.image = unit / blocks;
          block.span = {nullptr, first,
                        std::min<int64_t>(kSampleBlock, args.samples - first)};
          find(&block);
          if (args.channels_first) return;
          TFO_DISPATCH(FetchPixels<T, Index>)
          (block.taps, block.span.count,
           FirstReadTap(args, grid + 2 * block.image * args.samples),
           features + block.image * args.Pixels() * args.channels,
           args.channels);
        };
        if (begin < end) prepare(begin);
        for (int64_t unit = begin; unit < end; ++unit) {
          if (unit + 1 < end) prepare(unit + 1);
          body(found[unit % 2]);
        }
      });
}

// Sums a band of an image, or some planes' bands: their sums are written to
// d_features, after the samples of `span_of` were added in order.
template <typename T, typename Index>
class BandSums {
 public:
  using Sum = Accumulator<T>;

  BandSums(const GridSampleArgs& args, const T* d_output, const Sum* grid,
           T* d_features)
      : args_(args), d_output_(d_output), grid_(grid), features_(d_features) {}

  // Channels [c, c + count) of a band of an image.
  void Run(int64_t image, int64_t c, int64_t count, const PixelBand& band,
           const SampleList& list) {
    const bool planes = HasPlanes(args_);
    const int64_t pixels = args_.Pixels(), size = band.end - band.begin;
    // Channels last have all channels at once.
    const int64_t rows = planes ? count : 1;
    const int64_t row_elements = planes ? size : size * args_.channels;
    T* const to =
        features_ + image * pixels * args_.channels +
        (planes ? c * pixels + band.begin : band.begin * args_.channels);
    const int64_t row_step = planes ? pixels : 0;
    Sum* sums;
    int64_t sums_step;
    if constexpr (std::is_same_v<T, Sum>) {
      sums = to;
      sums_step = row_step;
      for (int64_t r = 0; rows > 1 && r < rows; ++r) {
        std::memset(to + r * row_step, 0, row_elements * sizeof(T));
      }
    } else {
      scratch_.assign(rows * row_elements, 0);
      sums = scratch_.data();
      sums_step = row_elements;
    }
    // One row of sums is cleared on the way.
    cleared_ = rows == 1 && std::is_same_v<T, Sum> ? band.begin : band.end;
    Add(image, c, count, band, list, sums, sums_step);
    Clear(band.end, band, sums);
    if constexpr (!std::is_same_v<T, Sum>) {
      for (int64_t r = 0; r < rows; ++r) {
        TFO_DISPATCH(NarrowArray<T>)
        (sums + r * sums_step, to + r * row_step, row_elements);
      }
    }
  }

 private:
  // Clears sums up to pixel `end` of the band, if they are not yet: just before
  // they are added to, so that they stay in the cache.
  void Clear(int64_t end, const PixelBand& band, Sum* sums) {
    end = std::min(end, band.end);
    if (end <= cleared_) return;
    const int64_t channels = HasPlanes(args_) ? 1 : args_.channels;
    std::memset(sums + (cleared_ - band.begin) * channels, 0,
                (end - cleared_) * channels * sizeof(Sum));
    cleared_ = end;
  }

  int64_t LastPixel(int64_t count) const {
    Index last = 0;
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
    if (HasPlanes(args_) || channels * sizeof(T) < kLine) return;
    for (int64_t i = 0; i < span.count; ++i) {
      const int64_t sample =
          span.list == nullptr ? span.first + i : span.list[i];
      Fetch(d_output + sample * channels, channels);
    }
  }

  void Add(int64_t image, int64_t c, int64_t count, const PixelBand& band,
           const SampleList& list, Sum* sums, int64_t sums_step) {
    const Sum* const grid = grid_ + 2 * image * args_.samples;
    const T* const d_output =
        d_output_ + image * args_.samples * args_.channels;
    for (int64_t first = 0; first < list.count; first += kSampleBlock) {
      const SampleSpan span = SpanAt(list, first);
      FetchGradients(SpanAt(list, first + kSampleBlock), d_output);
      TFO_DISPATCH(FindTaps<Sum, Index>)(args_, grid, span, &taps_, nullptr);
      if (cleared_ < band.end) Clear(LastPixel(span.count) + 1, band, sums);
      if (!HasPlanes(args_)) {
        TFO_DISPATCH(AddChannelsLast<T, Index>)
        (taps_, span, d_output, PlanesOf(args_), band, sums);
        continue;
      }
      SampledPlanes plane = PlanesOf(args_);
      plane.channels = 1;
      for (int64_t i = 0; i < count; ++i) {
        TFO_DISPATCH(AddChannelsLast<T, Index>)
        (taps_, span, d_output + (c + i) * args_.samples, plane, band,
         sums + i * sums_step);
      }
    }
  }

  const GridSampleArgs& args_;
  const T* const d_output_;
  const Sum* const grid_;
  T* const features_;
  SampleTaps<Sum, Index> taps_;
  int64_t cleared_ = 0;  // the first pixel whose sums are not cleared yet
  std::vector<Sum> scratch_;
};

// How the gradient to features is shared out: units are some planes, or all
// channels, of a band of rows of an image.
struct GradUnits {
  int64_t channels, groups;  // of a unit; of an image
  int row_shift;             // a band has 2^row_shift rows
};

GradUnits PartitionGrad(const Cpu& cpu, const GridSampleArgs& args,
                        bool is_16_bit) {
  GradUnits units = {args.channels, 1, 30};
  const int64_t wanted = cpu.num_threads == 1 ? 1 : 4 * cpu.num_threads;
  if (HasPlanes(args)) {
    // Few planes at a time stay in the cache; many share the taps.
    units.channels = std::clamp<int64_t>(args.batch * args.channels / wanted, 1,
                                         std::min<int64_t>(8, args.channels));
    units.groups = (args.channels + units.channels - 1) / units.channels;
  }
  int64_t rows = args.height;
  const int64_t whole = std::max<int64_t>(args.batch * units.groups, 1);
  // Bands need the samples sorted.
  const int64_t bands = whole >= 2 * cpu.num_threads ? 1 : wanted / whole;
  if (bands > 1) rows = std::max<int64_t>(args.height / bands, 4);
  if (is_16_bit) {
    // Sums of at most 4 MB.
    const int64_t row_bytes = 4 * args.width * units.channels;
    rows = std::min(rows, std::max<int64_t>((4 << 20) / row_bytes, 1));
  }
  if (rows < args.height) {
    units.row_shift = 0;
    while ((int64_t{2} << units.row_shift) <= rows) ++units.row_shift;
  }
  return units;
}

// Prefetches the coordinates of samples that follow those of a block.
template <typename C>
void FetchCoordinates(const GridSampleArgs& args, const C* grid,
                      const SampleSpan& span) {
  const int64_t first = span.first + 2 * kSampleBlock;
  Fetch(grid + 2 * first,
        2 * std::min<int64_t>(kSampleBlock, args.samples - first));
}

// Replaces weights by their derivatives along a direction of the grid.
template <typename C, typename Index>
void UseSlopesAsWeights(const GridSampleArgs& args, const C* direction,
                        int64_t count, const SampleSlopes<C>& slopes,
                        SampleTaps<C, Index>* taps) {
  const int y_at = args.coordinates == SampleCoordinates::kFlow ? 0 : 1;
  for (int64_t i = 0; i < count; ++i) {
    const C y = direction[2 * i + y_at], x = direction[2 * i + 1 - y_at];
    taps->nan[i] = 0;
    for (int t = 0; t < taps->count; ++t) {
      const C slope_y = slopes.y[t][i], slope_x = slopes.x[t][i];
      taps->weight[t][i] =
          (slope_y == 0 ? 0 : slope_y * y) + (slope_x == 0 ? 0 : slope_x * x);
    }
  }
}

}  // namespace

template <typename T>
Error GridSample(const Cpu& cpu, const GridSampleArgs& args, const T* features,
                 const Accumulator<T>* grid, const Accumulator<T>* direction,
                 T* output) {
  using Sum = Accumulator<T>;
  WithIndex(args, [&](auto index) {
    using Index = decltype(index);
    using Block = FoundBlock<Sum, Index>;
    const bool stream = args.batch * args.samples * args.channels *
                            static_cast<int64_t>(sizeof(T)) >=
                        kStreamBytes;
    const auto find = [&](Block* block) {
      const int64_t first = 2 * block->image * args.samples;
      FetchCoordinates(args, grid + first, block->span);
      TFO_DISPATCH(FindTaps<Sum, Index>)
      (args, grid + first, block->span, &block->taps,
       direction == nullptr ? nullptr : &block->slopes);
      if (direction != nullptr) {
        UseSlopesAsWeights(args, direction + first + 2 * block->span.first,
                           block->span.count, block->slopes, &block->taps);
      }
    };
    const auto sample = [&](const Block& block) {
      const T* const from =
          features + block.image * args.Pixels() * args.channels;
      T* const to = output + block.image * args.samples * args.channels;
      if (HasPlanes(args)) {
        TFO_DISPATCH(SamplePlanes<T, Index>)
        (block.taps, block.span.count, from, PlanesOf(args),
         to + block.span.first);
      } else {
        TFO_DISPATCH(SampleChannelsLast<T, Index>)
        (block.taps, block.span.count, from, PlanesOf(args), stream,
         to + block.span.first * args.channels);
      }
    };
    ForBlocks<T, Index>(cpu, args, features, grid, CyclesPerSample(args), find,
                        sample);
  });
  return nullptr;
}

template <typename T>
Error GridSampleGrad(const Cpu& cpu, const GridSampleArgs& args,
                     const T* d_output, const Accumulator<T>* grid,
                     T* d_features) {
  const GradUnits units = PartitionGrad(cpu, args, sizeof(T) == 2);
  const SampleBands<Accumulator<T>> bands(cpu, args, grid, units.row_shift);
  const int64_t count = args.batch * units.groups * bands.count();
  const double cycles = CyclesPerSample(args) * args.samples * args.batch /
                        std::max<int64_t>(count, 1);
  WithIndex(args, [&](auto index) {
    using Index = decltype(index);
    cpu.ParallelFor(count, cycles, [&](int64_t begin, int64_t end) {
      BandSums<T, Index> sums(args, d_output, grid, d_features);
      for (int64_t unit = begin; unit < end; ++unit) {
        const int64_t band = unit % bands.count();
        const int64_t group = unit / bands.count() % units.groups;
        const int64_t image = unit / bands.count() / units.groups;
        const int64_t c = group * units.channels;
        sums.Run(image, c, std::min(units.channels, args.channels - c),
                 bands.Pixels(band), bands.Samples(image, band));
      }
    });
  });
  return nullptr;
}

template <typename T>
Error GridSampleGridGrad(const Cpu& cpu, const GridSampleArgs& args,
                         const T* d_output, const T* features,
                         const Accumulator<T>* grid, Accumulator<T>* d_grid) {
  using Sum = Accumulator<T>;
  const int y_at = args.coordinates == SampleCoordinates::kFlow ? 0 : 1;
  WithIndex(args, [&](auto index) {
    using Index = decltype(index);
    using Block = FoundBlock<Sum, Index>;
    const auto find = [&](Block* block) {
      const int64_t first = block->image * args.samples;
      FetchCoordinates(args, grid + 2 * first, block->span);
      TFO_DISPATCH(FindTaps<Sum, Index>)
      (args, grid + 2 * first, block->span, &block->taps, &block->slopes);
      if (HasPlanes(args) || args.channels * sizeof(T) < kLine) return;
      Fetch(d_output + (first + block->span.first) * args.channels,
            block->span.count * args.channels);
    };
    const auto differentiate = [&](const Block& block) {
      SampleDots<Sum> dots;  // lanes beyond the samples: any
      const int64_t count = block.span.count;
      const T* const pixels =
          features + block.image * args.Pixels() * args.channels;
      const T* const up = d_output + block.image * args.samples * args.channels;
      if (HasPlanes(args)) {
        TFO_DISPATCH(DotPlanes<T, Index>)
        (block.taps, block.slopes, count, up + block.span.first, pixels,
         PlanesOf(args), &dots);
      } else {
        TFO_DISPATCH(DotChannelsLast<T, Index>)
        (block.taps, block.slopes, count, up + block.span.first * args.channels,
         pixels, PlanesOf(args), &dots);
      }
      Sum sums[2][kSampleBlock];
      TFO_DISPATCH(SumSlopes<Sum>)
      (block.taps.count, block.slopes, dots, count, sums[y_at], sums[1 - y_at]);
      Sum* const to =
          d_grid + 2 * (block.image * args.samples + block.span.first);
      for (int64_t i = 0; i < count; ++i) {
        to[2 * i] = sums[0][i];
        to[2 * i + 1] = sums[1][i];
      }
    };
    ForBlocks<T, Index>(cpu, args, features, grid, 2 * CyclesPerSample(args),
                        find, differentiate);
  });
  return nullptr;
}

#define TFO_INSTANTIATE(T)                                                   \
  template Error GridSample<T>(const Cpu&, const GridSampleArgs&, const T*,  \
                               const Accumulator<T>*, const Accumulator<T>*, \
                               T*);                                          \
  template Error GridSampleGrad<T>(const Cpu&, const GridSampleArgs&,        \
                                   const T*, const Accumulator<T>*, T*);     \
  template Error GridSampleGridGrad<T>(const Cpu&, const GridSampleArgs&,    \
                                       const T*, const T*,                   \
                                       const Accumulator<T>*, Accumulator<T>*)
TFO_INSTANTIATE(float);
TFO_INSTANTIATE(double);
TFO_INSTANTIATE(Half);
TFO_INSTANTIATE(BFloat16);
#undef TFO_INSTANTIATE

}  // namespace tfo
