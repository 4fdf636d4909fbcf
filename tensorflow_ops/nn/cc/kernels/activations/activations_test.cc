// Compares activations and their gradients with loops in long double.
#include "tensorflow_ops/nn/cc/kernels/activations/activations.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "tensorflow_ops/core/cc/testing/args_testing.h"

namespace tfo {
namespace {

using testing::Bound;
using testing::GpuVector;
using testing::Tensors;

constexpr Activation kAll[] = {Activation::kGelu, Activation::kGeluTanh,
                               Activation::kSilu};

// The activation at x, its derivative, and the size of its terms.
struct Reference {
  Reference(Activation activation, long double x) {
    if (activation == Activation::kGelu) {
      const long double cdf = std::erfc(-x * std::sqrt(0.5L)) / 2;
      const long double density =
          std::exp(-x * x / 2) / std::sqrt(2 * std::acos(-1.0L));
      Set(x, cdf, x * density);
      return;
    }
    const bool is_silu = activation == Activation::kSilu;
    const long double factor = 2 * std::sqrt(2 / std::acos(-1.0L));
    const long double w = is_silu ? x : factor * (x + 0.044715L * x * x * x);
    const long double slope =
        is_silu ? 1 : factor * (1 + 3 * 0.044715L * x * x);
    const long double sigmoid = 1 / (1 + std::exp(-w));
    Set(x, sigmoid, sigmoid / (1 + std::exp(w)) * x * slope);
    // e^w has the rounding errors of w.
    if (std::isfinite(w)) roundings += 2 * static_cast<double>(std::abs(w));
  }
  void Set(long double x, long double first, long double second) {
    value = std::isinf(x) ? (x > 0 ? x : 0) : x * first;
    derivative = std::isinf(x) ? (x > 0 ? 1 : 0) : first + second;
    size = std::isinf(x) ? 1 : std::abs(first) + std::abs(second);
  }
  long double value, derivative, size;
  double roundings = 5;
};

// In T, of `actual` computed in its Accumulator. Numbers that are not normal
// may be 0.
template <typename T>
void ExpectNear(const char* name, int64_t i, T actual, long double expected,
                double error) {
  using Value = Accumulator<T>;
  const double value = Widen(actual);
  if (std::isnan(expected) || std::isinf(expected)) {
    if (std::isnan(expected) ? std::isnan(value) : value == expected) return;
  } else {
    double allowed = error + 1024 * std::numeric_limits<Value>::min();
    if (std::is_same_v<T, Half>) allowed += 0x1p-11 * std::abs(value) + 0x1p-24;
    if (std::is_same_v<T, BFloat16>) allowed += 0x1p-8 * std::abs(value);
    if (std::abs(value - expected) <= allowed) return;
  }
  testing::Fail(__FILE__, __LINE__,
                testing::Text(name, "[", i, "] is ", value, ", expected ",
                              expected, " +- ", error));
}

// Special values, both tails, and random ones.
template <typename T>
GpuVector<T> Features(int64_t size) {
  auto values = testing::RandomOnGpu<T>(size, 1);
  const double special[] = {NAN,   INFINITY, -INFINITY, -1e4,  1e4,       0,
                            -14.4, 14.4,     -39,       -1000, -0.7517916};
  for (int64_t i = 0; i < size; ++i) {
    const double x = Widen(values[i]);
    if (i % 7 == 3) {
      values[i] = testing::Rounded<T>(special[i / 7 % std::size(special)]);
    } else if (i % 2 == 0) {
      values[i] = testing::Rounded<T>(x * (sizeof(T) == 8 ? 12 : 5));
    }
  }
  return values;
}

template <typename T, typename Device>
void Check(const Device& device, int64_t rows, int64_t channels, bool has_bias,
           bool in_place, const testing::Caller& caller = {}) {
  using Value = Accumulator<T>;
  const double epsilon = std::numeric_limits<Value>::epsilon();
  const int64_t size = rows * channels;
  for (const Activation activation : kAll) {
    const testing::Case of_test(caller, testing::NameOf<T>(), "activation ",
                                static_cast<int>(activation), ", ", rows, " x ",
                                channels, has_bias ? ", bias" : "",
                                in_place ? ", in place" : "");
    Tensors tensors({{"...", rows}, {"channels", channels}}, in_place);
    const auto x = Features<T>(size);
    const auto d = testing::RandomOnGpu<T>(size, 2);
    auto bias = testing::RandomOnGpu<T>(channels, 3);
    tensors.Set("features", x);
    tensors.Set("d_output", d);
    if (has_bias) tensors.Set("bias", bias);
    BiasActivationGradArgs<T> grad{};
    grad.activation = activation;
    const auto all = testing::ComputeOn(
        device, tensors,
        [&](const Gpu&) {
          Tensors copy = tensors;
          return BiasActivationGradScratchBytes(
              Bound<BiasActivationGradArgs<T>>(grad, &copy));
        },
        [&](const Device& on, Tensors* to) {
          BiasActivationArgs<T> args{};
          args.activation = activation;
          TFO_EXPECT_RUNS(BiasActivationGrad(
              on, Bound<BiasActivationGradArgs<T>>(grad, to)));
          TFO_EXPECT_RUNS(
              BiasActivation(on, Bound<BiasActivationArgs<T>>(args, to)));
        });
    for (const Tensors& results : all) {
      const auto &y = results.template Get<T>("output"),
                 &dx = results.template Get<T>("d_features");
      std::vector<long double> sums(channels), sizes(channels);
      for (int64_t i = 0; i < size; ++i) {
        Value z = Widen(x[i]);
        if (has_bias) z += Widen(bias[i % channels]);
        const Reference e(activation, z);
        const double error = e.roundings * epsilon;
        const long double g = Widen(d[i]);
        ExpectNear("output", i, y[i], e.value,
                   error * static_cast<double>(std::abs(e.value)));
        ExpectNear("d_features", i, dx[i], e.derivative * g,
                   error * static_cast<double>(e.size * std::abs(g)));
        if (std::isinf(z) && z < 0) TFO_EXPECT(std::signbit(Widen(y[i])));
        sums[i % channels] += e.derivative * g;
        sizes[i % channels] += e.size * std::abs(g) * (10 + e.roundings);
      }
      for (int64_t c = 0; has_bias && c < channels; ++c) {
        ExpectNear("d_bias", c, results.template Get<T>("d_bias")[c], sums[c],
                   static_cast<double>(2 * epsilon * sizes[c]));
      }
    }
  }
}

TFO_DEVICE_TEST(Activations, EqualDefinitions) {
  testing::ForTypes([&](auto t) {
    using T = decltype(t);
    for (const bool has_bias : {false, true}) {
      for (const bool in_place : {false, true}) {
        Check<T>(device, 3, 5, has_bias, in_place);
        Check<T>(device, 90, 8, has_bias, in_place);
        Check<T>(device, 5, 1100, has_bias, in_place);
      }
      Check<T>(device, 0, 5, has_bias, false);
      Check<T>(device, 3, 0, has_bias, false);
    }
  });
}

// Of several bands of rows.
TFO_DEVICE_TEST(Activations, SumsManyRows) {
  Check<float>(device, 40000, 3, true, true);
  Check<BFloat16>(device, 520, 140, true, false);
}

TFO_BENCHMARK(Activations, Bias) {
  const int64_t rows = testing::BenchmarkSize(1 << 15), channels = 1024;
  testing::ForTypes([&](auto t) {
    using T = decltype(t);
    Tensors tensors({{"...", rows}, {"channels", channels}});
    tensors.Set("bias", testing::RandomOnGpu<T>(channels, 3));
    const auto args = Bound<BiasActivationArgs<T>>(&tensors);
    const auto grad = Bound<BiasActivationGradArgs<T>>(&tensors);
    const int64_t bytes = rows * channels * sizeof(T);
    const auto time = [&](const char* name, int64_t num_bytes, int64_t scratch,
                          const auto& run) {
      testing::TimeOnGpu(testing::Text(testing::NameOf<T>(), name, " [", rows,
                                       ", ", channels, "]"),
                         num_bytes, scratch, run);
    };
    time("gelu", 2 * bytes, 0,
         [&](const Gpu& gpu) { return BiasActivation(gpu, args); });
    time("gelu_grad", 3 * bytes, BiasActivationGradScratchBytes(grad),
         [&](const Gpu& gpu) { return BiasActivationGrad(gpu, grad); });
  });
}

}  // namespace
}  // namespace tfo
