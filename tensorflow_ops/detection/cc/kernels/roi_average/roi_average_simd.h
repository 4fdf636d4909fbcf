// Shared by the CPU passes of roi_average: maps of single images, the order in
// which boxes' bins are visited, and groups of a bin's channels.
#ifndef TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_AVERAGE_ROI_AVERAGE_SIMD_H_
#define TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_AVERAGE_ROI_AVERAGE_SIMD_H_

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "tensorflow_ops/core/cc/buckets.h"
#include "tensorflow_ops/core/cc/simd/cpu_dispatch.h"
#include "tensorflow_ops/core/cc/simd/simd.h"
#include "tensorflow_ops/detection/cc/kernels/roi/roi_views.h"
#include "tensorflow_ops/detection/cc/kernels/roi_average/roi_average.h"
#include "tensorflow_ops/detection/cc/kernels/roi_average/roi_taps.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {

template <typename T>
using Vector = typename Lanes<T>::Vector;
template <typename T>
using Sum = Accumulator<T>;

// Accumulators that fit the registers.
inline constexpr int kMaxVectors = kVectorBytes == 64 ? 16 : 8;

// Calls piece(Constant<n>, c) for groups of n channels that are not contiguous:
// kPiece of them while there are as many, then half as many, and so on.
template <int kPiece, typename Piece>
TFO_INLINE void ForChannels(int64_t count, int64_t c, const Piece& piece) {
  for (; c + kPiece <= count; c += kPiece) piece(Constant<kPiece>{}, c);
  if constexpr (kPiece > 1) ForChannels<kPiece / 2>(count, c, piece);
}

template <typename T>
using BoxTaps = TapTable<Coordinate<T>, Tap<Coordinate<T>>>;
template <typename T>
using SlopedBoxTaps = TapTable<Coordinate<T>, SlopedTap<Coordinate<T>>>;

// The feature map of one image on one level. A map without pixels becomes 0 x
// 0, since its other side could be billions of pixels long.
template <typename T>
struct FeatureMap {
  T* data;
  int64_t height, width;
};

// All maps, as TapTable's Map counts them.
template <typename T>
std::vector<FeatureMap<T>> MapsOf(const RoiAverageSpec& args,
                                  T* const* features) {
  std::vector<FeatureMap<T>> maps;
  for (int32_t l = 0; l < args.num_levels; ++l) {
    const FeatureShape shape = args.Features(l);
    const bool empty = shape.height * shape.width == 0;
    for (int64_t n = 0; n < args.batch; ++n) {
      maps.push_back({features[l] + n * shape.ImageSize(),
                      empty ? 0 : shape.height, empty ? 0 : shape.width});
    }
  }
  return maps;
}

// Estimates the cycles of a pass over all boxes' taps. A tap takes 5, plus a
// quarter for each channel, plus 20 for a cache miss where a bin reads only
// some of a pixel's `channels`.
template <typename Table>
double Cycles(const FeatureShape& pooled, const Table& taps, int64_t channels) {
  const double boxes = std::max<int64_t>(pooled.batch, 1);
  const double bins = pooled.height + pooled.width;
  const double taps_per_bin = taps.size() / std::max(boxes * bins, 1.0);
  const double cycles_per_tap =
      (channels > pooled.channels ? 25 : 5) + 0.25 * pooled.channels;
  return boxes * pooled.height * pooled.width *
         (20 + taps_per_bin * taps_per_bin * cycles_per_tap);
}

// The rows of bins, k * grid.height + p, map by map and downward: neighbors
// find each other's pixels in the cache. Sorts by bands of pixel rows only,
// which needs a third of the memory of SortDownward (roi_bin_rows.h).
template <typename Table, typename T>
std::vector<int64_t> BinRowsByBand(const FeatureShape& pooled,
                                   const Table& taps,
                                   const std::vector<FeatureMap<T>>& maps) {
  const int64_t bins = pooled.height;
  const int64_t size = pooled.batch * bins, count = maps.size();
  const int64_t bands =
      std::clamp<int64_t>(4 * size / std::max<int64_t>(count, 1), 16, 4096);
  return Buckets(
             count * bands + 1,
             [&](const auto& add) {
               for (int64_t i = 0; i < size; ++i) {
                 const auto rows = TapsOf(taps.Rows(i / bins), i % bins);
                 if (rows.begin == rows.end) {
                   add(count * bands, i);
                   continue;
                 }
                 const int64_t map = taps.Map(i / bins);
                 const int64_t y = rows.begin->pixel;
                 const int64_t height = maps[map].height;
                 // Bands are single rows where the map has no more.
                 add(map * bands + (height <= bands ? y : y * bands / height),
                     i);
               }
             })
      .TakeItems();
}

}  // namespace TFO_CPU_NAMESPACE
}  // namespace tfo

#endif  // TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_AVERAGE_ROI_AVERAGE_SIMD_H_
