// Reference of roi_average: in double, one sample at a time.
#ifndef TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_AVERAGE_ROI_REFERENCE_TESTING_H_
#define TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_AVERAGE_ROI_REFERENCE_TESTING_H_

#include <algorithm>
#include <cmath>
#include <vector>

#include "tensorflow_ops/detection/cc/kernels/roi_average/roi_testing.h"

namespace tfo::testing {

// A bilinear sample, or a pixel.
struct ReferencePoint {
  double y, x;  // position; integers are pixels' centres
  double y_low, y_high, x_low, x_high;  // derivatives to the box's corners
  bool outside;
};

// Computes a bin's points, their level, and the divisor of the average. Returns
// false if the box pools zeros.
template <typename T>
bool ReferencePoints(const RoiProblem<T>& problem, int64_t k, int64_t p,
                     int64_t q, int* level, std::vector<ReferencePoint>* points,
                     double* count) {
  using C = Coordinate<T>;
  const RoiAverageSpec& args = problem.args;
  const C* b = &problem.boxes[4 * k];
  for (int i = 0; i < 4; ++i) {
    if (!std::isfinite(b[i])) return false;
  }
  const int32_t image = problem.box_indices[k];
  if (b[2] < b[0] || b[3] < b[1] || image < 0 || image >= args.batch) {
    return false;
  }
  *level = 0;
  const double size = std::sqrt((double(b[2]) - b[0]) * (double(b[3]) - b[1]));
  for (int l = 1; l < args.num_levels; ++l) {
    if (size * 1.000001 >= args.levels[l].smallest_box) *level = l;
  }
  const RoiLevel& map = args.levels[*level];
  points->clear();
  *count = 1;

  // Positions on one axis and their derivatives.
  struct OnAxis {
    double at, low, high;
    bool outside;
  };
  const auto axis = [&](C low, C high, int64_t i, int64_t bins,
                        int64_t limit) -> std::vector<OnAxis> {
    std::vector<OnAxis> result;
    const C scale = map.spatial_scale;
    const C scaled_low = low * scale, scaled_high = high * scale;
    if (args.bins == RoiBins::kPixels) {
      const double kFar = 2147483648.0;  // as in roi_pool_bins.h
      const auto whole = [&](C v) {
        return static_cast<int64_t>(
            std::round(std::min(std::max(double(v), -kFar), kFar)));
      };
      const int64_t first = whole(scaled_low);
      const int64_t extent = std::max<int64_t>(whole(scaled_high) - first, 1);
      const int64_t begin = std::max<int64_t>(first + i * extent / bins, 0);
      const int64_t end = std::min<int64_t>(
          first + ((i + 1) * extent + bins - 1) / bins, limit);
      for (int64_t v = begin; v < end; ++v) {
        result.push_back({double(v), 0, 0, false});
      }
      return result;
    }
    const C start = args.sampling.aligned ? scaled_low - C(0.5) : scaled_low;
    C extent = scaled_high - scaled_low;
    const bool grown = !args.sampling.aligned && extent < 1;
    if (grown) extent = 1;
    const C bin = extent / static_cast<C>(bins);
    const C grid =
        args.sampling.ratio > 0 ? args.sampling.ratio : std::ceil(bin);
    *count *= std::max<double>(grid, 1);
    if (!std::isfinite(bin)) return result;
    for (double s = 0; s < grid; ++s) {
      const C at = start + static_cast<C>(i) * bin +
                   static_cast<C>(s + 0.5) * bin / grid;
      const double t = (i + (s + 0.5) / grid) / bins;
      const bool outside = !(at >= -1 && at <= limit);
      const bool clamped = at <= 0 || std::floor(at) >= limit - 1;
      if (grid > 1e4 && outside) {  // an enormous box: skips to the map
        // Leaves a margin for the rounding of these positions.
        const double next =
            std::floor((-1.0 - start - double(i) * bin) * grid / bin) - 200;
        if (next > 9e15) break;  // too large to count exactly
        if (s < next) s = next;
        if (at > limit) break;
        continue;
      }
      result.push_back({std::min(std::max(double(at), 0.0), double(limit - 1)),
                        clamped || outside ? 0
                        : grown            ? scale
                                           : scale * (1 - t),
                        clamped || outside || grown ? 0 : scale * t, outside});
    }
    return result;
  };
  const int on_y = problem.yxyx ? 0 : 1, on_x = 1 - on_y;
  const auto rows = axis(b[on_y], b[on_y + 2], p, args.grid.height, map.height);
  const auto columns =
      axis(b[on_x], b[on_x + 2], q, args.grid.width, map.width);
  for (const auto& y : rows) {
    for (const auto& x : columns) {
      points->push_back(
          {y.at, x.at, y.low, y.high, x.low, x.high, y.outside || x.outside});
    }
  }
  if (args.bins == RoiBins::kPixels) {
    *count = std::max<double>(points->size(), 1);
  }
  return true;
}

// Calls visit(pixel index, weight, d weight / dy, d weight / dx) for the pixels
// around a point.
template <typename T, typename Visit>
void ReferenceCorners(const RoiProblem<T>& problem, int level, int64_t n,
                      int64_t c, const ReferencePoint& point,
                      const Visit& visit) {
  if (point.outside) return;
  const double y0 = std::floor(point.y), x0 = std::floor(point.x);
  for (int i = 0; i < 2; ++i) {
    for (int j = 0; j < 2; ++j) {
      const double fy = point.y - y0, fx = point.x - x0;
      const double wy = i ? fy : 1 - fy, wx = j ? fx : 1 - fx;
      if (y0 + i >= problem.args.levels[level].height ||
          x0 + j >= problem.args.levels[level].width) {
        continue;  // has no weight
      }
      visit(problem.PixelAt(level, n, int64_t(y0) + i, int64_t(x0) + j, c),
            wy * wx, (i ? 1 : -1) * wx, (j ? 1 : -1) * wy);
    }
  }
}

// The results, and the gradients of sum(d_output * results).
struct RoiReference {
  std::vector<double> output;
  std::vector<std::vector<double>> d_maps;
  // Gradients to x1, y1, x2, y2 (or y1, x1, y2, x2) of each box, and the sums
  // of their terms' absolute values.
  std::vector<double> d_boxes, d_boxes_size;

  template <typename T>
  explicit RoiReference(const RoiProblem<T>& problem)
      : output(problem.OutputSize()),
        d_boxes(problem.boxes.size()),
        d_boxes_size(problem.boxes.size()) {
    for (const auto& map : problem.maps) d_maps.emplace_back(map.size());
  }
};

// Calls use(k, p, q, level, points, count) for each bin of a valid box.
template <typename T, typename Use>
void ForReferenceBins(const RoiProblem<T>& problem, const Use& use) {
  std::vector<ReferencePoint> points;
  for (int64_t k = 0; k < problem.NumBoxes(); ++k) {
    for (int64_t p = 0; p < problem.args.grid.height; ++p) {
      for (int64_t q = 0; q < problem.args.grid.width; ++q) {
        int level;
        double count;
        if (ReferencePoints(problem, k, p, q, &level, &points, &count)) {
          use(k, p, q, level, points, count);
        }
      }
    }
  }
}

// Adds a sample's contribution to the gradient of box k. `slope_y` and
// `slope_x` are the map's derivatives at the sample.
template <typename T>
void AddBoxGradient(const RoiProblem<T>& problem, int64_t k,
                    const ReferencePoint& point, double slope_y, double slope_x,
                    double gradient, RoiReference* result) {
  const int on_y = problem.yxyx ? 0 : 1, on_x = 1 - on_y;
  const auto add = [&](int corner, double term) {
    result->d_boxes[corner] += term;
    result->d_boxes_size[corner] += std::abs(term);
  };
  // A sample clamped at an edge adds nothing, even if the slope is not finite.
  if (point.y_low != 0 || point.y_high != 0) {
    add(4 * k + on_y, gradient * slope_y * point.y_low);
    add(4 * k + on_y + 2, gradient * slope_y * point.y_high);
  }
  if (point.x_low != 0 || point.x_high != 0) {
    add(4 * k + on_x, gradient * slope_x * point.x_low);
    add(4 * k + on_x + 2, gradient * slope_x * point.x_high);
  }
}

// A map's value and derivatives at a sample. Pixels without weight are not
// read.
struct Sample {
  double value = 0, slope_y = 0, slope_x = 0;
};
template <typename T>
Sample SampleAt(const RoiProblem<T>& problem, const GpuVector<T>& map,
                int level, int64_t n, int64_t c, const ReferencePoint& point) {
  Sample sample;
  ReferenceCorners(problem, level, n, c, point,
                   [&](int64_t pixel, double w, double dy, double dx) {
                     const double value = Widen(map[pixel]);
                     if (w != 0) sample.value += w * value;
                     if (dy != 0) sample.slope_y += dy * value;
                     if (dx != 0) sample.slope_x += dx * value;
                   });
  return sample;
}

template <typename T>
RoiReference ReferenceAverage(const RoiProblem<T>& problem) {
  RoiReference result(problem);
  ForReferenceBins(problem, [&](int64_t k, int64_t p, int64_t q, int level,
                                const auto& points, double count) {
    const int32_t n = problem.box_indices[k];
    for (int64_t c = 0; c < problem.args.ChannelsOfBins().count; ++c) {
      const int64_t at = problem.OutputAt(k, p, q, c);
      const double gradient = Widen(problem.d_output[at]) / count;
      const int64_t from = problem.ChannelAt(p, q, c);
      double sum = 0;
      for (const ReferencePoint& point : points) {
        const Sample sample =
            SampleAt(problem, problem.maps[level], level, n, from, point);
        sum += sample.value;
        AddBoxGradient(problem, k, point, sample.slope_y, sample.slope_x,
                       gradient, &result);
        ReferenceCorners(problem, level, n, from, point,
                         [&](int64_t pixel, double w, double, double) {
                           if (w == 0) return;
                           result.d_maps[level][pixel] += gradient * w;
                         });
      }
      result.output[at] = sum / count;
    }
  });
  return result;
}

// Largest |actual - expected| minus one rounding of expected to T, relative to
// max(1, |expected|).
template <typename T, typename Values>
double WorstError(const Values& actual, const std::vector<double>& expected) {
  const double rounding = sizeof(T) == 8            ? 1e-15
                          : sizeof(T) == 4          ? 6e-8
                          : std::is_same_v<T, Half> ? 0x1p-11
                                                    : 0x1p-8;
  double worst = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double error = std::abs(double(Widen(actual[i])) - expected[i]) -
                         rounding * std::abs(expected[i]);
    // The negation catches NaN.
    if (!(error <= worst)) worst = std::isnan(error) ? 1e300 : error;
  }
  return worst;
}

}  // namespace tfo::testing

#endif  // TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_AVERAGE_ROI_REFERENCE_TESTING_H_
