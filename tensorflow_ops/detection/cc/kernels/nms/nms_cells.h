// Finds the kept boxes that a candidate of nms can overlap: those of its group
// and, in large groups, those near it on an axis.
#ifndef TENSORFLOW_OPS_DETECTION_CC_KERNELS_NMS_NMS_CELLS_H_
#define TENSORFLOW_OPS_DETECTION_CC_KERNELS_NMS_NMS_CELLS_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "tensorflow_ops/detection/cc/kernels/nms/nms.h"
#include "tensorflow_ops/detection/cc/kernels/nms/nms_kept.h"

namespace tfo {

// Levels of bins on an axis. Bins of level l are 2^l times as wide as those
// of level 0; a box belongs to the first level whose bins are wider than it, so
// that it reaches into no more than the next bin.
class AxisBins {
 public:
  // One bin.
  AxisBins() = default;
  // For boxes in [from, to] on x or y, a finite range. `iou_threshold`: pairs
  // of boxes whose sizes or places alone keep their IoU below it are not
  // visited; 0: all that touch are.
  AxisBins(bool along_y, double from, double to, double iou_threshold);

  int64_t size() const { return size_; }

  // The bin of a box.
  template <typename T>
  int64_t BinOf(const BoxRow<T>& box) const {
    if (size_ == 1) return 0;
    const double low = Low(box);
    const Level& level = levels_[LevelOf(High(box) - low)];
    return level.first + level.At(low - from_);
  }

  // Calls visit(bin) for the bins with boxes that can overlap this one, until
  // it returns true. Returns whether it did.
  template <typename T, typename Visit>
  bool AnyBin(const BoxRow<T>& box, const Visit& visit) const {
    if (size_ == 1) return visit(0);
    const double low = Low(box) - from_, high = High(box) - from_;
    const double width = high - low;
    for (const Level& level : levels_) {
      const double wide = std::max(width, level.narrowest);
      const double narrow = std::min(width, level.widest);
      if (narrow < threshold_ * wide) continue;
      // The least length of the intersection.
      const double common = threshold_ * wide;
      const int64_t begin = level.At(low + common - level.widest - level.slack);
      const int64_t end = level.At(high - common + level.slack);
      for (int64_t b = begin; b <= end; ++b) {
        if (visit(level.first + b)) return true;
      }
    }
    return false;
  }

 private:
  struct Level {
    int64_t first, bins;
    double per_unit;           // bins in a unit of length
    double narrowest, widest;  // of its boxes
    double slack;              // beyond roundings

    int64_t At(double place) const {
      return static_cast<int64_t>(
          std::min(std::max(place * per_unit, 0.0), double(bins - 1)));
    }
  };

  template <typename T>
  double Low(const BoxRow<T>& box) const {
    return along_y_ ? box.y1 : box.x1;
  }
  template <typename T>
  double High(const BoxRow<T>& box) const {
    return along_y_ ? box.y2 : box.x2;
  }

  size_t LevelOf(double width) const {
    size_t level = 0;
    while (level + 1 < levels_.size() && width > levels_[level].widest) {
      ++level;
    }
    return level;
  }

  bool along_y_ = false;
  double from_ = 0, threshold_ = 0;
  int64_t size_ = 1;
  std::vector<Level> levels_;
};

// The cells of candidates, which are named by their rank in `order`.
template <typename T>
class NmsCells {
 public:
  NmsCells(const NmsArgs<T>& args, const std::vector<int32_t>& order);

  // Returns whether each cell is a group.
  bool are_groups() const { return !groups_.empty() && bins_.size() == 1; }
  int64_t num_groups() const { return num_groups_; }
  int64_t Group(int64_t rank) const {
    return groups_.empty() ? 0 : groups_[rank];
  }

  // The most boxes of each cell.
  std::vector<int32_t> Capacities(const NmsArgs<T>& args,
                                  const std::vector<int32_t>& order) const;

  int64_t CellOf(int64_t rank, const BoxRow<T>& box) const {
    return Group(rank) * bins_.size() + bins_.BinOf(box);
  }

  // How long the comparison of a candidate takes per kept box, of all cells.
  double cycles_per_kept() const {
    return bins_.size() > 1 ? 0.05 : 0.5 / static_cast<double>(num_groups_);
  }

  template <typename Visit>
  bool AnyCell(int64_t rank, const BoxRow<T>& box, const Visit& visit) const {
    const int64_t first = Group(rank) * bins_.size();
    return bins_.AnyBin(box, [&](int64_t bin) { return visit(first + bin); });
  }

 private:
  std::vector<int32_t> groups_;  // of each rank, numbered from 0; or empty
  int64_t num_groups_ = 1;
  AxisBins bins_;
};

}  // namespace tfo

#endif  // TENSORFLOW_OPS_DETECTION_CC_KERNELS_NMS_NMS_CELLS_H_
