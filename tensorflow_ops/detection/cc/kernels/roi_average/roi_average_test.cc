// Compares the averaging ops on the CPU and with CUDA with their reference. The
// Python tests have values by hand.
#include "tensorflow_ops/detection/cc/kernels/roi_average/roi_average.h"

#include <algorithm>
#include <cmath>

#include "tensorflow_ops/detection/cc/kernels/roi/roi_boxes_testing.h"
#include "tensorflow_ops/detection/cc/kernels/roi_average/roi_reference_testing.h"
#include "tensorflow_ops/detection/cc/kernels/roi_average/roi_testing.h"

namespace tfo {
namespace {

using testing::GpuVector;
using testing::HaveSameBits;
using testing::MakeFixedProblem;
using testing::MakeRandomProblem;
using testing::OneLevel;
using testing::RoiProblem;
using testing::Sizes;
using testing::ThreadedCpu;
using testing::ToGpu;
using testing::WorstError;

// Float sums of some hundred terms.
template <typename T>
constexpr double kTolerance = sizeof(T) == 8 ? 1e-12 : 1e-5;

template <typename T>
struct Result {
  GpuVector<T> output;
  std::vector<GpuVector<T>> d_maps;
  GpuVector<Coordinate<T>> d_boxes;
};

// Omits the gradient to boxes for ops that have none.
template <typename T, typename Device>
Result<T> Run(const Device& device, const RoiProblem<T>& problem) {
  Result<T> result;
  const T garbage = Narrow<T>(77);
  result.output.assign(problem.OutputSize(), garbage);
  for (const auto& map : problem.maps) {
    result.d_maps.emplace_back(map.size(), garbage);
  }
  TFO_EXPECT_RUNS(
      RoiAverage(device, problem.AverageArgs(result.output.data())));
  TFO_EXPECT_RUNS(RoiAverageGrad(device, problem.GradArgs(&result.d_maps)));
  if (problem.args.bins == RoiBins::kSamples) {
    result.d_boxes.assign(problem.boxes.size(), 77);
    TFO_EXPECT_RUNS(RoiAverageBoxesGrad(
        device, problem.BoxesGradArgs(result.d_boxes.data())));
  }
  return result;
}

template <typename T>
void ExpectSameBits(const Result<T>& a, const Result<T>& b) {
  TFO_EXPECT(HaveSameBits(a.output, b.output));
  for (size_t l = 0; l < a.d_maps.size(); ++l) {
    TFO_EXPECT(HaveSameBits(a.d_maps[l], b.d_maps[l]));
  }
  TFO_EXPECT(HaveSameBits(a.d_boxes, b.d_boxes));
}

template <typename T>
void ExpectNear(const Result<T>& actual,
                const testing::RoiReference& expected) {
  TFO_EXPECT(WorstError<T>(actual.output, expected.output) < kTolerance<T>);
  for (size_t l = 0; l < actual.d_maps.size(); ++l) {
    TFO_EXPECT(WorstError<T>(actual.d_maps[l], expected.d_maps[l]) <
               kTolerance<T>);
  }
  double largest = 0;
  for (double size : expected.d_boxes_size) largest = std::max(largest, size);
  for (size_t i = 0; i < actual.d_boxes.size(); ++i) {
    const double error = std::abs(actual.d_boxes[i] - expected.d_boxes[i]);
    const double size = largest + expected.d_boxes_size[i];
    if (error <= kTolerance<T> / 10 * size) continue;
    TFO_EXPECT_EQ(actual.d_boxes[i], expected.d_boxes[i]);
    return;
  }
}

// The CPU returns the same bits for any number of threads, a deterministic GPU
// in every run.
template <typename Device, typename T>
void Check(const Device&, const RoiProblem<T>& problem,
           const testing::Caller& caller = {}) {
  const testing::Case of_test(caller, testing::NameOf<T>(), "boxes ",
                              problem.NumBoxes(), ", outputs ",
                              problem.d_output.size());
  const auto expected = testing::ReferenceAverage(problem);
  if constexpr (std::is_same_v<Device, Gpu>) {
    const auto [fast, deterministic] = testing::Gpus();
    const Result<T> actual = Run(deterministic, problem);
    ExpectNear(actual, expected);
    ExpectNear(Run(fast, problem), expected);
    ExpectSameBits(actual, Run(deterministic, problem));
  } else {
    const Result<T> actual = Run(ThreadedCpu(1), problem);
    ExpectNear(actual, expected);
    for (int threads : {2, 3, 7}) {
      ExpectSameBits(actual, Run(ThreadedCpu(threads), problem));
    }
  }
}

template <typename T>
void CheckFixed(RoiBins bins, RoiSampling sampling, RoiChannels order,
                int64_t channels, int levels = 1) {
  Check(Cpu(), MakeFixedProblem<T>(bins, sampling, order, channels, levels));
}

TFO_TEST(RoiAverage, SamplesEqualReference) {
  for (const RoiSampling sampling :
       {RoiSampling{2, true}, {0, true}, {3, false}, {0, false}}) {
    CheckFixed<float>(RoiBins::kSamples, sampling, RoiChannels::kAll, 37);
    CheckFixed<double>(RoiBins::kSamples, sampling, RoiChannels::kAll, 5);
    CheckFixed<Half>(RoiBins::kSamples, sampling, RoiChannels::kAll, 19);
    CheckFixed<BFloat16>(RoiBins::kSamples, sampling, RoiChannels::kAll, 3);
  }
}

TFO_TEST(RoiAverage, ManyChannels) {  // several blocks of them
  const RoiSampling sampling = {2, true};
  CheckFixed<float>(RoiBins::kSamples, sampling, RoiChannels::kAll, 300);
  CheckFixed<double>(RoiBins::kSamples, sampling, RoiChannels::kAll, 139);
  CheckFixed<BFloat16>(RoiBins::kSamples, sampling, RoiChannels::kAll, 530);
}

TFO_TEST(RoiAverage, PositionSensitive) {
  for (RoiChannels order :
       {RoiChannels::kChannelMajor, RoiChannels::kBinMajor}) {
    for (RoiBins bins : {RoiBins::kSamples, RoiBins::kPixels}) {
      CheckFixed<float>(bins, {0, true}, order, 21);
      CheckFixed<double>(bins, {2, true}, order, 10);
      CheckFixed<Half>(bins, {2, true}, order, 16);
      CheckFixed<BFloat16>(bins, {0, true}, order, 3);
    }
  }
}

TFO_TEST(RoiAverage, Pyramid) {
  CheckFixed<float>(RoiBins::kSamples, {2, true}, RoiChannels::kAll, 18, 3);
  CheckFixed<BFloat16>(RoiBins::kSamples, {0, false}, RoiChannels::kAll, 18, 2);
}

// Every combination of bins and channel order. The CUDA kernels process
// channels in packs of 16 bytes or one by one.
template <typename T>
void CheckRandom() {
  uint32_t seed = 1;
  for (const RoiBins bins : {RoiBins::kSamples, RoiBins::kPixels}) {
    for (const RoiChannels order :
         {RoiChannels::kAll, RoiChannels::kChannelMajor,
          RoiChannels::kBinMajor}) {
      Sizes sizes;
      sizes.bins = bins;
      sizes.order = order;
      for (const int64_t channels : {5, 6, 8}) {
        sizes.channels = channels;
        sizes.sampling.ratio = channels % 4;  // 1, 2, or adaptive
        sizes.sampling.aligned = channels % 2 == 0;
        sizes.yxyx = channels == 6;
        Check(Gpu(), MakeRandomProblem<T>(sizes, ++seed));
      }
    }
  }
}
TFO_CUDA_TEST(RoiAverage, CudaEqualsReference) {
  testing::ForTypes([](auto type) { CheckRandom<decltype(type)>(); });
}

TFO_CUDA_TEST(RoiAverage, CudaSeveralLevels) {
  Sizes sizes;
  sizes.maps = {{20, 24}, {10, 12}, {5, 6}};
  sizes.num_boxes = 40;
  Check(Gpu(), MakeRandomProblem<float>(sizes, 1));
  sizes.channels = 16;
  Check(Gpu(), MakeRandomProblem<Half>(sizes, 1));
}

// More channels and boxes than a block has threads, and more channels than one
// pass handles.
TFO_CUDA_TEST(RoiAverage, CudaManyChannels) {
  Sizes sizes;
  sizes.channels = 133;
  Check(Gpu(), MakeRandomProblem<float>(sizes, 1));
  sizes.channels = 264;
  Check(Gpu(), MakeRandomProblem<BFloat16>(sizes, 1));
  // One pixel with very many channels, and one bin that equals it.
  auto problem =
      OneLevel<float>({1, 1, 1, (1 << 20) + 33}, 1, {1, 1}, {1, true});
  problem.maps = {
      ToGpu(testing::RandomValues<float>(problem.args.channels, 1))};
  problem.AddBox({0, 0, 1, 1}, 0);
  GpuVector<float> output(problem.OutputSize(), 99);
  TFO_EXPECT_RUNS(RoiAverage(Gpu(), problem.AverageArgs(output.data())));
  TFO_EXPECT(HaveSameBits(output, problem.maps[0]));
}
TFO_CUDA_TEST(RoiAverage, CudaManyBoxes) {
  Sizes sizes;
  sizes.maps = {{9, 10}, {5, 5}};
  sizes.image = 20;
  sizes.num_boxes = 300;
  sizes.pooled_height = sizes.pooled_width = 2;
  for (const RoiChannels order :
       {RoiChannels::kAll, RoiChannels::kChannelMajor}) {
    sizes.order = order;
    sizes.channels = order == RoiChannels::kAll ? 133 : 34;
    Check(Gpu(), MakeRandomProblem<float>(sizes, 1));
    sizes.channels = 5;
    Check(Gpu(), MakeRandomProblem<double>(sizes, 1));
  }
}

// More bins than one pass handles: 64 in a row, 128 on a tile's axis.
TFO_CUDA_TEST(RoiAverage, CudaManyBins) {
  for (const RoiChannels order : {RoiChannels::kAll, RoiChannels::kBinMajor}) {
    Sizes sizes;
    sizes.order = order;
    sizes.channels = 2;
    sizes.pooled_height = 3;
    sizes.pooled_width = 150;
    sizes.num_boxes = 3;
    Check(Gpu(), MakeRandomProblem<float>(sizes, 1));
    std::swap(sizes.pooled_height, sizes.pooled_width);
    Check(Gpu(), MakeRandomProblem<float>(sizes, 1));
  }
}

// Bins with too many taps for shared memory, on either axis.
TFO_CUDA_TEST(RoiAverage, CudaLargeBins) {
  for (const RoiBins bins : {RoiBins::kSamples, RoiBins::kPixels}) {
    Sizes sizes;
    sizes.bins = bins;
    sizes.sampling.ratio = 0;
    sizes.channels = 2;
    sizes.num_boxes = 2;
    sizes.smallest = 0.9;
    sizes.pooled_height = 1;
    sizes.pooled_width = 7;
    sizes.maps = {{9, 700}};
    sizes.image = 1400;
    Check(Gpu(), MakeRandomProblem<float>(sizes, 5));
    sizes.maps = {{300, 9}};
    sizes.image = 600;
    Check(Gpu(), MakeRandomProblem<float>(sizes, 5));
  }
}

// Results are finite even if sample counts or positions overflow.
template <typename Device>
void ExpectFiniteForEnormousBoxes(const Device& device) {
  for (const RoiBins bins : {RoiBins::kSamples, RoiBins::kPixels}) {
    for (const int32_t ratio : {0, 2}) {
      Sizes sizes;
      sizes.bins = bins;
      sizes.sampling = {ratio, ratio == 0};
      sizes.num_boxes = 6;
      auto problem = MakeRandomProblem<float>(sizes, 1);
      problem.boxes = {-1e30f, -1e30f, 1e30f, 1e30f, 1e30f, 1e30f,
                       2e30f,  2e30f,  0,     0,     1e30f, 1e30f,
                       -3e38f, 2,      3e38f, 11,    -1e9f, 1,
                       1e9f,   9,      -1e5f, -1e5f, 1e5f,  1e5f};
      problem.box_indices.assign(6, 0);
      problem.d_output = Run(device, problem).output;
      const auto result = Run(device, problem);
      for (const auto* values : {&result.output, &result.d_boxes}) {
        for (float value : *values) TFO_EXPECT(std::isfinite(value));
      }
      for (float value : result.d_maps[0]) TFO_EXPECT(std::isfinite(value));
      if constexpr (std::is_same_v<Device, Gpu>) {
        const auto fast = Run(Gpu(), problem);
        for (size_t i = 0; i < fast.d_maps[0].size(); ++i) {
          TFO_EXPECT(std::abs(fast.d_maps[0][i] - result.d_maps[0][i]) < 1e-6);
        }
      }
    }
  }
}
TFO_TEST(RoiAverage, EnormousBoxes) {
  ExpectFiniteForEnormousBoxes(ThreadedCpu(2));
}
TFO_CUDA_TEST(RoiAverage, CudaEnormousBoxes) {
  ExpectFiniteForEnormousBoxes(testing::Gpus()[1]);
}

// NaN reaches the result from pixels with weight only.
TFO_TEST(RoiAverage, NanInPixelsWithAndWithoutWeight) {
  auto problem = OneLevel<float>({1, 4, 4, 1}, 1, {1, 1}, {1, true});
  problem.maps = {GpuVector<float>(16, 2)};
  problem.AddBox({1, 1, 2, 2}, 0);  // one sample, on pixel (1, 1)
  problem.d_output = {1};
  problem.maps[0][2] = problem.maps[0][6] = problem.maps[0][9] = NAN;
  const auto without = Run(ThreadedCpu(1), problem);
  TFO_EXPECT_EQ(without.output[0], 2.0f);
  problem.maps[0][5] = NAN;
  TFO_EXPECT(std::isnan(Run(ThreadedCpu(1), problem).output[0]));
}

// Nine adjacent boxes of 2 x 2 pixels, with one bin each; NaN in the fifth.
template <typename Device>
void ExpectNanStaysInItsBox(const Device& device) {
  for (const RoiChannels order : {RoiChannels::kAll, RoiChannels::kBinMajor}) {
    auto problem = OneLevel<float>({1, 6, 6, 4}, 1, {1, 1}, {2, true});
    problem.args.order = order;
    for (int k = 0; k < 9; ++k) {
      const double y = 2 * (k / 3), x = 2 * (k % 3);
      problem.AddBox({x, y, x + 2, y + 2}, 0);
    }
    problem.maps = {GpuVector<float>(6 * 6 * 4, 1)};
    problem.maps[0][(2 * 6 + 3) * 4] = NAN;
    problem.d_output.assign(9 * 4, 1);
    problem.d_output[4 * 4] = NAN;
    const auto result = Run(device, problem);
    for (size_t i = 0; i < result.output.size(); ++i) {
      TFO_EXPECT_EQ(std::isnan(result.output[i]), i == 4 * 4);
    }
    for (size_t i = 0; i < result.d_maps[0].size(); ++i) {
      const size_t y = i / 4 / 6, x = i / 4 % 6;
      TFO_EXPECT_EQ(std::isnan(result.d_maps[0][i]),
                    i % 4 == 0 && y / 2 == 1 && x / 2 == 1);
    }
  }
}
TFO_TEST(RoiAverage, NanStaysInItsBox) {
  ExpectNanStaysInItsBox(ThreadedCpu(2));
}
TFO_CUDA_TEST(RoiAverage, CudaNanStaysInItsBox) {
  for (const Gpu& gpu : testing::Gpus()) ExpectNanStaysInItsBox(gpu);
}

// Without boxes, channels or pixels, all results are written as zeros.
template <typename Device>
void ExpectZeros(const Device& device) {
  for (const int none : {0, 1, 2}) {
    // A map without rows, but with more columns than fit into memory.
    const int64_t width = none < 2 ? 3 : (int64_t{1} << 31) - 1;
    auto problem = OneLevel<float>(
        {1, none < 2 ? 2 : 0, width, none == 1 ? 0 : 4}, 1, {2, 2}, {2, true});
    if (none > 0) problem.AddBox({0, 0, 1, 1}, 0);
    problem.maps = {GpuVector<float>(problem.args.Features(0).Size(), 1)};
    problem.d_output.assign(problem.OutputSize(), 1);
    const auto result = Run(device, problem);
    for (float v : result.output) TFO_EXPECT_EQ(v, 0.0f);
    for (float v : result.d_maps[0]) TFO_EXPECT_EQ(v, 0.0f);
    for (float v : result.d_boxes) TFO_EXPECT_EQ(v, 0.0f);
  }
}
TFO_TEST(RoiAverage, NothingToDo) { ExpectZeros(ThreadedCpu(2)); }
TFO_CUDA_TEST(RoiAverage, CudaNothingToDo) {
  for (const Gpu& gpu : testing::Gpus()) ExpectZeros(gpu);
}

template <typename T>
void TimeAverage(const char* kernel, int64_t height, int64_t width,
                 int64_t channels, float stride, int levels,
                 RoiChannels order = RoiChannels::kAll) {
  RoiProblem<T> p = {};
  p.args.batch = 1;
  p.args.channels = testing::IsTiming() ? channels : 49;
  p.args.grid = {7, 7};
  p.args.bins = RoiBins::kSamples;
  p.args.sampling.ratio = 2;
  p.args.sampling.aligned = true;
  p.args.order = order;
  p.args.num_levels = levels;
  std::vector<GpuVector<T>> to;
  int64_t num_bytes = 0;
  for (int l = 0; l < levels; ++l) {
    p.args.levels[l] = {
        testing::BenchmarkSize(height >> l), testing::BenchmarkSize(width >> l),
        1 / (stride * (1 << l)), l == 0 ? 0 : 14 * stride * (1 << l)};
    const int64_t size = p.args.Features(l).Size();
    p.maps.push_back(testing::RandomOnGpu<T>(size, 2));
    to.emplace_back(size);
    num_bytes += size * sizeof(T);
  }
  p.boxes = testing::BenchmarkBoxes<T>(testing::BenchmarkSize(1000));
  p.box_indices.resize(p.boxes.size() / 4);
  p.d_output = testing::RandomOnGpu<T>(p.OutputSize(), 3);
  num_bytes += p.OutputSize() * sizeof(T);
  GpuVector<T> output(p.OutputSize());
  GpuVector<Coordinate<T>> to_boxes(p.boxes.size());
  const auto name_of = [&](const char* pass) {
    return testing::Text(testing::NameOf<T>(), kernel, pass, " [1, ", height,
                         ", ", width, ", ", channels, "], ", p.NumBoxes(),
                         " boxes, 7 x 7 bins, stride ", stride);
  };
  testing::TimeOnGpu(name_of(""), num_bytes, 0, [&](const Gpu& gpu) {
    return RoiAverage(gpu, p.AverageArgs(output.data()));
  });
  for (const bool deterministic : {false, true}) {
    testing::TimeOnGpu(name_of(deterministic ? "_grad_deterministic" : "_grad"),
                       num_bytes, 0, [&](Gpu gpu) {
                         gpu.deterministic = deterministic;
                         return RoiAverageGrad(gpu, p.GradArgs(&to));
                       });
  }
  testing::TimeOnGpu(name_of("_boxes_grad"), num_bytes, 0, [&](const Gpu& gpu) {
    return RoiAverageBoxesGrad(gpu, p.BoxesGradArgs(to_boxes.data()));
  });
}
TFO_BENCHMARK(RoiAverage, Models) {
  TimeAverage<float>("roi_align", 200, 304, 256, 4, 1);
  TimeAverage<Half>("roi_align", 200, 304, 256, 4, 1);
  TimeAverage<float>("roi_align", 50, 76, 256, 16, 1);
  TimeAverage<float>("multiscale_roi_align", 200, 304, 256, 4, 4);
  TimeAverage<float>("ps_roi_align", 50, 76, 490, 16, 1,
                     RoiChannels::kChannelMajor);
}

}  // namespace
}  // namespace tfo
