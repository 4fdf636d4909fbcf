// The gradient to boxes on the CPU: each unit of work sums its own part, and
// the parts are added in one order.
#include "tensorflow_ops/detection/cc/kernels/roi/roi_box_sums.h"
#include "tensorflow_ops/detection/cc/kernels/roi_average/roi_average_cpu.h"

namespace tfo {

template <typename T>
Error RoiAverageBoxesGrad(const Cpu& cpu,
                          const RoiAverageBoxesGradArgs<T>& args) {
  const FeatureShape pooled = args.Pooled(args.boxes.count);
  if (pooled.Size() == 0) {
    std::fill_n(args.d_boxes, 4 * args.boxes.count, 0);
    return nullptr;
  }
  const auto maps = MapsOf(args, args.features);
  const SlopedBoxTaps<T> taps(cpu, args, args.boxes);
  // A unit is a row of bins.
  const auto add_bin_row = TFO_DISPATCH(AddBoxGradOfBinRow<T>);
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
                          {args.d_output + pooled.Offset(k, p, 0, 0), of.count},
                          {map.data + p * pooled.width * of.next_bin, map.width,
                           args.channels},
                          TapsOf(taps.Rows(k), p), taps.Columns(k), of,
                          &parts[4 * bin_rows[i]]);
                    }
                  });
  SumBoxParts(args.boxes, parts, {pooled.height, pooled.height, 1},
              args.d_boxes);
  return nullptr;
}

TFO_INSTANTIATE_ALGORITHM(RoiAverageBoxesGrad, Cpu, RoiAverageBoxesGradArgs);

}  // namespace tfo
