// Compares the CUDA kernels of gaussian_kl with the CPU's.
#include "tensorflow_ops/nn/cc/kernels/gaussian_kl/gaussian_kl.h"
#include "tensorflow_ops/nn/cc/kernels/rows/rows_gpu_testing.h"

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

template <typename T, bool kUnit>
void CheckGaussianKl(const RowShape& shape,
                     const testing::Caller& caller = {}) {
  const testing::Case of_test(caller, testing::NameOf<T>(), "rows ", shape.rows,
                              ", classes ", shape.classes, ", offsets ",
                              shape.input_offset, ", ", shape.output_offset);
  using Value = Accumulator<T>;
  const auto [rows, classes, input_offset, output_offset] = shape;
  const int64_t n = rows * classes;
  const Gaussians<T> in(shape);
  Guarded<Value> expected(rows, 1), actual(rows, 1);
  auto scratch = ScratchOf<T>(shape);
  const T* const p_mean = kUnit ? nullptr : in.p_mean.data();
  const T* const p_log = kUnit ? nullptr : in.p_log.data();
  const auto args = [&](Value* to) {
    return GaussianKlArgs<T, kUnit>{
        rows, classes, in.q_mean.data(), in.q_log.data(), p_mean, p_log, to};
  };
  RunRowFunction(ThreadedCpu(1), args(expected.data()));
  TFO_EXPECT_RUNS(RunRowFunction(GpuWith(scratch), args(actual.data())));
  TFO_EXPECT(actual.IsIntact());
  for (int64_t row = 0; row < rows; ++row) {
    ExpectNear<float>("divergence", shape, row, kUnit, actual[row],
                      expected[row]);
  }

  std::vector<Guarded<T>*> expected_d, actual_d;
  Guarded<T> results[] = {{n, output_offset}, {n, output_offset},
                          {n, output_offset}, {n, output_offset},
                          {n, output_offset}, {n, output_offset},
                          {n, output_offset}, {n, output_offset}};
  const auto grad_args = [&](Guarded<T>* to) {
    return GaussianKlGradArgs<T, kUnit>{rows,
                                        classes,
                                        in.d.data(),
                                        in.q_mean.data(),
                                        in.q_log.data(),
                                        p_mean,
                                        p_log,
                                        to[0].data(),
                                        to[1].data(),
                                        kUnit ? nullptr : to[2].data(),
                                        kUnit ? nullptr : to[3].data()};
  };
  RunRowFunction(ThreadedCpu(1), grad_args(results));
  TFO_EXPECT_RUNS(RunRowFunction(GpuWith(scratch), grad_args(results + 4)));
  for (int to = 0; to < (kUnit ? 2 : 4); ++to) {
    TFO_EXPECT(results[4 + to].IsIntact());
    for (int64_t i = 0; i < n; ++i) {
      const int64_t row = i / classes;
      // The last gradient adds a term to this one, which may cancel.
      const double ratio = Widen(results[1][i]);
      const std::string name = "gradient " + std::to_string(to);
      ExpectNear<float>(name, shape, row, i % classes, results[4 + to][i],
                        results[to][i],
                        to == 3 && std::isfinite(ratio) ? std::abs(ratio) : 0);
    }
  }
}

template <typename T>
void CheckAll() {
  for (const RowShape& shape : RowShapes()) {
    CheckGaussianKl<T, false>(shape);
    CheckGaussianKl<T, true>(shape);
  }
  for (const int64_t rows : {3, 200}) {  // no dimensions: no divergence
    CheckGaussianKl<T, false>({rows, 0});
    CheckGaussianKl<T, true>({rows, 0});
  }
}
TFO_CUDA_TEST(GaussianKlGpu, Float) { CheckAll<float>(); }
TFO_CUDA_TEST(GaussianKlGpu, Double) { CheckAll<double>(); }
TFO_CUDA_TEST(GaussianKlGpu, Half) { CheckAll<Half>(); }
TFO_CUDA_TEST(GaussianKlGpu, BFloat16) { CheckAll<BFloat16>(); }

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
TFO_BENCHMARK(GaussianKlGpu, Rows) {
  ForBenchmarkRows([](auto t, int64_t rows, int64_t classes) {
    TimeGaussians<decltype(t)>(rows, classes);
  });
}

}  // namespace
}  // namespace tfo
