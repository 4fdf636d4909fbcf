#include "tensorflow_ops/detection/cc/kernels/roi_average/roi_taps.h"

#include <algorithm>
#include <type_traits>

namespace tfo {

template <typename C, typename Tap>
TapTable<C, Tap>::TapTable(const Cpu& cpu, const RoiAverageSpec& args,
                           const Boxes<C>& boxes)
    : grid_(args.grid),
      maps_(boxes.count),
      chunks_((boxes.count + kChunk - 1) / kChunk) {
  const double cycles = 60.0 * (grid_.height + grid_.width);
  cpu.ParallelFor(chunks_.size(), kChunk * cycles,
                  [&](int64_t begin, int64_t end) {
                    for (int64_t i = begin; i < end; ++i) Fill(args, boxes, i);
                  });
}

template <typename C, typename Tap>
void TapTable<C, Tap>::Fill(const RoiAverageSpec& args, const Boxes<C>& boxes,
                            int64_t i) {
  constexpr bool kSlopes = std::is_same_v<Tap, SlopedTap<C>>;
  Chunk& chunk = chunks_[i];
  const int64_t last = std::min((i + 1) * kChunk, boxes.count);
  chunk.begin.reserve((last - i * kChunk) * (grid_.height + grid_.width) + 1);
  const auto add = [&](bool valid, const RoiAxis<C>& axis, int64_t bins) {
    for (int64_t p = 0; p < bins; ++p) {
      chunk.begin.push_back(chunk.taps.size());
      if (!valid) continue;
      VisitTaps<kSlopes>(
          axis, p, [&](int32_t pixel, C weight, BoxSlopes<C> slopes) {
            if constexpr (kSlopes) {
              chunk.taps.push_back({pixel, weight, slopes.low, slopes.high});
            } else {
              chunk.taps.push_back({pixel, weight});
            }
          });
    }
  };
  for (int64_t k = i * kChunk; k < last; ++k) {
    const Roi<C> roi = ReadRoi(args, boxes, k);
    maps_[k] = roi.valid ? roi.level * args.batch + roi.image : -1;
    add(roi.valid, roi.y, grid_.height);
    add(roi.valid, roi.x, grid_.width);
  }
  chunk.begin.push_back(chunk.taps.size());
  chunk.taps.shrink_to_fit();
}

template class TapTable<float, Tap<float>>;
template class TapTable<double, Tap<double>>;
template class TapTable<float, SlopedTap<float>>;
template class TapTable<double, SlopedTap<double>>;

}  // namespace tfo
