// The definition of grid_sample on one axis. Places have 64 bits or more, in
// which those of floats move without rounding.
#ifndef TENSORFLOW_OPS_IMAGE_CC_KERNELS_GRID_SAMPLE_GRID_SAMPLE_TESTING_H_
#define TENSORFLOW_OPS_IMAGE_CC_KERNELS_GRID_SAMPLE_GRID_SAMPLE_TESTING_H_

#include <algorithm>
#include <cmath>
#include <vector>

#include "tensorflow_ops/image/cc/kernels/grid_sample/grid_sample_args.h"

namespace tfo::testing {

// Pixels with weights, and how the weights change with the coordinate.
struct Tap {
  int64_t pixel;  // -1: outside
  double weight, slope;
};
struct Axis {
  std::vector<Tap> taps;
  bool nan = false;
};

using Place = long double;

inline Place Reflect(Place p, Place low, Place high, double* sign) {
  if (high == low) return p - p;
  if (!std::isfinite(p)) return NAN;
  p = std::fmod(p, 2 * (high - low));
  while (p < low || p > high) {
    p = p < low ? 2 * low - p : 2 * high - p;
    *sign = -*sign;
  }
  return p;
}

// SciPy's NI_EXTEND_WRAP and NI_EXTEND_GRID_WRAP.
inline Place Wrap(Place p, Place period, Place last) {
  if (period == 0) return p - p;
  if (!std::isfinite(p)) return NAN;
  if (p < 0) return period + std::fmod(p, period);
  return p > last ? std::fmod(p, period) : p;
}

inline Axis AxisOfDefinition(const GridSampleSpec& args, int64_t size, double g,
                             double own) {
  Place p = g;
  double scale = 1;
  if (args.coordinates == SampleCoordinates::kFlow) {
    p = own - g;
    scale = -1;
  } else if (args.coordinates == SampleCoordinates::kNormalized) {
    p = std::isinf(g)        ? g
        : args.align_corners ? (g + 1) / 2 * (size - 1)
                             : ((g + 1) * size - 1) / 2;
    scale = (args.align_corners ? size - 1 : size) / 2.0;
  }
  Axis axis;
  const bool reflects = args.padding == SamplePadding::kReflection;
  const bool wraps = args.padding == SamplePadding::kWrap ||
                     args.padding == SamplePadding::kGridWrap;
  const Place low = args.align_corners ? 0 : -0.5;
  const Place high = args.align_corners ? size - 1 : size - 0.5;
  if (std::isnan(p) || (reflects && std::isinf(p) && high > low) ||
      ((reflects || wraps) && std::isinf(p))) {
    axis.nan = true;
    return axis;
  }
  if (args.mode == SampleMode::kBicubic) {
    p = reflects ? std::fmod(p, std::max<Place>(2 * (high - low), 1))
                 : std::clamp<Place>(p, -5, size + 4);
    const int64_t first = static_cast<int64_t>(std::floor(p)) - 1;
    for (int64_t i = first; i < first + 4; ++i) {
      const double d = static_cast<double>(p - i), x = std::abs(d), a = -0.75;
      const double weight =
          x <= 1 ? (a + 2) * x * x * x - (a + 3) * x * x + 1
                 : a * x * x * x - 5 * a * x * x + 8 * a * x - 4 * a;
      const double slope = x <= 1 ? 3 * (a + 2) * x * x - 2 * (a + 3) * x
                                  : 3 * a * x * x - 10 * a * x + 8 * a;
      int64_t pixel = i;
      double sign = 1;
      if (args.padding == SamplePadding::kBorder) {
        pixel = std::clamp<int64_t>(i, 0, size - 1);
      } else if (reflects) {
        pixel = std::clamp<int64_t>(std::llround(Reflect(i, low, high, &sign)),
                                    0, size - 1);
        if (size == 1) pixel = 0;
      }
      if (pixel < 0 || pixel >= size) pixel = -1;
      axis.taps.push_back({pixel, weight, scale * (d < 0 ? -slope : slope)});
    }
    return axis;
  }
  double sign = 1;
  const bool indices = args.coordinates == SampleCoordinates::kIndices;
  if (reflects) {
    // As SciPy: rounded half up before the pixel is reflected.
    const Place period = 2 * (size - 1);
    const bool half = indices && args.align_corners && size > 1 && p > 0 &&
                      std::fmod(p, period) == size - Place{0.5} &&
                      args.mode == SampleMode::kNearest;
    p = half ? size - 2 : Reflect(p, low, high, &sign);
  }
  const auto nearest = [&](Place at) {
    return indices ? std::floor(at + Place{0.5}) : std::rint(at);
  };
  Place to_nearest = 0;
  if (wraps) {
    to_nearest = nearest(p) - p;
    const bool grid = args.padding == SamplePadding::kGridWrap;
    p = Wrap(p, grid ? size : size - 1, size - 1);
    if (!grid && p == size - 1) sign = 0;
  }
  if (args.padding == SamplePadding::kConstant) {
    if (p < 0 || p > size - 1) p = -2;
    if (p == size - 1) sign = 0;
  }
  if (reflects || args.padding == SamplePadding::kBorder) {
    p = std::clamp<Place>(p, 0, size - 1);
    if (p <= 0 || p >= size - 1) sign = 0;
  }
  if (!(p > -2 && p < size + 1)) {
    axis.taps.push_back({-1, 1, 0});
    return axis;
  }
  const auto pixel_of = [&](int64_t pixel) -> int64_t {
    if (args.padding == SamplePadding::kGridWrap) {
      return (pixel + size) % size;
    }
    return pixel >= 0 && pixel < size ? pixel : -1;
  };
  if (args.mode == SampleMode::kNearest) {
    // Rounded before it wraps.
    const Place pixel = wraps ? p + to_nearest : nearest(p);
    axis.taps.push_back({pixel_of(static_cast<int64_t>(pixel)), 1, 0});
    return axis;
  }
  const int64_t at = static_cast<int64_t>(std::floor(p));
  const double fraction = static_cast<double>(p - at);
  for (int i = 0; i < 2; ++i) {
    axis.taps.push_back({pixel_of(at + i), i == 0 ? 1 - fraction : fraction,
                         sign * scale * (i == 0 ? -1 : 1)});
  }
  return axis;
}

}  // namespace tfo::testing

#endif  // TENSORFLOW_OPS_IMAGE_CC_KERNELS_GRID_SAMPLE_GRID_SAMPLE_TESTING_H_
