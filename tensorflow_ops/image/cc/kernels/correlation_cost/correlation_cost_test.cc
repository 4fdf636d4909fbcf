// Compares costs and gradients with plain loops in double precision.
#include "tensorflow_ops/image/cc/kernels/correlation_cost/correlation_cost.h"

#include <cmath>
#include <vector>

#include "tensorflow_ops/core/cc/testing/gpu_testing.h"

namespace tfo {
namespace {

using testing::ExpectClose;
using testing::GpuVector;
using testing::HaveSameBits;
using testing::ToGpu;

struct Expected {
  std::vector<double> costs, d_a, d_b;
};

template <typename T>
struct Case {
  CorrelationSpec args;
  GpuVector<T> a, b, d_costs;

  int64_t Costs() const {
    return args.batch * args.OutputHeight() * args.OutputWidth() *
           args.Displacements();
  }

  explicit Case(const CorrelationSpec& of, uint32_t seed) : args(of) {
    const int64_t size = args.batch * args.height * args.width * args.channels;
    a = ToGpu(testing::RandomValues<T>(size, seed));
    b = ToGpu(testing::RandomValues<T>(size, seed + 1));
    d_costs = ToGpu(testing::RandomValues<T>(Costs(), seed + 2));
  }

  static int64_t Place(const ImageSteps& steps, int64_t n, int64_t y, int64_t x,
                       int64_t c) {
    return n * steps.image + y * steps.row + x * steps.pixel + c;
  }

  Expected Definition() const {
    Expected e = {std::vector<double>(Costs()), std::vector<double>(a.size()),
                  std::vector<double>(b.size())};
    const ImageSteps features = FeatureSteps(args), costs = CostSteps(args);
    const int64_t r = args.max_displacement / args.stride_2;
    const int64_t kernel = (args.kernel_size - 1) / 2;
    const int64_t border = args.max_displacement + kernel;
    const auto inside = [&](int64_t y, int64_t x) {
      return y >= 0 && y < args.height && x >= 0 && x < args.width;
    };
    for (int64_t n = 0; n < args.batch; ++n) {
      for (int64_t y = 0; y < args.OutputHeight(); ++y) {
        for (int64_t x = 0; x < args.OutputWidth(); ++x) {
          for (int64_t d = 0; d < (2 * r + 1) * (2 * r + 1); ++d) {
            const int64_t dy = d / (2 * r + 1) - r, dx = d % (2 * r + 1) - r;
            const int64_t to = Place(costs, n, y, x, d);
            for (int64_t j = -kernel; j <= kernel; ++j) {
              for (int64_t i = -kernel; i <= kernel; ++i) {
                const int64_t ya =
                    y * args.stride_1 - args.padding + border + j;
                const int64_t xa =
                    x * args.stride_1 - args.padding + border + i;
                const int64_t yb = ya + dy * args.stride_2;
                const int64_t xb = xa + dx * args.stride_2;
                if (!inside(ya, xa) || !inside(yb, xb)) continue;
                for (int64_t c = 0; c < args.channels; ++c) {
                  const int64_t at_a = Place(features, n, ya, xa, c);
                  const int64_t at_b = Place(features, n, yb, xb, c);
                  const double up = Widen(d_costs[to]) / args.Terms();
                  e.costs[to] +=
                      double(Widen(a[at_a])) * Widen(b[at_b]) / args.Terms();
                  e.d_a[at_a] += up * Widen(b[at_b]);
                  e.d_b[at_b] += up * Widen(a[at_a]);
                }
              }
            }
          }
        }
      }
    }
    return e;
  }

  template <typename Device>
  std::vector<GpuVector<T>> Run(const Device& device) const {
    std::vector<GpuVector<T>> results(3);
    results[0].resize(Costs());
    results[1].resize(a.size());
    results[2].resize(b.size());
    TFO_EXPECT_RUNS(CorrelationCost<T>(
        device, {args, a.data(), b.data(), results[0].data()}));
    TFO_EXPECT_RUNS(CorrelationCostGrad<T>(
        device, {args, d_costs.data(), b.data(), false, results[1].data()}));
    TFO_EXPECT_RUNS(CorrelationCostGrad<T>(
        device, {args, d_costs.data(), a.data(), true, results[2].data()}));
    return results;
  }

  template <typename Device>
  void Check(const Device& device, const testing::Caller& caller = {}) const {
    const testing::Case of_test(
        caller, testing::NameOf<T>(), "kernel ", args.kernel_size,
        ", displacement ", args.max_displacement, ", strides ", args.stride_1,
        " ", args.stride_2, ", maps ", args.batch, " x ", args.height, " x ",
        args.width, " x ", args.channels);
    const Expected expected = Definition();
    const auto results = Run(device);
    ExpectClose("costs", results[0], expected.costs);
    ExpectClose("d_a", results[1], expected.d_a);
    ExpectClose("d_b", results[2], expected.d_b);
  }
};

// max_displacement, kernel_size, stride_1, stride_2, padding, height, width,
// channels.
constexpr int64_t kSizes[][8] = {
    {1, 1, 1, 1, 0, 3, 4, 2},   {2, 1, 1, 1, 2, 5, 6, 3},
    {4, 1, 1, 1, 4, 9, 35, 17}, {3, 3, 1, 2, 4, 6, 7, 5},
    {2, 3, 2, 1, 3, 7, 8, 4},   {5, 1, 3, 2, 5, 8, 20, 3},
    {4, 5, 2, 3, 0, 15, 16, 2}, {0, 1, 1, 1, 0, 4, 5, 6},
    {1, 1, 1, 1, 7, 2, 3, 1},   {6, 1, 1, 1, 6, 5, 40, 40},
    {1, 3, 8, 1, 2, 3, 4, 2},   {1, 1, 5, 1, 3, 4, 9, 3},
    {3, 1, 1, 1, 3, 4, 20, 70},
};

template <typename Device>
void CheckSizes(const Device& device) {
  testing::ForTypes([&](auto type) {
    uint32_t seed = 0;
    for (const auto& s : kSizes) {
      const CorrelationSpec args = {s[0],         s[1], s[2], s[3], s[4],
                                    1 + seed % 2, s[5], s[6], s[7]};
      Case<decltype(type)>(args, ++seed).Check(device);
    }
  });
}
TFO_TEST(CorrelationCost, SizesEqualTheDefinition) {
  CheckSizes(testing::ThreadedCpu(3));
}
TFO_CUDA_TEST(CorrelationCostGpu, SizesEqualTheDefinition) {
  CheckSizes(Gpu());
}

// Rows and channels in several tiles, on the CPU and on a GPU.
template <typename Device>
void CheckLargeMaps(const Device& device) {
  for (const CorrelationSpec& args :
       {CorrelationSpec{8, 1, 1, 2, 8, 1, 20, 33, 300},
        CorrelationSpec{2, 1, 1, 1, 2, 1, 20, 10, 900},
        CorrelationSpec{1, 1, 1, 1, 1, 1, 7, 600, 3},
        CorrelationSpec{1, 1, 1, 1, 1, 1, 2, 1030, 1}}) {
    Case<float>(args, 9).Check(device);
  }
}
TFO_TEST(CorrelationCost, LargeMapsEqualTheDefinition) {
  CheckLargeMaps(testing::ThreadedCpu(2));
}
TFO_CUDA_TEST(CorrelationCostGpu, LargeMapsEqualTheDefinition) {
  CheckLargeMaps(Gpu());
}

TFO_TEST(CorrelationCost, ThreadsDoNotChangeBits) {
  for (int64_t kernel : {1, 3}) {
    const CorrelationSpec args = {3, kernel, 1, 1, 4, 2, 30, 40, 50};
    const Case<float> c(args, 4);
    const auto one = c.Run(Cpu());
    const auto many = c.Run(testing::ThreadedCpu(5));
    for (int i = 0; i < 3; ++i) TFO_EXPECT(HaveSameBits(one[i], many[i]));
  }
}

// A product with a pixel outside is 0, whatever the pixel inside.
TFO_DEVICE_TEST(CorrelationCost, InfinityTimesOutsideIsZero) {
  const CorrelationSpec args = {1, 1, 1, 1, 1, 1, 1, 3, 1};
  Case<float> c(args, 1);
  c.a[0] = INFINITY;
  c.b[0] = 1;
  c.b[1] = 1;
  const auto costs = c.Run(device)[0];
  TFO_EXPECT_EQ(costs[3], 0.f);
  TFO_EXPECT_EQ(costs[4], INFINITY);
  TFO_EXPECT_EQ(costs[0], 0.f);
}

// The same for windows: infinities at both ends of each row, in each input.
TFO_DEVICE_TEST(CorrelationCost, InfinityTimesWindowsOutsideIsZero) {
  for (int64_t kernel : {1, 3, 5}) {
    for (int64_t stride : {1, 2}) {
      const int64_t padding = 2 + kernel / 2;
      const CorrelationSpec args = {2, kernel, stride, 1, padding, 1, 3, 5, 2};
      Case<float> c(args, 1);
      const auto check = [&](GpuVector<float>* input, int64_t row,
                             const char* name) {
        const GpuVector<float> finite = *input;
        for (size_t i = 0; i < input->size(); i += row) {
          (*input)[i] = INFINITY;
          (*input)[i + row - 1] = NAN;
        }
        const Expected expected = c.Definition();
        const auto results = c.Run(device);
        ExpectClose(name, results[0], expected.costs);
        // Pixels of b in no window have weight 0 in d_a: infinity gives NaN.
        if (input == &c.d_costs) {
          ExpectClose(name, results[1], expected.d_a);
        }
        ExpectClose(name, results[2], expected.d_b);
        *input = finite;
      };
      check(&c.b, args.width * args.channels, "b");
      check(&c.d_costs, args.OutputWidth() * args.Displacements(), "d_costs");
    }
  }
}

// The smallest: two products of 1, and infinity times the pixel outside.
TFO_DEVICE_TEST(CorrelationCost, InfinityTimesOutsideOfAWindowIsZero) {
  const CorrelationSpec args = {1, 3, 1, 1, 2, 1, 1, 3, 1};
  Case<float> c(args, 1);
  for (int i = 0; i < 3; ++i) c.a[i] = c.b[i] = 1;
  c.b[0] = INFINITY;
  TFO_EXPECT_EQ(c.Run(device)[0][5], 2.f / 9);
}

TFO_TEST(CorrelationCost, OfNoPixelsIsZero) {
  const CorrelationSpec args = {1, 1, 1, 1, 3, 1, 0, 2, 3};
  const Case<float> c(args, 1);
  std::vector<float> costs(c.Costs(), 1);
  TFO_EXPECT_RUNS(CorrelationCost<float>(
      Cpu(), {args, c.a.data(), c.b.data(), costs.data()}));
  for (float cost : costs) TFO_EXPECT_EQ(cost, 0.f);
}

TFO_TEST(CorrelationCost, OfNoChannelsIsZero) {
  const CorrelationSpec args = {1, 1, 1, 1, 1, 2, 3, 4, 0};
  const Case<Half> c(args, 1);
  std::vector<Half> costs(c.Costs(), Narrow<Half>(1.f));
  TFO_EXPECT_RUNS(CorrelationCost<Half>(
      Cpu(), {args, c.a.data(), c.b.data(), costs.data()}));
  for (Half cost : costs) TFO_EXPECT_EQ(Widen(cost), 0.f);
}

// Steps longer than the maps: memory does not grow with them.
TFO_DEVICE_TEST(CorrelationCost, LongStepsEqualTheDefinition) {
  const int64_t step = kMaxCorrelationOption;
  Case<float>({1, 1, step, 1, 1, 1, 5, 6, 64}, 1).Check(device);
  // Two windows on each axis: pixels between them are outside.
  Case<float>({0, 1, 5000, 1, 3000, 1, 4, 4, 8}, 1).Check(device);
  // One displacement within the maps.
  Case<float>({9, 1, 1, 9, 9, 1, 5, 7, 4}, 1).Check(device);
}

// Widths around the pixels that a thread has, channels around a pack.
TFO_CUDA_TEST(CorrelationCost, CudaTilesEqualTheDefinition) {
  for (int64_t width : {3, 4, 5, 8, 9}) {
    for (int64_t stride : {1, 2}) {
      const int64_t channels = width == 4 ? 16 : width;
      const CorrelationSpec args = {3, 1, 1, stride, 3, 2, 3, width, channels};
      Case<float>(args, 1).Check(Gpu());
      Case<Half>(args, 1).Check(Gpu());
    }
  }
}

TFO_CUDA_TEST(CorrelationCost, CudaAlignmentDoesNotChangeBits) {
  const CorrelationSpec args = {2, 1, 1, 1, 2, 1, 4, 9, 8};
  const Case<float> c(args, 1);
  const GpuVector<float> expected = c.Run(Gpu())[1];
  for (int shift : {0, 1}) {
    GpuVector<float> other = c.b, gradient(c.a.size() + 1 - shift);
    other.insert(other.begin(), shift, NAN);
    TFO_EXPECT_RUNS(CorrelationCostGrad<float>(
        Gpu(), {args, c.d_costs.data(), other.data() + shift, false,
                gradient.data() + 1 - shift}));
    gradient.erase(gradient.begin(), gradient.end() - expected.size());
    TFO_EXPECT(HaveSameBits(gradient, expected));
  }
}

// No window fits: however many displacements there are, nothing is added.
TFO_CUDA_TEST(CorrelationCost, CudaGradientOfNoCostsIsZero) {
  const CorrelationSpec args = {kMaxCorrelationOption, 1, 1, 1, 0, 1, 3, 4, 8};
  const Case<float> c(args, 1);
  GpuVector<float> gradient(c.a.size(), 1);
  TFO_EXPECT_RUNS(CorrelationCostGrad<float>(
      Gpu(), {args, nullptr, c.b.data(), false, gradient.data()}));
  TFO_EXPECT(HaveSameBits(gradient, GpuVector<float>(gradient.size(), 0)));
}

template <typename T>
void TimeCosts(int64_t batch, int64_t height, int64_t width, int64_t channels,
               int64_t radius) {
  CorrelationSpec args = {};
  args.max_displacement = args.padding = testing::IsTiming() ? radius : 1;
  args.kernel_size = args.stride_1 = args.stride_2 = 1;
  args.batch = testing::BenchmarkSize(batch);
  args.height = testing::BenchmarkSize(height);
  args.width = testing::BenchmarkSize(width);
  args.channels = testing::BenchmarkSize(channels);
  const int64_t pixels = args.batch * args.height * args.width;
  const int64_t size = pixels * args.channels;
  const int64_t num_costs = pixels * args.Displacements();
  const auto a = testing::RandomOnGpu<T>(size, 1);
  const auto b = testing::RandomOnGpu<T>(size, 2);
  const auto d = testing::RandomOnGpu<T>(num_costs, 3);
  GpuVector<T> costs(num_costs), to_a(size), to_b(size);
  const auto name_of = [&](const char* name) {
    return testing::Text(testing::NameOf<T>(), name, " [", batch, ", ", height,
                         ", ", width, ", ", channels, "], radius ", radius);
  };
  const int64_t num_bytes = (2 * size + num_costs) * sizeof(T);
  testing::TimeOnGpu(name_of("correlation_cost"), num_bytes, 0,
                     [&](const Gpu& gpu) {
                       return CorrelationCost<T>(
                           gpu, {args, a.data(), b.data(), costs.data()});
                     });
  testing::TimeOnGpu(
      name_of("correlation_cost_grad"), num_bytes + 2 * size * sizeof(T), 0,
      [&](const Gpu& gpu) {
        const Error error = CorrelationCostGrad<T>(
            gpu, {args, d.data(), b.data(), false, to_a.data()});
        return error != nullptr
                   ? error
                   : CorrelationCostGrad<T>(
                         gpu, {args, d.data(), a.data(), true, to_b.data()});
      });
}
TFO_BENCHMARK(CorrelationCost, Flow) {
  TimeCosts<float>(4, 64, 112, 64, 4);
  TimeCosts<BFloat16>(4, 64, 112, 64, 4);
  TimeCosts<float>(1, 48, 64, 256, 10);
}

}  // namespace
}  // namespace tfo
