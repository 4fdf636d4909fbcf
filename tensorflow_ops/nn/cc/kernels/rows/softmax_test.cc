// Compares softmax, entropy and their gradients with sums in long double, on
// both devices.
#include "tensorflow_ops/nn/cc/kernels/rows/softmax.h"

#include "tensorflow_ops/nn/cc/kernels/rows/rows_testing.h"

namespace tfo {
namespace {

using testing::Bound;
using testing::RandomValues;
using testing::ThreadedCpu;

template <typename Device, typename T>
void CheckSoftmax(const Device& device, const LogitRows<T>& in, bool log,
                  const testing::Caller& caller = {}) {
  const testing::Case of_test(caller, in.shape.template Text<T>());
  const auto [rows, classes, input_offset, output_offset] = in.shape;
  const int64_t n = rows * classes;
  Guarded<T> y(n, output_offset), again(n, output_offset);
  Guarded<T> d_logits(n, output_offset);
  for (Guarded<T>* to : {&y, &again}) {
    Run(device, SoftmaxArgs<T>{rows, classes, log, in.x.data(), to->data()});
    TFO_EXPECT(to->IsIntact());
  }
  TFO_EXPECT(y.HasBitsOf(again));
  auto d_values = RandomValues<T>(n, 9);
  // NaN gradients where the probability is 0.
  for (int64_t i = 0; i < n; ++i) {
    if (std::isinf(Widen(in.x[i])) && !log) d_values[i] = Narrow<T>(NAN);
  }
  const Guarded<T> d(d_values, input_offset);
  std::vector<T> of_y(y.data(), y.data() + n);
  const Guarded<T> y_in(of_y, input_offset);
  Run(device, SoftmaxGradArgs<T>{rows, classes, log, d.data(), y_in.data(),
                                 d_logits.data()});
  TFO_EXPECT(d_logits.IsIntact());
  const double tolerance = Tolerance<T>();
  for (int64_t r = 0; r < rows; ++r) {
    const Row& row = in.rows[r];
    long double sum = 0, size = 0;
    for (int64_t i = r * classes; i < (r + 1) * classes; ++i) {
      const double part = Widen(d[i]) * (log ? 1 : double{Widen(y[i])});
      if (std::isnan(part)) continue;
      sum += part;
      size += std::abs(part);
    }
    for (int64_t c = 0; c < classes; ++c) {
      const int64_t i = r * classes + c;
      if (log) {
        ExpectNear("log_softmax", i, y[i], row.LogP(c), tolerance, 1);
      } else {
        ExpectNear("softmax", i, y[i], row.p[c], tolerance + kOfExp<T>,
                   std::is_same_v<T, Half> ? 1e-4 : 1e-30);
      }
      const double p = log ? std::exp(double{Widen(y[i])}) : Widen(y[i]);
      const double expected = log      ? Widen(d[i]) - p * double(sum)
                              : p == 0 ? 0
                                       : p * (Widen(d[i]) - double(sum));
      ExpectNear("gradient", i, d_logits[i], row.nan ? NAN : expected,
                 4 * tolerance, p * double(size) + 1e-6);
    }
  }
}

template <typename Device, typename T>
void CheckEntropy(const Device& device, const LogitRows<T>& in,
                  const testing::Caller& caller = {}) {
  const testing::Case of_test(caller, in.shape.template Text<T>());
  using Value = Accumulator<T>;
  const auto [rows, classes, input_offset, output_offset] = in.shape;
  const Guarded<Value> d(RandomValues<Value>(rows, 3), 0);
  Guarded<Value> entropy(rows, 1), largest(rows, 0), rest(rows, 0);
  Guarded<T> d_logits(rows * classes, output_offset);
  Run(device, EntropyArgs<T>{rows,
                             classes,
                             in.x.data(),
                             entropy.data(),
                             {largest.data(), rest.data()}});
  Run(device, EntropyGradArgs<T>{rows,
                                 classes,
                                 d.data(),
                                 in.x.data(),
                                 entropy.data(),
                                 {largest.data(), rest.data()},
                                 d_logits.data()});
  TFO_EXPECT(entropy.IsIntact() && largest.IsIntact() && rest.IsIntact() &&
             d_logits.IsIntact());
  for (int64_t r = 0; r < rows; ++r) {
    const Row& row = in.rows[r];
    row.ExpectSums(r, largest[r], rest[r]);
    long double sum = row.nan ? NAN : 0;
    for (int64_t c = 0; c < classes; ++c) {
      if (row.p[c] > 0) sum -= row.p[c] * row.LogP(c);
    }
    const double h = sum;
    ExpectNear("entropy", r, entropy[r], h,
               Tolerance<Value>() * 2 + row.Far<Value>());
    for (int64_t c = 0; c < classes; ++c) {
      const int64_t i = r * classes + c;
      const double p = row.p[c];
      const double expected = p > 0 ? -d[r] * p * (row.LogP(c) + h) : p;
      ExpectNear("gradient", i, d_logits[i], row.nan ? NAN : expected,
                 Tolerance<T>() * 2,
                 std::abs(d[r]) * p * (std::abs(h) + 1) + 1e-6);
    }
  }
}

template <typename Device>
void CheckAll(const Device& device) {
  ForRows([&](auto t, const RowShape& shape) {
    const LogitRows<decltype(t)> in(shape);
    CheckSoftmax(device, in, false);
    CheckSoftmax(device, in, true);
    CheckEntropy(device, in);
  });
}
TFO_TEST(Softmax, EqualsReference) { CheckAll(ThreadedCpu(2)); }
TFO_CUDA_TEST(Softmax, CudaEqualsReference) { CheckAll(Gpu()); }

// NaN in a row makes only that row's results NaN, in every function.
TFO_TEST(Softmax, KeepsNanAndInfinityInTheirRow) {
  for (const int64_t classes : {2, 3, 17, 40, 300, 3000}) {
    for (const float bad : {NAN, INFINITY}) {
      for (const int64_t at : {int64_t{0}, classes / 2, classes - 1}) {
        auto x = testing::RandomOnGpu<float>(5 * classes, 1);
        x[2 * classes + at] = bad;
        testing::Tensors tensors = RowTensors(5, classes);
        tensors.Set("logits", x);
        const Cpu cpu = ThreadedCpu(2);
        RunRowFunction(cpu, Bound<SoftmaxArgs<float>>(&tensors));
        RunRowFunction(cpu, Bound<EntropyArgs<float>>(&tensors));
        RunRowFunction(cpu, Bound<EntropyGradArgs<float>>(&tensors));
        const auto &p = tensors.Get<float>("output"),
                   &dx = tensors.Get<float>("d_logits"),
                   &h = tensors.Get<float>("entropy");
        for (int64_t i = 0; i < 5 * classes; ++i) {
          TFO_EXPECT_EQ(std::isnan(p[i]), i / classes == 2);
          TFO_EXPECT_EQ(std::isnan(dx[i]), i / classes == 2);
        }
        for (int r = 0; r < 5; ++r) TFO_EXPECT_EQ(std::isnan(h[r]), r == 2);
      }
    }
  }
}

// Inputs with different alignments are read one value at a time.
TFO_CUDA_TEST(Softmax, CudaInputsWithDifferentAlignments) {
  const int64_t rows = 3, classes = 500;
  const auto values = RandomValues<float>(rows * classes, 5);
  const Guarded<float> d(values, 1), y(values, 2);
  Guarded<float> expected(rows * classes, 0), actual(rows * classes, 0);
  const auto args = [&](float* to) {
    return SoftmaxGradArgs<float>{rows, classes, false, d.data(), y.data(), to};
  };
  RunRowFunction(ThreadedCpu(1), args(expected.data()));
  TFO_EXPECT_RUNS(RunRowFunction(Gpu{}, args(actual.data())));
  for (int64_t i = 0; i < rows * classes; ++i) {
    ExpectNear("gradient", i, actual[i], expected[i], 1e-6,
               500 * std::abs(values[i]));
  }
}

// Rows that are split into parts need scratch memory.
TFO_CUDA_TEST(Softmax, CudaNeedsScratch) {
  const int64_t classes = 40000;
  TFO_EXPECT(GpuStateValues(1, classes) > 0);
  const testing::GpuVector<float> x(classes);
  testing::GpuVector<float> y(classes, 9);
  TFO_EXPECT(RunRowFunction(Gpu{}, SoftmaxArgs<float>{1, classes, false,
                                                      x.data(), y.data()}) !=
             nullptr);
  TFO_EXPECT_EQ(y[0], 9);
}

template <typename T>
void TimeSoftmax(int64_t rows, int64_t classes) {
  testing::Tensors tensors = RowTensors(rows, classes);
  for (const bool log : {false, true}) {
    auto args = Bound<SoftmaxArgs<T>>(&tensors);
    auto grad = Bound<SoftmaxGradArgs<T>>(&tensors);
    args.log = grad.log = log;
    TimeRows<T>(log ? "log_softmax" : "softmax", 2, 0, args);
    TimeRows<T>(log ? "log_softmax_grad" : "softmax_grad", 3, 0, grad);
  }
  TimeRows<T>("entropy", 1, 3, Bound<EntropyArgs<T>>(&tensors));
  TimeRows<T>("entropy_grad", 2, 4, Bound<EntropyGradArgs<T>>(&tensors));
}
TFO_BENCHMARK(Softmax, Rows) {
  ForBenchmarkRows([](auto t, int64_t rows, int64_t classes) {
    TimeSoftmax<decltype(t)>(rows, classes);
  });
}

}  // namespace
}  // namespace tfo
