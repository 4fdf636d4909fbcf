#include <algorithm>
#include <cstring>
#include <type_traits>
#include <vector>

#include "tensorflow_ops/core/cc/convert_simd.h"
#include "tensorflow_ops/detection/cc/kernels/roi_average.h"
#include "tensorflow_ops/detection/cc/kernels/roi_average_simd.h"
#include "tensorflow_ops/detection/cc/kernels/roi_box_sums.h"
#include "tensorflow_ops/detection/cc/kernels/roi_taps.h"

namespace tfo {
namespace {

template <typename T>
using PlainTaps = TapTable<Accumulator<T>, Tap<Accumulator<T>>>;
template <typename T>
using SlopedTaps = TapTable<Accumulator<T>, SlopedTap<Accumulator<T>>>;

// A map without pixels may be billions of pixels wide or high: it is 0 x 0.
RoiAverageArgs WithoutEmptySides(RoiAverageArgs args) {
  for (int32_t l = 0; l < args.num_levels; ++l) {
    RoiLevel& level = args.levels[l];
    if (level.height * level.width == 0) level.height = level.width = 0;
  }
  return args;
}

// A feature map of one image on one level: TapTable's Map counts them.
template <typename P>
struct MapView {
  P data;
  int64_t height, width;
};
template <typename P>
std::vector<MapView<P>> Maps(const RoiAverageArgs& args, const P* features) {
  std::vector<MapView<P>> maps;
  for (int32_t l = 0; l < args.num_levels; ++l) {
    const int64_t height = args.levels[l].height, width = args.levels[l].width;
    for (int64_t n = 0; n < args.roi.batch; ++n) {
      maps.push_back({features[l] + n * height * width * args.roi.channels,
                      height, width});
    }
  }
  return maps;
}

struct MapSizes {
  int64_t columns, pixels;
};
template <typename Map>
MapSizes LargestOf(const std::vector<Map>& maps) {
  MapSizes largest = {0, 0};
  for (const Map& map : maps) {
    largest.columns = std::max(largest.columns, map.width);
    largest.pixels = std::max(largest.pixels, map.height * map.width);
  }
  return largest;
}

// Where the elements of output lie.
struct OutputLayout {
  explicit OutputLayout(const RoiAverageArgs& args)
      : bins_y(args.roi.pooled_height),
        bins_x(args.roi.pooled_width),
        channels(args.PooledChannels()) {}
  int64_t Row(int64_t k, int64_t p) const {  // NHWC
    return (k * bins_y + p) * bins_x * channels;
  }
  int64_t Plane(int64_t k, int64_t c) const {  // NCHW
    return (k * channels + c) * bins_y * bins_x;
  }
  int64_t bins_y, bins_x, channels;
};

// What a pass over all boxes' taps costs, in cycles: about a quarter for each
// tap and channel.
template <typename Table>
double Cycles(const RoiAverageArgs& args, const Table& taps) {
  const double boxes = std::max<int64_t>(args.roi.num_boxes, 1);
  const double bins = args.roi.pooled_height + args.roi.pooled_width;
  const double taps_per_bin = taps.size() / (boxes * bins);
  return boxes * args.roi.pooled_height * args.roi.pooled_width *
         args.PooledChannels() * (1 + 0.25 * taps_per_bin * taps_per_bin);
}

// As BinRowsDownward of roi_bin_rows.h, of maps on several levels and sorted by
// bands of rows: nobody needs them in order within a band, and this takes a
// third of the memory.
template <typename Table, typename Map>
std::vector<int64_t> BinRowsDownward(const RoiAverageArgs& args,
                                     const Table& taps,
                                     const std::vector<Map>& maps) {
  const int64_t bins = args.roi.pooled_height;
  const int64_t size = args.roi.num_boxes * bins, count = maps.size();
  // Bands of pixel rows of a map, rows where it has not too many.
  const int64_t bands =
      std::clamp<int64_t>(4 * size / std::max<int64_t>(count, 1), 16, 4096);
  return Buckets(
             count * bands + 1,
             [&](const auto& add) {
               for (int64_t i = 0; i < size; ++i) {
                 const auto rows = taps.Rows(i / bins);
                 const int64_t p = i % bins, map = taps.Map(i / bins);
                 if (rows.begin[p] == rows.begin[p + 1]) {
                   add(count * bands, i);
                   continue;
                 }
                 const int64_t y = rows.taps[rows.begin[p]].pixel;
                 const int64_t height = maps[map].height;
                 add(map * bands + (height <= bands ? y : y * bands / height),
                     i);
               }
             })
      .TakeItems();
}

// Planes that are gone through together, NCHW: one with all bins; or some of
// those of a row of bins, of which each has its own.
struct PlaneGroup {
  int64_t first, step, count;  // planes
  int64_t output_channel;
  int64_t p, q, bins_y, bins_x;  // a plane's bins, and the first one's first
};
class PlaneGroups {
 public:
  // As many of a row of bins as stay in the cache, if threads have enough then.
  PlaneGroups(const Cpu& cpu, const RoiAverageArgs& args, int64_t plane_pixels)
      : args_(args) {
    if (args.order == RoiChannels::kAll) return;
    constexpr int64_t kCachePixels = (128 << 10) / sizeof(float);
    const int64_t bins = args.roi.pooled_width;
    if (args.PooledChannels() * args.roi.pooled_height >= 2 * cpu.num_threads &&
        bins * plane_pixels <= kCachePixels) {
      together_ = bins;
    }
  }
  // Planes of a group.
  int64_t together() const { return together_; }
  int64_t size() const { return args_.roi.channels / together_; }
  PlaneGroup operator[](int64_t i) const {
    const int64_t ph = args_.roi.pooled_height, pw = args_.roi.pooled_width;
    if (args_.order == RoiChannels::kAll) return {i, 0, 1, i, 0, 0, ph, pw};
    const int64_t row = i * together_ / pw, q = i * together_ % pw;
    const int64_t channel = row / ph, p = row % ph;
    return {args_.FirstChannel(p, q) + channel * args_.ChannelStep(),
            args_.FirstChannel(0, 1),
            together_,
            channel,
            p,
            q,
            1,
            1};
  }

 private:
  const RoiAverageArgs& args_;
  int64_t together_ = 1;
};

template <typename T>
void AverageChannelsLast(const Cpu& cpu, const RoiAverageArgs& args,
                         const std::vector<MapView<const T*>>& maps,
                         const PlainTaps<T>& taps, T* output) {
  const auto average_bin_row = TFO_DISPATCH(AverageBinRow<T>);
  const std::vector<int64_t> bin_rows = BinRowsDownward(args, taps, maps);
  const OutputLayout out(args);
  // Some channels at a time: the rows in use, of those, fit the caches.
  constexpr int64_t kBlock = 1024 / sizeof(T);
  const int64_t blocks = (out.channels + kBlock - 1) / kBlock;
  const int64_t units = bin_rows.size();
  // Larger than what the next op finds in a cache.
  constexpr int64_t kCacheBytes = 16 << 20;
  const bool stream =
      units * out.bins_x * out.channels * int64_t{sizeof(T)} > kCacheBytes;
  cpu.ParallelFor(
      blocks * units, Cycles(args, taps) / (blocks * units),
      [&](int64_t begin, int64_t end) {
        for (int64_t unit = begin; unit < end; ++unit) {
          const int64_t c = unit / units * kBlock;
          const int64_t k = bin_rows[unit % units] / out.bins_y;
          const int64_t p = bin_rows[unit % units] % out.bins_y;
          const int64_t count = std::min(kBlock, out.channels - c);
          T* const to = output + out.Row(k, p) + c;
          const auto rows = taps.Rows(k);
          if (rows.begin[p] == rows.begin[p + 1]) {
            for (int64_t q = 0; q < out.bins_x; ++q) {
              std::memset(to + q * out.channels, 0, count * sizeof(T));
            }
            continue;
          }
          const auto& map = maps[taps.Map(k)];
          const int64_t step = args.ChannelStep();
          average_bin_row(
              map.data + args.FirstChannel(p, 0) + c * step, map.width,
              args.roi.channels, rows.taps + rows.begin[p],
              rows.taps + rows.begin[p + 1], taps.Columns(k), out.bins_x,
              {count, step, args.FirstChannel(0, 1)}, out.channels, stream, to);
        }
      });
}

template <typename T>
void AverageChannelsFirst(const Cpu& cpu, const RoiAverageArgs& args,
                          const std::vector<MapView<const T*>>& maps,
                          const PlainTaps<T>& taps, T* output) {
  const auto average_plane = TFO_DISPATCH(AveragePlane<T>);
  const OutputLayout out(args);
  const auto [most_columns, most_pixels] = LargestOf(maps);
  // A unit is a group of planes of a box. Boxes vary fastest: they meet in
  // their planes.
  const PlaneGroups groups(cpu, args, most_pixels);
  const int64_t boxes = args.roi.num_boxes;
  const int64_t units = groups.size() * boxes;
  cpu.ParallelFor(
      units, Cycles(args, taps) / units, [&](int64_t begin, int64_t end) {
        std::vector<Accumulator<T>> scratch(most_columns + out.bins_x + 32);
        for (int64_t unit = begin; unit < end; ++unit) {
          const PlaneGroup group = groups[unit / boxes];
          const int64_t k = unit % boxes;
          T* const to = output + out.Plane(k, group.output_channel) +
                        group.p * out.bins_x + group.q;
          if (taps.Map(k) < 0) {
            std::memset(to, 0,
                        group.bins_y * group.bins_x * group.count * sizeof(T));
            continue;
          }
          const auto& map = maps[taps.Map(k)];
          const int64_t plane = map.height * map.width;
          for (int64_t i = 0; i < group.count; ++i) {
            const int64_t c = (group.first + i * group.step);
            average_plane(map.data + c * plane, (args.roi.channels - c) * plane,
                          map.width, From(taps.Rows(k), group.p), group.bins_y,
                          From(taps.Columns(k), group.q + i), group.bins_x,
                          scratch.data(), to + i);
          }
        }
      });
}

// The gradient by owners: a thread has a row of pixels (some channels of it),
// and goes through the rows of bins that look at it, in order.
template <typename T>
void GradChannelsLast(const Cpu& cpu, const RoiAverageArgs& args,
                      const T* d_output, const std::vector<MapView<T*>>& maps,
                      const PlainTaps<T>& taps) {
  using Sum = Accumulator<T>;
  const auto add_bin_row = TFO_DISPATCH(AddBinRow<T>);
  const auto narrow = TFO_DISPATCH(NarrowArray<T>);
  const OutputLayout out(args);
  const int64_t channels = args.roi.channels;

  // All rows of pixels: where each map's begin.
  std::vector<int64_t> first_row(maps.size() + 1, 0);
  int64_t widest = 0;
  for (size_t m = 0; m < maps.size(); ++m) {
    first_row[m + 1] = first_row[m] + maps[m].height;
    widest = std::max(widest, maps[m].width);
  }
  const int64_t rows = first_row.back();
  // The rows of bins that look at each row of pixels.
  const Buckets by_row(rows, [&](const auto& add) {
    for (int64_t k = 0; k < args.roi.num_boxes; ++k) {
      const auto box_rows = taps.Rows(k);
      for (int64_t p = 0; p < out.bins_y; ++p) {
        for (int64_t i = box_rows.begin[p]; i < box_rows.begin[p + 1]; ++i) {
          add(first_row[taps.Map(k)] + box_rows.taps[i].pixel,
              k * out.bins_y + p);
        }
      }
    }
  });

  // A unit's sums stay in the cache. Bins of their own channels take all.
  constexpr int64_t kSumsBytes = 512 << 10;
  const int64_t fit = kSumsBytes / sizeof(Sum) / std::max<int64_t>(widest, 1);
  const int64_t block = args.order != RoiChannels::kAll
                            ? channels
                            : std::clamp<int64_t>(fit / 64 * 64, 64, channels);
  const int64_t blocks = (channels + block - 1) / block;
  const double cycles =
      2.0 * channels * by_row.size() * out.bins_x / (rows * blocks) +
      0.5 * widest * block;
  cpu.ParallelFor(rows * blocks, cycles, [&](int64_t begin, int64_t end) {
    std::vector<Sum> scratch(sizeof(T) == sizeof(Sum) ? 0 : widest * block);
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t row = unit / blocks, c = unit % blocks * block;
      const int64_t count = std::min(block, channels - c);
      const int64_t m =
          std::upper_bound(first_row.begin(), first_row.end(), row) -
          first_row.begin() - 1;
      const int64_t width = maps[m].width;
      T* const to = maps[m].data + (row - first_row[m]) * width * channels + c;
      // Sums in place where the type is that of the sums.
      Sum* sums;
      int64_t stride;
      if constexpr (sizeof(T) == sizeof(Sum)) {
        sums = to;
        stride = channels;
      } else {
        sums = scratch.data();
        stride = count;
      }
      if (stride == count) {
        std::memset(sums, 0, width * count * sizeof(Sum));
      } else {
        for (int64_t x = 0; x < width; ++x) {
          std::memset(sums + x * stride, 0, count * sizeof(Sum));
        }
      }
      for (auto i = by_row.begin(row); i < by_row.end(row); ++i) {
        const int64_t k = *i / out.bins_y, p = *i % out.bins_y;
        const auto box_rows = taps.Rows(k);
        const Tap<Sum>* tap = box_rows.taps + box_rows.begin[p];
        while (tap->pixel != row - first_row[m]) ++tap;
        const bool all = args.order == RoiChannels::kAll;
        const int64_t next = i + 1 < by_row.end(row) ? i[1] : *i;
        const int64_t ahead = (next - *i) * out.bins_x * out.channels;
        add_bin_row(d_output + out.Row(k, p) + c, out.channels, tap->weight,
                    taps.Columns(k), out.bins_x,
                    {all ? count : out.channels, args.ChannelStep(),
                     args.FirstChannel(0, 1)},
                    stride, ahead, sums + args.FirstChannel(p, 0));
      }
      if constexpr (sizeof(T) != sizeof(Sum)) {
        if (count == channels) {
          narrow(sums, to, width * count);
        } else {
          for (int64_t x = 0; x < width; ++x) {
            narrow(sums + x * count, to + x * channels, count);
          }
        }
      }
    }
  });
}

// The gradient by owners: a thread has a group of planes.
template <typename T>
void GradChannelsFirst(const Cpu& cpu, const RoiAverageArgs& args,
                       const T* d_output, const std::vector<MapView<T*>>& maps,
                       const PlainTaps<T>& taps) {
  using Sum = Accumulator<T>;
  const auto add_plane = TFO_DISPATCH(AddPlane<T>);
  const auto narrow = TFO_DISPATCH(NarrowArray<T>);
  const OutputLayout out(args);
  const Buckets by_map(maps.size(), [&](const auto& add) {
    for (int64_t k = 0; k < args.roi.num_boxes; ++k) {
      if (taps.Map(k) >= 0) add(taps.Map(k), k);
    }
  });
  const auto [most_columns, most_pixels] = LargestOf(maps);
  const PlaneGroups groups(cpu, args, most_pixels);
  const int64_t units = maps.size() * groups.size();
  const int64_t largest = most_pixels * groups.together();
  cpu.ParallelFor(
      units, Cycles(args, taps) / units + 0.5 * largest,
      [&](int64_t begin, int64_t end) {
        std::vector<Sum> scratch(most_columns + 32);
        std::vector<Sum> wide(sizeof(T) == sizeof(Sum) ? 0 : largest);
        std::vector<Sum*> sums(groups.together());
        for (int64_t unit = begin; unit < end; ++unit) {
          const int64_t m = unit / groups.size();
          const int64_t plane = maps[m].height * maps[m].width;
          if (plane == 0) continue;
          const PlaneGroup group = groups[unit % groups.size()];
          for (int64_t i = 0; i < group.count; ++i) {
            if constexpr (sizeof(T) == sizeof(Sum)) {
              sums[i] = maps[m].data + (group.first + i * group.step) * plane;
            } else {
              sums[i] = wide.data() + i * plane;
            }
            std::memset(sums[i], 0, plane * sizeof(Sum));
          }
          for (auto k = by_map.begin(m); k < by_map.end(m); ++k) {
            const T* const from = d_output +
                                  out.Plane(*k, group.output_channel) +
                                  group.p * out.bins_x + group.q;
            for (int64_t i = 0; i < group.count; ++i) {
              add_plane(from + i, From(taps.Rows(*k), group.p), group.bins_y,
                        From(taps.Columns(*k), group.q + i), group.bins_x,
                        maps[m].width, scratch.data(), sums[i]);
            }
          }
          if constexpr (sizeof(T) != sizeof(Sum)) {
            for (int64_t i = 0; i < group.count; ++i) {
              narrow(sums[i],
                     maps[m].data + (group.first + i * group.step) * plane,
                     plane);
            }
          }
        }
      });
}

}  // namespace

template <typename T>
Error RoiAverage(const Cpu& cpu, const RoiAverageArgs& given,
                 const T* const* features, const Coordinate<T>* boxes,
                 const int32_t* box_indices, T* output) {
  const RoiAverageArgs args = WithoutEmptySides(given);
  if (args.roi.num_boxes == 0 || args.PooledChannels() == 0) return nullptr;
  const auto maps = Maps(args, features);
  const PlainTaps<T> taps(cpu, args, boxes, box_indices);
  if (args.roi.channels_first) {
    AverageChannelsFirst(cpu, args, maps, taps, output);
  } else {
    AverageChannelsLast(cpu, args, maps, taps, output);
  }
  return nullptr;
}

template <typename T>
Error RoiAverageGrad(const Cpu& cpu, const RoiAverageArgs& given,
                     const T* d_output, const Coordinate<T>* boxes,
                     const int32_t* box_indices, T* const* d_features) {
  const RoiAverageArgs args = WithoutEmptySides(given);
  if (args.roi.batch * args.roi.channels == 0) return nullptr;
  const auto maps = Maps<T*>(args, d_features);
  const PlainTaps<T> taps(cpu, args, boxes, box_indices);
  if (args.roi.channels_first) {
    GradChannelsFirst(cpu, args, d_output, maps, taps);
  } else {
    GradChannelsLast(cpu, args, d_output, maps, taps);
  }
  return nullptr;
}

template <typename T>
Error RoiAverageBoxesGrad(const Cpu& cpu, const RoiAverageArgs& given,
                          const T* d_output, const T* const* features,
                          const Coordinate<T>* boxes,
                          const int32_t* box_indices, Coordinate<T>* d_boxes) {
  const RoiAverageArgs args = WithoutEmptySides(given);
  const int64_t boxes_count = args.roi.num_boxes;
  if (boxes_count == 0) return nullptr;
  const OutputLayout out(args);
  if (out.channels * out.bins_y * out.bins_x == 0) {
    std::fill(d_boxes, d_boxes + 4 * boxes_count, 0);
    return nullptr;
  }
  const auto maps = Maps(args, features);
  const SlopedTaps<T> taps(cpu, args, boxes, box_indices);
  if (!args.roi.channels_first) {
    const auto add_bin_row = TFO_DISPATCH(AddBoxGradOfBinRow<T>);
    const std::vector<int64_t> bin_rows = BinRowsDownward(args, taps, maps);
    std::vector<double> parts(4 * bin_rows.size(), 0.0);
    cpu.ParallelFor(
        bin_rows.size(), 2 * Cycles(args, taps) / bin_rows.size(),
        [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) {
            const int64_t k = bin_rows[i] / out.bins_y;
            const int64_t p = bin_rows[i] % out.bins_y;
            if (taps.Map(k) < 0) continue;
            const auto& map = maps[taps.Map(k)];
            const auto rows = taps.Rows(k);
            add_bin_row(
                d_output + out.Row(k, p), out.channels,
                map.data + args.FirstChannel(p, 0), map.width,
                args.roi.channels, rows.taps + rows.begin[p],
                rows.taps + rows.begin[p + 1], taps.Columns(k), out.bins_x,
                {out.channels, args.ChannelStep(), args.FirstChannel(0, 1)},
                &parts[4 * bin_rows[i]]);
          }
        });
    SumParts(args.roi, parts, out.bins_y, 1, out.bins_y, d_boxes);
    return nullptr;
  }
  const auto add_plane = TFO_DISPATCH(AddBoxGradOfPlane<T>);
  const auto [most_columns, most_pixels] = LargestOf(maps);
  // A unit is some groups of planes of a box. Boxes vary fastest.
  const PlaneGroups groups(cpu, args, most_pixels);
  const int64_t block = std::max<int64_t>(32 / groups.together(), 1);
  const int64_t blocks = (groups.size() + block - 1) / block;
  std::vector<double> parts(4 * blocks * boxes_count, 0.0);
  cpu.ParallelFor(
      blocks * boxes_count, 3 * Cycles(args, taps) / (blocks * boxes_count),
      [&](int64_t begin, int64_t end) {
        std::vector<Accumulator<T>> scratch(3 * (most_columns + 16));
        for (int64_t unit = begin; unit < end; ++unit) {
          const int64_t k = unit % boxes_count;
          if (taps.Map(k) < 0) continue;
          const auto& map = maps[taps.Map(k)];
          const int64_t plane = map.height * map.width;
          const int64_t first = unit / boxes_count * block;
          const int64_t last = std::min(first + block, groups.size());
          for (int64_t g = first; g < last; ++g) {
            const PlaneGroup group = groups[g];
            const T* const from = d_output +
                                  out.Plane(k, group.output_channel) +
                                  group.p * out.bins_x + group.q;
            for (int64_t i = 0; i < group.count; ++i) {
              const int64_t c = (group.first + i * group.step);
              add_plane(from + i, map.data + c * plane,
                        (args.roi.channels - c) * plane, map.width,
                        From(taps.Rows(k), group.p), group.bins_y,
                        From(taps.Columns(k), group.q + i), group.bins_x,
                        scratch.data(), &parts[4 * unit]);
            }
          }
        }
      });
  SumParts(args.roi, parts, 1, boxes_count, blocks, d_boxes);
  return nullptr;
}

#define TFO_INSTANTIATE(T)                                            \
  template Error RoiAverage<T>(const Cpu&, const RoiAverageArgs&,     \
                               const T* const*, const Coordinate<T>*, \
                               const int32_t*, T*);                   \
  template Error RoiAverageGrad<T>(const Cpu&, const RoiAverageArgs&, \
                                   const T*, const Coordinate<T>*,    \
                                   const int32_t*, T* const*);        \
  template Error RoiAverageBoxesGrad<T>(                              \
      const Cpu&, const RoiAverageArgs&, const T*, const T* const*,   \
      const Coordinate<T>*, const int32_t*, Coordinate<T>*)
TFO_INSTANTIATE(float);
TFO_INSTANTIATE(double);
TFO_INSTANTIATE(Half);
TFO_INSTANTIATE(BFloat16);
#undef TFO_INSTANTIATE

}  // namespace tfo
