// A box as suppression compares it, and the comparison: what CPU and CUDA
// share.
#ifndef TENSORFLOW_OPS_DETECTION_CC_KERNELS_NMS_NMS_BOXES_H_
#define TENSORFLOW_OPS_DETECTION_CC_KERNELS_NMS_NMS_BOXES_H_

#include <cmath>
#include <limits>
#include <type_traits>

#include "tensorflow_ops/detection/cc/kernels/boxes/box.h"
#include "tensorflow_ops/detection/cc/kernels/boxes/rotated_box.h"

namespace tfo {
namespace TFO_FORMULA_NAMESPACE {

template <typename T>
struct UprightBox {
  Box<T> corners;
  T area;  // negative if the box has none: it overlaps nothing
};

// RotatedBox for kRotated.
template <typename T, bool kRotated>
using ComparedBox = std::conditional_t<kRotated, RotatedBox<T>, UprightBox<T>>;

template <typename T, bool kRotated>
TFO_FORMULA ComparedBox<T, kRotated> ReadCompared(const T* boxes, int64_t i,
                                                  BoxFormat format) {
  if constexpr (kRotated) {
    return ReadRotated(boxes + 5 * i);
  } else {
    const Box<T> b = ReadCorners(boxes + 4 * i, format == BoxFormat::kYxyx);
    return {b, HasExtent(b) ? Area(b) : T(-1)};
  }
}

// Returns whether the box can overlap any other.
template <typename T>
TFO_FORMULA bool CanOverlap(const UprightBox<T>& box) {
  return box.area >= 0;
}
template <typename T>
TFO_FORMULA bool CanOverlap(const RotatedBox<T>& box) {
  return HasExtent(box);
}

// Returns whether the box can suppress any other.
template <typename Compared, typename T>
TFO_FORMULA bool CanSuppress(const Compared& box, T iou_threshold) {
  return CanOverlap(box) && iou_threshold < 1;  // no IoU is above 1
}

// A box that has this one inside, upright.
template <typename T>
TFO_FORMULA UprightBox<T> Around(const UprightBox<T>& box) {
  return box;
}
// A square around the circle of the corners, with room for roundings.
template <typename T>
TFO_FORMULA UprightBox<T> Around(const RotatedBox<T>& box) {
  constexpr T kRounding = 8 * std::numeric_limits<T>::epsilon();
  const T cx = static_cast<T>(box.cx), cy = static_cast<T>(box.cy);
  const T reach =
      box.radius * (1 + T(1e-4)) + kRounding * (std::abs(cx) + std::abs(cy));
  return {{cx - reach, cy - reach, cx + reach, cy + reach}, T(0)};
}

// Of boxes that can overlap.
template <typename T>
TFO_FORMULA Overlap<T> OverlapOf(const UprightBox<T>& a,
                                 const UprightBox<T>& b) {
  return OverlapOf</*kAnySize=*/true>(a.corners, a.area, b.corners, b.area);
}

// Returns whether the IoU is above the threshold. Requires CanOverlap of both
// boxes.
template <typename Compared, typename T>
TFO_FORMULA bool Suppresses(const Compared& kept, const Compared& box,
                            T iou_threshold) {
  const Overlap<T> overlap = OverlapOf(kept, box);
  // Without a division.
  return overlap.intersection > Product(iou_threshold, overlap.uni);
}

// Of boxes that can overlap.
template <typename T, typename Compared>
TFO_FORMULA T IouOf(const Compared& a, const Compared& b) {
  const Overlap<T> overlap = OverlapOf(a, b);
  return Ratio(overlap.intersection, overlap.uni);
}

}  // namespace TFO_FORMULA_NAMESPACE
}  // namespace tfo

#endif  // TENSORFLOW_OPS_DETECTION_CC_KERNELS_NMS_NMS_BOXES_H_
