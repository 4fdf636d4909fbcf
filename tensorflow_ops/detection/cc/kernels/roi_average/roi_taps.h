// The taps of all boxes, on the host.
#ifndef TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_AVERAGE_ROI_TAPS_H_
#define TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_AVERAGE_ROI_TAPS_H_

#include <cstdint>
#include <vector>

#include "tensorflow_ops/detection/cc/kernels/roi_average/roi_average.h"
#include "tensorflow_ops/detection/cc/kernels/roi_average/roi_average_simd.h"

namespace tfo {

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
