// Boxes as corners: formats, areas, intersections. Formulas (elementwise.h): V
// is float or double, also in CUDA, or in *_simd.cc files a vector.
//
// Nothing here adds an epsilon, and products are not fused with sums. So the
// intersection of two identical boxes is exactly their area, and so is area +
// area - intersection.
//
// Quotients of areas are correct for boxes of any size: where an area overflows
// or loses bits, lengths are multiplied by powers of two, which is exact.
#ifndef TENSORFLOW_OPS_DETECTION_CC_KERNELS_BOXES_BOX_H_
#define TENSORFLOW_OPS_DETECTION_CC_KERNELS_BOXES_BOX_H_

#include <cmath>
#include <type_traits>
#include <utility>

#include "tensorflow_ops/core/cc/float16.h"
#include "tensorflow_ops/core/cc/simd/elementwise.h"

namespace tfo {

enum class BoxFormat {
  kXyxy,     // (x1, y1, x2, y2)
  kYxyx,     // (y1, x1, y2, x2)
  kRotated,  // (cx, cy, w, h, degrees): rotated_box.h
};
inline constexpr std::pair<const char*, BoxFormat> kBoxFormats[] = {
    {"xyxy", BoxFormat::kXyxy},
    {"yxyx", BoxFormat::kYxyx},
    {"cxcywhr", BoxFormat::kRotated}};

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

// Returns the greater (smaller) one, or b if either is NaN.
template <typename V>
TFO_FORMULA V Greater(V a, V b) {
  return a > b ? a : b;
}
template <typename V>
TFO_FORMULA V Smaller(V a, V b) {
  return a < b ? a : b;
}

// Returns hi - lo, or 0 if hi is below lo or the difference is NaN.
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

// True if the box is finite and its width and height are positive.
template <typename V>
TFO_FORMULA auto HasExtent(const Box<V>& b) {
  return IsFinite(b) & (b.x1 < b.x2) & (b.y1 < b.y2);
}

// Unspecified if the box is not finite.
template <typename V>
TFO_FORMULA V Area(const Box<V>& b) {
  return Product(Side(b.x1, b.x2), Side(b.y1, b.y2));
}

// The area of the intersection: 0 if either box is inverted, unspecified if
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

// n / d, 0 if d is 0.
template <typename V>
TFO_FORMULA V Ratio(V n, V d) {
  return d == V{} ? V{} : n / d;
}

// The sides of the smallest box around both.
template <typename V>
struct Hull {
  V w, h;
};
template <typename V>
TFO_FORMULA Hull<V> HullOf(const Box<V>& a, const Box<V>& b) {
  return {Side(Smaller(a.x1, b.x1), Greater(a.x2, b.x2)),
          Side(Smaller(a.y1, b.y1), Greater(a.y2, b.y2))};
}

// Returns whether the condition holds in all lanes.
template <typename Mask>
TFO_FORMULA bool InAllLanes(Mask condition) {
  if constexpr (std::is_integral_v<Mask>) {
    return condition;
  } else {
    return !AnyLane(~condition);
  }
}

// The sizes for which sums and quotients of areas have full precision, and the
// powers of two that scale other sizes into this range.
template <typename Value>
struct OrdinarySizes {
  static constexpr bool kFloat = sizeof(Value) == 4;
  static constexpr Value kMinArea =
      static_cast<Value>(kFloat ? 0x1p-100 : 0x1p-960);
  static constexpr Value kMaxArea =
      static_cast<Value>(kFloat ? 0x1p126 : 0x1p1022);
  static constexpr Value kMinSide =
      static_cast<Value>(kFloat ? 0x1p-50 : 0x1p-400);
  static constexpr Value kMaxSide =
      static_cast<Value>(kFloat ? 0x1p50 : 0x1p400);
  static constexpr Value kGrow = static_cast<Value>(kFloat ? 0x1p75 : 0x1p611);
  static constexpr Value kShrink =
      static_cast<Value>(kFloat ? 0x1p-75 : 0x1p-611);
};

// True if dividing this or a smaller area by this one has full precision; false
// for NaN.
template <typename V>
TFO_FORMULA auto IsOrdinaryArea(V area) {
  using Value = ScalarOf<V>;
  return (area >= OrdinarySizes<Value>::kMinArea) & (area < Value(INFINITY));
}

// True if any two boxes with such areas have a union with an ordinary area.
template <typename V>
TFO_FORMULA auto HasOrdinaryUnions(V area) {
  using Sizes = OrdinarySizes<ScalarOf<V>>;
  return (area >= Sizes::kMinArea) & (area <= Sizes::kMaxArea);
}

// The factor for sides up to this length.
template <typename V>
TFO_FORMULA V ScaleOf(V side) {
  using Value = ScalarOf<V>;
  using Sizes = OrdinarySizes<Value>;
  const V one = Broadcast<V>(Value(1)), grow = Broadcast<V>(Sizes::kGrow);
  const V shrink = Broadcast<V>(Sizes::kShrink);
  const V of_small = (side > V{}) & (side < Sizes::kMinSide) ? grow : one;
  return side > Sizes::kMaxSide ? shrink : of_small;
}

// Two boxes, with x and y multiplied by factors. Lengths of finite boxes that
// are not inverted are finite.
template <typename V>
struct ScaledBoxes {
  Box<V> a, b;
  V x, y;
};
template <typename V>
TFO_FORMULA Box<V> ScaledBox(const Box<V>& b, V x, V y) {
  return {b.x1 * x, b.y1 * y, b.x2 * x, b.y2 * y};
}
// A factor for each axis: quotients of areas remain.
template <typename V>
TFO_FORMULA ScaledBoxes<V> ScaleAxes(const Box<V>& a, const Box<V>& b) {
  const Hull<V> hull = HullOf(a, b);
  const V x = ScaleOf(hull.w), y = ScaleOf(hull.h);
  return {ScaledBox(a, x, y), ScaledBox(b, x, y), x, y};
}

// Areas of a pair, in a unit of the pair's own.
template <typename V>
struct Overlap {
  V intersection, uni;
};

// area1 and area2 are those of a and b, or NaN. Meaningless unless
// IsOrdinaryArea(uni).
template <typename V>
TFO_FORMULA Overlap<V> OrdinaryOverlap(const Box<V>& a, V area1,
                                       const Box<V>& b, V area2) {
  const V intersection = Intersection(a, b);
  return {intersection, Union(area1, area2, intersection)};
}

// Of finite boxes of any size.
template <typename V>
TFO_FORMULA Overlap<V> OverlapOf(const ScaledBoxes<V>& boxes) {
  return OrdinaryOverlap(boxes.a, Area(boxes.a), boxes.b, Area(boxes.b));
}

// The same; without kAnySize, only for boxes with ordinary unions.
template <bool kAnySize, typename V>
TFO_FORMULA Overlap<V> OverlapOf(const Box<V>& a, V area1, const Box<V>& b,
                                 V area2) {
  const Overlap<V> overlap = OrdinaryOverlap(a, area1, b, area2);
  if constexpr (!kAnySize) return overlap;
  const auto fits = IsOrdinaryArea(overlap.uni);
  if (__builtin_expect(InAllLanes(fits), 1)) return overlap;
  const Overlap<V> scaled = OverlapOf(ScaleAxes(a, b));
  return {fits ? overlap.intersection : scaled.intersection,
          fits ? overlap.uni : scaled.uni};
}

}  // namespace TFO_FORMULA_NAMESPACE
}  // namespace tfo

#endif  // TENSORFLOW_OPS_DETECTION_CC_KERNELS_BOXES_BOX_H_
