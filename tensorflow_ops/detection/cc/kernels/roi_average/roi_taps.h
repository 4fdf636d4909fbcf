// Taps of bins, and those of all boxes, on the host.
#ifndef TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_AVERAGE_ROI_TAPS_H_
#define TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_AVERAGE_ROI_TAPS_H_

#include <cstdint>
#include <vector>

#include "tensorflow_ops/detection/cc/kernels/roi_average/roi_average.h"

namespace tfo {

// The weight of a row or a column of pixels in a bin.
template <typename C>
struct Tap {
  int32_t pixel;
  C weight;
};
// The same, and how the weight changes with the box's beginning and end.
template <typename C>
struct SlopedTap {
  int32_t pixel;
  C weight, low, high;
};

// A bin's taps on one axis.
template <typename Tap>
struct TapSpan {
  const Tap *begin, *end;
};

// The taps of `count` neighboring bins: bin i has [begin[i], begin[i + 1]).
template <typename Tap>
struct BinTaps {
  const Tap* taps;
  const int64_t* begin;
  int64_t count;
};
template <typename Tap>
static inline TapSpan<Tap> TapsOf(const BinTaps<Tap>& bins, int64_t i) {
  return {bins.taps + bins.begin[i], bins.taps + bins.begin[i + 1]};
}

// Tap is Tap<C>, or SlopedTap<C>. Defined for float and double.
template <typename C, typename Tap>
class TapTable {
 public:
  TapTable(const Cpu& cpu, const RoiAverageSpec& args, const Boxes<C>& boxes);

  // The index of the box's map, level * batch + image; -1 for an invalid box,
  // which has no taps.
  int64_t Map(int64_t k) const { return maps_[k]; }

  BinTaps<Tap> Rows(int64_t k) const {
    const Chunk& chunk = chunks_[k / kChunk];
    const int64_t bins = grid_.height + grid_.width;
    return {chunk.taps.data(), &chunk.begin[k % kChunk * bins], grid_.height};
  }
  BinTaps<Tap> Columns(int64_t k) const {
    const BinTaps<Tap> rows = Rows(k);
    return {rows.taps, rows.begin + grid_.height, grid_.width};
  }
  // Of all boxes.
  int64_t size() const {
    int64_t size = 0;
    for (const Chunk& chunk : chunks_) size += chunk.taps.size();
    return size;
  }

 private:
  static constexpr int64_t kChunk = 32;  // boxes
  struct Chunk {
    std::vector<Tap> taps;
    std::vector<int64_t> begin;  // of each bin: a box's rows, then its columns
  };

  // Fills chunk i.
  void Fill(const RoiAverageSpec& args, const Boxes<C>& boxes, int64_t i);

  PoolGrid grid_;
  std::vector<int64_t> maps_;
  std::vector<Chunk> chunks_;
};

}  // namespace tfo

#endif  // TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_AVERAGE_ROI_TAPS_H_
