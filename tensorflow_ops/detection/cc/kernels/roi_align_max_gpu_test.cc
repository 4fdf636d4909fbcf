// The CUDA kernels of roi_align_max, run by the host, against the definition
// written sample by sample in double. Features and boxes are such that all of
// it is exact: results agree to the bit, also where values are equal.
#include <cmath>
#include <cstring>
#include <limits>

#include "tensorflow_ops/core/cc/testing.h"
#include "tensorflow_ops/detection/cc/kernels/roi_align_max.h"

namespace tfo {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

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
  RoiArgs args;
  RoiSampling sampling;
  std::vector<T> features, values, d_output;
  std::vector<Coordinate<T>> boxes;
  std::vector<int32_t> box_indices;

  int64_t FeatureAt(int64_t n, int64_t y, int64_t x, int64_t c) const {
    return args.channels_first
               ? ((n * args.channels + c) * args.height + y) * args.width + x
               : ((n * args.height + y) * args.width + x) * args.channels + c;
  }
  int64_t OutputAt(int64_t k, int64_t p, int64_t q, int64_t c) const {
    const int64_t ph = args.pooled_height, pw = args.pooled_width;
    return args.channels_first ? ((k * args.channels + c) * ph + p) * pw + q
                               : ((k * ph + p) * pw + q) * args.channels + c;
  }
};

template <typename T>
Problem<T> MakeProblem(const Sizes& sizes) {
  Problem<T> problem;
  problem.args = {2,
                  sizes.height,
                  sizes.width,
                  sizes.channels,
                  sizes.num_boxes,
                  sizes.pooled_height,
                  sizes.pooled_width,
                  0.5f,
                  sizes.channels_first,
                  sizes.yxyx};
  problem.sampling = {sizes.ratio, sizes.aligned};
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

struct Point {
  bool inside;
  double y, x;
};

// The samples of a bin, in the order of the definition: those inside, then
// those outside.
template <typename T>
std::vector<Point> PointsOf(const Problem<T>& problem, int64_t k, int64_t p,
                            int64_t q) {
  const RoiArgs& args = problem.args;
  const auto* const b = &problem.boxes[4 * k];
  const int32_t image = problem.box_indices[k];
  for (int i = 0; i < 4; ++i) {
    if (!std::isfinite(b[i])) return {};
  }
  if (b[2] < b[0] || b[3] < b[1] || image < 0 || image >= args.batch) return {};
  std::vector<double> places[2];
  for (const int axis : {0, 1}) {
    const int from = args.yxyx ? axis : 1 - axis;
    double low = b[from] * args.spatial_scale;
    double size = b[from + 2] * args.spatial_scale - low;
    if (problem.sampling.aligned) {
      low -= 0.5;
    } else {
      size = std::fmax(size, 1);
    }
    const double bin =
        size / (axis == 0 ? args.pooled_height : args.pooled_width);
    const double grid =
        problem.sampling.ratio > 0 ? problem.sampling.ratio : std::ceil(bin);
    for (int64_t j = 0; j < grid; ++j) {
      places[axis].push_back(low + (axis == 0 ? p : q) * bin +
                             (j + 0.5) * bin / grid);
    }
  }
  std::vector<Point> inside, outside;
  for (const double y : places[0]) {
    for (const double x : places[1]) {
      if (y >= -1 && y <= args.height && x >= -1 && x <= args.width) {
        inside.push_back({true, std::fmin(std::fmax(y, 0), args.height - 1),
                          std::fmin(std::fmax(x, 0), args.width - 1)});
      } else {
        outside.push_back({false, 0, 0});
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

template <typename T>
void ExpectSame(const std::vector<T>& actual,
                const std::vector<double>& expected) {
  for (size_t i = 0; i < actual.size(); ++i) {
    const double value = Widen(actual[i]);
    const double rounded =
        Widen(Narrow<T>(static_cast<Accumulator<T>>(expected[i])));
    if (value == rounded || (std::isnan(value) && std::isnan(rounded)))
      continue;
    TFO_EXPECT_EQ(value, rounded);
    return;
  }
}

template <typename T>
void ExpectAsDefined(const Sizes& sizes) {
  const Problem<T> problem = MakeProblem<T>(sizes);
  const RoiArgs& args = problem.args;
  std::vector<double> output(problem.d_output.size(), 0),
      values = output, d_features(problem.features.size(), 0);
  for (int64_t k = 0; k < args.num_boxes; ++k) {
    for (int64_t p = 0; p < args.pooled_height; ++p) {
      for (int64_t q = 0; q < args.pooled_width; ++q) {
        const auto points = PointsOf(problem, k, p, q);
        if (points.empty()) continue;
        for (int64_t c = 0; c < args.channels; ++c) {
          size_t best = 0;
          double largest = 0;
          for (size_t i = 0; i < points.size(); ++i) {
            const double here =
                ValueAt(problem, problem.features, points[i], k, c);
            if (i == 0 || here > largest ||
                (std::isnan(here) && !std::isnan(largest))) {
              largest = here;
              best = i;
            }
          }
          const int64_t at = problem.OutputAt(k, p, q, c);
          output[at] = largest;
          values[at] = ValueAt(problem, problem.values, points[best], k, c);
          if (!points[best].inside) continue;
          ForPixels(points[best], [&](int64_t y, int64_t x, double weight) {
            d_features[problem.FeatureAt(problem.box_indices[k], y, x, c)] +=
                weight * Widen(problem.d_output[at]);
          });
        }
      }
    }
  }
  std::vector<T> result(output.size(), Narrow<T>(99));
  const auto max_of = [&](const std::vector<T>& of) {
    return RoiAlignMax(Gpu{}, args, problem.sampling, problem.features.data(),
                       of.data(), problem.boxes.data(),
                       problem.box_indices.data(), result.data());
  };
  TFO_EXPECT(max_of(problem.features) == nullptr);
  ExpectSame(result, output);
  std::fill(result.begin(), result.end(), Narrow<T>(99));
  TFO_EXPECT(max_of(problem.values) == nullptr);
  ExpectSame(result, values);
  std::vector<T> gradient(problem.features.size(), Narrow<T>(99));
  TFO_EXPECT(RoiAlignMaxGrad(Gpu{}, args, problem.sampling,
                             problem.d_output.data(), problem.features.data(),
                             problem.boxes.data(), problem.box_indices.data(),
                             gradient.data()) == nullptr);
  ExpectSame(gradient, d_features);
}

template <typename T>
void ExpectAllAsDefined() {
  for (const int64_t channels : {1, 5, 8}) {
    for (const bool channels_first : {false, true}) {
      for (const bool aligned : {false, true}) {
        for (const int32_t ratio : {0, 2}) {
          Sizes sizes;
          sizes.channels = channels;
          sizes.channels_first = channels_first;
          sizes.yxyx = channels_first;
          sizes.aligned = aligned;
          sizes.ratio = ratio;
          ExpectAsDefined<T>(sizes);
          sizes.with_bad_values = true;
          ExpectAsDefined<T>(sizes);
        }
      }
    }
  }
}
TFO_CUDA_TEST(RoiAlignMax, Float) { ExpectAllAsDefined<float>(); }
TFO_CUDA_TEST(RoiAlignMax, Double) { ExpectAllAsDefined<double>(); }
TFO_CUDA_TEST(RoiAlignMax, Half) { ExpectAllAsDefined<Half>(); }
TFO_CUDA_TEST(RoiAlignMax, BFloat16) { ExpectAllAsDefined<BFloat16>(); }

// More channels, boxes and bins than are looked at together.
TFO_CUDA_TEST(RoiAlignMax, ManyChannels) {
  Sizes sizes;
  sizes.channels = 133;
  ExpectAsDefined<float>(sizes);
}
TFO_CUDA_TEST(RoiAlignMax, ManyBoxes) {
  Sizes sizes;
  sizes.num_boxes = 300;
  sizes.channels = 2;
  ExpectAsDefined<float>(sizes);
  sizes.channels = 128;
  sizes.num_boxes = 140;
  ExpectAsDefined<Half>(sizes);
}
TFO_CUDA_TEST(RoiAlignMax, ManyBins) {
  Sizes sizes;
  sizes.num_boxes = 3;
  sizes.channels = 2;
  sizes.pooled_width = 128;
  sizes.ratio = 1;
  sizes.centred = true;
  ExpectAsDefined<float>(sizes);
  std::swap(sizes.pooled_height, sizes.pooled_width);
  ExpectAsDefined<float>(sizes);
}

// Bins whose samples have no room in shared memory, on either axis.
TFO_CUDA_TEST(RoiAlignMax, ManySamples) {
  for (const int64_t pooled_height : {2, 128}) {
    Sizes sizes;
    sizes.num_boxes = 3;
    sizes.channels = 2;
    sizes.pooled_height = pooled_height;
    sizes.pooled_width = 256 / pooled_height;
    sizes.ratio = 8;
    sizes.centred = true;
    ExpectAsDefined<float>(sizes);
  }
  Sizes sizes;
  sizes.num_boxes = 3;
  sizes.channels = 2;
  sizes.height = sizes.width = 5;
  sizes.pooled_height = sizes.pooled_width = 1;
  sizes.ratio = 256;
  ExpectAsDefined<float>(sizes);
}

// Finite boxes so large that their samples cannot be counted, nor all be told
// apart: finite results.
TFO_CUDA_TEST(RoiAlignMax, EnormousBoxes) {
  for (const int32_t ratio : {0, 2}) {
    Sizes sizes;
    sizes.ratio = ratio;
    sizes.aligned = ratio == 0;
    Problem<float> problem = MakeProblem<float>(sizes);
    problem.boxes = {-1e30f, -1e30f, 1e30f, 1e30f, 1e30f,  1e30f, 2e30f, 2e30f,
                     0,      0,      1e30f, 1e30f, -3e38f, 2,     3e38f, 11,
                     -1e9f,  1,      1e9f,  9,     -1e5f,  -1e5f, 1e5f,  1e5f};
    problem.box_indices.assign(6, 0);
    problem.args.num_boxes = 6;
    std::vector<float> output(problem.d_output.size()),
        gradient(problem.features.size(), kNan);
    for (const auto* values : {&problem.features, &problem.values}) {
      std::fill(output.begin(), output.end(), 0.0f);
      RoiAlignMax(Gpu{}, problem.args, problem.sampling,
                  problem.features.data(), values->data(), problem.boxes.data(),
                  problem.box_indices.data(), output.data());
      for (const float value : output) TFO_EXPECT(std::isfinite(value));
    }
    RoiAlignMaxGrad(Gpu{}, problem.args, problem.sampling,
                    problem.d_output.data(), problem.features.data(),
                    problem.boxes.data(), problem.box_indices.data(),
                    gradient.data());
    for (const float value : gradient) TFO_EXPECT(std::isfinite(value));
  }
}

TFO_CUDA_TEST(RoiAlignMax, EmptySizes) {
  const float box[] = {0, 0, 1, 1}, ones[] = {1, 1, 1, 1};
  const int32_t index = 0;
  const RoiSampling sampling = {2, true};
  RoiArgs args = {1, 2, 2, 1, 0, 2, 2, 1.0f, false, false};
  float result[4] = {9, 9, 9, 9};
  // No boxes: nothing to write, and no gradient.
  RoiAlignMax<float>(Gpu{}, args, sampling, ones, ones, nullptr, nullptr,
                     nullptr);
  RoiAlignMaxGrad<float>(Gpu{}, args, sampling, nullptr, ones, nullptr, nullptr,
                         result);
  for (const float value : result) TFO_EXPECT_EQ(value, 0);
  // No channels: nothing to write.
  args.num_boxes = 1;
  args.channels = 0;
  RoiAlignMax<float>(Gpu{}, args, sampling, ones, ones, box, &index, nullptr);
  RoiAlignMaxGrad<float>(Gpu{}, args, sampling, nullptr, ones, box, &index,
                         nullptr);
  // A map without pixels: zeros.
  args.channels = 1;
  args.height = 0;
  for (const bool channels_first : {false, true}) {
    args.channels_first = channels_first;
    for (const float* values : {ones, box}) {
      std::fill(result, result + 4, 9.0f);
      RoiAlignMax<float>(Gpu{}, args, sampling, ones, values, box, &index,
                         result);
      for (const float value : result) TFO_EXPECT_EQ(value, 0);
    }
    RoiAlignMaxGrad<float>(Gpu{}, args, sampling, ones, ones, box, &index,
                           nullptr);
  }
}

}  // namespace
}  // namespace tfo
