// Rotated boxes (cx, cy, w, h, degrees): a corner (u, v) of the box without
// rotation lies at (cx + c u + s v, cy - s u + c v), c and s the angle's cosine
// and sine: counter-clockwise, seen with y pointing down. Formulas of float or
// double, not of vectors.
#ifndef TENSORFLOW_OPS_DETECTION_CC_KERNELS_BOXES_ROTATED_BOX_H_
#define TENSORFLOW_OPS_DETECTION_CC_KERNELS_BOXES_ROTATED_BOX_H_

#include <cmath>

#include "tensorflow_ops/core/cc/simd/elementwise.h"
#include "tensorflow_ops/detection/cc/kernels/boxes/box.h"

namespace tfo {
namespace TFO_FORMULA_NAMESPACE {

// C is float or double. Places and angles are double, so that boxes far from
// the origin keep their distance and equal angles cancel.
template <typename C>
struct RotatedBox {
  double cx, cy, cosine, sine;
  C w, h;
  C radius;     // of a circle around its corners
  bool finite;  // every number is
};

namespace rotated_internal {

// The cosine and sine of degrees: exact for multiples of 90. Whole angles that
// differ by such a multiple have the same numbers, up to order and sign.
TFO_FORMULA void CosineAndSine(double degrees, double* cosine, double* sine) {
  constexpr double kRadians = 3.14159265358979323846 / 180;
  const double turn = std::fmod(degrees, 360.0);          // exact
  const double quarters = std::floor(turn / 90.0 + 0.5);  // -4 .. 4
  const double rest = (turn - 90.0 * quarters) * kRadians;
  const double c = std::cos(rest), s = std::sin(rest);
  const int quadrant = static_cast<int>(quarters) & 3;
  *cosine = quadrant == 0 ? c : quadrant == 1 ? -s : quadrant == 2 ? -c : s;
  *sine = quadrant == 0 ? s : quadrant == 1 ? c : quadrant == 2 ? -s : -c;
}

// a b + c d without fusion: a b - b a is exactly 0.
template <typename C>
TFO_FORMULA C SumOfProducts(C a, C b, C c, C d) {
  return Product(a, b) + Product(c, d);
}

template <typename C>
struct Corner {
  C x, y;
};

// The radius of a circle around the corners: the smallest one, unless squares
// overflow or lose bits.
template <typename C>
TFO_FORMULA C RadiusOf(C w, C h) {
  const C square = w * w + h * h;
  return IsOrdinaryArea(square) ? C(0.5) * std::sqrt(square)
                                : C(0.5) * w + C(0.5) * h;
}

// Clips the polygon of n corners by the half-plane where the distance of
// (x, y), side - sign * coordinate, is not negative. Returns the number of
// corners, at most n + 1.
template <bool kAlongX, typename C>
TFO_FORMULA int ClipHalfPlane(const Corner<C>* from, int n, C sign, C side,
                              Corner<C>* to) {
  int count = 0;
  Corner<C> last = from[n - 1];
  C last_inside = side - sign * (kAlongX ? last.x : last.y);
  for (int i = 0; i < n; ++i) {
    const Corner<C> corner = from[i];
    const C inside = side - sign * (kAlongX ? corner.x : corner.y);
    if ((inside < 0) != (last_inside < 0)) {
      // One is negative, so the divisor is not 0.
      const C t = last_inside / (last_inside - inside);
      Corner<C> cut = {last.x + t * (corner.x - last.x),
                       last.y + t * (corner.y - last.y)};
      (kAlongX ? cut.x : cut.y) = sign * side;
      to[count++] = cut;
    }
    if (!(inside < 0)) to[count++] = corner;
    last = corner;
    last_inside = inside;
  }
  return count;
}

}  // namespace rotated_internal

// Reads the box at b, 5 numbers.
template <typename C>
TFO_FORMULA RotatedBox<C> ReadRotated(const C* b) {
  RotatedBox<C> box;
  box.cx = static_cast<double>(b[0]);
  box.cy = static_cast<double>(b[1]);
  box.w = b[2];
  box.h = b[3];
  // Infinity and NaN minus themselves are NaN.
  box.finite = b[0] - b[0] == 0 && b[1] - b[1] == 0 && b[2] - b[2] == 0 &&
               b[3] - b[3] == 0 && b[4] - b[4] == 0;
  rotated_internal::CosineAndSine(box.finite ? static_cast<double>(b[4]) : 0,
                                  &box.cosine, &box.sine);
  box.radius = rotated_internal::RadiusOf(box.w, box.h);
  return box;
}

// True if the box is finite and its width and height are positive.
template <typename C>
TFO_FORMULA bool HasExtent(const RotatedBox<C>& box) {
  return box.finite && box.w > 0 && box.h > 0;
}

namespace rotated_internal {

// True if the circles around two boxes, whose centers are (dx, dy) apart, do
// not meet.
template <typename C>
TFO_FORMULA bool AreApart(const RotatedBox<C>& a, const RotatedBox<C>& b,
                          double dx, double dy) {
  const C far_x = static_cast<C>(dx), far_y = static_cast<C>(dy);
  const C reach = a.radius + b.radius;
  return far_x * far_x + far_y * far_y > reach * reach;
}

// The area of the intersection of two boxes with an extent, whose centers are
// (dx, dy) apart. Identical boxes have exactly their area.
template <typename C>
TFO_FORMULA C Intersection(const RotatedBox<C>& a, const RotatedBox<C>& b,
                           double dx, double dy) {
  // b in the frame of a: its center, and the angle between them.
  const C x = static_cast<C>(SumOfProducts(dx, a.cosine, dy, -a.sine));
  const C y = static_cast<C>(SumOfProducts(dx, a.sine, dy, a.cosine));
  C c = static_cast<C>(SumOfProducts(a.cosine, b.cosine, a.sine, b.sine));
  C s = static_cast<C>(SumOfProducts(a.cosine, b.sine, a.sine, -b.cosine));
  // Parallel and perpendicular boxes exactly: cos^2 + sin^2 rounds.
  if (s == 0) c = c < 0 ? C(-1) : C(1);
  if (c == 0) s = s < 0 ? C(-1) : C(1);

  const C half_w = C(0.5) * b.w, half_h = C(0.5) * b.h;
  const C ux = c * half_w, uy = -s * half_w, vx = s * half_h, vy = c * half_h;
  Corner<C> corners[8] = {{x + ux + vx, y + uy + vy},
                          {x - ux + vx, y - uy + vy},
                          {x - ux - vx, y - uy - vy},
                          {x + ux - vx, y + uy - vy}};
  Corner<C> clipped[8];
  const C side_x = C(0.5) * a.w, side_y = C(0.5) * a.h;
  int n = ClipHalfPlane<true>(corners, 4, C(1), side_x, clipped);
  if (n == 0) return 0;
  n = ClipHalfPlane<true>(clipped, n, C(-1), side_x, corners);
  if (n == 0) return 0;
  n = ClipHalfPlane<false>(corners, n, C(1), side_y, clipped);
  if (n == 0) return 0;
  n = ClipHalfPlane<false>(clipped, n, C(-1), side_y, corners);
  C twice = 0;
  for (int i = 0; i < n; ++i) {
    const Corner<C> p = corners[i], q = corners[i + 1 < n ? i + 1 : 0];
    twice += SumOfProducts(p.x, q.y, -q.x, p.y);
  }
  return C(0.5) * (twice < 0 ? -twice : twice);
}

template <typename C>
TFO_FORMULA Overlap<C> OverlapAt(const RotatedBox<C>& a, const RotatedBox<C>& b,
                                 double dx, double dy) {
  const C intersection = Intersection(a, b, dx, dy);
  const C uni = Union(Product(a.w, a.h), Product(b.w, b.h), intersection);
  // Rounding may leave an intersection above its union.
  return {Smaller(intersection, uni), uni};
}

template <typename C>
TFO_FORMULA RotatedBox<C> ScaledSides(RotatedBox<C> box, C scale) {
  box.w *= scale;
  box.h *= scale;
  box.radius = RadiusOf(box.w, box.h);
  return box;
}

// (to - from) * scale. Neither product nor difference overflows.
TFO_FORMULA double ScaledDistance(double from, double to, double scale) {
  return scale < 1 ? to * scale - from * scale : (to - from) * scale;
}

}  // namespace rotated_internal

// Of finite boxes of any size.
template <typename C>
TFO_FORMULA Overlap<C> OverlapOf(const RotatedBox<C>& a,
                                 const RotatedBox<C>& b) {
  using rotated_internal::OverlapAt;
  using rotated_internal::ScaledDistance;
  using Sizes = OrdinarySizes<C>;
  const Overlap<C> none = {C(0), C(1)};
  double dx = b.cx - a.cx, dy = b.cy - a.cy;
  if (rotated_internal::AreApart(a, b, dx, dy)) return none;
  if (!(a.w > 0 && a.h > 0 && b.w > 0 && b.h > 0)) return none;
  const Overlap<C> overlap = OverlapAt(a, b, dx, dy);
  if (IsOrdinaryArea(overlap.uni)) return overlap;
  const C scale = overlap.uni < Sizes::kMinArea ? Sizes::kGrow : Sizes::kShrink;
  const RotatedBox<C> first = rotated_internal::ScaledSides(a, scale);
  const RotatedBox<C> second = rotated_internal::ScaledSides(b, scale);
  dx = ScaledDistance(a.cx, b.cx, scale);
  dy = ScaledDistance(a.cy, b.cy, scale);
  // Their squares may overflow.
  const double reach = static_cast<double>(first.radius + second.radius);
  if (std::abs(dx) > reach || std::abs(dy) > reach) return none;
  return OverlapAt(first, second, dx, dy);
}

// The IoU, NaN if either box is not finite.
template <typename C>
TFO_FORMULA C RotatedIou(const RotatedBox<C>& a, const RotatedBox<C>& b) {
  if (!a.finite || !b.finite) return C(NAN);
  const Overlap<C> overlap = OverlapOf(a, b);
  return Ratio(overlap.intersection, overlap.uni);
}

}  // namespace TFO_FORMULA_NAMESPACE
}  // namespace tfo

#endif  // TENSORFLOW_OPS_DETECTION_CC_KERNELS_BOXES_ROTATED_BOX_H_
