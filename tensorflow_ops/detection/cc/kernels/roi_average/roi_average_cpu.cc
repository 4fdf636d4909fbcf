// The averages on the CPU.
#include "tensorflow_ops/detection/cc/kernels/roi_average/roi_average_cpu.h"

#include <cstring>

namespace tfo {

template <typename T>
Error RoiAverage(const Cpu& cpu, const RoiAverageArgs<T>& args) {
  const FeatureShape pooled = args.Pooled(args.boxes.count);
  if (pooled.Size() == 0) return nullptr;
  const auto maps = MapsOf(args, args.features);
  const BoxTaps<T> taps(cpu, args, args.boxes);
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
          T* const to = args.output + pooled.Offset(k, p, 0, c);
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
  return nullptr;
}

TFO_INSTANTIATE_ALGORITHM(RoiAverage, Cpu, RoiAverageArgs);

}  // namespace tfo
