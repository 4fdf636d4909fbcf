// Boxes as corners: formats, areas, intersections. Formulas (elementwise.h): V
// is a vector in *_simd.cc files, else float or double, also in CUDA.
//
// Nothing here adds an epsilon, and products are not fused with sums: two
// identical boxes have an intersection of exactly their area, and
// area + area - intersection is exactly that, too.
#ifndef TENSORFLOW_OPS_DETECTION_CC_KERNELS_BOX_H_
#define TENSORFLOW_OPS_DETECTION_CC_KERNELS_BOX_H_

#include <cmath>

#include "tensorflow_ops/core/cc/elementwise.h"
#include "tensorflow_ops/core/cc/float16.h"

namespace tfo {

enum class BoxFormat {
  kXyxy,     // (x1, y1, x2, y2)
  kYxyx,     // (y1, x1, y2, x2)
  kRotated,  // (cx, cy, w, h, degrees): rotated_box.h
};

// box_iou.h defines them.
enum class BoxMetric { kIou, kGiou, kDiou, kCiou };

// Numbers per box.
constexpr int BoxSize(BoxFormat format) {
  return format == BoxFormat::kRotated ? 5 : 4;
}

namespace TFO_FORMULA_NAMESPACE {

template <typename V>
struct Box {
  V x1, y1, x2, y2;
};

// The box at b, 4 numbers.
template <typename C>
TFO_FORMULA Box<C> ReadCorners(const C* b, bool yxyx) {
  return yxyx ? Box<C>{b[1], b[0], b[3], b[2]} : Box<C>{b[0], b[1], b[2], b[3]};
}

// The one that is greater (smaller). If either is NaN: b.
template <typename V>
TFO_FORMULA V Greater(V a, V b) {
  return a > b ? a : b;
}
template <typename V>
TFO_FORMULA V Smaller(V a, V b) {
  return a < b ? a : b;
}

// a * b, which nvcc does not fuse with a sum.
template <typename V>
TFO_FORMULA V Product(V a, V b) {
#ifdef __CUDA_ARCH__
  if constexpr (sizeof(V) == sizeof(float)) {
    return __fmul_rn(a, b);
  } else {
    return __dmul_rn(a, b);
  }
#else
  return a * b;
#endif
}

// From lo to hi, 0 if hi is below lo or the difference is NaN.
template <typename V>
TFO_FORMULA V Side(V lo, V hi) {
  return Greater(hi - lo, V{});
}

// True (all bits of the lane) if every coordinate is finite.
template <typename V>
TFO_FORMULA auto IsFinite(const Box<V>& b) {
  // Infinity and NaN minus themselves are NaN.
  return (b.x1 - b.x1 == V{}) & (b.y1 - b.y1 == V{}) & (b.x2 - b.x2 == V{}) &
         (b.y2 - b.y2 == V{});
}

// True if the box is finite and not inverted. It may have a side of 0.
template <typename V>
TFO_FORMULA auto IsWellFormed(const Box<V>& b) {
  return IsFinite(b) & (b.x1 <= b.x2) & (b.y1 <= b.y2);
}

// Any number if the box is not finite.
template <typename V>
TFO_FORMULA V Area(const Box<V>& b) {
  return Product(Side(b.x1, b.x2), Side(b.y1, b.y2));
}

// The area of the intersection; 0 if either box is inverted, any number if
// either is not finite.
template <typename V>
TFO_FORMULA V Intersection(const Box<V>& a, const Box<V>& b) {
  return Product(Side(Greater(a.x1, b.x1), Smaller(a.x2, b.x2)),
                 Side(Greater(a.y1, b.y1), Smaller(a.y2, b.y2)));
}

// The area of the union.
template <typename V>
TFO_FORMULA V Union(V area1, V area2, V intersection) {
  return area1 + area2 - intersection;
}

}  // namespace TFO_FORMULA_NAMESPACE
}  // namespace tfo

#endif  // TENSORFLOW_OPS_DETECTION_CC_KERNELS_BOX_H_
