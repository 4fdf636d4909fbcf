// The averages on the CPU.
#include "tensorflow_ops/detection/cc/kernels/roi_average/roi_average_cpu.h"

#include <cstring>

namespace tfo {
namespace {

template <typename T>
void AverageChannelsLast(const Cpu& cpu, const RoiAverageArgs& args,
                         const FeatureShape& pooled,
                         const std::vector<FeatureMap<const T>>& maps,
                         const BoxTaps<T>& taps, T* output) {
  const auto average_bin_row = TFO_DISPATCH(AverageBinRow<T>);
  const std::vector<int64_t> bin_rows = BinRowsByBand(pooled, taps, maps);
  const BinChannels of = args.ChannelsOfBins();
  // Blocks of channels: the pixel rows in use, of a block, fit the caches.
  constexpr int64_t kBlock = 1024 / sizeof(T);
  const int64_t blocks = (of.count + kBlock - 1) / kBlock;
  const int64_t units = bin_rows.size();
  const bool stream = pooled.Size() * int64_t{sizeof(T)} >= kStreamBytes;
  cpu.ParallelFor(
      blocks * units, Cycles(pooled, taps, args.channels) / (blocks * units),
      [&](int64_t begin, int64_t end) {
        for (int64_t unit = begin; unit < end; ++unit) {
          const int64_t c = unit / units * kBlock;
          const int64_t k = bin_rows[unit % units] / pooled.height;
          const int64_t p = bin_rows[unit % units] % pooled.height;
          const int64_t count = std::min(kBlock, of.count - c);
          T* const to = output + pooled.Offset(k, p, 0, c);
          const auto rows = TapsOf(taps.Rows(k), p);
          if (rows.begin == rows.end) {
            for (int64_t q = 0; q < pooled.width; ++q) {
              std::memset(to + q * of.count, 0, count * sizeof(T));
            }
            continue;
          }
          const auto& map = maps[taps.Map(k)];
          const int64_t first = p * pooled.width * of.next_bin + c * of.step;
          average_bin_row({map.data + first, map.width, args.channels}, rows,
                          taps.Columns(k), {count, of.step, of.next_bin},
                          {to, of.count}, stream);
        }
      });
}

template <typename T>
void AverageChannelsFirst(const Cpu& cpu, const RoiAverageArgs& args,
                          const FeatureShape& pooled,
                          const std::vector<FeatureMap<const T>>& maps,
                          const BoxTaps<T>& taps, T* output) {
  const auto average_plane = TFO_DISPATCH(AveragePlane<T>);
  const MapBounds bounds = BoundsOf(maps);
  // A unit is a group of planes of a box. Boxes vary fastest: they share
  // planes.
  const PlaneGroups groups(cpu, args, bounds.pixels);
  const int64_t boxes = pooled.batch;
  const int64_t units = groups.size() * boxes;
  cpu.ParallelFor(
      units, Cycles(pooled, taps, args.channels) / units,
      [&](int64_t begin, int64_t end) {
        std::vector<Accumulator<T>> scratch(bounds.width + pooled.width + 32);
        for (int64_t unit = begin; unit < end; ++unit) {
          const PlaneGroup group = groups[unit / boxes];
          const int64_t k = unit % boxes;
          T* const to =
              output + pooled.Offset(k, group.p, group.q, group.pooled_channel);
          if (taps.Map(k) < 0) {
            std::memset(to, 0,
                        group.bins_y * group.bins_x * group.count * sizeof(T));
            continue;
          }
          const auto& map = maps[taps.Map(k)];
          for (int64_t i = 0; i < group.count; ++i) {
            const int64_t c = group.first + i * group.step;
            average_plane({map.data + c * map.size(), map.width,
                           (args.channels - c) * map.size()},
                          Slice(taps.Rows(k), group.p, group.bins_y),
                          Slice(taps.Columns(k), group.q + i, group.bins_x),
                          scratch.data(), to + i);
          }
        }
      });
}

}  // namespace

template <typename T>
Error RoiAverage(const Cpu& cpu, const RoiAverageArgs& args,
                 const Boxes<Coordinate<T>>& boxes, const T* const* features,
                 T* output) {
  const FeatureShape pooled = args.Pooled(boxes.count);
  if (pooled.Size() == 0) return nullptr;
  const auto maps = MapsOf(args, features);
  const BoxTaps<T> taps(cpu, args, boxes);
  if (args.channels_first) {
    AverageChannelsFirst(cpu, args, pooled, maps, taps, output);
  } else {
    AverageChannelsLast(cpu, args, pooled, maps, taps, output);
  }
  return nullptr;
}

#define TFO_INSTANTIATE(T)                                                   \
  template Error RoiAverage<T>(const Cpu&, const RoiAverageArgs&,            \
                               const Boxes<Coordinate<T>>&, const T* const*, \
                               T*)
TFO_FOR_EACH_FLOAT(TFO_INSTANTIATE);
#undef TFO_INSTANTIATE

}  // namespace tfo
