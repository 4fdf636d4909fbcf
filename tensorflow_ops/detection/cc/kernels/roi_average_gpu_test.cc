// The CUDA kernels of roi_average, run by the host, against the definitions
// written sample by sample in double; the box gradient against differences of
// those.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

#include "tensorflow_ops/core/cc/testing.h"
#include "tensorflow_ops/detection/cc/kernels/roi_average.h"

namespace tfo {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

template <typename T>
struct Problem {
  RoiAverageArgs args;
  std::vector<std::vector<T>> maps;
  std::vector<Coordinate<T>> boxes;
  std::vector<int32_t> box_indices;

  int64_t FeatureAt(int64_t level, int64_t n, int64_t y, int64_t x,
                    int64_t c) const {
    const RoiLevel& map = args.levels[level];
    const int64_t channels = args.roi.channels;
    return args.roi.channels_first
               ? ((n * channels + c) * map.height + y) * map.width + x
               : ((n * map.height + y) * map.width + x) * channels + c;
  }
  int64_t OutputAt(int64_t k, int64_t p, int64_t q, int64_t c) const {
    const int64_t ph = args.roi.pooled_height, pw = args.roi.pooled_width;
    const int64_t channels = args.PooledChannels();
    return args.roi.channels_first ? ((k * channels + c) * ph + p) * pw + q
                                   : ((k * ph + p) * pw + q) * channels + c;
  }
  int64_t OutputSize() const {
    return args.roi.num_boxes * args.roi.pooled_height * args.roi.pooled_width *
           args.PooledChannels();
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
  args.roi.batch = 2;
  args.roi.pooled_height = sizes.pooled_height;
  args.roi.pooled_width = sizes.pooled_width;
  args.roi.channels = sizes.channels;
  if (sizes.order != RoiChannels::kAll) {
    args.roi.channels *= sizes.pooled_height * sizes.pooled_width;
  }
  args.roi.num_boxes = sizes.num_boxes;
  args.roi.channels_first = sizes.channels_first;
  args.roi.yxyx = sizes.yxyx;
  args.bins = sizes.bins;
  args.sampling = sizes.sampling;
  args.order = sizes.order;
  args.num_levels = sizes.maps.size();
  for (size_t l = 0; l < sizes.maps.size(); ++l) {
    const auto [height, width] = sizes.maps[l];
    args.levels[l] = {height, width, 0.5f / (1 << l),
                      l == 0 ? 0.0f : 8.0f * (1 << (l - 1))};
    problem.maps.push_back(testing::RandomValues<T>(
        2 * height * width * args.roi.channels, seed + l));
  }
  args.roi.height = args.levels[0].height;
  args.roi.width = args.levels[0].width;
  args.roi.spatial_scale = args.levels[0].spatial_scale;
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
  if (image < 0 || image >= args.roi.batch) return;
  int level = 0;
  const double side = std::sqrt((double{b[2]} - b[0]) * (double{b[3]} - b[1]));
  for (int l = 1; l < args.num_levels; ++l) {
    if (side >= args.levels[l].smallest_box) level = l;
  }
  const RoiLevel& map = args.levels[level];
  const int iy = args.roi.yxyx ? 0 : 1;
  struct Axis {
    double low, high, size_as_is;
    int64_t bins, bin, limit;
    std::vector<double> samples;  // or pixels
  };
  const auto axis_of = [&](int i, int64_t bins, int64_t bin, int64_t limit) {
    return Axis{box[i], box[i + 2], double{b[i + 2]} - b[i], bins, bin,
                limit,  {}};
  };
  Axis axes[] = {axis_of(iy, args.roi.pooled_height, p, map.height),
                 axis_of(1 - iy, args.roi.pooled_width, q, map.width)};
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
int64_t ChannelOf(const RoiAverageArgs& args, int64_t p, int64_t q, int64_t c) {
  const int64_t ph = args.roi.pooled_height, pw = args.roi.pooled_width;
  switch (args.order) {
    case RoiChannels::kAll:
      return c;
    case RoiChannels::kChannelMajor:
      return (c * ph + p) * pw + q;
    case RoiChannels::kBinMajor:
      return (p * pw + q) * args.PooledChannels() + c;
  }
  return -1;
}

template <typename T, typename Use>
void ForBins(const Problem<T>& problem, const Use& use) {
  for (int64_t k = 0; k < problem.args.roi.num_boxes; ++k) {
    for (int64_t p = 0; p < problem.args.roi.pooled_height; ++p) {
      for (int64_t q = 0; q < problem.args.roi.pooled_width; ++q) use(k, p, q);
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
                for (int64_t c = 0; c < problem.args.PooledChannels(); ++c) {
                  sum += weight *
                         Widen(gradient[problem.OutputAt(k, p, q, c)]) *
                         Widen(problem.maps[level][problem.FeatureAt(
                             level, problem.box_indices[k], y, x,
                             ChannelOf(problem.args, p, q, c))]);
                }
              });
  return sum;
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
  TFO_EXPECT(RoiAverageGrad(Gpu{}, problem.args, deterministic, d_output.data(),
                            problem.boxes.data(), problem.box_indices.data(),
                            pointers.data()) == nullptr);
  return d_maps;
}

template <typename T>
void ExpectAsDefined(const Sizes& sizes, uint32_t seed = 1) {
  const Problem<T> problem = MakeProblem<T>(sizes, seed);
  const RoiAverageArgs& args = problem.args;
  const int64_t channels = args.PooledChannels();
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
  TFO_EXPECT(RoiAverage(Gpu{}, args, problem.Maps().data(),
                        problem.boxes.data(), problem.box_indices.data(),
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
  std::vector<double> expected_boxes(4 * args.roi.num_boxes, 0);
  std::vector<double> size_of_terms(4 * args.roi.num_boxes, 0);
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
  std::vector<Coordinate<T>> d_boxes(4 * args.roi.num_boxes, 99);
  TFO_EXPECT(RoiAverageBoxesGrad(Gpu{}, args, d_output.data(),
                                 problem.Maps().data(), problem.boxes.data(),
                                 problem.box_indices.data(),
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
  RoiAverageArgs args = {};
  args.roi = {1, 1, 1, (1 << 20) + 33, 1, 1, 1, 1.0f, false, false};
  args.sampling = {1, true};
  args.num_levels = 1;
  args.levels[0] = {1, 1, 1.0f, 0};
  const auto features = testing::RandomValues<float>(args.roi.channels, 1);
  std::vector<float> output(features.size(), 99);
  const float* map = features.data();
  const float box[] = {0, 0, 1, 1};
  const int32_t index = 0;
  RoiAverage<float>(Gpu{}, args, &map, box, &index, output.data());
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
      problem.args.roi.num_boxes = 6;
      const auto is_finite = [](float value) { return std::isfinite(value); };
      std::vector<float> output(problem.OutputSize(), kNan), d_boxes(24, kNan);
      RoiAverage(Gpu{}, problem.args, problem.Maps().data(),
                 problem.boxes.data(), problem.box_indices.data(),
                 output.data());
      TFO_EXPECT(std::all_of(output.begin(), output.end(), is_finite));
      RoiAverageBoxesGrad(Gpu{}, problem.args, output.data(),
                          problem.Maps().data(), problem.boxes.data(),
                          problem.box_indices.data(), d_boxes.data());
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
    RoiAverageArgs args = {};
    args.roi = {1, 6, 6, 4, 9, 1, 1, 1.0f, false, false};
    args.sampling = {2, true};
    args.order = order;
    args.num_levels = 1;
    args.levels[0] = {6, 6, 1.0f, 0};
    std::vector<float> boxes;
    for (int k = 0; k < 9; ++k) {
      const float y = 2 * (k / 3), x = 2 * (k % 3);
      boxes.insert(boxes.end(), {x, y, x + 2, y + 2});
    }
    const std::vector<int32_t> box_indices(9, 0);
    std::vector<float> features(6 * 6 * 4, 1), output(9 * 4, 99);
    features[(2 * 6 + 3) * 4] = kNan;
    const float* map = features.data();
    RoiAverage<float>(Gpu{}, args, &map, boxes.data(), box_indices.data(),
                      output.data());
    for (size_t i = 0; i < output.size(); ++i) {
      TFO_EXPECT_EQ(std::isnan(output[i]), i == 4 * 4);
    }
    for (const bool deterministic : {false, true}) {
      std::vector<float> d_features(features.size(), 99);
      float* d_map = d_features.data();
      std::vector<float> d_output(output.size(), 1);
      d_output[4 * 4] = kNan;
      RoiAverageGrad<float>(Gpu{}, args, deterministic, d_output.data(),
                            boxes.data(), box_indices.data(), &d_map);
      for (size_t i = 0; i < d_features.size(); ++i) {
        const size_t y = i / 4 / 6, x = i / 4 % 6;
        TFO_EXPECT_EQ(std::isnan(d_features[i]),
                      i % 4 == 0 && y / 2 == 1 && x / 2 == 1);
      }
    }
  }
}

TFO_CUDA_TEST(RoiAverage, EmptySizes) {
  RoiAverageArgs args = {};
  args.roi = {1, 2, 2, 1, 0, 2, 2, 1.0f, false, false};
  args.sampling = {2, true};
  args.num_levels = 1;
  args.levels[0] = {2, 2, 1.0f, 0};
  const float box[] = {0, 0, 1, 1}, ones[] = {1, 1, 1, 1};
  const float* map = ones;
  const int32_t index = 0;
  // No boxes: nothing to write, and no gradient.
  float result[4] = {9, 9, 9, 9};
  RoiAverage<float>(Gpu{}, args, &map, nullptr, nullptr, nullptr);
  RoiAverageBoxesGrad<float>(Gpu{}, args, nullptr, &map, nullptr, nullptr,
                             nullptr);
  for (const bool deterministic : {false, true}) {
    std::fill(result, result + 4, 9.0f);
    float* d_map = result;
    RoiAverageGrad<float>(Gpu{}, args, deterministic, nullptr, nullptr, nullptr,
                          &d_map);
    for (const float value : result) TFO_EXPECT_EQ(value, 0);
  }
  // No channels: a box has no gradient.
  args.roi.num_boxes = 1;
  args.roi.channels = 0;
  std::fill(result, result + 4, 9.0f);
  RoiAverage<float>(Gpu{}, args, &map, box, &index, nullptr);
  RoiAverageBoxesGrad<float>(Gpu{}, args, nullptr, &map, box, &index, result);
  for (const float value : result) TFO_EXPECT_EQ(value, 0);
  // A map without pixels: zeros.
  args.roi.channels = 1;
  args.roi.height = args.levels[0].height = 0;
  for (const bool channels_first : {false, true}) {
    args.roi.channels_first = channels_first;
    std::fill(result, result + 4, 9.0f);
    map = nullptr;
    RoiAverage<float>(Gpu{}, args, &map, box, &index, result);
    for (const float value : result) TFO_EXPECT_EQ(value, 0);
    float* d_map = nullptr;
    for (const bool deterministic : {false, true}) {
      RoiAverageGrad<float>(Gpu{}, args, deterministic, ones, box, &index,
                            &d_map);
    }
    std::fill(result, result + 4, 9.0f);
    RoiAverageBoxesGrad<float>(Gpu{}, args, ones, &map, box, &index, result);
    for (const float value : result) TFO_EXPECT_EQ(value, 0);
  }
}

}  // namespace
}  // namespace tfo
