// For tests of the CUDA kernels of roi_average: problems, and what the ops
// compute by definition, in double, sample by sample.
#ifndef TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_AVERAGE_GPU_REFERENCE_H_
#define TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_AVERAGE_GPU_REFERENCE_H_

#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "tensorflow_ops/core/cc/testing.h"
#include "tensorflow_ops/detection/cc/kernels/roi_average.h"

namespace tfo::testing {

inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
inline constexpr double kInf = std::numeric_limits<double>::infinity();

template <typename T>
struct Problem {
  RoiAverageArgs args;
  bool yxyx;
  std::vector<std::vector<T>> maps;
  std::vector<Coordinate<T>> boxes;
  std::vector<int32_t> box_indices;

  int64_t FeatureAt(int64_t level, int64_t n, int64_t y, int64_t x,
                    int64_t c) const {
    const RoiLevel& map = args.levels[level];
    const int64_t channels = args.channels;
    return args.channels_first
               ? ((n * channels + c) * map.height + y) * map.width + x
               : ((n * map.height + y) * map.width + x) * channels + c;
  }
  int64_t OutputAt(int64_t k, int64_t p, int64_t q, int64_t c) const {
    const int64_t ph = args.grid.height, pw = args.grid.width;
    const int64_t channels = NumChannels();
    return args.channels_first ? ((k * channels + c) * ph + p) * pw + q
                               : ((k * ph + p) * pw + q) * channels + c;
  }
  int64_t NumChannels() const {  // of a bin
    return args.order == RoiChannels::kAll
               ? args.channels
               : args.channels / (args.grid.height * args.grid.width);
  }
  int64_t NumBoxes() const { return box_indices.size(); }
  int64_t OutputSize() const {
    return NumBoxes() * args.grid.height * args.grid.width * NumChannels();
  }
  Boxes<Coordinate<T>> AllBoxes() const {
    return {NumBoxes(), yxyx, boxes.data(), box_indices.data()};
  }
  std::vector<const T*> Maps() const {
    std::vector<const T*> pointers;
    for (const auto& map : maps) pointers.push_back(map.data());
    return pointers;
  }
};

// Sizes of a problem; the rest is drawn.
struct Sizes {
  RoiBins bins = RoiBins::kSamples;
  RoiSampling sampling = {2, true};
  RoiChannels order = RoiChannels::kAll;
  int64_t channels = 5;  // of a bin
  int64_t pooled_height = 3, pooled_width = 2;
  std::vector<std::pair<int64_t, int64_t>> maps = {{11, 13}};
  int64_t num_boxes = 12;
  double image = 40;       // boxes lie within
  double smallest = 0.02;  // part of the image that a box covers on an axis
  bool channels_first = false, yxyx = false;
};

// Maps that halve in scale, and boxes over all of them and their edges, as well
// as malformed ones.
template <typename T>
Problem<T> MakeProblem(const Sizes& sizes, uint32_t seed) {
  Problem<T> problem;
  RoiAverageArgs& args = problem.args;
  args = {};
  args.batch = 2;
  args.grid = {sizes.pooled_height, sizes.pooled_width};
  args.channels = sizes.channels;
  if (sizes.order != RoiChannels::kAll) {
    args.channels *= sizes.pooled_height * sizes.pooled_width;
  }
  args.channels_first = sizes.channels_first;
  problem.yxyx = sizes.yxyx;
  args.bins = sizes.bins;
  args.sampling = sizes.sampling;
  args.order = sizes.order;
  args.num_levels = sizes.maps.size();
  for (size_t l = 0; l < sizes.maps.size(); ++l) {
    const auto [height, width] = sizes.maps[l];
    args.levels[l] = {height, width, 0.5f / (1 << l),
                      l == 0 ? 0.0f : 8.0f * (1 << (l - 1))};
    problem.maps.push_back(
        RandomValues<T>(2 * height * width * args.channels, seed + l));
  }
  std::mt19937 random(seed + 99);
  std::uniform_real_distribution<double> uniform(0, 1);
  for (int64_t k = 0; k < sizes.num_boxes; ++k) {
    double box[4];
    const double extent =
        sizes.image * std::pow(sizes.smallest, uniform(random));
    for (int i = 0; i < 2; ++i) {
      box[i] = sizes.image * uniform(random) - extent / 2;
      box[i + 2] = box[i] + extent * (0.5 + uniform(random));
    }
    int32_t image = random() % 2;
    switch (k % 19) {  // some malformed ones
      case 3:
        box[k % 4] = kNan;
        break;
      case 7:
        box[2] = kInf;
        break;
      case 9:
        std::swap(box[1], box[3]);
        break;
      case 11:
        image = 2;
        break;
      case 13:
        image = -1;
        break;
      case 15:
        box[0] += 1e5, box[2] += 1e5;
        break;
      case 17:
        box[0] = box[2], box[1] = box[3];
        break;
    }
    problem.boxes.insert(problem.boxes.end(), box, box + 4);
    problem.box_indices.push_back(image);
  }
  return problem;
}

// Calls add(level, y, x, weight) for each pixel of each sample that bin (p, q)
// of box k averages, several times for the same pixel: the definition, with the
// box as an argument. Coordinates are computed in double.
template <typename T>
void VisitPixels(
    const Problem<T>& problem, int64_t k, const double* box, int64_t p,
    int64_t q,
    const std::function<void(int64_t, int64_t, int64_t, double)>& add) {
  const RoiAverageArgs& args = problem.args;
  const int32_t image = problem.box_indices[k];
  // Whether it is valid, its level and its grid are those of the box as it is,
  // also where `box` is moved a little.
  const auto* const b = &problem.boxes[4 * k];
  for (int i = 0; i < 4; ++i) {
    if (!std::isfinite(b[i])) return;
  }
  if (b[2] < b[0] || b[3] < b[1]) return;
  if (image < 0 || image >= args.batch) return;
  int level = 0;
  const double side = std::sqrt((double{b[2]} - b[0]) * (double{b[3]} - b[1]));
  for (int l = 1; l < args.num_levels; ++l) {
    if (side >= args.levels[l].smallest_box) level = l;
  }
  const RoiLevel& map = args.levels[level];
  const int iy = problem.yxyx ? 0 : 1;
  struct Axis {
    double low, high, size_as_is;
    int64_t bins, bin, limit;
    std::vector<double> samples;  // or pixels
  };
  const auto axis_of = [&](int i, int64_t bins, int64_t bin, int64_t limit) {
    return Axis{box[i], box[i + 2], double{b[i + 2]} - b[i], bins, bin,
                limit,  {}};
  };
  Axis axes[] = {axis_of(iy, args.grid.height, p, map.height),
                 axis_of(1 - iy, args.grid.width, q, map.width)};
  double count = 1;
  for (Axis& axis : axes) {
    double low = axis.low * map.spatial_scale;
    double high = axis.high * map.spatial_scale;
    if (args.bins == RoiBins::kPixels) {
      low = std::round(low);
      const double size = std::fmax(std::round(high) - low, 1);
      // Pixels i with i >= floor(p size / bins) and i < ceil(...), clipped.
      for (int64_t i = 0; i < axis.limit; ++i) {
        const double in_bins = (i - low) * axis.bins;
        if (in_bins + axis.bins > axis.bin * size &&
            in_bins < (axis.bin + 1) * size) {
          axis.samples.push_back(i);
        }
      }
      count *= axis.samples.size();
      continue;
    }
    if (args.sampling.aligned) low -= 0.5, high -= 0.5;
    double size = high - low;
    if (!args.sampling.aligned) size = std::fmax(size, 1);
    const double bin = size / axis.bins;
    double size_as_is = axis.size_as_is * map.spatial_scale;
    if (!args.sampling.aligned) size_as_is = std::fmax(size_as_is, 1);
    const double grid = args.sampling.ratio > 0
                            ? args.sampling.ratio
                            : std::ceil(size_as_is / axis.bins);
    for (int64_t i = 0; i < grid; ++i) {
      axis.samples.push_back(low + axis.bin * bin + (i + 0.5) * bin / grid);
    }
    count *= grid;
  }
  for (const double y : axes[0].samples) {
    for (const double x : axes[1].samples) {
      if (args.bins == RoiBins::kPixels) {
        add(level, y, x, 1 / count);
        continue;
      }
      if (y < -1 || y > map.height || x < -1 || x > map.width) continue;
      const double at_y = std::fmin(std::fmax(y, 0), map.height - 1);
      const double at_x = std::fmin(std::fmax(x, 0), map.width - 1);
      const double y0 = std::floor(at_y), x0 = std::floor(at_x);
      for (const double yi : {y0, y0 + 1}) {
        for (const double xi : {x0, x0 + 1}) {
          const double weight =
              (1 - std::fabs(at_y - yi)) * (1 - std::fabs(at_x - xi));
          if (weight > 0) add(level, yi, xi, weight / count);
        }
      }
    }
  }
}

// The features' channel of bin (p, q)'s channel c.
inline int64_t ChannelOf(const RoiAverageArgs& args, int64_t p, int64_t q,
                         int64_t c) {
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

template <typename T, typename Use>
void ForBins(const Problem<T>& problem, const Use& use) {
  for (int64_t k = 0; k < problem.NumBoxes(); ++k) {
    for (int64_t p = 0; p < problem.args.grid.height; ++p) {
      for (int64_t q = 0; q < problem.args.grid.width; ++q) use(k, p, q);
    }
  }
}

// The sum over the channels of bin (p, q) of gradient times average.
template <typename T>
double WeightedAverage(const Problem<T>& problem,
                       const std::vector<T>& gradient, int64_t k,
                       const double* box, int64_t p, int64_t q) {
  double sum = 0;
  VisitPixels(problem, k, box, p, q,
              [&](int64_t level, int64_t y, int64_t x, double weight) {
                for (int64_t c = 0; c < problem.NumChannels(); ++c) {
                  sum += weight *
                         Widen(gradient[problem.OutputAt(k, p, q, c)]) *
                         Widen(problem.maps[level][problem.FeatureAt(
                             level, problem.box_indices[k], y, x,
                             ChannelOf(problem.args, p, q, c))]);
                }
              });
  return sum;
}

}  // namespace tfo::testing

#endif  // TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_AVERAGE_GPU_REFERENCE_H_
