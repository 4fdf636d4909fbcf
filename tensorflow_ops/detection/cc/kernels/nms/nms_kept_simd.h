// The kept boxes of a sweep on the CPU, in cells: a box is compared with those
// of some cells. Only *_simd.cc files include this header.
#ifndef TENSORFLOW_OPS_DETECTION_CC_KERNELS_NMS_NMS_KEPT_SIMD_H_
#define TENSORFLOW_OPS_DETECTION_CC_KERNELS_NMS_NMS_KEPT_SIMD_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "tensorflow_ops/core/cc/simd/simd.h"
#include "tensorflow_ops/detection/cc/kernels/nms/nms_boxes.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {

// Boxes as rows, in memory of 5 * size numbers.
template <typename T>
struct BoxRows {
  T *x1, *y1, *x2, *y2, *area;

  BoxRows(T* memory, int64_t size)
      : x1(memory),
        y1(memory + size),
        x2(memory + 2 * size),
        y2(memory + 3 * size),
        area(memory + 4 * size) {}

  UprightBox<T> operator[](int64_t i) const {
    return {{x1[i], y1[i], x2[i], y2[i]}, area[i]};
  }
  void Set(int64_t i, const UprightBox<T>& box) const {
    x1[i] = box.corners.x1;
    y1[i] = box.corners.y1;
    x2[i] = box.corners.x2;
    y2[i] = box.corners.y2;
    area[i] = box.area;
  }
};

// The box in all lanes.
template <typename V, typename T>
TFO_INLINE Box<V> Repeat(const Box<T>& box) {
  return {Broadcast<V>(box.x1), Broadcast<V>(box.y1), Broadcast<V>(box.x2),
          Broadcast<V>(box.y2)};
}

template <typename T, bool kRotated>
class KeptBoxes {
 public:
  using Compared = ComparedBox<T, kRotated>;

  // A vector may read so many boxes beyond a cell's last one.
  static constexpr int kPadding = 16;

  // capacities[c]: the most boxes that are added to cell c.
  KeptBoxes(T iou_threshold, const std::vector<int32_t>& capacities)
      : iou_threshold_(iou_threshold),
        starts_(capacities.size()),
        counts_(capacities.size()),
        any_size_(capacities.size()),
        size_(StartCells(capacities)),
        // Not cleared: boxes are written before they are compared.
        memory_(new T[5 * size_ + kPadding]),
        rows_(memory_.get(), size_),
        rotated_(new RotatedBox<T>[kRotated ? size_ : 0]) {}

  const std::vector<int32_t>& counts() const { return counts_; }

  // Returns whether a box of the cell, from its `from`th on, has an IoU above
  // the threshold with this one, which can overlap others.
  bool Suppress(const Compared& box, int64_t cell, int32_t from) const {
    // No IoU is above 1.
    if (counts_[cell] <= from || iou_threshold_ >= 1) return false;
    const int64_t begin = int64_t{starts_[cell]} + from;
    const int64_t end = int64_t{starts_[cell]} + counts_[cell];
    if constexpr (kRotated) {
      const Box<T> around = Around(box).corners;
      for (int64_t i = begin; i < end; ++i) {
        i = FirstTouching(i, end, around);
        if (i < end && Suppresses(rotated_[i], box, iou_threshold_)) {
          return true;
        }
      }
      return false;
    } else if (any_size_[cell] || !HasOrdinaryUnions(box.area)) {
      return AnyOverlaps<true>(begin, end, box);
    } else {
      return AnyOverlaps<false>(begin, end, box);
    }
  }

  // The box can overlap others.
  void Add(const Compared& box, int64_t cell) {
    const int64_t at = int64_t{starts_[cell]} + counts_[cell]++;
    rows_.Set(at, Around(box));
    if constexpr (kRotated) {
      rotated_[at] = box;
    } else {
      any_size_[cell] |= !HasOrdinaryUnions(box.area);
    }
  }

 private:
  using V = typename Lanes<T>::Vector;
  using Index = typename Lanes<T>::Index;
  static constexpr int kCount = Lanes<T>::kCount;
  static_assert(kCount <= kPadding);

  // Returns the size of all cells.
  int64_t StartCells(const std::vector<int32_t>& capacities) {
    int64_t size = 0;
    for (size_t c = 0; c < capacities.size(); ++c) {
      starts_[c] = static_cast<int32_t>(size);
      size += capacities[c];
    }
    return size;
  }

  static TFO_INLINE Index FirstLanes(int64_t n) {
    Index lane;
    for (int i = 0; i < kCount; ++i) lane[i] = i;
    return lane < static_cast<typename Lanes<T>::Integer>(n);
  }

  TFO_INLINE Box<V> LoadBoxes(int64_t at) const {
    return {Load(rows_.x1 + at), Load(rows_.y1 + at), Load(rows_.x2 + at),
            Load(rows_.y2 + at)};
  }

  template <bool kAnySize>
  bool AnyOverlaps(int64_t begin, int64_t end, const UprightBox<T>& box) const {
    const Box<V> corners = Repeat<V>(box.corners);
    const V area = Broadcast<V>(box.area),
            threshold = Broadcast<V>(iou_threshold_);
    const auto overlaps = [&](int64_t at) {
      const Overlap<V> overlap = OverlapOf<kAnySize>(
          LoadBoxes(at), Load(rows_.area + at), corners, area);
      // Without a division.
      return overlap.intersection > threshold * overlap.uni;
    };
    int64_t at = begin;
    for (; at + kCount <= end; at += kCount) {
      if (AnyLane(overlaps(at))) return true;
    }
    return at < end && AnyLane(overlaps(at) & FirstLanes(end - at));
  }

  // Returns the first of the boxes [begin, end) around which is a box that
  // touches this one, or `end`.
  int64_t FirstTouching(int64_t begin, int64_t end, const Box<T>& box) const {
    const Box<V> corners = Repeat<V>(box);
    for (int64_t at = begin; at < end; at += kCount) {
      const Box<V> others = LoadBoxes(at);
      const Index touches = (others.x1 <= corners.x2) &
                            (others.x2 >= corners.x1) &
                            (others.y1 <= corners.y2) &
                            (others.y2 >= corners.y1) & FirstLanes(end - at);
      if (!AnyLane(touches)) continue;
      for (int i = 0; i < kCount; ++i) {
        if (touches[i] != 0) return at + i;
      }
    }
    return end;
  }

  const T iou_threshold_;
  std::vector<int32_t> starts_, counts_;  // of the cells
  // Whether a cell has boxes without ordinary unions (box.h).
  std::vector<char> any_size_;
  const int64_t size_;
  std::unique_ptr<T[]> memory_;
  const BoxRows<T> rows_;  // around the boxes
  std::unique_ptr<RotatedBox<T>[]> rotated_;
};

}  // namespace TFO_CPU_NAMESPACE
}  // namespace tfo

#endif  // TENSORFLOW_OPS_DETECTION_CC_KERNELS_NMS_NMS_KEPT_SIMD_H_
