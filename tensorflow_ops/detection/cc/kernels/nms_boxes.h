// A box as suppression compares it, and the comparison: what CPU and CUDA
// share.
#ifndef TENSORFLOW_OPS_DETECTION_CC_KERNELS_NMS_BOXES_H_
#define TENSORFLOW_OPS_DETECTION_CC_KERNELS_NMS_BOXES_H_

#include <type_traits>

#include "tensorflow_ops/detection/cc/kernels/box.h"
#include "tensorflow_ops/detection/cc/kernels/rotated_box.h"

namespace tfo {
namespace TFO_FORMULA_NAMESPACE {

template <typename T>
struct UprightBox {
  Box<T> corners;
  T area;  // 0 if the box is malformed
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
    return {b, IsWellFormed(b) ? Area(b) : T(0)};
  }
}

// Can the box overlap any other?
template <typename T>
TFO_FORMULA bool CanOverlap(const UprightBox<T>& box) {
  return box.area > 0;
}
template <typename T>
TFO_FORMULA bool CanOverlap(const RotatedBox<T>& box) {
  return box.well_formed && RotatedArea(box) > 0;
}

template <typename T>
TFO_FORMULA T AreaOf(const UprightBox<T>& box) {
  return box.area;
}
template <typename T>
TFO_FORMULA T AreaOf(const RotatedBox<T>& box) {
  return RotatedArea(box);
}

template <typename T>
TFO_FORMULA T Shared(const UprightBox<T>& a, const UprightBox<T>& b) {
  return Intersection(a.corners, b.corners);
}
template <typename T>
TFO_FORMULA T Shared(const RotatedBox<T>& a, const RotatedBox<T>& b) {
  return RotatedIntersection(a, b);
}

// Is the IoU above the threshold? Both boxes can overlap.
template <typename Compared, typename T>
TFO_FORMULA bool Suppresses(const Compared& kept, const Compared& box,
                            T iou_threshold) {
  const T shared = Shared(kept, box);
  // Without a division. NaN, of areas that overflow: false.
  return shared >
         Product(iou_threshold, Union(AreaOf(kept), AreaOf(box), shared));
}

// 0 where areas overflow. Both boxes can overlap.
template <typename T, typename Compared>
TFO_FORMULA T IouOf(const Compared& a, const Compared& b) {
  const T shared = Shared(a, b), both = Union(AreaOf(a), AreaOf(b), shared);
  return both > 0 ? shared / both : T(0);
}

}  // namespace TFO_FORMULA_NAMESPACE
}  // namespace tfo

#endif  // TENSORFLOW_OPS_DETECTION_CC_KERNELS_NMS_BOXES_H_
