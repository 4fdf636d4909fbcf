// The IoU of two rotated boxes.
#ifndef TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROTATED_IOU_H_
#define TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROTATED_IOU_H_

#include "tensorflow_ops/detection/cc/kernels/box_metric.h"
#include "tensorflow_ops/detection/cc/kernels/rotated_box.h"

namespace tfo {
namespace TFO_FORMULA_NAMESPACE {

// Of finite boxes; *uni is the area of their union.
template <typename C>
TFO_FORMULA C RotatedIouWithin(const RotatedBox<C>& a, const RotatedBox<C>& b,
                               C* uni) {
  const C intersection = RotatedIntersection(a, b);
  *uni = Union(RotatedArea(a), RotatedArea(b), intersection);
  // Rounding may leave an intersection above its union.
  return Smaller(Ratio(intersection, *uni), C(1));
}

// a and b are ReadRotated(from1) and ReadRotated(from2). NaN if either is not
// finite; lengths whose products overflow are read again, in larger units.
template <typename C>
TFO_FORMULA C RotatedIou(const RotatedBox<C>& a, const RotatedBox<C>& b,
                         const C* from1, const C* from2) {
  if (!a.finite || !b.finite) return C(NAN);
  C uni;
  const C iou = RotatedIouWithin(a, b, &uni);
  if (uni < C(INFINITY)) return iou;
  constexpr C kScale = sizeof(C) == 4 ? C(0x1p-70) : C(0x1p-520);
  return RotatedIouWithin(ReadRotated(from1, kScale),
                          ReadRotated(from2, kScale), &uni);
}

}  // namespace TFO_FORMULA_NAMESPACE
}  // namespace tfo

#endif  // TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROTATED_IOU_H_
