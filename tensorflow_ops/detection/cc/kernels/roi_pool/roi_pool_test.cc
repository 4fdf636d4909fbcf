// Compares roi_pool with plain loops in double: on the CPU at every level and
// for several thread counts, and with CUDA.
#include "tensorflow_ops/detection/cc/kernels/roi_pool/roi_pool.h"

#include <cmath>

#include "tensorflow_ops/core/cc/testing/gpu_testing.h"
#include "tensorflow_ops/detection/cc/kernels/roi/roi_boxes_testing.h"

namespace tfo {
namespace {

using testing::GpuVector;
using testing::HaveSameBits;
using testing::ToGpu;

template <typename T>
struct Problem {
  RoiSpec args;
  bool yxyx;
  GpuVector<T> features;
  GpuVector<Coordinate<T>> boxes;
  GpuVector<int32_t> box_indices;

  int64_t NumBoxes() const { return box_indices.size(); }
  FeatureShape Pooled() const { return args.Pooled(NumBoxes()); }
  Boxes<Coordinate<T>> AllBoxes() const {
    return {NumBoxes(), yxyx, boxes.data(), box_indices.data()};
  }
};

// Features with ties and, if requested, NaN and -inf.
template <typename T>
GpuVector<T> MakeFeatures(int64_t size, bool with_bad_values) {
  GpuVector<T> features = ToGpu(testing::RandomValues<T>(size, 7));
  for (size_t i = 0; i < features.size(); i += 5) {
    features[i] = Narrow<T>(0.25f);
    if (!with_bad_values) continue;
    if (i % 3 == 0) features[i] = Narrow<T>(-INFINITY);
    if (i % 35 == 0) features[i] = Narrow<T>(NAN);
  }
  return features;
}

// Boxes of every kind: inside, across each edge, outside, a point, halves that
// round away from zero, inverted, NaN, infinite, enormous, image out of range.
template <typename T>
Problem<T> MakeProblem(int64_t channels, bool with_bad_values) {
  const std::vector<std::vector<float>> boxes = {{0, 0, 22, 16},
                                                 {3, 2, 9.4f, 11},
                                                 {-5, -7, 6, 4},
                                                 {15, 9, 60, 40},
                                                 {-40, -40, -20, -9},
                                                 {100, 100, 140, 130},
                                                 {7, 5, 7, 5},
                                                 {2.5f, 3.5f, 8.5f, 4.5f},
                                                 {-2.5f, -0.5f, 4, 3},
                                                 {9, 4, 3, 8},
                                                 {3, 8, 9, 4},
                                                 {NAN, 0, 5, 5},
                                                 {0, 0, INFINITY, 5},
                                                 {-INFINITY, 0, 5, 5},
                                                 {-1e30f, -1e30f, 1e30f, 1e30f},
                                                 {0, 0, 5, 5},
                                                 {0, 0, 5, 5},
                                                 {4, 1, 5, 16}};
  Problem<T> problem;
  problem.args = {{2, 9, 12, channels}, 0.5f, {3, 5}};
  problem.yxyx = false;
  problem.features = MakeFeatures<T>(2 * 9 * 12 * channels, with_bad_values);
  for (size_t k = 0; k < boxes.size(); ++k) {
    for (float v : boxes[k]) problem.boxes.push_back(v);
    problem.box_indices.push_back(k == 15 ? 2 : k == 16 ? -1 : k % 2);
  }
  return problem;
}

// Many low boxes in a tall image, more than a GPU block processes at a time.
// The gradient's window moves down the image and splits bins.
template <typename T>
Problem<T> MakeTallProblem(int64_t channels) {
  Problem<T> problem;
  problem.args = {{2, 90, 5, channels}, 1.0f, {2, 2}};
  problem.yxyx = true;
  problem.features = MakeFeatures<T>(2 * 90 * 5 * channels, false);
  std::mt19937 random(3);
  const auto below = [&](int n) { return static_cast<float>(random() % n); };
  for (int k = 0; k < 300; ++k) {
    const float y = below(95) - 4, x = below(5) - 1;
    for (float v : {y, x, y + below(12), x + below(4)}) {
      problem.boxes.push_back(v);
    }
    problem.box_indices.push_back(random() % 2);
  }
  return problem;
}

// Computes the box's pixels in double. Returns false if the box pools zeros.
template <typename T>
bool ReferenceSpan(const Problem<T>& problem, int64_t k, double* y,
                   double* height, double* x, double* width) {
  const Coordinate<T>* b = &problem.boxes[4 * k];
  const int32_t image = problem.box_indices[k];
  for (int i = 0; i < 4; ++i) {
    if (!std::isfinite(b[i])) return false;
  }
  const int iy = problem.yxyx ? 0 : 1, ix = 1 - iy;
  if (b[2] < b[0] || b[3] < b[1] || image < 0 ||
      image >= problem.args.map.batch)
    return false;
  const double scale = problem.args.spatial_scale;
  // Clamps coordinates that are far outside the image.
  const auto pixel = [&](double v) {
    return std::round(std::fmin(std::fmax(v * scale, -0x1p31), 0x1p31));
  };
  *x = pixel(b[ix]), *y = pixel(b[iy]);
  *width = pixel(b[ix + 2]) - *x + 1, *height = pixel(b[iy + 2]) - *y + 1;
  return true;
}

template <typename T>
void Reference(const Problem<T>& problem, std::vector<double>* output,
               GpuVector<int32_t>* argmax) {
  const RoiSpec& args = problem.args;
  const FeatureShape& map = args.map;
  output->assign(problem.Pooled().Size(), 0);
  argmax->assign(problem.Pooled().Size(), -1);
  for (int64_t k = 0; k < problem.NumBoxes(); ++k) {
    double y0, height, x0, width;
    if (!ReferenceSpan(problem, k, &y0, &height, &x0, &width)) continue;
    for (int64_t p = 0; p < args.grid.height; ++p) {
      for (int64_t q = 0; q < args.grid.width; ++q) {
        for (int64_t c = 0; c < args.map.channels; ++c) {
          const int64_t at = problem.Pooled().Offset(k, p, q, c);
          double& best = (*output)[at];
          for (int64_t y = 0; y < map.height; ++y) {
            for (int64_t x = 0; x < map.width; ++x) {
              // Is pixel y in [floor(p h / ph), ceil((p+1) h / ph)) from y0?
              const double in_y = (y - y0) * args.grid.height,
                           in_x = (x - x0) * args.grid.width;
              if (in_y + args.grid.height <= p * height ||
                  in_y >= (p + 1) * height ||
                  in_x + args.grid.width <= q * width ||
                  in_x >= (q + 1) * width) {
                continue;
              }
              const double v = Widen(problem.features[map.Offset(
                  problem.box_indices[k], y, x, c)]);
              if ((*argmax)[at] < 0 || v > best ||
                  (std::isnan(v) && !std::isnan(best))) {
                best = v;
                (*argmax)[at] = y * map.width + x;
              }
            }
          }
        }
      }
    }
  }
}

template <typename T, typename Device>
void ExpectPoolEqualsReference(const Device& device, int64_t channels,
                               const testing::Caller& caller = {}) {
  for (bool with_bad_values : {false, true}) {
    const testing::Case of_test(caller, testing::NameOf<T>(), "channels ",
                                channels, ", bad values ", with_bad_values);
    const Problem<T> problem = MakeProblem<T>(channels, with_bad_values);
    std::vector<double> expected;
    GpuVector<int32_t> expected_argmax, argmax(problem.Pooled().Size(), 99);
    Reference(problem, &expected, &expected_argmax);
    GpuVector<T> output(problem.Pooled().Size(), Narrow<T>(99)), alone = output;
    TFO_EXPECT_RUNS(RoiPool<T>(
        device, {problem.args, problem.AllBoxes(), problem.features.data(),
                 output.data(), argmax.data()}));
    for (size_t i = 0; i < output.size(); ++i) {
      const double value = Widen(output[i]);
      TFO_EXPECT(value == expected[i] ||
                 (std::isnan(value) && std::isnan(expected[i])));
      TFO_EXPECT_EQ(argmax[i], expected_argmax[i]);
    }
    TFO_EXPECT_RUNS(
        RoiPool<T>(device, {problem.args, problem.AllBoxes(),
                            problem.features.data(), alone.data(), nullptr}));
    TFO_EXPECT(HaveSameBits(alone, output));
  }
}

template <typename T, typename Device>
void ExpectGradientsEqualReference(const Device& device, int64_t channels,
                                   const testing::Caller& caller = {}) {
  std::vector<Problem<T>> problems;
  problems.push_back(MakeProblem<T>(channels, false));
  problems.push_back(MakeTallProblem<T>(channels));
  for (const Problem<T>& problem : problems) {
    const RoiSpec& args = problem.args;
    const testing::Case of_test(caller, testing::NameOf<T>(), "features ",
                                args.map.height, " x ", args.map.width, " x ",
                                channels);
    const int64_t height = args.map.height, width = args.map.width;
    std::vector<double> ignored;
    GpuVector<int32_t> argmax;
    Reference(problem, &ignored, &argmax);
    // Sums of small integers are exact in any order.
    GpuVector<T> d_output(argmax.size());
    for (size_t i = 0; i < d_output.size(); ++i)
      d_output[i] = Narrow<T>(float(i % 7) - 3);
    std::vector<Accumulator<T>> sums(problem.features.size(), 0);
    GpuVector<T> expected(sums.size()), actual(sums.size(), Narrow<T>(99));
    GpuVector<T> gathered(argmax.size());
    for (int64_t k = 0; k < problem.NumBoxes(); ++k) {
      for (int64_t p = 0; p < args.grid.height; ++p) {
        for (int64_t q = 0; q < args.grid.width; ++q) {
          for (int64_t c = 0; c < args.map.channels; ++c) {
            const int64_t at = problem.Pooled().Offset(k, p, q, c);
            gathered[at] = T{};
            if (argmax[at] < 0) continue;
            const int64_t pixel = problem.args.map.Offset(
                problem.box_indices[k], argmax[at] / width, argmax[at] % width,
                c);
            sums[pixel] += Widen(d_output[at]);
            gathered[at] = problem.features[pixel];
          }
        }
      }
    }
    for (size_t i = 0; i < sums.size(); ++i) expected[i] = Narrow<T>(sums[i]);
    TFO_EXPECT_RUNS(
        RoiPoolGrad<T>(device, {args, problem.AllBoxes(), d_output.data(),
                                argmax.data(), actual.data()}));
    TFO_EXPECT(HaveSameBits(actual, expected));

    GpuVector<T> second(argmax.size(), Narrow<T>(99));
    TFO_EXPECT_RUNS(RoiPoolGradGrad<T>(
        device, {args, problem.AllBoxes(), problem.features.data(),
                 argmax.data(), second.data()}));
    TFO_EXPECT(HaveSameBits(second, gathered));

    // An argmax out of range adds nothing and reads nothing.
    const GpuVector<T> zeros(sums.size(), T{}), zero_bins(argmax.size(), T{});
    for (int32_t bad_argmax :
         {-1, -2147483647 - 1, static_cast<int32_t>(height * width),
          2147483647}) {
      const GpuVector<int32_t> bad(argmax.size(), bad_argmax);
      TFO_EXPECT_RUNS(
          RoiPoolGrad<T>(device, {args, problem.AllBoxes(), d_output.data(),
                                  bad.data(), actual.data()}));
      TFO_EXPECT(HaveSameBits(actual, zeros));
      TFO_EXPECT_RUNS(RoiPoolGradGrad<T>(
          device, {args, problem.AllBoxes(), problem.features.data(),
                   bad.data(), second.data()}));
      TFO_EXPECT(HaveSameBits(second, zero_bins));
    }
  }
}

// Channel counts with and without a remainder after whole vectors and packs.
TFO_TEST(RoiPool, CpuEqualsReference) {
  testing::ForTypes([](auto type) {
    using T = decltype(type);
    for (int threads : {1, 3}) {
      const Cpu cpu = testing::ThreadedCpu(threads);
      for (int64_t channels : {1, 8, 37, 160}) {
        ExpectPoolEqualsReference<T>(cpu, channels);
        ExpectGradientsEqualReference<T>(cpu, channels);
      }
    }
  });
}

// Emulated kernels are slow, so this covers a few sizes only.
TFO_CUDA_TEST(RoiPool, CudaEqualsReference) {
  testing::ForTypes([](auto type) {
    using T = decltype(type);
    for (int64_t channels : {1, 8, 133}) {
      ExpectPoolEqualsReference<T>(Gpu{}, channels);
      for (const Gpu& gpu : testing::Gpus()) {
        ExpectGradientsEqualReference<T>(gpu, channels);
      }
    }
  });
}

template <typename Device>
void ExpectEmptySizesWork(const Device& device) {
  const GpuVector<float> value = {5}, corners = {0, 0, 1, 1};
  const GpuVector<int32_t> index = {0};
  const Boxes<float> no_boxes = {},
                     box = {1, false, corners.data(), index.data()};
  // Without boxes or channels there is nothing to write.
  TFO_EXPECT_RUNS(RoiPool<float>(
      device,
      {{{1, 1, 1, 1}, 1, {2, 2}}, no_boxes, value.data(), nullptr, nullptr}));
  TFO_EXPECT_RUNS(RoiPool<float>(
      device,
      {{{1, 1, 1, 0}, 1, {2, 2}}, box, value.data(), nullptr, nullptr}));
  // An image without pixels gives zeros.
  GpuVector<float> output(4, 9);
  GpuVector<int32_t> argmax(4);
  const RoiSpec args = {{1, 0, 3, 1}, 1, {2, 2}};
  TFO_EXPECT_RUNS(RoiPool<float>(
      device, {args, box, nullptr, output.data(), argmax.data()}));
  for (int i = 0; i < 4; ++i) TFO_EXPECT(output[i] == 0 && argmax[i] == -1);
  TFO_EXPECT_RUNS(RoiPoolGrad<float>(
      device, {args, box, output.data(), argmax.data(), nullptr}));
  TFO_EXPECT_RUNS(RoiPoolGradGrad<float>(
      device, {args, box, nullptr, argmax.data(), output.data()}));
  for (int i = 0; i < 4; ++i) TFO_EXPECT(output[i] == 0);
  // Without boxes, all of the gradient is written as zeros.
  GpuVector<float> gradient(2, 9);
  TFO_EXPECT_RUNS(RoiPoolGrad<float>(device, {{{1, 1, 2, 1}, 1, {2, 2}},
                                              no_boxes,
                                              nullptr,
                                              nullptr,
                                              gradient.data()}));
  TFO_EXPECT(gradient[0] == 0 && gradient[1] == 0);
}
TFO_TEST(RoiPool, CpuEmptySizes) {
  ExpectEmptySizesWork(testing::ThreadedCpu(2));
}
TFO_CUDA_TEST(RoiPool, CudaEmptySizes) {
  for (const Gpu& gpu : testing::Gpus()) ExpectEmptySizesWork(gpu);
}

template <typename T>
void TimePool(int64_t height, int64_t width, int64_t channels, float stride) {
  Problem<T> p = {};
  FeatureShape& shape = p.args.map;
  shape.batch = 1;
  shape.height = testing::BenchmarkSize(height);
  shape.width = testing::BenchmarkSize(width);
  shape.channels = testing::BenchmarkSize(channels);
  p.args.spatial_scale = 1 / stride;
  p.args.grid = {7, 7};
  p.boxes = testing::BenchmarkBoxes<T>(testing::BenchmarkSize(1000));
  p.box_indices.resize(p.boxes.size() / 4);
  p.features = testing::RandomOnGpu<T>(shape.Size(), 2);
  const int64_t pooled = p.Pooled().Size();
  const auto d = testing::RandomOnGpu<T>(pooled, 3);
  GpuVector<T> output(pooled), to(shape.Size());
  GpuVector<int32_t> argmax(pooled);
  const auto name_of = [&](const char* name) {
    return testing::Text(testing::NameOf<T>(), name, " [1, ", height, ", ",
                         width, ", ", channels, "], ", p.NumBoxes(),
                         " boxes, 7 x 7 bins, stride ", stride);
  };
  const int64_t num_bytes =
      (shape.Size() + pooled) * sizeof(T) + pooled * sizeof(int32_t);
  testing::TimeOnGpu(name_of("roi_pool"), num_bytes, 0, [&](const Gpu& gpu) {
    return RoiPool<T>(gpu, {p.args, p.AllBoxes(), p.features.data(),
                            output.data(), argmax.data()});
  });
  testing::TimeOnGpu(
      name_of("roi_pool_grad"), num_bytes, 0, [&](const Gpu& gpu) {
        return RoiPoolGrad<T>(
            gpu, {p.args, p.AllBoxes(), d.data(), argmax.data(), to.data()});
      });
}
TFO_BENCHMARK(RoiPool, Pyramid) {
  TimePool<float>(200, 304, 256, 4);
  TimePool<Half>(200, 304, 256, 4);
  TimePool<float>(50, 76, 256, 16);
  TimePool<float>(50, 76, 1024, 16);
}

}  // namespace
}  // namespace tfo
