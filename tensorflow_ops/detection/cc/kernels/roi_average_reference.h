// For tests: problems of the averaging ops and of roi_align's maximum, and what
// they compute by definition, in double, a sample at a time.
#ifndef TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_AVERAGE_REFERENCE_H_
#define TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_AVERAGE_REFERENCE_H_

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "tensorflow_ops/core/cc/testing.h"
#include "tensorflow_ops/detection/cc/kernels/roi_average.h"

namespace tfo::testing {

template <typename T>
struct AverageProblem {
  RoiAverageArgs args;
  std::vector<std::vector<T>> maps;  // of each level
  std::vector<Coordinate<T>> boxes;
  std::vector<int32_t> box_indices;
  std::vector<T> d_output;

  int64_t PixelAt(int level, int64_t n, int64_t y, int64_t x, int64_t c) const {
    const int64_t height = args.levels[level].height,
                  width = args.levels[level].width, channels = args.channels;
    return args.channels_first ? ((n * channels + c) * height + y) * width + x
                               : ((n * height + y) * width + x) * channels + c;
  }
  int64_t OutputAt(int64_t k, int64_t p, int64_t q, int64_t c) const {
    const int64_t ph = args.grid.height, pw = args.grid.width,
                  channels = args.ChannelsOfBins().count;
    return args.channels_first ? ((k * channels + c) * ph + p) * pw + q
                               : ((k * ph + p) * pw + q) * channels + c;
  }
  // The features' channel of bin (p, q)'s channel c.
  int64_t ChannelAt(int64_t p, int64_t q, int64_t c) const {
    const int64_t ph = args.grid.height, pw = args.grid.width;
    switch (args.order) {
      case RoiChannels::kAll:
        return c;
      case RoiChannels::kChannelMajor:
        return (c * ph + p) * pw + q;
      case RoiChannels::kBinMajor:
        return (p * pw + q) * (args.channels / (ph * pw)) + c;
    }
    return -1;
  }
  int64_t NumBoxes() const { return box_indices.size(); }
  Boxes<Coordinate<T>> AllBoxes() const {
    return {NumBoxes(), /*yxyx=*/false, boxes.data(), box_indices.data()};
  }
  int64_t OutputSize() const {
    return NumBoxes() * args.grid.height * args.grid.width *
           args.ChannelsOfBins().count;
  }
  std::vector<const T*> Maps() const {
    std::vector<const T*> pointers;
    for (const auto& map : maps) pointers.push_back(map.data());
    return pointers;
  }
};

// Boxes of every kind: inside, over each edge, outside, without size, inverted,
// not finite, enormous, of no image. Maps of 9 x 12 pixels at scale 0.5, and
// the coarser levels.
template <typename T>
AverageProblem<T> MakeAverageProblem(RoiBins bins, RoiSampling sampling,
                                     RoiChannels order, int64_t out_channels,
                                     bool channels_first, int levels = 1) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const std::vector<std::vector<float>> boxes = {{0, 0, 22, 16},
                                                 {3, 2, 9.4f, 11},
                                                 {-5, -7, 6, 4},
                                                 {15, 9, 60, 40},
                                                 {-40, -40, -20, -9},
                                                 {100, 100, 140, 130},
                                                 {7, 5, 7, 5},
                                                 {2.5f, 3.5f, 8.5f, 4},
                                                 {1.25f, 2, 2.3f, 2.9f},
                                                 {9, 4, 3, 8},
                                                 {3, 8, 9, 4},
                                                 {kNan, 0, 5, 5},
                                                 {0, 0, kInf, 5},
                                                 {-kInf, 0, 5, 5},
                                                 {-1e30f, -1e30f, 1e30f, 1e30f},
                                                 {0, 0, 5, 5},
                                                 {0, 0, 5, 5},
                                                 {4, 1, 5, 16},
                                                 {-1, -1, 24.9f, 18},
                                                 {-1e9f, 2, 1e9f, 9},
                                                 {20, 14, 24, 18},
                                                 {3.1f, 1.7f, 20, 17},
                                                 {-3e38f, 0, 3e38f, 10},
                                                 {5, 5, 30, 6}};
  AverageProblem<T> problem;
  RoiAverageArgs& args = problem.args;
  args = {};
  args.batch = 2;
  args.channels_first = channels_first;
  args.grid = {3, 2};
  args.bins = bins;
  args.sampling = sampling;
  args.order = order;
  args.channels = order == RoiChannels::kAll
                      ? out_channels
                      : out_channels * args.grid.height * args.grid.width;
  args.num_levels = levels;
  for (int l = 0; l < levels; ++l) {
    args.levels[l] = {9 >> l, 12 >> l, 0.5f / (1 << l), l * 6.0f};
    problem.maps.push_back(RandomValues<T>(
        2 * args.channels * args.levels[l].height * args.levels[l].width,
        7 + l));
  }
  for (size_t k = 0; k < boxes.size(); ++k) {
    for (float v : boxes[k]) problem.boxes.push_back(v);
    problem.box_indices.push_back(k == 15 ? 2 : k == 16 ? -1 : k % 2);
  }
  problem.d_output = RandomValues<T>(problem.OutputSize(), 9);
  return problem;
}

// A bilinear sample, or a pixel: where it is and what it counts.
struct ReferencePoint {
  double y, x;                          // at a pixel's centre or between
  double y_low, y_high, x_low, x_high;  // its change with the box's corners
  bool outside;
};

// All points of a bin, and which level and image they are of; the count is what
// the average divides by. False: the box pools zeros.
template <typename T>
bool ReferencePoints(const AverageProblem<T>& problem, int64_t k, int64_t p,
                     int64_t q, int* level, std::vector<ReferencePoint>* points,
                     double* count) {
  using C = Coordinate<T>;
  const RoiAverageArgs& args = problem.args;
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

  // Each axis: positions, and their changes.
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
      const double kFar = 2147483648.0;  // as roi_pool_bins.h
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
      const bool held = at <= 0 || std::floor(at) >= limit - 1;
      if (grid > 1e4 && outside) {  // an enormous box: steps to where it counts
        // With room for the rounding of such positions.
        const double next =
            std::floor((-1.0 - start - double(i) * bin) * grid / bin) - 200;
        if (next > 9e15) break;  // cannot be counted
        if (s < next) s = next;
        if (at > limit) break;
        continue;
      }
      result.push_back({std::min(std::max(double(at), 0.0), double(limit - 1)),
                        held || outside ? 0
                        : grown         ? scale
                                        : scale * (1 - t),
                        held || outside || grown ? 0 : scale * t, outside});
    }
    return result;
  };
  const auto rows = axis(b[1], b[3], p, args.grid.height, map.height);
  const auto columns = axis(b[0], b[2], q, args.grid.width, map.width);
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
void ReferenceCorners(const AverageProblem<T>& problem, int level, int64_t n,
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
        continue;  // weighs nothing
      }
      visit(problem.PixelAt(level, n, int64_t(y0) + i, int64_t(x0) + j, c),
            wy * wx, (i ? 1 : -1) * wx, (j ? 1 : -1) * wy);
    }
  }
}

struct AverageReference {
  std::vector<double> output;
  std::vector<std::vector<double>> d_maps;
  std::vector<double> d_boxes;
};

// The averages; the gradients of sum(d_output * averages).
template <typename T>
AverageReference ReferenceAverage(const AverageProblem<T>& problem) {
  const RoiAverageArgs& args = problem.args;
  AverageReference result;
  result.output.assign(problem.OutputSize(), 0);
  for (const auto& map : problem.maps) result.d_maps.emplace_back(map.size());
  result.d_boxes.assign(4 * problem.NumBoxes(), 0);
  std::vector<ReferencePoint> points;
  for (int64_t k = 0; k < problem.NumBoxes(); ++k) {
    for (int64_t p = 0; p < args.grid.height; ++p) {
      for (int64_t q = 0; q < args.grid.width; ++q) {
        int level;
        double count;
        if (!ReferencePoints(problem, k, p, q, &level, &points, &count)) {
          continue;
        }
        for (int64_t c = 0; c < args.ChannelsOfBins().count; ++c) {
          const int64_t at = problem.OutputAt(k, p, q, c);
          const double gradient = Widen(problem.d_output[at]);
          const int64_t from = problem.ChannelAt(p, q, c);
          double sum = 0;
          for (const ReferencePoint& point : points) {
            ReferenceCorners(
                problem, level, problem.box_indices[k], from, point,
                [&](int64_t pixel, double w, double dy, double dx) {
                  const double value = Widen(problem.maps[level][pixel]);
                  sum += w * value;
                  result.d_maps[level][pixel] += gradient * w / count;
                  double* const d = &result.d_boxes[4 * k];
                  d[0] += gradient * value * dx * point.x_low / count;
                  d[1] += gradient * value * dy * point.y_low / count;
                  d[2] += gradient * value * dx * point.x_high / count;
                  d[3] += gradient * value * dy * point.y_high / count;
                });
          }
          result.output[at] = sum / count;
        }
      }
    }
  }
  return result;
}

// The maxima of samples; the gradient of sum(d_output * maxima) to the map, and
// to boxes that of the sum with these values at the largest samples.
template <typename T>
AverageReference ReferenceMax(const AverageProblem<T>& problem,
                              const std::vector<T>& values) {
  const RoiAverageArgs& args = problem.args;
  AverageReference result;
  result.output.assign(problem.OutputSize(), 0);
  result.d_maps.emplace_back(problem.maps[0].size());
  result.d_boxes.assign(4 * problem.NumBoxes(), 0);
  std::vector<ReferencePoint> points;
  for (int64_t k = 0; k < problem.NumBoxes(); ++k) {
    for (int64_t p = 0; p < args.grid.height; ++p) {
      for (int64_t q = 0; q < args.grid.width; ++q) {
        int level;
        double count;
        if (!ReferencePoints(problem, k, p, q, &level, &points, &count)) {
          continue;
        }
        const int32_t n = problem.box_indices[k];
        for (int64_t c = 0; c < args.channels; ++c) {
          const ReferencePoint* best = nullptr;
          double most = 0;
          bool outside = points.size() < count;
          for (const ReferencePoint& point : points) {
            if (point.outside) {
              outside = true;
              continue;
            }
            double value = 0;
            ReferenceCorners(problem, 0, n, c, point,
                             [&](int64_t pixel, double w, double, double) {
                               value += w * Widen(problem.maps[0][pixel]);
                             });
            if (best == nullptr || value > most) {
              best = &point;
              most = value;
            }
          }
          if (best == nullptr || (outside && most < 0)) continue;  // 0
          const int64_t at = problem.OutputAt(k, p, q, c);
          result.output[at] = most;
          const double gradient = Widen(problem.d_output[at]);
          ReferenceCorners(problem, 0, n, c, *best,
                           [&](int64_t pixel, double w, double dy, double dx) {
                             result.d_maps[0][pixel] += w * gradient;
                             const double value = Widen(values[pixel]);
                             double* const d = &result.d_boxes[4 * k];
                             d[0] += gradient * value * dx * best->x_low;
                             d[1] += gradient * value * dy * best->y_low;
                             d[2] += gradient * value * dx * best->x_high;
                             d[3] += gradient * value * dy * best->y_high;
                           });
        }
      }
    }
  }
  return result;
}

// Largest |actual - expected|, less one rounding of expected to T; relative to
// the larger of 1 and |expected|.
template <typename T, typename A>
double WorstError(const std::vector<A>& actual,
                  const std::vector<double>& expected) {
  const double rounding = sizeof(T) == 8            ? 1e-15
                          : sizeof(T) == 4          ? 6e-8
                          : std::is_same_v<T, Half> ? 0x1p-11
                                                    : 0x1p-8;
  double worst = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double error = std::abs(double(Widen(actual[i])) - expected[i]) -
                         rounding * std::abs(expected[i]);
    // So that NaN counts as wrong.
    if (!(error <= worst)) worst = std::isnan(error) ? 1e300 : error;
  }
  return worst;
}

}  // namespace tfo::testing

#endif  // TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_AVERAGE_REFERENCE_H_
