// The metrics that box_iou.h defines, and their gradients: formulas
// (elementwise.h) of a pair of boxes.
#ifndef TENSORFLOW_OPS_DETECTION_CC_KERNELS_BOXES_BOX_METRIC_H_
#define TENSORFLOW_OPS_DETECTION_CC_KERNELS_BOXES_BOX_METRIC_H_

#include "tensorflow_ops/core/cc/simd/elementwise.h"
#include "tensorflow_ops/detection/cc/kernels/boxes/box.h"

namespace tfo {
namespace TFO_FORMULA_NAMESPACE {

// A box, with numbers that its pairs share.
template <typename V>
struct MeasuredBox {
  Box<V> box;
  V area;   // AreaOrNan
  V angle;  // of its diagonal; only for kCiou
};

template <typename V>
TFO_FORMULA V Width(const Box<V>& b) {
  return Side(b.x1, b.x2);
}
template <typename V>
TFO_FORMULA V Height(const Box<V>& b) {
  return Side(b.y1, b.y2);
}

// NaN if the box is not finite, or if the sum of its coordinates is not.
template <typename V>
TFO_FORMULA V AreaOrNan(const Box<V>& b) {
  return Area(b) + Product(V{}, b.x1 + b.x2 + (b.y1 + b.y2));
}

// atan2(w, h) for boxes of any size.
template <typename V>
TFO_FORMULA V DiagonalAngle(const Box<V>& b) {
  const V scale = ScaleOf(Greater(Width(b), Height(b)));
  const Box<V> scaled = ScaledBox(b, scale, scale);
  return QuadrantAngle(Width(scaled), Height(scaled));
}

// The difference of two DiagonalAngles in one function; NaN where products of
// sides overflow or lose bits.
template <typename V>
TFO_FORMULA V AngleBetween(const Box<V>& a, const Box<V>& b) {
  const V zero{}, one = Broadcast<V>(ScalarOf<V>(1));
  const V w1 = Width(a), w2 = Width(b);
  // A point has angle 0, as a box of width 0.
  V h1 = Height(a), h2 = Height(b);
  h1 = Greater(w1, h1) == zero ? one : h1;
  h2 = Greater(w2, h2) == zero ? one : h2;
  const V sine = Product(w1, h2) - Product(w2, h1);
  const V cosine = Product(h1, h2) + Product(w1, w2);
  const V size = sine < zero ? -sine : sine;
  const V angle = QuadrantAngle(size, cosine);
  const V nan = Broadcast<V>(ScalarOf<V>(NAN));
  return IsOrdinaryArea(cosine + size) ? (sine < zero ? -angle : angle) : nan;
}

// 1 / d, 0 if d is so small that the inverse could overflow.
template <typename V>
TFO_FORMULA V Inverse(V d) {
  using Value = ScalarOf<V>;
  constexpr Value kSmallest =
      sizeof(Value) == 4 ? Value(0x1p-126) : Value(0x1p-1022);
  return d < kSmallest ? V{} : Value(1) / d;
}

template <typename V>
TFO_FORMULA V SquaredDiagonal(const Hull<V>& hull) {
  return Product(hull.w, hull.w) + Product(hull.h, hull.h);
}

// From the center of a to that of b, which kDiou compares.
template <typename V>
struct Offset {
  V x, y;
};
template <typename V>
TFO_FORMULA Offset<V> CenterOffset(const Box<V>& a, const Box<V>& b) {
  const ScalarOf<V> half = ScalarOf<V>(0.5);
  return {half * b.x1 - half * a.x1 + (half * b.x2 - half * a.x2),
          half * b.y1 - half * a.y1 + (half * b.y2 - half * a.y2)};
}
template <typename V>
TFO_FORMULA V SquaredDistance(const Offset<V>& d) {
  return Product(d.x, d.x) + Product(d.y, d.y);
}

// 4 / pi^2, and for kCiou v and alpha.
inline constexpr double kAspectScale = 0.40528473456935109;
template <typename V>
struct Aspect {
  V v, alpha;
};
template <typename V>
TFO_FORMULA Aspect<V> AspectOf(V iou, V angle_between) {
  using Value = ScalarOf<V>;
  const V v = Value(kAspectScale) * Product(angle_between, angle_between);
  return {v, Ratio(v, Value(1) - iou + v)};
}

// The metric of two boxes, given their IoU and the area of their union, which
// only kGiou reads. *largest is the largest intermediate result, or NaN if any
// is NaN.
template <BoxMetric kMetric, typename V>
TFO_FORMULA V MetricFrom(const Box<V>& a, const Box<V>& b, V iou, V uni,
                         V angle_between, V* largest) {
  *largest = V{};
  if constexpr (kMetric == BoxMetric::kIou) return iou;
  const Hull<V> sides = HullOf(a, b);
  if constexpr (kMetric == BoxMetric::kGiou) {
    const V hull = Product(sides.w, sides.h);
    *largest = hull;
    return iou - Ratio(hull - uni, hull);
  }
  const V diagonal = SquaredDiagonal(sides);
  const V distance = SquaredDistance(CenterOffset(a, b));
  *largest = diagonal + distance;
  V metric = iou - Ratio(distance, diagonal);
  if constexpr (kMetric == BoxMetric::kCiou) {
    const Aspect<V> aspect = AspectOf(iou, angle_between);
    *largest += aspect.v;
    metric -= Product(aspect.alpha, aspect.v);
  }
  return metric;
}

// One factor for both axes: quotients of lengths remain, too.
template <typename V>
TFO_FORMULA ScaledBoxes<V> ScaleAlike(const Box<V>& a, const Box<V>& b) {
  const Hull<V> hull = HullOf(a, b);
  V scale = ScaleOf(Greater(hull.w, hull.h));
  // Inverted boxes may have a small hull and be large.
  const V one = Broadcast<V>(ScalarOf<V>(1));
  scale = IsFinite(ScaledBox(a, scale, scale)) &
                  IsFinite(ScaledBox(b, scale, scale))
              ? scale
              : one;
  return {ScaledBox(a, scale, scale), ScaledBox(b, scale, scale), scale, scale};
}

// Boxes in units in which the terms beyond the iou have full precision.
template <BoxMetric kMetric, typename V>
TFO_FORMULA ScaledBoxes<V> ScaleFor(const Box<V>& a, const Box<V>& b) {
  if constexpr (kMetric == BoxMetric::kIou || kMetric == BoxMetric::kGiou) {
    return ScaleAxes(a, b);
  }
  return ScaleAlike(a, b);
}

// The difference of angles where AngleBetween returns NaN.
template <BoxMetric kMetric, typename V>
TFO_FORMULA V AngleBetweenAny(const Box<V>& a, const Box<V>& b) {
  if constexpr (kMetric != BoxMetric::kCiou) return V{};
  return DiagonalAngle(a) - DiagonalAngle(b);
}

// Returns whether all numbers of a metric are ordinary.
template <typename V>
TFO_FORMULA auto Fits(V uni, V largest) {
  return (uni >= OrdinarySizes<ScalarOf<V>>::kMinArea) &
         (uni + largest < ScalarOf<V>(INFINITY));
}

// True if the numbers of any metric are ordinary for every pair of such boxes,
// provided that one has the least ordinary area of a union.
template <typename V>
TFO_FORMULA auto HasOrdinaryPlace(const Box<V>& b) {
  constexpr auto kMax = OrdinarySizes<ScalarOf<V>>::kMaxSide;
  return (b.x1 >= -kMax) & (b.x1 <= kMax) & (b.x2 >= -kMax) & (b.x2 <= kMax) &
         (b.y1 >= -kMax) & (b.y1 <= kMax) & (b.y2 >= -kMax) & (b.y2 <= kMax);
}

// The metric; NaN if either box is not finite. Without kAnySize, both boxes
// must satisfy HasOrdinaryPlace, and one must have an area of at least
// kMinArea.
template <BoxMetric kMetric, bool kAnySize = true, typename V>
TFO_FORMULA V MetricOf(const MeasuredBox<V>& a, const MeasuredBox<V>& b,
                       V angle_between) {
  V largest;
  const Overlap<V> overlap = OrdinaryOverlap(a.box, a.area, b.box, b.area);
  const V metric = MetricFrom<kMetric>(a.box, b.box,
                                       Ratio(overlap.intersection, overlap.uni),
                                       overlap.uni, angle_between, &largest);
  if constexpr (!kAnySize) return metric;
  const auto fits = Fits(overlap.uni, largest);
  if (__builtin_expect(InAllLanes(fits), 1)) return metric;
  const Overlap<V> of_axes = OverlapOf(ScaleAxes(a.box, b.box));
  const ScaledBoxes<V> scaled = ScaleFor<kMetric>(a.box, b.box);
  const V again = MetricFrom<kMetric>(
      scaled.a, scaled.b, Ratio(of_axes.intersection, of_axes.uni), of_axes.uni,
      AngleBetweenAny<kMetric>(a.box, b.box), &largest);
  const V nan = Broadcast<V>(ScalarOf<V>(NAN));
  return fits ? metric : (IsFinite(a.box) & IsFinite(b.box) ? again : nan);
}

// The derivative of max(a, b) to a: 1/2 where they are equal.
template <typename V>
TFO_FORMULA V ShareOfGreater(V a, V b) {
  using Value = ScalarOf<V>;
  const V one = Broadcast<V>(Value(1)), half = Broadcast<V>(Value(0.5));
  return a > b ? one : (a == b ? half : V{});
}

// The gradients to the corners of two boxes.
template <typename V>
struct BoxPair {
  Box<V> a, b;
};

// The gradients of the numbers that an axis enters with: the sides of the
// intersection, of the boxes, of the hull, and the offset of the centers.
template <typename V>
struct SideGradients {
  V intersection, a, b, hull, offset;
};

template <typename V>
struct Ends {
  V low, high;
};

// Returns the gradients to the corners on one axis from these.
template <typename V>
TFO_FORMULA void GradOfAxis(const SideGradients<V>& d, Ends<V> a, Ends<V> b,
                            Ends<V>* d_a, Ends<V>* d_b) {
  using Value = ScalarOf<V>;
  const V one = Broadcast<V>(Value(1)), zero{};
  // a's share of the intersection's ends; the hull's are the other way round.
  const V low = ShareOfGreater(a.low, b.low);
  const V high = ShareOfGreater(b.high, a.high);
  const V inner =
      d.intersection *
      ShareOfGreater(Smaller(a.high, b.high) - Greater(a.low, b.low), zero);
  const V outer =
      d.hull *
      ShareOfGreater(Greater(a.high, b.high) - Smaller(a.low, b.low), zero);
  const V of_a = d.a * ShareOfGreater(a.high - a.low, zero);
  const V of_b = d.b * ShareOfGreater(b.high - b.low, zero);
  const V center = Value(0.5) * d.offset;
  d_a->high = inner * high + outer * (one - high) + of_a - center;
  d_a->low = -(inner * low + outer * (one - low) + of_a) - center;
  d_b->high = inner * (one - high) + outer * high + of_b + center;
  d_b->low = -(inner * (one - low) + outer * low + of_b) + center;
}

// The gradient of MetricFrom's metric. inverse: 1 / uni, or 0 without the
// gradient of the iou.
template <BoxMetric kMetric, typename V>
TFO_FORMULA BoxPair<V> GradFrom(const Box<V>& a, const Box<V>& b, V iou, V uni,
                                V inverse, V angle_between, V* largest) {
  using Value = ScalarOf<V>;
  const V zero{};
  const V w1 = Width(a), h1 = Height(a), w2 = Width(b), h2 = Height(b);
  const V shared_w = Side(Greater(a.x1, b.x1), Smaller(a.x2, b.x2));
  const V shared_h = Side(Greater(a.y1, b.y1), Smaller(a.y2, b.y2));
  *largest = zero;
  const Hull<V> hull = HullOf(a, b);

  V of_union = -Product(iou, inverse);
  V hull_w = zero, hull_h = zero;
  Offset<V> of_offset = {zero, zero};
  if constexpr (kMetric == BoxMetric::kGiou) {
    const V area = Product(hull.w, hull.h), of_area = Inverse(area);
    *largest = area;
    of_union += of_area;
    const V of_hull = -Product(Ratio(uni, area), of_area);
    hull_w = Product(of_hull, hull.h);
    hull_h = Product(of_hull, hull.w);
  }
  if constexpr (kMetric == BoxMetric::kDiou || kMetric == BoxMetric::kCiou) {
    const V diagonal = SquaredDiagonal(hull), of_square = Inverse(diagonal);
    const Offset<V> offset = CenterOffset(a, b);
    const V distance = SquaredDistance(offset);
    *largest = diagonal + distance;
    const V of_diagonal = Value(2) * Product(distance * of_square, of_square);
    hull_w = Product(of_diagonal, hull.w);
    hull_h = Product(of_diagonal, hull.h);
    of_offset = {Value(-2) * offset.x * of_square,
                 Value(-2) * offset.y * of_square};
  }
  const V of_intersection = inverse - of_union;
  V d_w1 = Product(of_union, h1), d_h1 = Product(of_union, w1);
  V d_w2 = Product(of_union, h2), d_h2 = Product(of_union, w2);
  if constexpr (kMetric == BoxMetric::kCiou) {
    const Aspect<V> aspect = AspectOf(iou, angle_between);
    *largest += aspect.v;
    const V turn = Value(-2 * kAspectScale) * aspect.alpha * angle_between;
    const V turn1 = turn * Inverse(Product(w1, w1) + Product(h1, h1));
    const V turn2 = turn * Inverse(Product(w2, w2) + Product(h2, h2));
    d_w1 += turn1 * h1;
    d_h1 -= turn1 * w1;
    d_w2 -= turn2 * h2;
    d_h2 += turn2 * w2;
  }
  Ends<V> x1, x2, y1, y2;
  GradOfAxis<V>(
      {Product(of_intersection, shared_h), d_w1, d_w2, hull_w, of_offset.x},
      {a.x1, a.x2}, {b.x1, b.x2}, &x1, &x2);
  GradOfAxis<V>(
      {Product(of_intersection, shared_w), d_h1, d_h2, hull_h, of_offset.y},
      {a.y1, a.y2}, {b.y1, b.y2}, &y1, &y2);
  return {{x1.low, y1.low, x1.high, y1.high},
          {x2.low, y2.low, x2.high, y2.high}};
}

// Returns b where `keeps` is true, else the other.
template <typename V, typename Mask>
TFO_FORMULA Box<V> Select(Mask keeps, const Box<V>& b, const Box<V>& other) {
  return {keeps ? b.x1 : other.x1, keeps ? b.y1 : other.y1,
          keeps ? b.x2 : other.x2, keeps ? b.y2 : other.y2};
}

// From gradients to scaled boxes to those of the boxes.
template <typename V>
TFO_FORMULA BoxPair<V> Unscaled(const BoxPair<V>& d, const ScaledBoxes<V>& by) {
  return {ScaledBox(d.a, by.x, by.y), ScaledBox(d.b, by.x, by.y)};
}
template <typename V>
TFO_FORMULA Box<V> Sum(const Box<V>& a, const Box<V>& b) {
  return {a.x1 + b.x1, a.y1 + b.y1, a.x2 + b.x2, a.y2 + b.y2};
}

// The gradient to finite boxes of any size. *largest as in MetricFrom.
template <BoxMetric kMetric, typename V>
TFO_FORMULA BoxPair<V> GradOfAnySize(const Box<V>& a, const Box<V>& b,
                                     V* largest) {
  const ScaledBoxes<V> axes = ScaleAxes(a, b);
  const Overlap<V> overlap = OverlapOf(axes);
  const V uni = overlap.uni, iou = Ratio(overlap.intersection, uni);
  const BoxPair<V> of_iou =
      Unscaled(GradFrom<BoxMetric::kIou>(axes.a, axes.b, iou, uni, Inverse(uni),
                                         V{}, largest),
               axes);
  if constexpr (kMetric == BoxMetric::kIou) return of_iou;
  const ScaledBoxes<V> scaled = ScaleFor<kMetric>(a, b);
  const BoxPair<V> of_rest =
      Unscaled(GradFrom<kMetric>(scaled.a, scaled.b, iou, uni, V{},
                                 AngleBetweenAny<kMetric>(a, b), largest),
               scaled);
  return {Sum(of_iou.a, of_rest.a), Sum(of_iou.b, of_rest.b)};
}

// `d` times the gradient of the metric; 0 if either box is not finite.
template <BoxMetric kMetric, typename V>
TFO_FORMULA BoxPair<V> GradOfMetric(const MeasuredBox<V>& a,
                                    const MeasuredBox<V>& b, V angle_between,
                                    V d) {
  V largest;
  const Overlap<V> overlap = OrdinaryOverlap(a.box, a.area, b.box, b.area);
  BoxPair<V> grad = GradFrom<kMetric>(
      a.box, b.box, Ratio(overlap.intersection, overlap.uni), overlap.uni,
      Inverse(overlap.uni), angle_between, &largest);
  const auto fits = Fits(overlap.uni, largest);
  if (__builtin_expect(!InAllLanes(fits), 0)) {
    const BoxPair<V> again = GradOfAnySize<kMetric>(a.box, b.box, &largest);
    const auto fits_now =
        IsFinite(a.box) & IsFinite(b.box) & (largest < ScalarOf<V>(INFINITY));
    const Box<V> none{};
    grad.a = Select(fits, grad.a, Select(fits_now, again.a, none));
    grad.b = Select(fits, grad.b, Select(fits_now, again.b, none));
    // 0 for such a pair, even if d is not finite.
    d = fits_now ? d : V{};
  }
  return {ScaledBox(grad.a, d, d), ScaledBox(grad.b, d, d)};
}

}  // namespace TFO_FORMULA_NAMESPACE
}  // namespace tfo

#endif  // TENSORFLOW_OPS_DETECTION_CC_KERNELS_BOXES_BOX_METRIC_H_
