// Compares roi_align's maximum mode on the CPU and with CUDA with its
// reference.
#include "tensorflow_ops/detection/cc/kernels/roi_align_max/roi_align_max.h"

#include <algorithm>
#include <cmath>

#include "tensorflow_ops/detection/cc/kernels/roi_average/roi_reference_testing.h"
#include "tensorflow_ops/detection/cc/kernels/roi_average/roi_testing.h"

namespace tfo {
namespace {

using testing::Exact;
using testing::ExactProblem;
using testing::GpuVector;
using testing::HaveSameBits;
using testing::kInf;
using testing::kNan;
using testing::MakeFixedProblem;
using testing::OneLevel;
using testing::RandomValues;
using testing::RoiProblem;
using testing::ThreadedCpu;
using testing::ToGpu;
using testing::WorstError;

template <typename T>
struct Result {
  GpuVector<T> output;
  GpuVector<T> values;  // another map's at the features' maxima
  GpuVector<T> d_map;
  GpuVector<Coordinate<T>> d_boxes;  // for that map
};

template <typename T, typename Device>
Result<T> Run(const Device& device, const RoiProblem<T>& problem,
              const GpuVector<T>& values) {
  const RoiAlignMaxSpec spec = problem.MaxSpec();
  const auto boxes = problem.AllBoxes();
  const T* const map = problem.maps[0].data();
  const T* const d_output = problem.d_output.data();
  const T garbage = Narrow<T>(77);
  Result<T> result;
  result.output.assign(problem.OutputSize(), garbage);
  result.values = result.output;
  result.d_map.assign(problem.maps[0].size(), garbage);
  result.d_boxes.assign(problem.boxes.size(), 77);
  TFO_EXPECT_RUNS(
      RoiAlignMax<T>(device, {spec, boxes, map, result.output.data()}));
  TFO_EXPECT_RUNS(RoiAlignMaxGradGrad<T>(
      device, {spec, boxes, values.data(), map, result.values.data()}));
  TFO_EXPECT_RUNS(RoiAlignMaxGrad<T>(
      device, {spec, boxes, d_output, map, result.d_map.data()}));
  TFO_EXPECT_RUNS(RoiAlignMaxBoxesGrad<T>(
      device,
      {spec, boxes, d_output, map, values.data(), result.d_boxes.data()}));
  return result;
}

template <typename T, typename Device>
Result<T> Run(const Device& device, const RoiProblem<T>& problem) {
  return Run(device, problem, problem.maps[0]);
}

template <typename T>
void ExpectSameBits(const Result<T>& a, const Result<T>& b) {
  TFO_EXPECT(HaveSameBits(a.output, b.output));
  TFO_EXPECT(HaveSameBits(a.values, b.values));
  TFO_EXPECT(HaveSameBits(a.d_map, b.d_map));
  TFO_EXPECT(HaveSameBits(a.d_boxes, b.d_boxes));
}

// Tolerates rounding of sums with many terms. Values may be infinite or NaN.
template <typename T>
void ExpectBoxesNear(const GpuVector<Coordinate<T>>& actual,
                     const testing::RoiReference& expected, double unit) {
  for (size_t i = 0; i < actual.size(); ++i) {
    const double value = expected.d_boxes[i];
    if (std::abs(actual[i] - value) <= unit * expected.d_boxes_size[i] ||
        actual[i] == value || (std::isnan(actual[i]) && std::isnan(value))) {
      continue;
    }
    TFO_EXPECT_EQ(actual[i], value);
    return;
  }
}

template <typename T>
void Check(const RoiProblem<T>& problem, const testing::Caller& caller = {}) {
  const testing::Case of_test(caller, testing::NameOf<T>(), "boxes ",
                              problem.NumBoxes(), ", outputs ",
                              problem.d_output.size());
  const double tolerance = sizeof(T) == 8 ? 1e-12 : 1e-5;
  const auto values = ToGpu(RandomValues<T>(problem.maps[0].size(), 21));
  const auto expected = testing::ReferenceMax(problem, values);
  const auto actual = Run(ThreadedCpu(1), problem, values);
  TFO_EXPECT(WorstError<T>(actual.output, expected.output) < tolerance);
  TFO_EXPECT(WorstError<T>(actual.values, expected.values) < tolerance);
  TFO_EXPECT(WorstError<T>(actual.d_map, expected.d_maps[0]) < tolerance);
  ExpectBoxesNear<T>(actual.d_boxes, expected, tolerance / 10);
  for (int threads : {2, 5}) {
    ExpectSameBits(Run(ThreadedCpu(threads), problem, values), actual);
  }
}

TFO_TEST(RoiAlignMax, EqualsReference) {
  for (const RoiSampling sampling :
       {RoiSampling{2, true}, {0, true}, {3, false}}) {
    const auto kind = RoiBins::kSamples;
    const auto all = RoiChannels::kAll;
    Check(MakeFixedProblem<float>(kind, sampling, all, 21));
    Check(MakeFixedProblem<float>(kind, sampling, all, 130));
    Check(MakeFixedProblem<double>(kind, sampling, all, 35));
    Check(MakeFixedProblem<Half>(kind, sampling, all, 70));
    Check(MakeFixedProblem<BFloat16>(kind, sampling, all, 3));
  }
}

// Boxes in and around the images, some with an image index out of range.
template <typename T>
RoiProblem<T> RandomProblem(const FeatureShape& features, float spatial_scale,
                            const PoolGrid& grid, const RoiSampling& sampling,
                            int64_t num_boxes) {
  auto problem = OneLevel<T>(features, spatial_scale, grid, sampling);
  problem.maps = {ToGpu(RandomValues<T>(features.Size(), 1))};
  const auto corners = RandomValues<double>(4 * num_boxes, 3);
  for (int64_t k = 0; k < num_boxes; ++k) {
    double box[4];
    for (int a = 0; a < 2; ++a) {
      const double size =
          (a == 0 ? features.width : features.height) / spatial_scale;
      const double at[2] = {corners[4 * k + a], corners[4 * k + 2 + a]};
      box[a] = size * (0.5 + 0.4 * std::min(at[0], at[1]));
      box[a + 2] = size * (0.5 + 0.4 * std::max(at[0], at[1]));
    }
    problem.AddBox(box, k % (features.batch + 1) - (k % 7 == 6));
  }
  problem.d_output = ToGpu(RandomValues<T>(problem.OutputSize(), 2));
  return problem;
}

// 16-bit gradients are summed in windows that move down the image, for a group
// of channels at a time.
TFO_TEST(RoiAlignMax, TallMapsAndManyChannels) {
  Check(RandomProblem<BFloat16>({2, 90, 31, 70}, 0.5f, {7, 3}, {2, true}, 40));
  Check(RandomProblem<Half>({1, 90, 31, 40}, 0.5f, {2, 3}, {0, true}, 20));
  Check(RandomProblem<BFloat16>({1, 9, 12, 1100}, 1, {3, 2}, {2, true}, 9));
  Check(RandomProblem<float>({3, 40, 30, 530}, 1, {3, 2}, {2, false}, 9));
}

// A NaN in one bin reaches only the pixels of its sample, in its channel.
TFO_TEST(RoiAlignMax, NanUpstream) {
  auto problem = RandomProblem<float>({1, 9, 12, 37}, 1, {2, 2}, {2, true}, 2);
  const auto clean = Run(ThreadedCpu(2), problem).d_map;
  const int64_t channel = 20;
  problem.d_output[problem.OutputAt(0, 1, 1, channel)] = kNan;
  const auto d_map = Run(ThreadedCpu(2), problem).d_map;
  int64_t nans = 0;
  for (size_t i = 0; i < d_map.size(); ++i) {
    const int64_t c = i % 37;
    if (std::isnan(d_map[i])) {
      TFO_EXPECT_EQ(c, channel);
      ++nans;
    } else {
      TFO_EXPECT_EQ(d_map[i], clean[i]);
    }
  }
  TFO_EXPECT(nans >= 1 && nans <= 4);
}

// Pixels next to no sample of their channel are not read, even if the same
// pixels of another channel are.
TFO_TEST(RoiAlignMax, NanAwayFromSamplesDoesNotReachBoxes) {
  for (const RoiSampling sampling : {RoiSampling{2, true}, {0, true}}) {
    auto problem =
        RandomProblem<float>({2, 20, 23, 37}, 1, {2, 2}, sampling, 6);
    GpuVector<float> ones(problem.d_output.size(), 1);
    std::swap(problem.d_output, ones);
    const auto weights = Run(ThreadedCpu(2), problem).d_map;
    std::swap(problem.d_output, ones);
    auto values = ToGpu(RandomValues<float>(weights.size(), 4));
    const auto clean = Run(ThreadedCpu(2), problem, values).d_boxes;
    int64_t nans = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      if (weights[i] != 0) continue;
      values[i] = kNan;
      ++nans;
    }
    TFO_EXPECT(nans > 1000 && nans < static_cast<int64_t>(values.size()));
    TFO_EXPECT(
        HaveSameBits(Run(ThreadedCpu(2), problem, values).d_boxes, clean));
    values.assign(values.size(), kNan);
    for (float v : clean) TFO_EXPECT(std::isfinite(v));
    const auto all_nan = Run(ThreadedCpu(2), problem, values).d_boxes;
    TFO_EXPECT(std::isnan(all_nan[0]));
  }
}

// Samples clamped at an edge or outside the map pass no gradient to boxes, even
// if upstream is infinite.
TFO_TEST(RoiAlignMax, ClampedSamplesHaveNoGradientToBoxes) {
  auto problem = RandomProblem<float>({1, 4, 4, 19}, 1, {1, 1}, {2, true}, 4);
  problem.boxes = {-0.4f, -0.3f, 0.4f, 0.45f,  // clamped to the first pixel
                   3.6f,  3.7f,  4.3f, 4.4f,   // clamped to the last
                   -9,    -9,    -3,   -3,     // outside
                   -0.4f, 1.2f,  0.4f, 2.7f};  // clamped in x only
  problem.box_indices.assign(4, 0);
  problem.d_output.assign(problem.d_output.size(), kInf);
  const auto d_boxes = Run(ThreadedCpu(1), problem).d_boxes;
  for (int i = 0; i < 12; ++i) TFO_EXPECT_EQ(d_boxes[i], 0.0f);
  TFO_EXPECT(d_boxes[12] == 0 && d_boxes[14] == 0);
  TFO_EXPECT(!std::isfinite(d_boxes[13]) && !std::isfinite(d_boxes[15]));
}

// The first NaN wins; else the first maximum; else a sample outside the map.
TFO_TEST(RoiAlignMax, ChoosesTheSample) {
  auto problem = OneLevel<float>({1, 4, 4, 1}, 1, {1, 1}, {2, true});
  problem.AddBox({0, 0, 2, 2}, 0);  // on pixels 0 and 1 of both axes
  problem.maps = {GpuVector<float>(16, 3)};
  problem.d_output = {1};
  auto result = Run(ThreadedCpu(1), problem);
  TFO_EXPECT_EQ(result.d_map[0], 1.0f);
  problem.maps[0][5] = kNan;
  result = Run(ThreadedCpu(1), problem);
  TFO_EXPECT(std::isnan(result.output[0]));
  TFO_EXPECT_EQ(result.d_map[5], 1.0f);
  problem.boxes = {-4, 0, 2, 2};  // half outside
  problem.maps = {GpuVector<float>(16, -3)};
  result = Run(ThreadedCpu(1), problem);
  TFO_EXPECT_EQ(result.output[0], 0.0f);
  for (float v : result.d_map) TFO_EXPECT_EQ(v, 0.0f);
  problem.maps = {GpuVector<float>(16, 0)};  // ties with the samples outside
  float sum = 0;
  result = Run(ThreadedCpu(1), problem);
  for (float v : result.d_map) sum += v;
  TFO_EXPECT_EQ(sum, 1.0f);
}

// Expects equal values; all NaNs are equal.
template <typename T>
void ExpectEqual(const GpuVector<T>& actual,
                 const std::vector<double>& expected) {
  for (size_t i = 0; i < actual.size(); ++i) {
    const double value = Widen(actual[i]);
    const double rounded =
        Widen(Narrow<T>(static_cast<Accumulator<T>>(expected[i])));
    if (value == rounded || (std::isnan(value) && std::isnan(rounded))) {
      continue;
    }
    TFO_EXPECT_EQ(value, rounded);
    return;
  }
}

template <typename T, typename Device>
void CheckExact(const Device& device, const Exact& sizes) {
  GpuVector<T> values;
  const auto problem = ExactProblem<T>(sizes, &values);
  const auto expected = testing::ReferenceMax(problem, values);
  const auto actual = Run(device, problem, values);
  ExpectEqual(actual.output, expected.output);
  ExpectEqual(actual.values, expected.values);
  ExpectEqual(actual.d_map, expected.d_maps[0]);
  const double unit = sizeof(T) == 8 ? 1e-15 : 3e-7;
  ExpectBoxesNear<T>(actual.d_boxes, expected, unit);
  const auto own = testing::ReferenceMax(problem, problem.maps[0]);
  const auto with_map = Run(device, problem);
  ExpectBoxesNear<T>(with_map.d_boxes, own, unit);
  ExpectSameBits(Run(device, problem), with_map);
}

template <typename T, typename Device>
void CheckAllExact(const Device& device) {
  for (const int64_t channels : {1, 5, 8}) {
    for (const bool aligned : {false, true}) {
      for (const int32_t ratio : {0, 2}) {
        Exact sizes;
        sizes.channels = channels;
        sizes.yxyx = aligned;
        sizes.sampling = {ratio, aligned};
        CheckExact<T>(device, sizes);
        sizes.with_bad_values = true;
        CheckExact<T>(device, sizes);
      }
    }
  }
}
TFO_TEST(RoiAlignMax, CpuExact) { CheckAllExact<float>(ThreadedCpu(2)); }
TFO_CUDA_TEST(RoiAlignMax, CudaFloat) { CheckAllExact<float>(Gpu()); }
TFO_CUDA_TEST(RoiAlignMax, CudaDouble) { CheckAllExact<double>(Gpu()); }
TFO_CUDA_TEST(RoiAlignMax, CudaHalf) { CheckAllExact<Half>(Gpu()); }
TFO_CUDA_TEST(RoiAlignMax, CudaBFloat16) { CheckAllExact<BFloat16>(Gpu()); }

// More channels, boxes and bins than one pass handles.
TFO_CUDA_TEST(RoiAlignMax, CudaManyChannels) {
  Exact sizes;
  sizes.channels = 133;
  CheckExact<float>(Gpu(), sizes);
}
TFO_CUDA_TEST(RoiAlignMax, CudaManyBoxes) {
  Exact sizes;
  sizes.num_boxes = 300;
  sizes.channels = 2;
  CheckExact<float>(Gpu(), sizes);
  sizes.channels = 128;
  sizes.num_boxes = 140;
  CheckExact<Half>(Gpu(), sizes);
}
TFO_CUDA_TEST(RoiAlignMax, CudaManyBins) {
  Exact sizes;
  sizes.num_boxes = 3;
  sizes.channels = 2;
  sizes.sampling.ratio = 1;
  sizes.centred = true;
  sizes.grid = {2, 128};
  CheckExact<float>(Gpu(), sizes);
  sizes.grid = {128, 2};
  CheckExact<float>(Gpu(), sizes);
}

// Bins with too many samples for shared memory, on either axis.
TFO_CUDA_TEST(RoiAlignMax, CudaManySamples) {
  Exact sizes;
  sizes.num_boxes = 3;
  sizes.channels = 2;
  for (const int64_t height : {2, 128}) {
    Exact centred = sizes;
    centred.grid = {height, 256 / height};
    centred.sampling.ratio = 8;
    centred.centred = true;
    CheckExact<float>(Gpu(), centred);
  }
  sizes.height = sizes.width = 5;
  sizes.grid = {1, 1};
  sizes.sampling.ratio = 256;
  CheckExact<float>(Gpu(), sizes);
}

// Results are finite even if sample counts or positions overflow.
template <typename Device>
void ExpectFiniteForEnormousBoxes(const Device& device) {
  for (const int32_t ratio : {0, 2}) {
    Exact sizes;
    sizes.sampling = {ratio, ratio == 0};
    GpuVector<float> values;
    auto problem = ExactProblem<float>(sizes, &values);
    problem.boxes = {-1e30f, -1e30f, 1e30f, 1e30f, 1e30f,  1e30f, 2e30f, 2e30f,
                     0,      0,      1e30f, 1e30f, -3e38f, 2,     3e38f, 11,
                     -1e9f,  1,      1e9f,  9,     -1e5f,  -1e5f, 1e5f,  1e5f};
    problem.box_indices.assign(6, 0);
    const auto result = Run(device, problem, values);
    for (const auto* of :
         {&result.output, &result.values, &result.d_map, &result.d_boxes}) {
      for (const float value : *of) TFO_EXPECT(std::isfinite(value));
    }
  }
}
TFO_TEST(RoiAlignMax, EnormousBoxes) {
  ExpectFiniteForEnormousBoxes(ThreadedCpu(2));
}
TFO_CUDA_TEST(RoiAlignMax, CudaEnormousBoxes) {
  ExpectFiniteForEnormousBoxes(Gpu());
}

// Without boxes, channels or pixels, all results are written as zeros.
template <typename Device>
void ExpectZeros(const Device& device) {
  for (const int none : {0, 1, 2}) {
    auto problem = OneLevel<float>({1, none < 2 ? 2 : 0, 2, none == 1 ? 0 : 3},
                                   1, {2, 2}, {2, true});
    if (none > 0) problem.AddBox({0, 0, 1, 1}, 0);
    problem.maps = {GpuVector<float>(problem.args.Features(0).Size(), 1)};
    problem.d_output.assign(problem.OutputSize(), 1);
    const auto result = Run(device, problem);
    for (const auto* of :
         {&result.output, &result.values, &result.d_map, &result.d_boxes}) {
      for (const float value : *of) TFO_EXPECT_EQ(value, 0.0f);
    }
  }
}
TFO_TEST(RoiAlignMax, NothingToDo) { ExpectZeros(ThreadedCpu(2)); }
TFO_CUDA_TEST(RoiAlignMax, CudaNothingToDo) { ExpectZeros(Gpu()); }

template <typename T>
void TimeMax(int64_t height, int64_t width, int64_t channels, float stride) {
  RoiProblem<T> p = {};
  p.args.batch = 1;
  p.args.channels = testing::BenchmarkSize(channels);
  p.args.grid = {7, 7};
  p.args.sampling.ratio = 2;
  p.args.sampling.aligned = true;
  p.args.num_levels = 1;
  p.args.levels[0] = {testing::BenchmarkSize(height),
                      testing::BenchmarkSize(width), 1 / stride, 0};
  const int64_t count = testing::BenchmarkSize(1000);
  const auto random = RandomValues<float>(2 * count, 1);
  for (int64_t i = 0; i < count; ++i) {
    const float x = stride * width * (0.5f + random[2 * i] / 8);
    const float y = stride * height * (0.5f + random[2 * i + 1] / 8);
    for (const float at : {x, y, x + 100, y + 60}) p.boxes.push_back(at);
  }
  p.box_indices.resize(count);
  const int64_t size = p.args.Features(0).Size(), pooled = p.OutputSize();
  const auto features = testing::RandomOnGpu<T>(size, 2);
  const auto d = testing::RandomOnGpu<T>(pooled, 3);
  GpuVector<T> output(pooled), to(size);
  GpuVector<Coordinate<T>> to_boxes(p.boxes.size());
  const auto name_of = [&](const char* name) {
    return testing::Text(testing::NameOf<T>(), name, " [1, ", height, ", ",
                         width, ", ", channels, "], ", count,
                         " boxes, 7 x 7 bins, stride ", stride);
  };
  const int64_t num_bytes = (size + pooled) * sizeof(T);
  testing::TimeOnGpu(
      name_of("roi_align_max"), num_bytes, 0, [&](const Gpu& gpu) {
        return RoiAlignMax<T>(
            gpu, {p.MaxSpec(), p.AllBoxes(), features.data(), output.data()});
      });
  testing::TimeOnGpu(
      name_of("roi_align_max_grad"), num_bytes, 0, [&](const Gpu& gpu) {
        return RoiAlignMaxGrad<T>(gpu, {p.MaxSpec(), p.AllBoxes(), d.data(),
                                        features.data(), to.data()});
      });
  testing::TimeOnGpu(
      name_of("roi_align_max_boxes_grad"), num_bytes, 0, [&](const Gpu& gpu) {
        return RoiAlignMaxBoxesGrad<T>(
            gpu, {p.MaxSpec(), p.AllBoxes(), d.data(), features.data(),
                  features.data(), to_boxes.data()});
      });
}
TFO_BENCHMARK(RoiAlignMax, Pyramid) {
  TimeMax<float>(200, 304, 256, 4);
  TimeMax<BFloat16>(200, 304, 256, 4);
  TimeMax<float>(50, 76, 256, 16);
}

}  // namespace
}  // namespace tfo
