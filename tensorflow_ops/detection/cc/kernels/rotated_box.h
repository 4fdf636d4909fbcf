// Rotated boxes (cx, cy, w, h, degrees): a corner (u, v) of the box without
// rotation lies at (cx + c u + s v, cy - s u + c v), c and s the angle's cosine
// and sine: counter-clockwise, seen with y pointing down. Formulas of float or
// double, not of vectors.
#ifndef TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROTATED_BOX_H_
#define TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROTATED_BOX_H_

#include <cmath>

#include "tensorflow_ops/core/cc/elementwise.h"
#include "tensorflow_ops/detection/cc/kernels/box.h"

namespace tfo {
namespace TFO_FORMULA_NAMESPACE {

// C is float or double. Places and angles are double, so that boxes far from
// the origin keep their distance and equal angles cancel.
template <typename C>
struct RotatedBox {
  double cx, cy, cosine, sine;
  C w, h;
  C radius;          // of the circle around its corners
  bool finite;       // every number is
  bool well_formed;  // finite, w >= 0 and h >= 0
};

namespace rotated_internal {

// The cosine and sine of degrees: exact for multiples of 90, and the same, but
// for their order and signs, for whole angles that differ by such a multiple.
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

// Reads the box at b, 5 numbers, each length multiplied by `scale`.
template <typename C>
TFO_FORMULA RotatedBox<C> ReadRotated(const C* b, C scale = C(1)) {
  RotatedBox<C> box;
  box.cx = static_cast<double>(b[0]) * static_cast<double>(scale);
  box.cy = static_cast<double>(b[1]) * static_cast<double>(scale);
  box.w = b[2] * scale;
  box.h = b[3] * scale;
  // Infinity and NaN minus themselves are NaN.
  box.finite = b[0] - b[0] == 0 && b[1] - b[1] == 0 && b[2] - b[2] == 0 &&
               b[3] - b[3] == 0 && b[4] - b[4] == 0;
  box.well_formed = box.finite && box.w >= 0 && box.h >= 0;
  rotated_internal::CosineAndSine(box.finite ? static_cast<double>(b[4]) : 0,
                                  &box.cosine, &box.sine);
  box.radius = C(0.5) * std::sqrt(box.w * box.w + box.h * box.h);
  return box;
}

// 0 if w or h is not positive.
template <typename C>
TFO_FORMULA C RotatedArea(const RotatedBox<C>& box) {
  return box.w > 0 && box.h > 0 ? Product(box.w, box.h) : C(0);
}

// The area of the intersection of two finite boxes, 0 if w or h of either is
// not positive. Identical boxes have exactly their RotatedArea.
template <typename C>
TFO_FORMULA C RotatedIntersection(const RotatedBox<C>& a,
                                  const RotatedBox<C>& b) {
  using rotated_internal::ClipHalfPlane;
  using rotated_internal::Corner;
  using rotated_internal::SumOfProducts;
  if (!(a.w > 0 && a.h > 0 && b.w > 0 && b.h > 0)) return 0;
  const double dx = b.cx - a.cx, dy = b.cy - a.cy;
  const C far_x = static_cast<C>(dx), far_y = static_cast<C>(dy);
  const C reach = a.radius + b.radius;
  if (far_x * far_x + far_y * far_y > reach * reach) return 0;

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

}  // namespace TFO_FORMULA_NAMESPACE
}  // namespace tfo

#endif  // TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROTATED_BOX_H_
