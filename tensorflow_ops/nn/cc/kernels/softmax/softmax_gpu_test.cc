// Compares the CUDA kernels of softmax and entropy with the CPU's.
#include "tensorflow_ops/nn/cc/kernels/rows/rows_gpu_testing.h"
#include "tensorflow_ops/nn/cc/kernels/softmax/softmax.h"

namespace tfo {
namespace {

using testing::RandomValues;
using testing::ThreadedCpu;

template <typename T, bool kLog>
void CheckSoftmax(const RowShape& shape, const testing::Caller& caller = {}) {
  const testing::Case of_test(caller, testing::NameOf<T>(), "rows ", shape.rows,
                              ", classes ", shape.classes, ", offsets ",
                              shape.input_offset, ", ", shape.output_offset);
  const auto [rows, classes, input_offset, output_offset] = shape;
  const int64_t n = rows * classes;
  const Guarded<T> x(RowLogits<T>(shape), input_offset);
  Guarded<T> expected(n, output_offset), actual(n, output_offset),
      again(n, output_offset);
  auto scratch = ScratchOf<T>(shape);
  RunRowFunction(ThreadedCpu(1), SoftmaxArgs<T>{rows, classes, kLog, x.data(),
                                                expected.data()});
  for (Guarded<T>* result : {&actual, &again}) {
    TFO_EXPECT_RUNS(RunRowFunction(
        GpuWith(scratch),
        SoftmaxArgs<T>{rows, classes, kLog, x.data(), result->data()}));
    TFO_EXPECT(result->IsIntact());
  }
  TFO_EXPECT(actual.HasBitsOf(again));
  for (int64_t i = 0; i < n; ++i) {
    // The rounding error of x - m, half an ulp, is a relative error of e^(x -
    // m); the CPU rounds twice.
    const double p = Widen(expected[i]);
    const double size = kLog || !(p > 0) ? 0 : p * (1 - std::log(p) / 8);
    ExpectNear<T>(kLog ? "log_softmax" : "softmax", shape, i / classes,
                  i % classes, actual[i], expected[i], size);
  }
}

template <typename T, bool kLog>
void CheckSoftmaxGrad(const RowShape& shape,
                      const testing::Caller& caller = {}) {
  const testing::Case of_test(caller, testing::NameOf<T>(), "rows ", shape.rows,
                              ", classes ", shape.classes, ", offsets ",
                              shape.input_offset, ", ", shape.output_offset);
  const auto [rows, classes, input_offset, output_offset] = shape;
  const int64_t n = rows * classes;
  const Guarded<T> x(RowLogits<T>(shape), input_offset);
  Guarded<T> y(n, input_offset), expected(n, output_offset),
      actual(n, output_offset);
  auto d_values = RandomValues<T>(n, 9);
  // NaN gradients where the probability is 0.
  for (int64_t i = 0; i < n; ++i) {
    if (std::isinf(Widen(x[i])) && !kLog) d_values[i] = Narrow<T>(NAN);
  }
  const Guarded<T> d(d_values, input_offset);
  auto scratch = ScratchOf<T>(shape);
  RunRowFunction(ThreadedCpu(1),
                 SoftmaxArgs<T>{rows, classes, kLog, x.data(), y.data()});
  RunRowFunction(ThreadedCpu(1),
                 SoftmaxGradArgs<T>{rows, classes, kLog, d.data(), y.data(),
                                    expected.data()});
  TFO_EXPECT_RUNS(RunRowFunction(
      GpuWith(scratch), SoftmaxGradArgs<T>{rows, classes, kLog, d.data(),
                                           y.data(), actual.data()}));
  TFO_EXPECT(actual.IsIntact());
  for (int64_t row = 0; row < rows; ++row) {
    double sum = 0;
    for (int64_t i = row * classes; i < (row + 1) * classes; ++i) {
      const double part = Widen(d[i]) * (kLog ? 1 : Widen(y[i]));
      if (!std::isnan(part)) sum += std::abs(part);
    }
    for (int64_t c = 0; c < classes; ++c) {
      const int64_t i = row * classes + c;
      const double p = kLog ? std::exp(Widen(y[i])) : Widen(y[i]);
      ExpectNear<T>(kLog ? "log_softmax's gradient" : "softmax's gradient",
                    shape, row, c, actual[i], expected[i], p * sum);
    }
  }
}

template <typename T>
void CheckEntropy(const RowShape& shape, const testing::Caller& caller = {}) {
  const testing::Case of_test(caller, testing::NameOf<T>(), "rows ", shape.rows,
                              ", classes ", shape.classes, ", offsets ",
                              shape.input_offset, ", ", shape.output_offset);
  using Value = Accumulator<T>;
  const auto [rows, classes, input_offset, output_offset] = shape;
  const int64_t n = rows * classes;
  const Guarded<T> x(RowLogits<T>(shape), input_offset);
  struct Results {
    Guarded<Value> entropy, largest, rest;
    explicit Results(int64_t rows)
        : entropy(rows, 1), largest(rows, 0), rest(rows, 0) {}
  };
  Results expected(rows), actual(rows);
  auto scratch = ScratchOf<T>(shape);
  const auto args = [&](Results& to) {
    return EntropyArgs<T>{rows,
                          classes,
                          x.data(),
                          to.entropy.data(),
                          {to.largest.data(), to.rest.data()}};
  };
  RunRowFunction(ThreadedCpu(1), args(expected));
  TFO_EXPECT_RUNS(RunRowFunction(GpuWith(scratch), args(actual)));
  TFO_EXPECT(actual.entropy.IsIntact() && actual.largest.IsIntact() &&
             actual.rest.IsIntact());
  for (int64_t row = 0; row < rows; ++row) {
    ExpectNear<T>("entropy", shape, row, 0, actual.entropy[row],
                  expected.entropy[row]);
    ExpectNear<double>("largest", shape, row, 0, actual.largest[row],
                       expected.largest[row]);
    ExpectNear<T>("rest", shape, row, 0, actual.rest[row], expected.rest[row]);
  }

  const Guarded<Value> d(RandomValues<Value>(rows, 3), 0);
  Guarded<T> expected_d(n, output_offset), actual_d(n, output_offset);
  const auto grad_args = [&](T* to) {
    return EntropyGradArgs<T>{rows,
                              classes,
                              d.data(),
                              x.data(),
                              expected.entropy.data(),
                              {expected.largest.data(), expected.rest.data()},
                              to};
  };
  RunRowFunction(ThreadedCpu(1), grad_args(expected_d.data()));
  TFO_EXPECT_RUNS(RunRowFunction(GpuWith(scratch), grad_args(actual_d.data())));
  TFO_EXPECT(actual_d.IsIntact());
  for (int64_t i = 0; i < n; ++i) {
    const int64_t row = i / classes;
    const double below = Widen(x[i]) - double{expected.largest[row]};
    const double sum = 1 + double{expected.rest[row]};
    const double p = std::exp(below) / sum;
    const double size =
        std::abs(d[row]) * p *
        (std::abs(below) + std::log(sum) + expected.entropy[row]);
    ExpectNear<T>("entropy's gradient", shape, row, i % classes, actual_d[i],
                  expected_d[i], std::isfinite(size) ? size : 0);
  }
}

template <typename T>
void CheckAll() {
  for (const RowShape& shape : RowShapes()) {
    CheckSoftmax<T, false>(shape);
    CheckSoftmax<T, true>(shape);
    CheckSoftmaxGrad<T, false>(shape);
    CheckSoftmaxGrad<T, true>(shape);
    CheckEntropy<T>(shape);
  }
}
TFO_CUDA_TEST(SoftmaxGpu, Float) { CheckAll<float>(); }
TFO_CUDA_TEST(SoftmaxGpu, Double) { CheckAll<double>(); }
TFO_CUDA_TEST(SoftmaxGpu, Half) { CheckAll<Half>(); }
TFO_CUDA_TEST(SoftmaxGpu, BFloat16) { CheckAll<BFloat16>(); }

// Inputs with different alignments are read one value at a time.
TFO_CUDA_TEST(SoftmaxGpu, InputsWithDifferentAlignments) {
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
    const RowShape shape = {rows, classes};
    ExpectNear<float>("gradient", shape, i / classes, i % classes, actual[i],
                      expected[i], 500 * std::abs(values[i]));
  }
}

// Rows that are split into parts need scratch memory.
TFO_CUDA_TEST(SoftmaxGpu, NeedsScratch) {
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
  const auto x = testing::RandomOnGpu<T>(rows * classes, 1);
  const auto d = testing::RandomOnGpu<T>(rows * classes, 2);
  testing::GpuVector<T> y(rows * classes), to(rows * classes);
  testing::GpuVector<Accumulator<T>> d_rows(rows), entropy(rows), largest(rows),
      rest(rows);
  for (const bool log : {false, true}) {
    TimeRows<T>(log ? "log_softmax" : "softmax", 2, 0,
                SoftmaxArgs<T>{rows, classes, log, x.data(), y.data()});
    TimeRows<T>(
        log ? "log_softmax_grad" : "softmax_grad", 3, 0,
        SoftmaxGradArgs<T>{rows, classes, log, d.data(), y.data(), to.data()});
  }
  TimeRows<T>("entropy", 1, 3,
              EntropyArgs<T>{rows,
                             classes,
                             x.data(),
                             entropy.data(),
                             {largest.data(), rest.data()}});
  TimeRows<T>("entropy_grad", 2, 4,
              EntropyGradArgs<T>{rows,
                                 classes,
                                 d_rows.data(),
                                 x.data(),
                                 entropy.data(),
                                 {largest.data(), rest.data()},
                                 to.data()});
}
TFO_BENCHMARK(SoftmaxGpu, Rows) {
  ForBenchmarkRows([](auto t, int64_t rows, int64_t classes) {
    TimeSoftmax<decltype(t)>(rows, classes);
  });
}

}  // namespace
}  // namespace tfo
