// The gradient to boxes on the CPU: each unit of work sums its own part, and
// the parts are added in one order.
#include "tensorflow_ops/detection/cc/kernels/roi/roi_box_sums.h"
#include "tensorflow_ops/detection/cc/kernels/roi_average/roi_average_cpu.h"

namespace tfo {
namespace {

// A unit is a row of bins.
template <typename T>
void BoxesGradChannelsLast(const Cpu& cpu, const RoiAverageArgs& args,
                           const Boxes<Coordinate<T>>& boxes, const T* d_output,
                           const std::vector<FeatureMap<const T>>& maps,
                           const SlopedBoxTaps<T>& taps,
                           Coordinate<T>* d_boxes) {
  const auto add_bin_row = TFO_DISPATCH(AddBoxGradOfBinRow<T>);
  const FeatureShape pooled = args.Pooled(boxes.count);
  const BinChannels of = args.ChannelsOfBins();
  const std::vector<int64_t> bin_rows = BinRowsByBand(pooled, taps, maps);
  std::vector<double> parts(4 * bin_rows.size(), 0.0);
  cpu.ParallelFor(bin_rows.size(),
                  2 * Cycles(pooled, taps, args.channels) / bin_rows.size(),
                  [&](int64_t begin, int64_t end) {
                    for (int64_t i = begin; i < end; ++i) {
                      const int64_t k = bin_rows[i] / pooled.height;
                      const int64_t p = bin_rows[i] % pooled.height;
                      if (taps.Map(k) < 0) continue;
                      const auto& map = maps[taps.Map(k)];
                      add_bin_row(
                          {d_output + pooled.Offset(k, p, 0, 0), of.count},
                          {map.data + p * pooled.width * of.next_bin, map.width,
                           args.channels},
                          TapsOf(taps.Rows(k), p), taps.Columns(k), of,
                          &parts[4 * bin_rows[i]]);
                    }
                  });
  SumBoxParts(boxes, parts, {pooled.height, pooled.height, 1}, d_boxes);
}

// A unit is some groups of planes of a box. Boxes vary fastest.
template <typename T>
void BoxesGradChannelsFirst(const Cpu& cpu, const RoiAverageArgs& args,
                            const Boxes<Coordinate<T>>& boxes,
                            const T* d_output,
                            const std::vector<FeatureMap<const T>>& maps,
                            const SlopedBoxTaps<T>& taps,
                            Coordinate<T>* d_boxes) {
  const auto add_plane = TFO_DISPATCH(AddBoxGradOfPlane<T>);
  const FeatureShape pooled = args.Pooled(boxes.count);
  const MapBounds bounds = BoundsOf(maps);
  const PlaneGroups groups(cpu, args, bounds.pixels);
  const int64_t block = std::max<int64_t>(32 / groups.group_size(), 1);
  const int64_t blocks = (groups.size() + block - 1) / block;
  const int64_t units = blocks * boxes.count;
  std::vector<double> parts(4 * units, 0.0);
  cpu.ParallelFor(
      units, 3 * Cycles(pooled, taps, args.channels) / units,
      [&](int64_t begin, int64_t end) {
        std::vector<Accumulator<T>> scratch(3 * (bounds.width + 16));
        for (int64_t unit = begin; unit < end; ++unit) {
          const int64_t k = unit % boxes.count;
          if (taps.Map(k) < 0) continue;
          const auto& map = maps[taps.Map(k)];
          const int64_t first = unit / boxes.count * block;
          const int64_t last = std::min(first + block, groups.size());
          for (int64_t g = first; g < last; ++g) {
            const PlaneGroup group = groups[g];
            const T* const from =
                d_output +
                pooled.Offset(k, group.p, group.q, group.pooled_channel);
            for (int64_t i = 0; i < group.count; ++i) {
              const int64_t c = group.first + i * group.step;
              add_plane(from + i,
                        {map.data + c * map.size(), map.width,
                         (args.channels - c) * map.size()},
                        Slice(taps.Rows(k), group.p, group.bins_y),
                        Slice(taps.Columns(k), group.q + i, group.bins_x),
                        scratch.data(), &parts[4 * unit]);
            }
          }
        }
      });
  SumBoxParts(boxes, parts, {blocks, 1, boxes.count}, d_boxes);
}

}  // namespace

template <typename T>
Error RoiAverageBoxesGrad(const Cpu& cpu, const RoiAverageArgs& args,
                          const Boxes<Coordinate<T>>& boxes, const T* d_output,
                          const T* const* features, Coordinate<T>* d_boxes) {
  if (args.Pooled(boxes.count).Size() == 0) {
    std::fill(d_boxes, d_boxes + 4 * boxes.count, 0);
    return nullptr;
  }
  const auto maps = MapsOf(args, features);
  const SlopedBoxTaps<T> taps(cpu, args, boxes);
  if (args.channels_first) {
    BoxesGradChannelsFirst(cpu, args, boxes, d_output, maps, taps, d_boxes);
  } else {
    BoxesGradChannelsLast(cpu, args, boxes, d_output, maps, taps, d_boxes);
  }
  return nullptr;
}

#define TFO_INSTANTIATE(T)                                                     \
  template Error RoiAverageBoxesGrad<T>(const Cpu&, const RoiAverageArgs&,     \
                                        const Boxes<Coordinate<T>>&, const T*, \
                                        const T* const*, Coordinate<T>*)
TFO_FOR_EACH_FLOAT(TFO_INSTANTIATE);
#undef TFO_INSTANTIATE

}  // namespace tfo
