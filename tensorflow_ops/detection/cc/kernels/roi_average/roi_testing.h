// Inputs for tests of roi_average.
#ifndef TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_AVERAGE_ROI_TESTING_H_
#define TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_AVERAGE_ROI_TESTING_H_

#include <cmath>
#include <random>
#include <utility>
#include <vector>

#include "tensorflow_ops/core/cc/testing/gpu_testing.h"
#include "tensorflow_ops/detection/cc/kernels/roi_average/roi_average.h"

namespace tfo::testing {

template <typename T>
struct RoiProblem {
  RoiAverageSpec args;
  bool yxyx = false;
  std::vector<GpuVector<T>> maps;  // one per level
  GpuVector<Coordinate<T>> boxes;
  GpuVector<int32_t> box_indices;
  GpuVector<T> d_output;

  int64_t PixelAt(int level, int64_t n, int64_t y, int64_t x, int64_t c) const {
    return args.Features(level).Offset(n, y, x, c);
  }
  int64_t OutputAt(int64_t k, int64_t p, int64_t q, int64_t c) const {
    return args.Pooled(NumBoxes()).Offset(k, p, q, c);
  }
  // Returns the features' channel that channel c of bin (p, q) reads.
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
    return {NumBoxes(), yxyx, boxes.data(), box_indices.data()};
  }
  int64_t OutputSize() const { return args.Pooled(NumBoxes()).Size(); }
  RoiAverageArgs<T> AverageArgs(T* output) const {
    RoiAverageArgs<T> result = {args, AllBoxes(), {}, output};
    for (size_t l = 0; l < maps.size(); ++l) {
      result.features[l] = maps[l].data();
    }
    return result;
  }
  RoiAverageGradArgs<T> GradArgs(std::vector<GpuVector<T>>* d_maps) const {
    RoiAverageGradArgs<T> result = {args, AllBoxes(), d_output.data(), {}};
    for (size_t l = 0; l < d_maps->size(); ++l) {
      result.d_features[l] = (*d_maps)[l].data();
    }
    return result;
  }
  RoiAverageBoxesGradArgs<T> BoxesGradArgs(Coordinate<T>* d_boxes) const {
    RoiAverageBoxesGradArgs<T> result = {
        args, AllBoxes(), d_output.data(), {}, d_boxes};
    for (size_t l = 0; l < maps.size(); ++l) {
      result.features[l] = maps[l].data();
    }
    return result;
  }
  void AddBox(const double (&corners)[4], int32_t image) {
    boxes.insert(boxes.end(), corners, corners + 4);
    box_indices.push_back(image);
  }
};

// A problem on one map, with samples and RoiChannels::kAll, without boxes.
template <typename T>
RoiProblem<T> OneLevel(const FeatureShape& features, float spatial_scale,
                       const PoolGrid& grid, const RoiSampling& sampling) {
  RoiProblem<T> problem;
  RoiAverageSpec& args = problem.args;
  args = {};
  args.batch = features.batch;
  args.channels = features.channels;
  args.grid = grid;
  args.sampling = sampling;
  args.num_levels = 1;
  args.levels[0] = {features.height, features.width, spatial_scale, 0};
  return problem;
}

// Boxes of every kind: inside, across each edge, outside, empty, inverted, not
// finite, enormous, image out of range. Maps of 9 x 12 pixels at scale 0.5, and
// coarser levels.
template <typename T>
RoiProblem<T> MakeFixedProblem(RoiBins bins, RoiSampling sampling,
                               RoiChannels order, int64_t out_channels,
                               int levels = 1) {
  const double boxes[][4] = {{0, 0, 22, 16},
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
                             {NAN, 0, 5, 5},
                             {0, 0, INFINITY, 5},
                             {-INFINITY, 0, 5, 5},
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
  RoiProblem<T> problem;
  RoiAverageSpec& args = problem.args;
  args = {};
  args.batch = 2;
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
    problem.maps.push_back(ToGpu(RandomValues<T>(
        2 * args.channels * args.levels[l].height * args.levels[l].width,
        7 + l)));
  }
  for (const auto& box : boxes) {
    const int64_t k = problem.NumBoxes();
    problem.AddBox(box, k == 15 ? 2 : k == 16 ? -1 : k % 2);
  }
  problem.d_output = ToGpu(RandomValues<T>(problem.OutputSize(), 9));
  return problem;
}

// Sizes of a random problem.
struct Sizes {
  RoiBins bins = RoiBins::kSamples;
  RoiSampling sampling = {2, true};
  RoiChannels order = RoiChannels::kAll;
  int64_t channels = 5;  // per bin
  int64_t pooled_height = 3, pooled_width = 2;
  std::vector<std::pair<int64_t, int64_t>> maps = {{11, 13}};
  int64_t num_boxes = 12;
  double image = 40;       // boxes' centres lie in [0, image]
  double smallest = 0.02;  // of a box, as a fraction of image
  bool yxyx = false;
};

// Maps with halving scales, boxes for all of them and across their edges, and
// malformed boxes.
template <typename T>
RoiProblem<T> MakeRandomProblem(const Sizes& sizes, uint32_t seed) {
  RoiProblem<T> problem;
  RoiAverageSpec& args = problem.args;
  args = {};
  args.batch = 2;
  args.grid = {sizes.pooled_height, sizes.pooled_width};
  args.channels = sizes.channels;
  if (sizes.order != RoiChannels::kAll) {
    args.channels *= sizes.pooled_height * sizes.pooled_width;
  }
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
        ToGpu(RandomValues<T>(2 * height * width * args.channels, seed + l)));
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
    switch (k % 19) {  // malformed boxes
      case 3:
        box[k % 4] = NAN;
        break;
      case 7:
        box[2] = INFINITY;
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
    problem.AddBox(box, image);
  }
  problem.d_output = ToGpu(RandomValues<T>(problem.OutputSize(), seed + 7));
  return problem;
}

}  // namespace tfo::testing

#endif  // TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_AVERAGE_ROI_TESTING_H_
