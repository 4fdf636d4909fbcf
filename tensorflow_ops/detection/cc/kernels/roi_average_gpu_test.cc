// The CUDA kernels of roi_average, run by the host, against the definitions
// written sample by sample in double; the box gradient against differences of
// those.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "tensorflow_ops/core/cc/testing.h"
#include "tensorflow_ops/detection/cc/kernels/roi_average.h"
#include "tensorflow_ops/detection/cc/kernels/roi_average_gpu_reference.h"

namespace tfo {
namespace {

using testing::ChannelOf;
using testing::ForBins;
using testing::kNan;
using testing::MakeProblem;
using testing::Problem;
using testing::Sizes;
using testing::VisitPixels;
using testing::WeightedAverage;

// All channels of samples, on one map.
RoiAverageArgs OneLevel(const FeatureShape& features, const PoolGrid& grid,
                        const RoiSampling& sampling) {
  RoiAverageArgs args = {};
  args.batch = features.batch;
  args.channels = features.channels;
  args.channels_first = features.channels_first;
  args.grid = grid;
  args.sampling = sampling;
  args.num_levels = 1;
  args.levels[0] = {features.height, features.width, 1.0f, 0};
  return args;
}

template <typename T>
constexpr double kRounding = sizeof(T) == 8   ? 1e-13
                             : sizeof(T) == 4 ? 1e-6
                                              : 1e-3;
template <>
constexpr double kRounding<BFloat16> = 8e-3;
// Positions are rounded as coordinates are.
template <typename T>
constexpr double kPlaces = sizeof(T) == 8 ? 1e-12 : 1e-4;

double Largest(const std::vector<double>& values) {
  double largest = 0;
  for (const double value : values) {
    largest = std::fmax(largest, std::fabs(value));
  }
  return largest;
}

template <typename T>
void ExpectNear(const std::vector<T>& actual,
                const std::vector<double>& expected) {
  TFO_EXPECT_EQ(actual.size(), expected.size());
  const double absolute = kPlaces<T> * Largest(expected);
  for (size_t i = 0; i < actual.size(); ++i) {
    const double error = std::fabs(Widen(actual[i]) - expected[i]);
    if (error <= absolute + kRounding<T> * std::fabs(expected[i])) continue;
    TFO_EXPECT_EQ(Widen(actual[i]), expected[i]);
    return;
  }
}

template <typename T>
bool SameBits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() &&
         (a.empty() ||
          std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

template <typename T>
std::vector<std::vector<T>> Grad(const Problem<T>& problem, bool deterministic,
                                 const std::vector<T>& d_output) {
  std::vector<std::vector<T>> d_maps = problem.maps;
  std::vector<T*> pointers;
  for (auto& map : d_maps) {
    std::fill(map.begin(), map.end(), Narrow<T>(99));
    pointers.push_back(map.data());
  }
  Gpu gpu;
  gpu.deterministic = deterministic;
  TFO_EXPECT(RoiAverageGrad(gpu, problem.args, problem.AllBoxes(),
                            d_output.data(), pointers.data()) == nullptr);
  return d_maps;
}

template <typename T>
void ExpectAsDefined(const Sizes& sizes, uint32_t seed = 1) {
  const Problem<T> problem = MakeProblem<T>(sizes, seed);
  const RoiAverageArgs& args = problem.args;
  const int64_t channels = problem.NumChannels();
  std::vector<T> d_output =
      testing::RandomValues<T>(problem.OutputSize(), seed + 7);

  std::vector<double> expected(problem.OutputSize(), 0);
  std::vector<std::vector<double>> expected_grad;
  for (const auto& map : problem.maps) {
    expected_grad.emplace_back(map.size(), 0);
  }
  ForBins(problem, [&](int64_t k, int64_t p, int64_t q) {
    const std::vector<double> box(&problem.boxes[4 * k],
                                  &problem.boxes[4 * k] + 4);
    VisitPixels(problem, k, box.data(), p, q,
                [&](int64_t level, int64_t y, int64_t x, double weight) {
                  for (int64_t c = 0; c < channels; ++c) {
                    const int64_t at =
                        problem.FeatureAt(level, problem.box_indices[k], y, x,
                                          ChannelOf(args, p, q, c));
                    const int64_t to = problem.OutputAt(k, p, q, c);
                    expected[to] += weight * Widen(problem.maps[level][at]);
                    expected_grad[level][at] += weight * Widen(d_output[to]);
                  }
                });
  });

  std::vector<T> output(problem.OutputSize(), Narrow<T>(99));
  TFO_EXPECT(RoiAverage(Gpu{}, args, problem.AllBoxes(), problem.Maps().data(),
                        output.data()) == nullptr);
  ExpectNear(output, expected);

  const auto grad = Grad(problem, true, d_output);
  const auto fast_grad = Grad(problem, false, d_output);
  for (size_t l = 0; l < grad.size(); ++l) {
    ExpectNear(grad[l], expected_grad[l]);
    ExpectNear(fast_grad[l], expected_grad[l]);
  }
  const auto again = Grad(problem, true, d_output);
  for (size_t l = 0; l < grad.size(); ++l) {
    TFO_EXPECT(SameBits(grad[l], again[l]));
  }

  if (args.bins != RoiBins::kSamples) return;
  std::vector<double> expected_boxes(problem.boxes.size(), 0);
  std::vector<double> size_of_terms(problem.boxes.size(), 0);
  ForBins(problem, [&](int64_t k, int64_t p, int64_t q) {
    for (int i = 0; i < 4; ++i) {
      constexpr double kStep = 1e-6;
      double difference = 0;
      for (const double step : {-kStep, kStep}) {
        std::vector<double> box(&problem.boxes[4 * k],
                                &problem.boxes[4 * k] + 4);
        box[i] += step;
        difference += WeightedAverage(problem, d_output, k, box.data(), p, q) /
                      (2 * step);
      }
      expected_boxes[4 * k + i] += difference;
      size_of_terms[4 * k + i] += std::fabs(difference);
    }
  });
  std::vector<Coordinate<T>> d_boxes(problem.boxes.size(), 99);
  TFO_EXPECT(RoiAverageBoxesGrad(Gpu{}, args, problem.AllBoxes(),
                                 d_output.data(), problem.Maps().data(),
                                 d_boxes.data()) == nullptr);
  const double largest = Largest(size_of_terms);
  for (size_t i = 0; i < d_boxes.size(); ++i) {
    const double error = std::fabs(d_boxes[i] - expected_boxes[i]);
    if (error > 1e-6 * largest + 1e-5 * size_of_terms[i]) {
      TFO_EXPECT_EQ(d_boxes[i], expected_boxes[i]);
    }
  }
}

// Every combination of what is averaged, of which channels, in which layout,
// with channels in packs of 16 bytes, of two, of one.
template <typename T>
void ExpectAllAsDefined() {
  uint32_t seed = 1;
  for (const RoiBins bins : {RoiBins::kSamples, RoiBins::kPixels}) {
    for (const RoiChannels order :
         {RoiChannels::kAll, RoiChannels::kChannelMajor,
          RoiChannels::kBinMajor}) {
      for (const bool channels_first : {false, true}) {
        Sizes sizes;
        sizes.bins = bins;
        sizes.order = order;
        sizes.channels_first = channels_first;
        sizes.yxyx = channels_first;
        for (const int64_t channels : {5, 6, 8}) {
          sizes.channels = channels;
          sizes.sampling.ratio = channels % 4;  // 1, 2, or as the bin's size
          sizes.sampling.aligned = channels % 2 == 0;
          ExpectAsDefined<T>(sizes, ++seed);
        }
      }
    }
  }
}
TFO_CUDA_TEST(RoiAverage, Float) { ExpectAllAsDefined<float>(); }
TFO_CUDA_TEST(RoiAverage, Double) { ExpectAllAsDefined<double>(); }
TFO_CUDA_TEST(RoiAverage, Half) { ExpectAllAsDefined<Half>(); }
TFO_CUDA_TEST(RoiAverage, BFloat16) { ExpectAllAsDefined<BFloat16>(); }

TFO_CUDA_TEST(RoiAverage, SeveralLevels) {
  for (const bool channels_first : {false, true}) {
    Sizes sizes;
    sizes.maps = {{20, 24}, {10, 12}, {5, 6}};
    sizes.num_boxes = 40;
    sizes.channels_first = channels_first;
    ExpectAsDefined<float>(sizes);
    sizes.channels = 16;
    ExpectAsDefined<Half>(sizes);
  }
}

// More channels and more boxes than a block has threads, more channels than are
// gone through together.
TFO_CUDA_TEST(RoiAverage, ManyChannels) {
  Sizes sizes;
  sizes.channels = 133;
  ExpectAsDefined<float>(sizes);
  sizes.channels = 264;
  ExpectAsDefined<BFloat16>(sizes);
  // One pixel of so many, and one bin that is it.
  const RoiAverageArgs args =
      OneLevel({1, 1, 1, (1 << 20) + 33, false}, {1, 1}, {1, true});
  const auto features = testing::RandomValues<float>(args.channels, 1);
  std::vector<float> output(features.size(), 99);
  const float* map = features.data();
  const float box[] = {0, 0, 1, 1};
  const int32_t index = 0;
  RoiAverage<float>(Gpu{}, args, {1, false, box, &index}, &map, output.data());
  TFO_EXPECT(SameBits(output, features));
}
TFO_CUDA_TEST(RoiAverage, ManyBoxes) {
  Sizes sizes;
  sizes.maps = {{9, 10}, {5, 5}};
  sizes.image = 20;
  sizes.num_boxes = 300;
  sizes.pooled_height = sizes.pooled_width = 2;
  for (const RoiChannels order :
       {RoiChannels::kAll, RoiChannels::kChannelMajor}) {
    sizes.order = order;
    sizes.channels = order == RoiChannels::kAll ? 133 : 34;
    ExpectAsDefined<float>(sizes);
    sizes.channels = 5;
    ExpectAsDefined<double>(sizes);
  }
}

// More bins than are looked at together: 64 in a row, 128 on a tile's axis.
TFO_CUDA_TEST(RoiAverage, ManyBins) {
  for (const RoiChannels order : {RoiChannels::kAll, RoiChannels::kBinMajor}) {
    Sizes sizes;
    sizes.order = order;
    sizes.channels = 2;
    sizes.pooled_height = 3;
    sizes.pooled_width = 150;
    sizes.num_boxes = 3;
    ExpectAsDefined<float>(sizes);
    std::swap(sizes.pooled_height, sizes.pooled_width);
    ExpectAsDefined<float>(sizes);
  }
}

// Bins whose taps have no room in shared memory, on either axis.
TFO_CUDA_TEST(RoiAverage, LargeBins) {
  for (const bool channels_first : {false, true}) {
    for (const RoiBins bins : {RoiBins::kSamples, RoiBins::kPixels}) {
      Sizes sizes;
      sizes.bins = bins;
      sizes.sampling.ratio = 0;
      sizes.channels = 2;
      sizes.channels_first = channels_first;
      sizes.num_boxes = 2;
      sizes.smallest = 0.9;
      sizes.pooled_height = 1;
      sizes.pooled_width = 7;
      sizes.maps = {{9, 700}};
      sizes.image = 1400;
      ExpectAsDefined<float>(sizes, 5);
      sizes.maps = {{300, 9}};
      sizes.image = 600;
      ExpectAsDefined<float>(sizes, 5);
    }
  }
}

// Finite boxes so large that their samples cannot be counted, nor all be told
// apart: finite results, and both ways to the gradient agree.
TFO_CUDA_TEST(RoiAverage, EnormousBoxes) {
  for (const RoiBins bins : {RoiBins::kSamples, RoiBins::kPixels}) {
    for (const int32_t ratio : {0, 2}) {
      Sizes sizes;
      sizes.bins = bins;
      sizes.sampling = {ratio, ratio == 0};
      Problem<float> problem = MakeProblem<float>(sizes, 1);
      problem.boxes = {-1e30f, -1e30f, 1e30f, 1e30f, 1e30f, 1e30f,
                       2e30f,  2e30f,  0,     0,     1e30f, 1e30f,
                       -3e38f, 2,      3e38f, 11,    -1e9f, 1,
                       1e9f,   9,      -1e5f, -1e5f, 1e5f,  1e5f};
      problem.box_indices.assign(6, 0);
      const auto is_finite = [](float value) { return std::isfinite(value); };
      std::vector<float> output(problem.OutputSize(), kNan), d_boxes(24, kNan);
      RoiAverage(Gpu{}, problem.args, problem.AllBoxes(), problem.Maps().data(),
                 output.data());
      TFO_EXPECT(std::all_of(output.begin(), output.end(), is_finite));
      RoiAverageBoxesGrad(Gpu{}, problem.args, problem.AllBoxes(),
                          output.data(), problem.Maps().data(), d_boxes.data());
      TFO_EXPECT(std::all_of(d_boxes.begin(), d_boxes.end(), is_finite));
      const auto grad = Grad(problem, true, output)[0];
      const auto fast = Grad(problem, false, output)[0];
      for (size_t i = 0; i < grad.size(); ++i) {
        TFO_EXPECT(std::fabs(grad[i] - fast[i]) < 1e-6);
      }
    }
  }
}

TFO_CUDA_TEST(RoiAverage, NanStaysWhereItIs) {
  // Nine boxes side by side, of 2 x 2 pixels and one bin each; NaN in the
  // fifth.
  for (const RoiChannels order : {RoiChannels::kAll, RoiChannels::kBinMajor}) {
    RoiAverageArgs args = OneLevel({1, 6, 6, 4, false}, {1, 1}, {2, true});
    args.order = order;
    std::vector<float> corners;
    for (int k = 0; k < 9; ++k) {
      const float y = 2 * (k / 3), x = 2 * (k % 3);
      corners.insert(corners.end(), {x, y, x + 2, y + 2});
    }
    const std::vector<int32_t> box_indices(9, 0);
    const Boxes<float> boxes = {9, false, corners.data(), box_indices.data()};
    std::vector<float> features(6 * 6 * 4, 1), output(9 * 4, 99);
    features[(2 * 6 + 3) * 4] = kNan;
    const float* map = features.data();
    RoiAverage<float>(Gpu{}, args, boxes, &map, output.data());
    for (size_t i = 0; i < output.size(); ++i) {
      TFO_EXPECT_EQ(std::isnan(output[i]), i == 4 * 4);
    }
    for (const bool deterministic : {false, true}) {
      std::vector<float> d_features(features.size(), 99);
      float* d_map = d_features.data();
      std::vector<float> d_output(output.size(), 1);
      d_output[4 * 4] = kNan;
      Gpu gpu;
      gpu.deterministic = deterministic;
      RoiAverageGrad<float>(gpu, args, boxes, d_output.data(), &d_map);
      for (size_t i = 0; i < d_features.size(); ++i) {
        const size_t y = i / 4 / 6, x = i / 4 % 6;
        TFO_EXPECT_EQ(std::isnan(d_features[i]),
                      i % 4 == 0 && y / 2 == 1 && x / 2 == 1);
      }
    }
  }
}

void ExpectZeroOutput(const RoiAverageArgs& args, const Boxes<float>& boxes,
                      const float* map) {
  std::vector<float> output(args.Pooled(boxes.count).Size(), 9);
  RoiAverage<float>(Gpu{}, args, boxes, &map, output.data());
  for (const float value : output) TFO_EXPECT_EQ(value, 0);
}
void ExpectZeroGrad(const RoiAverageArgs& args, const Boxes<float>& boxes,
                    const float* d_output) {
  for (const bool deterministic : {false, true}) {
    Gpu gpu;
    gpu.deterministic = deterministic;
    std::vector<float> d_features(args.Features(0).Size(), 9);
    float* d_map = d_features.data();
    RoiAverageGrad<float>(gpu, args, boxes, d_output, &d_map);
    for (const float value : d_features) TFO_EXPECT_EQ(value, 0);
  }
}
void ExpectZeroBoxesGrad(const RoiAverageArgs& args, const Boxes<float>& boxes,
                         const float* d_output, const float* map) {
  std::vector<float> d_boxes(4 * boxes.count, 9);
  RoiAverageBoxesGrad<float>(Gpu{}, args, boxes, d_output, &map,
                             d_boxes.data());
  for (const float value : d_boxes) TFO_EXPECT_EQ(value, 0);
}

TFO_CUDA_TEST(RoiAverage, EmptySizes) {
  const float corners[] = {0, 0, 1, 1}, ones[] = {1, 1, 1, 1};
  const int32_t index = 0;
  const Boxes<float> no_boxes = {}, box = {1, false, corners, &index};
  const RoiSampling sampling = {2, true};
  RoiAverageArgs args = OneLevel({1, 2, 2, 1, false}, {2, 2}, sampling);
  ExpectZeroOutput(args, no_boxes, ones);
  ExpectZeroGrad(args, no_boxes, nullptr);
  ExpectZeroBoxesGrad(args, no_boxes, nullptr, ones);
  // No channels.
  args = OneLevel({1, 2, 2, 0, false}, {2, 2}, sampling);
  ExpectZeroOutput(args, box, ones);
  ExpectZeroGrad(args, box, nullptr);
  ExpectZeroBoxesGrad(args, box, nullptr, ones);
  // A map without pixels.
  for (const bool channels_first : {false, true}) {
    args = OneLevel({1, 0, 2, 1, channels_first}, {2, 2}, sampling);
    ExpectZeroOutput(args, box, nullptr);
    ExpectZeroGrad(args, box, ones);
    ExpectZeroBoxesGrad(args, box, ones, nullptr);
  }
}

}  // namespace
}  // namespace tfo
