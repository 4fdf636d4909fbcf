// Compares the IoU of rotated boxes with areas counted by clipping polygons in
// long double, and with known values.
#include <algorithm>
#include <cmath>
#include <vector>

#include "tensorflow_ops/core/cc/testing/args_testing.h"
#include "tensorflow_ops/detection/cc/kernels/boxes/box_iou.h"
#include "tensorflow_ops/detection/cc/kernels/boxes/rotated_box.h"

namespace tfo {
namespace {

using testing::Bound;
using testing::GpuVector;
using testing::Tensors;

using Real = long double;

struct Point {
  Real x, y;
};

Real Cross(Point o, Point a, Point b) {
  return (a.x - o.x) * (b.y - o.y) - (a.y - o.y) * (b.x - o.x);
}

// The corners as seen from a point, in the order in which Cross is positive
// inside.
std::vector<Point> CornersOf(const double* box, Point from) {
  const Real radians = Real(box[4]) * M_PIl / 180;
  const Real c = std::cos(radians), s = std::sin(radians);
  std::vector<Point> corners;
  for (const auto& [x, y] : {Point{-1, -1}, {1, -1}, {1, 1}, {-1, 1}}) {
    const Real u = x * box[2] / 2, v = y * box[3] / 2;
    corners.push_back(
        {box[0] - from.x + (c * u + s * v), box[1] - from.y + (c * v - s * u)});
  }
  return corners;
}

// Clips a polygon by the lines through each side of another (Sutherland and
// Hodgman), in the plane of both.
Real SharedArea(std::vector<Point> polygon, const std::vector<Point>& by) {
  for (size_t k = 0; k < by.size(); ++k) {
    const Point from = by[k], to = by[(k + 1) % by.size()];
    std::vector<Point> kept;
    for (size_t i = 0; i < polygon.size(); ++i) {
      const Point p = polygon[i], q = polygon[(i + 1) % polygon.size()];
      const Real in_p = Cross(from, to, p), in_q = Cross(from, to, q);
      if (in_p >= 0) kept.push_back(p);
      if ((in_p > 0 && in_q < 0) || (in_p < 0 && in_q > 0)) {
        const Real t = in_p / (in_p - in_q);
        kept.push_back({p.x + t * (q.x - p.x), p.y + t * (q.y - p.y)});
      }
    }
    polygon = kept;
  }
  Real twice = 0;
  for (size_t i = 0; i < polygon.size(); ++i) {
    twice += Cross({0, 0}, polygon[i], polygon[(i + 1) % polygon.size()]);
  }
  return twice / 2;
}

Real Reference(const double* a, const double* b) {
  for (int i = 0; i < 5; ++i) {
    if (!std::isfinite(a[i]) || !std::isfinite(b[i])) return NAN;
  }
  if (!(a[2] > 0 && a[3] > 0 && b[2] > 0 && b[3] > 0)) return 0;
  // A far box rounds to a point, which lies outside of b.
  const Point center = {b[0], b[1]};
  const Real shared = SharedArea(CornersOf(a, center), CornersOf(b, center));
  return shared / (Real(a[2]) * a[3] + Real(b[2]) * b[3] - shared);
}

template <typename C>
GpuVector<C> MakeBoxes(int64_t count, uint32_t seed) {
  GpuVector<C> boxes;
  for (const std::vector<double>& box :
       std::vector<std::vector<double>>{{1, 2, 4, 3, 30},
                                        {1, 2, 3, 4, 120},
                                        {1, 2, 4, 3, -330},
                                        {1, 2, 4, 3, 390},
                                        {0, 0, 2, 2, 45},
                                        {0, 0, 2, 2, 0},
                                        {3, 3, 0, 2, 10},
                                        {3, 3, 2, -1, 10},
                                        {0, 0, NAN, 1, 0},
                                        {INFINITY, 0, 1, 1, 0},
                                        {0, 0, 1, 1, -INFINITY},
                                        {0, 0, 3e38, 2e38, 20},
                                        {1e38, 0, 3e38, 1e38, 70},
                                        {3e38, -3e38, 1, 1, 5},
                                        {1e10, 1e10, 3e9, 2e9, 1e6},
                                        {0, 0, 1e-25, 2e-25, 40},
                                        {1e-26, 0, 1e-25, 1e-25, -10},
                                        {0, 1e-30, 2e-30, 1e-30, 70},
                                        {0, 0, 5, 3e-37, 0},
                                        {0, 0, 1, 1, 3e38}}) {
    for (const double v : box) boxes.push_back(static_cast<C>(v));
  }
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> place(0, 9), length(0.2f, 6),
      angle(-400, 400);
  for (int64_t i = boxes.size() / 5; i < count; ++i) {
    for (const float v : {place(random), place(random), length(random),
                          length(random), angle(random)}) {
      boxes.push_back(v);
    }
  }
  return boxes;
}

template <typename C, typename Device>
void CheckRandomBoxes(const Device& device) {
  const BoxIouSpec s = {BoxMetric::kIou, BoxFormat::kRotated, 2, 75, 270};
  Tensors tensors(
      {{"...", s.batch}, {"boxes1", s.rows}, {"boxes2", s.columns}});
  tensors.Set("boxes1", MakeBoxes<C>(s.batch * s.rows, 1));
  tensors.Set("boxes2", MakeBoxes<C>(s.batch * s.columns, 2));
  const Tensors wide = tensors.InDouble();
  const Real tolerance = std::is_same_v<C, float> ? 3e-6L : 1e-12L;
  for (const Tensors& r :
       ComputeOn(device, tensors, [&](const auto& on, Tensors* t) {
         TFO_EXPECT_RUNS(BoxIou(on, Bound<BoxIouArgs<C>>(s, t)));
       })) {
    for (int64_t i = 0; i < s.batch * s.rows * s.columns; ++i) {
      const int64_t row = i / s.columns;
      const int64_t column = row / s.rows * s.columns + i % s.columns;
      const double* const a = &wide.Get<double>("boxes1")[5 * row];
      const double* const b = &wide.Get<double>("boxes2")[5 * column];
      const C iou = r.Get<C>("iou")[i];
      // The reference's angle of 3e38 degrees is not accurate.
      if (std::abs(a[4]) > 1e30 || std::abs(b[4]) > 1e30) {
        TFO_EXPECT(!(iou < 0) && !(iou > 1));
        continue;
      }
      const Real expected = Reference(a, b);
      if (std::isnan(expected) ? std::isnan(iou)
                               : std::abs(iou - expected) <= tolerance) {
        continue;
      }
      testing::Fail(__FILE__, __LINE__,
                    testing::Text("boxes ", row, " and ", column, ": ", iou,
                                  ", expected ", expected));
    }
  }
}

// The same box in other words: exactly 1.
template <typename C>
void CheckIdenticalBoxes() {
  using scalar::ReadRotated;
  auto boxes = MakeBoxes<C>(400, 7);
  for (size_t i = 0; i < boxes.size(); ++i) {
    const C scales[] = {C(1), C(1e-30), C(1e-25), C(1e20), C(1e34)};
    if (i % 5 != 4) boxes[i] *= scales[i / 5 % 5];
  }
  for (int64_t i = 20; i < 400; ++i) {
    const C* const a = &boxes[5 * i];
    const C whole = std::round(a[4]);
    for (const C degrees : {a[4], whole}) {
      const C box[] = {a[0] * 1000, a[1], a[2], a[3], degrees};
      TFO_EXPECT_EQ(scalar::RotatedIou(ReadRotated(box), ReadRotated(box)),
                    C(1));
    }
    const C box[] = {a[0], a[1], a[2], a[3], whole};
    const C turned[] = {a[0], a[1], a[2], a[3], whole + 180};
    const C quarter[] = {a[0], a[1], a[3], a[2], whole - 90};
    for (const C* const same : {turned, quarter}) {
      TFO_EXPECT_EQ(scalar::RotatedIou(ReadRotated(box), ReadRotated(same)),
                    C(1));
    }
  }
}

TFO_DEVICE_TEST(RotatedIou, FloatBoxes) { CheckRandomBoxes<float>(device); }
TFO_DEVICE_TEST(RotatedIou, DoubleBoxes) { CheckRandomBoxes<double>(device); }
TFO_TEST(RotatedIou, IdenticalBoxesHaveExactlyOne) {
  CheckIdenticalBoxes<float>();
  CheckIdenticalBoxes<double>();
}

// torchvision 0.28 and detectron2 turn counter-clockwise, y pointing down.
TFO_TEST(RotatedIou, PositiveDegreesAreCounterClockwise) {
  // A long box turned by 45 degrees reaches up and right.
  const double box[] = {0, 0, 10, 1, 45}, up[] = {3, -3, 1, 1, 0},
               down[] = {3, 3, 1, 1, 0};
  using scalar::ReadRotated;
  TFO_EXPECT(scalar::RotatedIou(ReadRotated(box), ReadRotated(up)) > 0.05);
  TFO_EXPECT_EQ(scalar::RotatedIou(ReadRotated(box), ReadRotated(down)), 0.0);
}

}  // namespace
}  // namespace tfo
