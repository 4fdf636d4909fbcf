// The metrics that box_iou.h defines, and their gradients: formulas
// (elementwise.h) of a pair of boxes.
#ifndef TENSORFLOW_OPS_DETECTION_CC_KERNELS_BOX_METRIC_H_
#define TENSORFLOW_OPS_DETECTION_CC_KERNELS_BOX_METRIC_H_

#include "tensorflow_ops/core/cc/elementwise.h"
#include "tensorflow_ops/detection/cc/kernels/box.h"

namespace tfo {
namespace TFO_FORMULA_NAMESPACE {

// Does the condition hold in all lanes?
#ifdef TFO_CPU_NAMESPACE
template <typename Mask>
TFO_FORMULA bool InAllLanes(Mask condition) {
  return !AnyLane(~condition);
}
#else
TFO_FORMULA bool InAllLanes(bool condition) { return condition; }
#endif

// A box with what its pairs need of it.
template <typename V>
struct MeasuredBox {
  Box<V> box;
  V area;   // NaN, and therefore every metric, unless the box is finite
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

template <typename V>
TFO_FORMULA V AreaOrNan(const Box<V>& b) {
  return IsFinite(b) ? Area(b) : V{} + ScalarOf<V>(NAN);
}

// atan2(w, h), also where w or h overflow.
template <typename V>
TFO_FORMULA V DiagonalAngle(const Box<V>& b) {
  constexpr ScalarOf<V> kQuarter = 0.25;
  return QuadrantAngle(Side(kQuarter * b.x1, kQuarter * b.x2),
                       Side(kQuarter * b.y1, kQuarter * b.y2));
}

// The difference of two DiagonalAngles in one function; NaN where products of
// sides overflow.
template <typename V>
TFO_FORMULA V AngleBetween(const Box<V>& a, const Box<V>& b) {
  const V zero{}, one = V{} + ScalarOf<V>(1);
  const V w1 = Width(a), w2 = Width(b);
  // A point has angle 0, as a box of width 0.
  V h1 = Height(a), h2 = Height(b);
  h1 = Greater(w1, h1) == zero ? one : h1;
  h2 = Greater(w2, h2) == zero ? one : h2;
  const V sine = Product(w1, h2) - Product(w2, h1);
  const V cosine = Product(h1, h2) + Product(w1, w2);
  const V angle = QuadrantAngle(sine < zero ? -sine : sine, cosine);
  return sine < zero ? -angle : angle;
}

// n / d, 0 if d is 0.
template <typename V>
TFO_FORMULA V Ratio(V n, V d) {
  return d == V{} ? V{} : n / d;
}

// 1 / d, 0 if d is so small that the inverse could overflow.
template <typename V>
TFO_FORMULA V Inverse(V d) {
  using Value = ScalarOf<V>;
  constexpr Value kSmallest =
      sizeof(Value) == 4 ? Value(0x1p-126) : Value(0x1p-1022);
  return d < kSmallest ? V{} : Value(1) / d;
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
template <typename V>
TFO_FORMULA V SquaredDiagonal(const Hull<V>& hull) {
  return Product(hull.w, hull.w) + Product(hull.h, hull.h);
}

// What kDiou compares: from the center of a to that of b.
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

// The metric. Where *largest is not finite, a number on the way overflowed or a
// box is not finite.
template <BoxMetric kMetric, typename V>
TFO_FORMULA V MetricWithin(const MeasuredBox<V>& a, const MeasuredBox<V>& b,
                           V angle_between, V* largest) {
  const V intersection = Intersection(a.box, b.box);
  const V uni = Union(a.area, b.area, intersection);
  const V iou = Ratio(intersection, uni);
  *largest = uni;
  if constexpr (kMetric == BoxMetric::kIou) return iou;
  const Hull<V> sides = HullOf(a.box, b.box);
  if constexpr (kMetric == BoxMetric::kGiou) {
    const V hull = Product(sides.w, sides.h);
    *largest = uni + hull;
    return iou - Ratio(hull - uni, hull);
  }
  const V diagonal = SquaredDiagonal(sides);
  const V distance = SquaredDistance(CenterOffset(a.box, b.box));
  *largest = uni + diagonal + distance;
  V metric = iou - Ratio(distance, diagonal);
  if constexpr (kMetric == BoxMetric::kCiou) {
    const Aspect<V> aspect = AspectOf(iou, angle_between);
    metric -= Product(aspect.alpha, aspect.v);
  }
  return metric;
}

// Boxes times kShrink: no square of their sides overflows.
template <typename V>
inline constexpr ScalarOf<V> kShrink =
    sizeof(ScalarOf<V>) == 4 ? ScalarOf<V>(0x1p-70) : ScalarOf<V>(0x1p-520);
template <typename V>
TFO_FORMULA MeasuredBox<V> Shrunk(const MeasuredBox<V>& of) {
  constexpr ScalarOf<V> kScale = kShrink<V>;
  const Box<V> b = {of.box.x1 * kScale, of.box.y1 * kScale, of.box.x2 * kScale,
                    of.box.y2 * kScale};
  return {b, AreaOrNan(b), of.angle};
}

template <typename V>
TFO_FORMULA V Infinite() {
  return V{} + ScalarOf<V>(INFINITY);
}

// The difference of angles again, as AngleBetween does not return it for large
// boxes.
template <BoxMetric kMetric, typename V>
TFO_FORMULA V AngleBetweenLarge(const MeasuredBox<V>& a,
                                const MeasuredBox<V>& b) {
  if constexpr (kMetric != BoxMetric::kCiou) return V{};
  return DiagonalAngle(a.box) - DiagonalAngle(b.box);
}

// The metric; NaN if either box is not finite.
template <BoxMetric kMetric, typename V>
TFO_FORMULA V MetricOf(const MeasuredBox<V>& a, const MeasuredBox<V>& b,
                       V angle_between) {
  V largest;
  const V metric = MetricWithin<kMetric>(a, b, angle_between, &largest);
  const auto fits = largest < Infinite<V>();
  if (__builtin_expect(InAllLanes(fits), 1)) return metric;
  const V again = MetricWithin<kMetric>(
      Shrunk(a), Shrunk(b), AngleBetweenLarge<kMetric>(a, b), &largest);
  return fits ? metric : again;
}

// How max(a, b) changes with a: equal values share.
template <typename V>
TFO_FORMULA V ShareOfGreater(V a, V b) {
  using Value = ScalarOf<V>;
  const V one = V{} + Value(1), half = V{} + Value(0.5);
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

// From these to the corners on one axis.
template <typename V>
TFO_FORMULA void GradOfAxis(const SideGradients<V>& d, Ends<V> a, Ends<V> b,
                            Ends<V>* d_a, Ends<V>* d_b) {
  using Value = ScalarOf<V>;
  const V one = V{} + Value(1), zero{};
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

// The gradient of the metric. *largest as in MetricWithin.
template <BoxMetric kMetric, typename V>
TFO_FORMULA BoxPair<V> GradWithin(const MeasuredBox<V>& a,
                                  const MeasuredBox<V>& b, V angle_between,
                                  V* largest) {
  using Value = ScalarOf<V>;
  const V zero{};
  const V w1 = Width(a.box), h1 = Height(a.box);
  const V w2 = Width(b.box), h2 = Height(b.box);
  const V shared_w =
      Side(Greater(a.box.x1, b.box.x1), Smaller(a.box.x2, b.box.x2));
  const V shared_h =
      Side(Greater(a.box.y1, b.box.y1), Smaller(a.box.y2, b.box.y2));
  const V intersection = Product(shared_w, shared_h);
  const V uni = Union(a.area, b.area, intersection);
  const V inverse = Inverse(uni), iou = Ratio(intersection, uni);
  *largest = uni;
  const Hull<V> hull = HullOf(a.box, b.box);

  V of_union = -Product(iou, inverse);
  V hull_w = zero, hull_h = zero;
  Offset<V> of_offset = {zero, zero};
  if constexpr (kMetric == BoxMetric::kGiou) {
    const V area = Product(hull.w, hull.h), of_area = Inverse(area);
    *largest = uni + area;
    of_union += of_area;
    const V of_hull = -Product(Ratio(uni, area), of_area);
    hull_w = Product(of_hull, hull.h);
    hull_h = Product(of_hull, hull.w);
  }
  if constexpr (kMetric == BoxMetric::kDiou || kMetric == BoxMetric::kCiou) {
    const V diagonal = SquaredDiagonal(hull), of_square = Inverse(diagonal);
    const Offset<V> offset = CenterOffset(a.box, b.box);
    const V distance = SquaredDistance(offset);
    *largest = uni + diagonal + distance;
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
    const V turn = Value(-2 * kAspectScale) *
                   AspectOf(iou, angle_between).alpha * angle_between;
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
      {a.box.x1, a.box.x2}, {b.box.x1, b.box.x2}, &x1, &x2);
  GradOfAxis<V>(
      {Product(of_intersection, shared_w), d_h1, d_h2, hull_h, of_offset.y},
      {a.box.y1, a.box.y2}, {b.box.y1, b.box.y2}, &y1, &y2);
  return {{x1.low, y1.low, x1.high, y1.high},
          {x2.low, y2.low, x2.high, y2.high}};
}

// b where `keeps`, else the other.
template <typename V, typename Mask>
TFO_FORMULA Box<V> Select(Mask keeps, const Box<V>& b, const Box<V>& other) {
  return {keeps ? b.x1 : other.x1, keeps ? b.y1 : other.y1,
          keeps ? b.x2 : other.x2, keeps ? b.y2 : other.y2};
}
template <typename V>
TFO_FORMULA Box<V> Times(const Box<V>& b, V factor) {
  return {b.x1 * factor, b.y1 * factor, b.x2 * factor, b.y2 * factor};
}

// `d` times the gradient of the metric; 0 if either box is not finite.
template <BoxMetric kMetric, typename V>
TFO_FORMULA BoxPair<V> GradOfMetric(const MeasuredBox<V>& a,
                                    const MeasuredBox<V>& b, V angle_between,
                                    V d) {
  V largest;
  BoxPair<V> grad = GradWithin<kMetric>(a, b, angle_between, &largest);
  const auto fits = largest < Infinite<V>();
  if (__builtin_expect(!InAllLanes(fits), 0)) {
    const BoxPair<V> again = GradWithin<kMetric>(
        Shrunk(a), Shrunk(b), AngleBetweenLarge<kMetric>(a, b), &largest);
    const V scale = V{} + kShrink<V>;
    const auto fits_now = largest < Infinite<V>();
    const Box<V> none{};
    grad.a =
        Select(fits, grad.a, Select(fits_now, Times(again.a, scale), none));
    grad.b =
        Select(fits, grad.b, Select(fits_now, Times(again.b, scale), none));
    // 0 for such a pair, even if d is not finite.
    d = fits_now ? d : V{};
  }
  return {Times(grad.a, d), Times(grad.b, d)};
}

}  // namespace TFO_FORMULA_NAMESPACE
}  // namespace tfo

#endif  // TENSORFLOW_OPS_DETECTION_CC_KERNELS_BOX_METRIC_H_
