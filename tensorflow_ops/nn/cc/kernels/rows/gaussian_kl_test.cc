// Compares gaussian_kl and its gradients with sums in long double, on both
// devices.
#include "tensorflow_ops/nn/cc/kernels/rows/gaussian_kl.h"

#include "tensorflow_ops/nn/cc/kernels/rows/rows_testing.h"

namespace tfo {
namespace {

using testing::RandomValues;
using testing::ThreadedCpu;

// q, p and d_divergence. Rows of different kinds: nearly equal Gaussians, equal
// ones, log variances beyond the range of e^x, infinite ones.
template <typename T>
struct Gaussians {
  using Value = Accumulator<T>;
  Guarded<T> q_mean, q_log, p_mean, p_log;
  Guarded<Value> d;

  explicit Gaussians(const RowShape& shape)
      : q_mean(Values(shape, 1), shape.input_offset),
        q_log(Values(shape, 2), shape.input_offset),
        p_mean(Values(shape, 3), shape.input_offset),
        p_log(Values(shape, 4), shape.input_offset),
        d(RandomValues<Value>(shape.rows, 5), 0) {}

  static std::vector<T> Values(const RowShape& shape, int which) {
    const bool is_log = which % 2 == 0;
    const auto same = RandomValues<T>(shape.rows * shape.classes, which % 2);
    auto values = RandomValues<T>(shape.rows * shape.classes, which);
    for (size_t i = 0; i < values.size(); ++i) {
      auto value = Widen(values[i]);
      const auto shared = Widen(same[i]);
      switch (i / shape.classes % 7) {
        case 1:
          value = shared + value * Value(1e-3);
          break;
        case 2:
          value = shared;
          break;
        case 3:
          if (is_log) value = -110 + value;
          break;
        case 4:
          if (is_log && which == 2) value = 120;
          break;
        case 5:
          if (i % 5 == 3) value = is_log ? -INFINITY : value;
          break;
        case 6:
          if (i % 4 == 1 && !is_log) value = NAN;
          break;
      }
      values[i] = Narrow<T>(value);
    }
    return values;
  }
};

// e^x - 1 - x.
long double ExpMinusTangent(double x) {
  if (!(std::abs(x) < 0.5)) return std::expm1(static_cast<long double>(x)) - x;
  long double sum = 0, term = x;
  for (int k = 2; k < 30; ++k) sum += term *= static_cast<long double>(x) / k;
  return sum;
}

template <bool kUnit, typename T, typename Device>
void CheckGaussianKl(const Device& device, const RowShape& shape,
                     const testing::Caller& caller = {}) {
  const testing::Case of_test(caller, shape.Text<T>(), ", unit ", kUnit);
  using Value = Accumulator<T>;
  const auto [rows, dims, input_offset, output_offset] = shape;
  const int64_t n = rows * dims;
  const Gaussians<T> in(shape);
  const T* const p_mean = kUnit ? nullptr : in.p_mean.data();
  const T* const p_log = kUnit ? nullptr : in.p_log.data();
  Guarded<Value> divergence(rows, 1);
  Guarded<T> g[4] = {{n, output_offset},
                     {n, output_offset},
                     {n, output_offset},
                     {n, output_offset}};
  Run(device,
      GaussianKlArgs<T, kUnit>{rows, dims, in.q_mean.data(), in.q_log.data(),
                               p_mean, p_log, divergence.data()});
  Run(device,
      GaussianKlGradArgs<T, kUnit>{rows, dims, in.d.data(), in.q_mean.data(),
                                   in.q_log.data(), p_mean, p_log, g[0].data(),
                                   g[1].data(), kUnit ? nullptr : g[2].data(),
                                   kUnit ? nullptr : g[3].data()});
  TFO_EXPECT(divergence.IsIntact());
  for (const auto& one : g) TFO_EXPECT(one.IsIntact());
  constexpr const char* kNames[] = {"d_q_mean", "d_q_log_variance", "d_p_mean",
                                    "d_p_log_variance"};
  // Results beyond the largest number are infinite.
  const auto rounded = [](double x) { return double{Narrow<Value>(Value(x))}; };
  for (int64_t r = 0; r < rows; ++r) {
    long double sum = 0;
    const double d = in.d[r];
    for (int64_t i = r * dims; i < (r + 1) * dims; ++i) {
      const double m =
          double{Widen(in.q_mean[i])} - (kUnit ? 0 : Widen(p_mean[i]));
      const double s = kUnit ? 0 : Widen(p_log[i]);
      const double ratio = Widen(in.q_log[i]) - s;
      const double to_mean = m == 0 ? 0 : d * m * std::exp(-s);
      const double square = m == 0 ? 0 : m * m * std::exp(-s);
      sum += (ExpMinusTangent(ratio) + square) / 2;
      const double expected[] = {to_mean, d * std::expm1(ratio) / 2, -to_mean,
                                 -d * (std::expm1(ratio) + square) / 2};
      for (int k = 0; k < (kUnit ? 2 : 4); ++k) {
        ExpectNear(kNames[k], i, g[k][i], rounded(expected[k]),
                   4 * Tolerance<T>(), k == 3 ? std::abs(d) * square : 1e-6);
      }
    }
    ExpectNear("divergence", r, divergence[r], rounded(sum),
               4 * Tolerance<Value>());
  }
}

template <typename Device>
void CheckAll(const Device& device) {
  const auto check = [&](auto t, const RowShape& shape) {
    CheckGaussianKl<false, decltype(t)>(device, shape);
    CheckGaussianKl<true, decltype(t)>(device, shape);
  };
  ForRows(check);
  // No dimensions: no divergence.
  for (const int64_t rows : {3, 200}) check(float(), {rows, 0});
}
TFO_TEST(GaussianKl, EqualsReference) { CheckAll(ThreadedCpu(2)); }
TFO_CUDA_TEST(GaussianKl, CudaEqualsReference) { CheckAll(Gpu()); }

template <typename T>
void TimeGaussians(int64_t rows, int64_t classes) {
  const int64_t n = rows * classes;
  const auto q = testing::RandomOnGpu<T>(n, 1),
             q_log = testing::RandomOnGpu<T>(n, 2);
  const auto p = testing::RandomOnGpu<T>(n, 3),
             p_log = testing::RandomOnGpu<T>(n, 4);
  testing::GpuVector<T> to_q(n), to_q_log(n), to_p(n), to_p_log(n);
  testing::GpuVector<Accumulator<T>> d(rows), kl(rows);
  TimeRows<T>("gaussian_kl", 4, 1,
              GaussianKlArgs<T, false>{rows, classes, q.data(), q_log.data(),
                                       p.data(), p_log.data(), kl.data()});
  TimeRows<T>("gaussian_kl_grad", 8, 1,
              GaussianKlGradArgs<T, false>{rows, classes, d.data(), q.data(),
                                           q_log.data(), p.data(), p_log.data(),
                                           to_q.data(), to_q_log.data(),
                                           to_p.data(), to_p_log.data()});
  TimeRows<T>("unit_gaussian_kl", 2, 1,
              GaussianKlArgs<T, true>{rows, classes, q.data(), q_log.data(),
                                      nullptr, nullptr, kl.data()});
  TimeRows<T>("unit_gaussian_kl_grad", 4, 1,
              GaussianKlGradArgs<T, true>{
                  rows, classes, d.data(), q.data(), q_log.data(), nullptr,
                  nullptr, to_q.data(), to_q_log.data(), nullptr, nullptr});
}
TFO_BENCHMARK(GaussianKl, Rows) {
  ForBenchmarkRows([](auto t, int64_t rows, int64_t classes) {
    TimeGaussians<decltype(t)>(rows, classes);
  });
}

}  // namespace
}  // namespace tfo
