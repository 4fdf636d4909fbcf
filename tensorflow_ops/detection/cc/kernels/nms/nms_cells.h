// Finds the kept boxes that a candidate of nms can overlap: those of its group
// and, in large groups, those near it on an axis.
#ifndef TENSORFLOW_OPS_DETECTION_CC_KERNELS_NMS_NMS_CELLS_H_
#define TENSORFLOW_OPS_DETECTION_CC_KERNELS_NMS_NMS_CELLS_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "tensorflow_ops/detection/cc/kernels/nms/nms.h"
#include "tensorflow_ops/detection/cc/kernels/nms/nms_boxes.h"
#include "tensorflow_ops/detection/cc/kernels/nms/nms_order.h"

namespace tfo {
namespace TFO_FORMULA_NAMESPACE {

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
  AxisBins(bool along_y, double from, double to, double iou_threshold)
      // 1% below, for roundings.
      : along_y_(along_y),
        from_(from),
        threshold_(0.99 * iou_threshold),
        size_(0) {
    constexpr int64_t kMostBins = 256;
    double narrowest = 0;
    for (int64_t bins = kMostBins; bins >= 1; bins /= 2) {
      const double width = (to - from) / bins;
      // Narrower than a bin, so that roundings do not reach beyond the next.
      const double widest = bins == 1 ? 2 * width : width / 1.01;
      levels_.push_back(
          {size_, bins, 1 / width, narrowest, widest, 1e-3 * width});
      narrowest = widest;
      size_ += bins;
    }
  }

  int64_t size() const { return size_; }

  // The bin of a box.
  template <typename T>
  int64_t BinOf(const Box<T>& box) const {
    if (size_ == 1) return 0;
    const double low = Low(box);
    const Level& level = levels_[LevelOf(High(box) - low)];
    return level.first + level.At(low - from_);
  }

  // Calls visit(bin) for the bins with boxes that can overlap this one, until
  // it returns true. Returns whether it did.
  template <typename T, typename Visit>
  bool AnyBin(const Box<T>& box, const Visit& visit) const {
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
  double Low(const Box<T>& box) const {
    return along_y_ ? box.y1 : box.x1;
  }
  template <typename T>
  double High(const Box<T>& box) const {
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

// Where boxes are on an axis.
struct Extent {
  double from = std::numeric_limits<double>::infinity(), to = -from;
  double lengths = 0;  // of all boxes

  void Add(double low, double high) {
    from = std::min(from, low);
    to = std::max(to, high);
    lengths += high - low;
  }
  // The share of the boxes that a line across the axis meets.
  double Crowding() const { return lengths / (to - from); }
};

// Returns whether bins on y tell boxes apart better than bins on x, by some of
// them.
template <typename Compared>
bool SpreadsAlongY(const std::vector<Compared>& boxes) {
  constexpr size_t kSome = 256;
  Extent x, y;
  const size_t step = std::max<size_t>(1, boxes.size() / kSome);
  for (size_t r = 0; r < boxes.size(); r += step) {
    if (!CanOverlap(boxes[r])) continue;
    const auto box = Around(boxes[r]).corners;
    x.Add(box.x1, box.x2);
    y.Add(box.y1, box.y2);
  }
  return y.Crowding() < x.Crowding();
}

template <typename Compared, typename T>
AxisBins MakeBins(const std::vector<Compared>& boxes, T iou_threshold) {
  const bool along_y = SpreadsAlongY(boxes);
  double from = std::numeric_limits<double>::infinity(), to = -from;
  T smallest = std::numeric_limits<T>::infinity();
  for (const Compared& compared : boxes) {
    if (!CanOverlap(compared)) continue;
    const UprightBox<T> box = Around(compared);
    from = std::min<double>(from, along_y ? box.corners.y1 : box.corners.x1);
    to = std::max<double>(to, along_y ? box.corners.y2 : box.corners.x2);
    smallest = std::min(smallest, box.area);
  }
  if (!(std::isfinite(from) && std::isfinite(to) && from < to &&
        std::isfinite(to - from))) {
    return AxisBins();
  }
  // Below, products have large roundings; boxes around others have no area.
  const bool exact = smallest > static_cast<T>(1e-30);
  return AxisBins(along_y, from, to,
                  exact ? static_cast<double>(iou_threshold) : 0);
}

// Numbers the groups of the candidates from 0; returns how many there are.
inline int64_t NumberGroups(const GroupIds& ids,
                            const std::vector<int32_t>& order,
                            std::vector<int32_t>* groups) {
  const int64_t n = order.size();
  groups->resize(n);
  if (n == 0) return 1;
  int64_t least = ids[order[0]], greatest = least;
  for (int32_t i : order) {
    least = std::min(least, ids[i]);
    greatest = std::max(greatest, ids[i]);
  }
  // Modulo 2^64, because the difference may exceed int64.
  const uint64_t base = static_cast<uint64_t>(least);
  const uint64_t range = static_cast<uint64_t>(greatest) - base;
  if (range < static_cast<uint64_t>(2 * n)) {
    for (int64_t r = 0; r < n; ++r) {
      (*groups)[r] =
          static_cast<int32_t>(static_cast<uint64_t>(ids[order[r]]) - base);
    }
    return range + 1;
  }
  std::vector<Ranked<uint64_t>> items(n), buffer(n);
  for (int64_t r = 0; r < n; ++r) {
    items[r] = {static_cast<uint64_t>(ids[order[r]]) - base,
                static_cast<int32_t>(r)};
  }
  const Ranked<uint64_t>* const sorted =
      SortByKey(items.data(), buffer.data(), n);
  int32_t group = 0;
  for (int64_t i = 0; i < n; ++i) {
    if (i > 0 && sorted[i].key != sorted[i - 1].key) ++group;
    (*groups)[sorted[i].index] = group;
  }
  return group + 1;
}

// The cells of candidates, which are named by their rank: order[rank] is the
// index of boxes[rank].
template <typename T, bool kRotated>
class NmsCells {
 public:
  using Boxes = std::vector<ComparedBox<T, kRotated>>;

  NmsCells(const GroupIds& ids, T iou_threshold,
           const std::vector<int32_t>& order, const Boxes& boxes) {
    // Smaller groups are faster to compare without bins.
    constexpr int64_t kBoxesForBins = 4096;
    if (ids.exist()) num_groups_ = NumberGroups(ids, order, &groups_);
    if (static_cast<int64_t>(order.size()) >= kBoxesForBins * num_groups_) {
      bins_ = MakeBins(boxes, iou_threshold);
    }
  }

  // Returns whether each cell is a group.
  bool are_groups() const { return !groups_.empty() && bins_.size() == 1; }
  int64_t num_groups() const { return num_groups_; }
  int64_t Group(int64_t rank) const {
    return groups_.empty() ? 0 : groups_[rank];
  }

  // The most boxes of each cell, of `most` in all.
  std::vector<int32_t> Capacities(const Boxes& boxes, int64_t most) const {
    std::vector<int32_t> capacities(num_groups_ * bins_.size());
    const int64_t n = boxes.size();
    if (capacities.size() == 1) {
      capacities[0] = static_cast<int32_t>(std::min(n, most));
      return capacities;
    }
    for (int64_t r = 0; r < n; ++r) {
      int64_t cell = Group(r);
      if (!are_groups()) {
        if (!CanOverlap(boxes[r])) continue;
        cell = CellOf(r, Around(boxes[r]).corners);
      }
      if (capacities[cell] < most) ++capacities[cell];
    }
    return capacities;
  }

  int64_t CellOf(int64_t rank, const Box<T>& box) const {
    return Group(rank) * bins_.size() + bins_.BinOf(box);
  }

  // How long the comparison of a candidate takes per kept box, of all cells.
  double cycles_per_kept() const {
    return bins_.size() > 1 ? 0.05 : 0.5 / static_cast<double>(num_groups_);
  }

  template <typename Visit>
  bool AnyCell(int64_t rank, const Box<T>& box, const Visit& visit) const {
    const int64_t first = Group(rank) * bins_.size();
    return bins_.AnyBin(box, [&](int64_t bin) { return visit(first + bin); });
  }

 private:
  std::vector<int32_t> groups_;  // of each rank, numbered from 0; or empty
  int64_t num_groups_ = 1;
  AxisBins bins_;
};

}  // namespace TFO_FORMULA_NAMESPACE
}  // namespace tfo

#endif  // TENSORFLOW_OPS_DETECTION_CC_KERNELS_NMS_NMS_CELLS_H_
