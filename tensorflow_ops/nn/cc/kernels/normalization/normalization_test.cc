// Compares normalizations and their gradients with loops in double.
#include "tensorflow_ops/nn/cc/kernels/normalization/normalization.h"

#include <cmath>
#include <vector>

#include "tensorflow_ops/core/cc/testing/args_testing.h"

namespace tfo {
namespace {

using testing::Bound;
using testing::GpuVector;
using testing::Tensors;

struct Size {
  int64_t batch, pixels, channels, groups;
};

// Calls visit(place, channel) for the numbers of a group.
template <typename Visit>
void ForGroup(const NormalizationSpec& a, int64_t group, const Visit& visit) {
  const int64_t image = group / a.groups, width = a.channels / a.groups;
  for (int64_t p = 0; p < a.pixels; ++p) {
    for (int64_t k = 0; k < width; ++k) {
      const int64_t c = group % a.groups * width + k;
      visit((image * a.pixels + p) * a.channels + c, c);
    }
  }
}

void Reference(const NormalizationArgs<double>& a,
               const NormalizationGradArgs<double>& grad) {
  for (int64_t g = 0; g < a.batch * a.groups; ++g) {
    const double count = a.pixels * (a.channels / a.groups);
    double mean = 0, variance = 0, by_one = 0, by_z = 0;
    if (a.centered) {
      ForGroup(a, g, [&](int64_t i, int64_t) { mean += a.x[i] / count; });
    }
    ForGroup(a, g, [&](int64_t i, int64_t) {
      variance += (a.x[i] - mean) * (a.x[i] - mean) / count;
    });
    const double inverse = 1 / std::sqrt(variance + a.epsilon);
    a.statistics[2 * g] = mean;
    a.statistics[2 * g + 1] = inverse;
    ForGroup(a, g, [&](int64_t i, int64_t c) {
      const double z = (a.x[i] - mean) * inverse, d = grad.d_y[i];
      a.y[i] = z * a.gamma[c] + (a.beta ? a.beta[c] : 0);
      grad.d_gamma[c] += d * z;
      grad.d_beta[c] += d;
      by_one += d * a.gamma[c] / count;
      by_z += d * a.gamma[c] * z / count;
    });
    ForGroup(a, g, [&](int64_t i, int64_t c) {
      const double z = (a.x[i] - mean) * inverse;
      grad.d_x[i] = inverse * (grad.d_y[i] * a.gamma[c] -
                               (a.centered ? by_one : 0) - z * by_z);
    });
  }
}

template <typename T, typename Body>
void ForArgs(const NormalizationSpec& spec, Tensors* tensors,
             const Body& body) {
  auto args = Bound<NormalizationArgs<T>>(spec, tensors);
  args.epsilon = 1e-3;
  body(args, Bound<NormalizationGradArgs<T>>(spec, tensors));
}

template <typename T, typename Device>
void Check(const Device& device, const Size& size, bool centered, bool has_beta,
           bool in_place, const testing::Caller& caller = {}) {
  const testing::Case of_test(
      caller, testing::NameOf<T>(), "[", size.batch, ", ", size.pixels, ", ",
      size.channels, "], groups ", size.groups,
      centered ? "" : ", not centered", has_beta ? "" : ", no beta",
      in_place ? ", in place" : "");
  Tensors tensors({{"batch", size.batch},
                   {"pixels", size.pixels},
                   {"channels", size.channels},
                   {"groups", size.groups},
                   {"centered", centered}},
                  in_place);
  if (has_beta) {
    tensors.Set("beta", testing::RandomOnGpu<Accumulator<T>>(size.channels, 5));
  }
  NormalizationSpec spec{};
  spec.centered = centered;
  ForArgs<T>(spec, &tensors, [](const auto&, const auto&) {});
  if (size.channels > 40) {  // far from 0, for a mean's cancellation
    for (T& x : tensors.Get<T>("x")) x = testing::Rounded<T>(Widen(x) + 2);
  }
  Tensors expected = tensors.InDouble();
  ForArgs<double>(spec, &expected, [](const auto& args, const auto& grad) {
    Reference(args, grad);
  });
  const int64_t scratch =
      NormalizationGradScratch(Bound<NormalizationGradArgs<T>>(spec, &tensors));
  for (const Tensors& results : testing::ComputeOn(
           device, tensors, [&](const Gpu&) { return scratch; },
           [&](const auto& on, Tensors* t) {
             ForArgs<T>(spec, t, [&](const auto& args, const auto& grad) {
               TFO_EXPECT_RUNS(Normalization(on, args));
               TFO_EXPECT_RUNS(NormalizationGrad(on, grad));
             });
           })) {
    results.ExpectCloseTo(expected);
  }
}

template <typename T, typename Device>
void CheckSizes(const Device& device) {
  const Size sizes[] = {
      {1, 1, 1, 1},    {3, 1, 5, 1},     {70, 1, 33, 1}, {21, 1, 96, 1},
      {5, 1, 5001, 1}, {130, 1, 16, 1},  {2, 7, 6, 3},   {3, 40, 48, 8},
      {1, 9, 21, 1},   {2, 500, 20, 20}, {4, 1, 40, 10}, {1, 130, 70, 2},
      {2, 3, 80, 2},   {1, 5, 300, 1},   {0, 1, 4, 1},   {3, 0, 4, 2},
      {2, 1, 0, 1},    {0, 3, 4, 2},     {2, 3, 0, 3},   {1, 4100, 4, 2},
  };
  for (const Size& size : sizes) {
    for (const bool centered : {false, true}) {
      Check<T>(device, size, centered, true, false);
      Check<T>(device, size, centered, false, true);
    }
  }
}

TFO_DEVICE_TEST(Normalization, Float) { CheckSizes<float>(device); }
TFO_DEVICE_TEST(Normalization, Double) { CheckSizes<double>(device); }
TFO_DEVICE_TEST(Normalization, Half) { CheckSizes<Half>(device); }
TFO_DEVICE_TEST(Normalization, BFloat16) { CheckSizes<BFloat16>(device); }

template <typename T>
void Time(const char* op, const char* sizes, const Size& size) {
  Tensors tensors({{"batch", testing::BenchmarkSize(size.batch)},
                   {"pixels", size.pixels},
                   {"channels", size.channels},
                   {"groups", size.groups}});
  ForArgs<T>(
      NormalizationSpec{}, &tensors, [&](const auto& args, const auto& grad) {
        const int64_t bytes =
            args.batch * size.pixels * size.channels * int64_t{sizeof(T)};
        testing::TimeOnGpu(
            testing::Text(testing::NameOf<T>(), op, sizes), 2 * bytes, 0,
            [&](const Gpu& gpu) { return Normalization(gpu, args); });
        testing::TimeOnGpu(
            testing::Text(testing::NameOf<T>(), op, "_grad", sizes), 3 * bytes,
            NormalizationGradScratch(grad),
            [&](const Gpu& gpu) { return NormalizationGrad(gpu, grad); });
      });
}
TFO_BENCHMARK(Normalization, Layers) {
  Time<float>("layer_norm", " [4096, 768]", {4096, 1, 768, 1});
  Time<BFloat16>("layer_norm", " [4096, 768]", {4096, 1, 768, 1});
  Time<float>("group_norm", " [4, 64, 64, 128], 32 groups", {4, 4096, 128, 32});
}

}  // namespace
}  // namespace tfo
