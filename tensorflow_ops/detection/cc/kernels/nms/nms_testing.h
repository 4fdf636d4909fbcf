// Boxes, scores and plain loops for tests of the nms family.
#ifndef TENSORFLOW_OPS_DETECTION_CC_KERNELS_NMS_NMS_TESTING_H_
#define TENSORFLOW_OPS_DETECTION_CC_KERNELS_NMS_NMS_TESTING_H_

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "tensorflow_ops/core/cc/testing/gpu_testing.h"
#include "tensorflow_ops/detection/cc/kernels/boxes/box.h"
#include "tensorflow_ops/detection/cc/kernels/boxes/rotated_box.h"

namespace tfo::testing {

constexpr BoxFormat kBoxFormats[] = {BoxFormat::kXyxy, BoxFormat::kYxyx,
                                     BoxFormat::kRotated};

// Boxes of about `side` in a square of 100, with copies, malformed ones and
// ones without area; of any size: with huge and tiny ones, too.
template <typename T>
GpuVector<T> MakeBoxes(int64_t n, BoxFormat format, double side, uint32_t seed,
                       bool of_any_size = true) {
  std::mt19937 engine(seed);
  std::uniform_real_distribution<double> place(-50, 50), size(0.5, 1.5),
      angle(-400, 400);
  const double inf = std::numeric_limits<double>::infinity();
  GpuVector<T> boxes;
  for (int64_t i = 0; i < n; ++i) {
    const double x = place(engine), y = place(engine);
    double w = side * size(engine), h = side * size(engine);
    if (i % 53 == 20) w = 0;
    if (i % 59 == 21) h = -h;
    if (i % 61 == 22) w = -w, h = -h;
    std::vector<double> b = {x - w / 2, y - h / 2, x + w / 2, y + h / 2};
    if (format == BoxFormat::kRotated) {
      b = {x, y, w, h, i % 3 == 0 ? 90.0 * (i % 7) : angle(engine)};
    } else if (format == BoxFormat::kYxyx) {
      std::swap(b[0], b[1]);
      std::swap(b[2], b[3]);
    }
    if (i % 71 == 23) b[i % 4] = std::nan("");
    if (i % 73 == 24) b[i % 4] = i % 2 == 0 ? inf : -inf;
    if (i % 83 == 26) b = {1e10, 1e10, 2e10, 3e10, 0};
    if (of_any_size && i % 13 == 7) {
      // Powers of two keep IoUs in any type.
      const double huge = sizeof(T) == 4 ? 0x1p100 : 0x1p1000;
      const double scale = i % 2 == 0 ? huge : 1 / huge;
      for (int j = 0; j < 4; ++j) b[j] *= scale;
    }
    if (of_any_size && i % 79 == 25) {
      const double most = std::numeric_limits<T>::max();
      b = {-most, -most, most, most, 0};
      if (format == BoxFormat::kRotated) b = {0, 0, most, most, 45};
    }
    b.resize(BoxSize(format));
    const bool copy = i % 11 == 5;
    for (size_t j = 0; j < b.size(); ++j) {
      boxes.push_back(copy ? boxes[boxes.size() - 3 * b.size()]
                           : static_cast<T>(b[j]));
    }
  }
  return boxes;
}

// Scores with ties, NaN, infinities, zeros of both signs.
template <typename T>
GpuVector<T> MakeScores(int64_t n, uint32_t seed) {
  std::mt19937 engine(seed);
  std::uniform_real_distribution<double> score(-0.2, 1);
  const double inf = std::numeric_limits<double>::infinity();
  GpuVector<T> scores;
  for (int64_t i = 0; i < n; ++i) {
    double s = score(engine);
    if (i % 5 == 0) s = std::round(10 * s) / 10;
    if (i % 41 == 3) s = std::nan("");
    if (i % 97 == 4) s = inf;
    if (i % 89 == 5) s = -inf;
    if (i % 43 == 6) s = i % 2 == 0 ? 0.0 : -0.0;
    scores.push_back(static_cast<T>(s));
  }
  return scores;
}

// Arguments without results, and what they point to.
template <template <typename> class Args, typename T>
struct NmsProblem {
  Args<T> args;
  GpuVector<T> boxes, scores;

  Args<T> WithInputs() const {
    Args<T> result = args;
    result.boxes = boxes.data();
    result.scores = scores.data();
    return result;
  }
};

// Corners of boxes, of which nms keeps most, whatever their number.
inline GpuVector<float> BenchmarkBoxes(int64_t n) {
  std::mt19937 engine(1);
  std::uniform_real_distribution<float> uniform(0, 1);
  const float image = 1000 * std::sqrt(n / 1000.0f);
  GpuVector<float> boxes;
  for (int64_t i = 0; i < n; ++i) {
    const float x = image * uniform(engine), y = image * uniform(engine);
    const float w = 16 * std::pow(10.0f, uniform(engine));
    const float h = 16 * std::pow(10.0f, uniform(engine));
    boxes.insert(boxes.end(), {x, y, x + w, y + h});
  }
  return boxes;
}

// Scores without ties.
inline GpuVector<float> BenchmarkScores(int64_t n) {
  GpuVector<float> scores(n);
  for (int64_t i = 0; i < n; ++i) scores[i] = (i + 0.5f) / n;
  std::shuffle(scores.begin(), scores.end(), std::mt19937(2));
  return scores;
}

template <typename Real>
struct PlainAreas {
  Real shared, both;  // of the intersection and of the union
};

// In the type Real; 0 for pairs without overlap.
template <typename Real, typename T>
PlainAreas<Real> AreasIn(const T* boxes, int64_t i, int64_t j,
                         BoxFormat format) {
  if (format == BoxFormat::kRotated) {
    Real numbers[10];
    for (int c = 0; c < 5; ++c) {
      numbers[c] = boxes[5 * i + c];
      numbers[5 + c] = boxes[5 * j + c];
    }
    const auto a = scalar::ReadRotated(numbers);
    const auto b = scalar::ReadRotated(numbers + 5);
    const double dx = b.cx - a.cx, dy = b.cy - a.cy;
    using scalar::rotated_internal::AreApart;
    if (!HasExtent(a) || !HasExtent(b) || AreApart(a, b, dx, dy)) return {};
    const Real shared = scalar::rotated_internal::Intersection(a, b, dx, dy);
    return {shared, a.w * a.h + b.w * b.h - shared};
  }
  Real a[4], b[4];
  for (int c = 0; c < 4; ++c) {
    const int from = format == BoxFormat::kYxyx ? c ^ 1 : c;
    a[c] = boxes[4 * i + from];
    b[c] = boxes[4 * j + from];
    if (!std::isfinite(a[c]) || !std::isfinite(b[c])) return {};
  }
  if (a[2] < a[0] || a[3] < a[1] || b[2] < b[0] || b[3] < b[1]) return {};
  const Real w = std::min(a[2], b[2]) - std::max(a[0], b[0]);
  const Real h = std::min(a[3], b[3]) - std::max(a[1], b[1]);
  if (w <= 0 || h <= 0) return {};
  const Real shared = w * h;
  return {shared, (a[2] - a[0]) * (a[3] - a[1]) +
                      (b[2] - b[0]) * (b[3] - b[1]) - shared};
}

// In the boxes' type, whose roundings decide ties; where it cannot hold the
// areas, the IoU and 1.
template <typename T>
PlainAreas<T> AreasOf(const T* boxes, int64_t i, int64_t j, BoxFormat format) {
  const auto areas = AreasIn<T>(boxes, i, j, format);
  constexpr T kLeast = static_cast<T>(sizeof(T) == 4 ? 1e-30 : 1e-280);
  if (areas.both >= kLeast && std::isfinite(areas.both)) return areas;
  const auto wide = AreasIn<long double>(boxes, i, j, format);
  return {wide.both > 0 ? static_cast<T>(wide.shared / wide.both) : T(0), T(1)};
}

template <typename T>
bool PlainOverlap(const T* boxes, int64_t i, int64_t j, BoxFormat format,
                  T iou_threshold) {
  const auto areas = AreasOf(boxes, i, j, format);
  return iou_threshold < 1 && areas.shared > iou_threshold * areas.both;
}

template <typename T>
T PlainIou(const T* boxes, int64_t i, int64_t j, BoxFormat format) {
  const auto areas = AreasOf(boxes, i, j, format);
  return areas.shared / areas.both;
}

}  // namespace tfo::testing

#endif  // TENSORFLOW_OPS_DETECTION_CC_KERNELS_NMS_NMS_TESTING_H_
