// The CUDA kernels of roi_align_max, run by the host, against the definition.
// All of it is exact, but for long sums of the gradient to boxes: results agree
// to the bit.
#include <cmath>
#include <cstring>

#include "tensorflow_ops/core/cc/testing.h"
#include "tensorflow_ops/detection/cc/kernels/roi_align_max.h"
#include "tensorflow_ops/detection/cc/kernels/roi_align_max_gpu_reference.h"

namespace tfo {
namespace {

using testing::BoxSum;
using testing::kNan;
using testing::MakeProblem;
using testing::Problem;
using testing::Sizes;

// RoiAlignMaxBoxesGrad with these values.
template <typename T>
void ExpectBoxesGrad(const Problem<T>& problem, const std::vector<T>& values,
                     const std::vector<BoxSum>& expected) {
  using Sum = Coordinate<T>;
  std::vector<Sum> d_boxes(problem.boxes.size(), 99), again = d_boxes;
  for (auto* const to : {&d_boxes, &again}) {
    TFO_EXPECT(RoiAlignMaxBoxesGrad(Gpu{}, problem.args, problem.AllBoxes(),
                                    problem.d_output.data(),
                                    problem.features.data(), values.data(),
                                    to->data()) == nullptr);
  }
  TFO_EXPECT(
      memcmp(d_boxes.data(), again.data(), d_boxes.size() * sizeof(Sum)) == 0);
  for (size_t i = 0; i < d_boxes.size(); ++i) {
    const int from = problem.yxyx ? i % 4 : i % 4 ^ 1;
    const double value = expected[i / 4].values[from];
    const double unit = sizeof(Sum) == 8 ? 1e-15 : 3e-7;
    if (std::fabs(d_boxes[i] - value) <= unit * expected[i / 4].sizes[from] ||
        (std::isnan(d_boxes[i]) && std::isnan(value)) || d_boxes[i] == value) {
      continue;
    }
    TFO_EXPECT_EQ(d_boxes[i], value);
    return;
  }
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
  const RoiAlignMaxArgs& args = problem.args;
  std::vector<double> output(problem.d_output.size(), 0),
      values = output, d_features(problem.features.size(), 0);
  // Of the features' own slopes, and of the other values'.
  std::vector<BoxSum> d_boxes(problem.NumBoxes()), d_boxes_of_values = d_boxes;
  for (int64_t k = 0; k < problem.NumBoxes(); ++k) {
    for (int64_t p = 0; p < args.grid.height; ++p) {
      for (int64_t q = 0; q < args.grid.width; ++q) {
        const auto points = PointsOf(problem, k, p, q);
        if (points.empty()) continue;
        for (int64_t c = 0; c < args.features.channels; ++c) {
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
          const double d_value = Widen(problem.d_output[at]);
          d_boxes[k].AddPoint(problem, problem.features, points[best], k, c,
                              d_value);
          d_boxes_of_values[k].AddPoint(problem, problem.values, points[best],
                                        k, c, d_value);
        }
      }
    }
  }
  std::vector<T> result(output.size(), Narrow<T>(99));
  TFO_EXPECT(RoiAlignMax(Gpu{}, args, problem.AllBoxes(),
                         problem.features.data(), result.data()) == nullptr);
  ExpectSame(result, output);
  std::fill(result.begin(), result.end(), Narrow<T>(99));
  TFO_EXPECT(RoiAlignMaxGradGrad(Gpu{}, args, problem.AllBoxes(),
                                 problem.values.data(), problem.features.data(),
                                 result.data()) == nullptr);
  ExpectSame(result, values);
  std::vector<T> gradient(problem.features.size(), Narrow<T>(99));
  TFO_EXPECT(RoiAlignMaxGrad(Gpu{}, args, problem.AllBoxes(),
                             problem.d_output.data(), problem.features.data(),
                             gradient.data()) == nullptr);
  ExpectSame(gradient, d_features);
  ExpectBoxesGrad(problem, problem.features, d_boxes);
  ExpectBoxesGrad(problem, problem.values, d_boxes_of_values);
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
    std::vector<float> output(problem.d_output.size()),
        gradient(problem.features.size(), kNan);
    RoiAlignMax(Gpu{}, problem.args, problem.AllBoxes(),
                problem.features.data(), output.data());
    for (const float value : output) TFO_EXPECT(std::isfinite(value));
    std::fill(output.begin(), output.end(), 0.0f);
    RoiAlignMaxGradGrad(Gpu{}, problem.args, problem.AllBoxes(),
                        problem.values.data(), problem.features.data(),
                        output.data());
    for (const float value : output) TFO_EXPECT(std::isfinite(value));
    RoiAlignMaxGrad(Gpu{}, problem.args, problem.AllBoxes(),
                    problem.d_output.data(), problem.features.data(),
                    gradient.data());
    for (const float value : gradient) TFO_EXPECT(std::isfinite(value));
    std::vector<float> d_boxes(24, kNan);
    RoiAlignMaxBoxesGrad(Gpu{}, problem.args, problem.AllBoxes(),
                         problem.d_output.data(), problem.features.data(),
                         problem.features.data(), d_boxes.data());
    for (const float value : d_boxes) TFO_EXPECT(std::isfinite(value));
  }
}

// All results are zeros. Inputs without elements may be null.
void ExpectZeros(const FeatureShape& features, int64_t num_boxes,
                 const float* map, const float* d_output) {
  const RoiAlignMaxArgs args = {{features, 1.0f, {2, 2}}, {2, true}};
  const float corners[] = {0, 0, 1, 1};
  const int32_t index = 0;
  const Boxes<float> boxes = {num_boxes, false, corners, &index};
  std::vector<float> output(args.Pooled(num_boxes).Size(), 9);
  std::vector<float> dd_output = output, d_boxes(4 * num_boxes, 9);
  std::vector<float> d_features(features.Size(), 9);
  RoiAlignMax<float>(Gpu{}, args, boxes, map, output.data());
  RoiAlignMaxGradGrad<float>(Gpu{}, args, boxes, map, map, dd_output.data());
  RoiAlignMaxGrad<float>(Gpu{}, args, boxes, d_output, map, d_features.data());
  RoiAlignMaxBoxesGrad<float>(Gpu{}, args, boxes, d_output, map, map,
                              d_boxes.data());
  for (const auto* result : {&output, &dd_output, &d_features, &d_boxes}) {
    for (const float value : *result) TFO_EXPECT_EQ(value, 0);
  }
}

TFO_CUDA_TEST(RoiAlignMax, EmptySizes) {
  const float ones[] = {1, 1, 1, 1};
  ExpectZeros({1, 2, 2, 1, false}, /*num_boxes=*/0, ones, nullptr);
  ExpectZeros({1, 2, 2, 0, false}, 1, nullptr, nullptr);  // no channels
  for (const bool channels_first : {false, true}) {       // no pixels
    ExpectZeros({1, 0, 2, 1, channels_first}, 1, nullptr, ones);
  }
}

}  // namespace
}  // namespace tfo
