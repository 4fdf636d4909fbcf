// For tests of the CUDA kernels of roi_align_max: problems whose numbers are
// such that all but long sums is exact, also where values are equal, and what
// is computed of them, sample by sample in double.
#ifndef TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_ALIGN_MAX_GPU_REFERENCE_H_
#define TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_ALIGN_MAX_GPU_REFERENCE_H_

#include <cmath>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "tensorflow_ops/core/cc/testing.h"
#include "tensorflow_ops/detection/cc/kernels/roi_align_max.h"

namespace tfo::testing {

inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
inline constexpr float kInf = std::numeric_limits<float>::infinity();

struct Sizes {
  int64_t height = 9, width = 12, channels = 5;
  int64_t pooled_height = 2, pooled_width = 4;
  int32_t ratio = 2;
  bool aligned = true;
  bool channels_first = false, yxyx = false;
  bool with_bad_values = false;
  int64_t num_boxes = 16;
  bool centred = false;  // boxes, on the map; else they begin there
};

template <typename T>
struct Problem {
  RoiAlignMaxArgs args;
  bool yxyx;
  std::vector<T> features, values, d_output;
  std::vector<Coordinate<T>> boxes;
  std::vector<int32_t> box_indices;

  int64_t FeatureAt(int64_t n, int64_t y, int64_t x, int64_t c) const {
    const auto& [batch, height, width, channels, channels_first] =
        args.features;
    return channels_first ? ((n * channels + c) * height + y) * width + x
                          : ((n * height + y) * width + x) * channels + c;
  }
  int64_t OutputAt(int64_t k, int64_t p, int64_t q, int64_t c) const {
    const int64_t ph = args.grid.height, pw = args.grid.width;
    const int64_t channels = args.features.channels;
    return args.features.channels_first
               ? ((k * channels + c) * ph + p) * pw + q
               : ((k * ph + p) * pw + q) * channels + c;
  }
  int64_t NumBoxes() const { return box_indices.size(); }
  Boxes<Coordinate<T>> AllBoxes() const {
    return {NumBoxes(), yxyx, boxes.data(), box_indices.data()};
  }
};

template <typename T>
Problem<T> MakeProblem(const Sizes& sizes) {
  Problem<T> problem;
  problem.args.features = {2, sizes.height, sizes.width, sizes.channels,
                           sizes.channels_first};
  problem.args.spatial_scale = 0.5f;
  problem.args.grid = {sizes.pooled_height, sizes.pooled_width};
  problem.args.sampling = {sizes.ratio, sizes.aligned};
  problem.yxyx = sizes.yxyx;
  std::mt19937 random(3);
  const auto whole = [&](int n) {
    return Narrow<T>(static_cast<float>(random() % (2 * n + 1)) - n);
  };
  const int64_t pixels = 2 * sizes.height * sizes.width * sizes.channels;
  for (int64_t i = 0; i < pixels; ++i) {
    problem.features.push_back(whole(2));
    problem.values.push_back(whole(8));
    if (!sizes.with_bad_values) continue;
    const int kind = random() % 32;
    if (kind < 3) {
      problem.features.back() = Narrow<T>(kind == 0   ? kNan
                                          : kind == 1 ? kInf
                                                      : -kInf);
    }
  }
  const int64_t outputs = sizes.num_boxes * sizes.pooled_height *
                          sizes.pooled_width * sizes.channels;
  for (int64_t i = 0; i < outputs; ++i) problem.d_output.push_back(whole(8));
  for (int64_t k = 0; k < sizes.num_boxes; ++k) {
    // Sides are powers of two times the bins, so that samples lie on binary
    // fractions.
    float box[4];
    for (int i = 0; i < 2; ++i) {
      const int64_t bins =
          i == (sizes.yxyx ? 0 : 1) ? sizes.pooled_height : sizes.pooled_width;
      const float side = bins * std::ldexp(1.0f, random() % 5 - 1);
      box[i] = (static_cast<int>(random() % 64) - 20) * 0.5f;
      if (sizes.centred) box[i] -= side / 2;
      box[i + 2] = box[i] + side;
    }
    int32_t image = random() % 2;
    switch (k % 16) {
      case 3:
        box[k % 4] = kNan;
        break;
      case 5:
        box[3] = kInf;
        break;
      case 7:
        std::swap(box[0], box[2]);
        break;
      case 9:
        image = k % 3 == 0 ? 2 : -1;
        break;
      case 11:
        box[2] = box[0];
        break;
    }
    problem.boxes.insert(problem.boxes.end(), box, box + 4);
    problem.box_indices.push_back(image);
  }
  return problem;
}

// A position on an axis, and how it moves with the box's ends.
struct Position {
  double at, low, high;
};
struct Point {
  bool inside;
  double y, x;
  Position on_y, on_x;
};

// The samples of a bin, in the order of the definition: those inside, then
// those outside.
template <typename T>
std::vector<Point> PointsOf(const Problem<T>& problem, int64_t k, int64_t p,
                            int64_t q) {
  const RoiAlignMaxArgs& args = problem.args;
  const FeatureShape& map = args.features;
  const auto* const b = &problem.boxes[4 * k];
  const int32_t image = problem.box_indices[k];
  for (int i = 0; i < 4; ++i) {
    if (!std::isfinite(b[i])) return {};
  }
  if (b[2] < b[0] || b[3] < b[1] || image < 0 || image >= map.batch) return {};
  std::vector<Position> positions[2];
  for (const int axis : {0, 1}) {
    const int from = problem.yxyx ? axis : 1 - axis;
    const double scale = args.spatial_scale;
    double low = b[from] * scale;
    double size = b[from + 2] * scale - low;
    bool grown = false;
    if (args.sampling.aligned) {
      low -= 0.5;
    } else {
      grown = size < 1;
      size = std::fmax(size, 1);
    }
    const double bins = axis == 0 ? args.grid.height : args.grid.width;
    const double bin = size / bins;
    const double grid =
        args.sampling.ratio > 0 ? args.sampling.ratio : std::ceil(bin);
    const int64_t i = axis == 0 ? p : q;
    const int64_t limit = axis == 0 ? map.height : map.width;
    for (int64_t j = 0; j < grid; ++j) {
      const double at = low + i * bin + (j + 0.5) * bin / grid;
      const double t = grown ? 0 : (i + (j + 0.5) / grid) / bins;
      const bool moves = at > 0 && at < limit - 1;
      positions[axis].push_back(
          {at, moves ? scale * (1 - t) : 0, moves ? scale * t : 0});
    }
  }
  std::vector<Point> inside, outside;
  for (const Position& y : positions[0]) {
    for (const Position& x : positions[1]) {
      if (y.at >= -1 && y.at <= map.height && x.at >= -1 && x.at <= map.width) {
        inside.push_back({true, std::fmin(std::fmax(y.at, 0), map.height - 1),
                          std::fmin(std::fmax(x.at, 0), map.width - 1), y, x});
      } else {
        outside.push_back({});
      }
    }
  }
  inside.insert(inside.end(), outside.begin(), outside.end());
  return inside;
}

// Calls visit(y, x, weight) for each pixel around a point that has a weight.
template <typename Visit>
void ForPixels(const Point& point, const Visit& visit) {
  const double y0 = std::floor(point.y), x0 = std::floor(point.x);
  for (const double y : {y0, y0 + 1}) {
    for (const double x : {x0, x0 + 1}) {
      const double weight =
          (1 - std::fabs(point.y - y)) * (1 - std::fabs(point.x - x));
      if (weight > 0) visit(y, x, weight);
    }
  }
}

template <typename T>
double ValueAt(const Problem<T>& problem, const std::vector<T>& map,
               const Point& point, int64_t k, int64_t c) {
  double value = 0;
  if (!point.inside) return 0;
  ForPixels(point, [&](int64_t y, int64_t x, double weight) {
    value +=
        weight * Widen(map[problem.FeatureAt(problem.box_indices[k], y, x, c)]);
  });
  return value;
}

// The sums of a box's derivatives: to y1, x1, y2, x2.
struct BoxSum {
  double values[4] = {}, sizes[4] = {};

  void Add(int i, double value) {
    values[i] += value;
    sizes[i] += std::fabs(value);
  }
  // What `map` makes of a point, times d_value, changes with the box.
  template <typename T>
  void AddPoint(const Problem<T>& problem, const std::vector<T>& map,
                const Point& point, int64_t k, int64_t c, double d_value) {
    const int64_t y0 = std::floor(point.y), x0 = std::floor(point.x);
    const auto value = [&](int64_t y, int64_t x) -> double {
      return Widen(map[problem.FeatureAt(problem.box_indices[k], y, x, c)]);
    };
    double slope_y = 0, slope_x = 0;
    for (const int i : {0, 1}) {
      const double on_x = 1 - std::fabs(point.x - (x0 + i));
      const double on_y = 1 - std::fabs(point.y - (y0 + i));
      if (point.on_y.low != 0 && on_x > 0) {
        slope_y += on_x * (value(y0 + 1, x0 + i) - value(y0, x0 + i));
      }
      if (point.on_x.low != 0 && on_y > 0) {
        slope_x += on_y * (value(y0 + i, x0 + 1) - value(y0 + i, x0));
      }
    }
    if (point.on_y.low != 0) {
      Add(0, d_value * slope_y * point.on_y.low);
      Add(2, d_value * slope_y * point.on_y.high);
    }
    if (point.on_x.low != 0) {
      Add(1, d_value * slope_x * point.on_x.low);
      Add(3, d_value * slope_x * point.on_x.high);
    }
  }
};

}  // namespace tfo::testing

#endif  // TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_ALIGN_MAX_GPU_REFERENCE_H_
