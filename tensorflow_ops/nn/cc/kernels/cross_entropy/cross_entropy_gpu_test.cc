// Compares the CUDA kernels of the cross entropies with the CPU's.
#include "tensorflow_ops/nn/cc/kernels/cross_entropy/cross_entropy.h"
#include "tensorflow_ops/nn/cc/kernels/rows/rows_gpu_testing.h"

namespace tfo {
namespace {

using testing::RandomValues;
using testing::ThreadedCpu;

// Labels in range, some at the largest logit; ignored labels; in the last rows
// labels out of range.
constexpr int64_t kIgnored = -100;
template <typename Label, typename T>
std::vector<Label> RowLabels(const RowShape& shape, const T* x) {
  constexpr Label kMax = std::numeric_limits<Label>::max();
  // The last would be 0 if truncated to 32 bits.
  const Label out_of_range[] = {static_cast<Label>(shape.classes), -1, kMax,
                                static_cast<Label>(kMax - 1 - kMax / 2 * 2),
                                static_cast<Label>(int64_t{1} << 32)};
  std::vector<Label> labels;
  for (int64_t row = 0; row < shape.rows; ++row) {
    labels.push_back((row * 7919 + shape.classes - 1) % shape.classes);
    if (row % 3 == 1 || (shape.rows < 9 && row == 0)) {
      const T* const begin = x + row * shape.classes;
      const auto less = [](T a, T b) { return Widen(a) < Widen(b); };
      labels.back() =
          std::max_element(begin, begin + shape.classes, less) - begin;
    }
    if (row % 16 == 8) labels.back() = kIgnored;
    if (row % 16 >= 11) labels.back() = out_of_range[row % 16 - 11];
  }
  return labels;
}

template <typename T, typename Label>
void CheckLabelLoss(const RowShape& shape, const LabelLossOptions& options,
                    const testing::Caller& caller = {}) {
  const testing::Case of_test(caller, testing::NameOf<T>(), "rows ", shape.rows,
                              ", classes ", shape.classes, ", offsets ",
                              shape.input_offset, ", ", shape.output_offset);
  using Value = Accumulator<T>;
  const auto [rows, classes, input_offset, output_offset] = shape;
  const int64_t n = rows * classes;
  const Guarded<T> x(RowLogits<T>(shape), input_offset);
  const Guarded<Label> labels(RowLabels<Label>(shape, x.data()), 0);
  struct Results {
    Guarded<Value> loss, largest, rest;
    explicit Results(int64_t rows)
        : loss(rows, 1), largest(rows, 0), rest(rows, 0) {}
  };
  Results expected(rows), actual(rows);
  auto scratch = ScratchOf<T>(shape);
  int64_t bad_row = rows;
  const auto args = [&](Results& to, int64_t* bad) {
    return LabelLossArgs<T>{rows,
                            classes,
                            options,
                            x.data(),
                            labels.data(),
                            to.loss.data(),
                            {to.largest.data(), to.rest.data()},
                            bad};
  };
  RunRowFunction(ThreadedCpu(1), args(expected, &bad_row));
  TFO_EXPECT_RUNS(RunRowFunction(GpuWith(scratch), args(actual, nullptr)));
  TFO_EXPECT(actual.loss.IsIntact() && actual.largest.IsIntact() &&
             actual.rest.IsIntact());
  for (int64_t row = 0; row < rows; ++row) {
    const double lse = std::abs(double{expected.largest[row]}) +
                       std::log1p(double{expected.rest[row]});
    const double z = options.z_loss * lse * lse;
    ExpectNear<T>("loss", shape, row, labels[row], actual.loss[row],
                  expected.loss[row], std::isfinite(z) ? 2 * z : 0);
    ExpectNear<double>("largest", shape, row, 0, actual.largest[row],
                       expected.largest[row]);
    ExpectNear<T>("rest", shape, row, 0, actual.rest[row], expected.rest[row]);
  }

  const Guarded<Value> d(RandomValues<Value>(rows, 3), 0);
  Guarded<T> expected_d(n, output_offset), actual_d(n, output_offset);
  const auto grad_args = [&](T* to, int64_t* bad) {
    return LabelLossGradArgs<T>{rows,
                                classes,
                                options,
                                d.data(),
                                x.data(),
                                labels.data(),
                                {expected.largest.data(), expected.rest.data()},
                                to,
                                bad};
  };
  RunRowFunction(ThreadedCpu(1), grad_args(expected_d.data(), &bad_row));
  TFO_EXPECT_RUNS(
      RunRowFunction(GpuWith(scratch), grad_args(actual_d.data(), nullptr)));
  TFO_EXPECT(actual_d.IsIntact());
  for (int64_t i = 0; i < n; ++i) {
    const int64_t row = i / classes, c = i % classes;
    const double largest = expected.largest[row], rest = expected.rest[row];
    const double p = std::exp(Widen(x[i]) - largest) / (1 + rest);
    const double more =
        2 * options.z_loss * (std::abs(largest) + std::log1p(rest));
    // p - 1 where the label is not the largest logit.
    const double label = c == labels[row] && Widen(x[i]) != largest ? 1 : 0;
    const double size =
        std::abs(d[row]) *
        (p * more + label + options.label_smoothing * (c == labels[row]) +
         options.label_smoothing / classes);
    ExpectNear<T>("loss's gradient", shape, row, c, actual_d[i], expected_d[i],
                  std::isfinite(size) ? size : 0);
  }
}

// Targets are distributions, some of them one-hot.
template <typename T>
void CheckCrossEntropy(const RowShape& shape, double smoothing,
                       const testing::Caller& caller = {}) {
  const testing::Case of_test(caller, testing::NameOf<T>(), "rows ", shape.rows,
                              ", classes ", shape.classes, ", offsets ",
                              shape.input_offset, ", ", shape.output_offset,
                              ", smoothing ", smoothing);
  using Value = Accumulator<T>;
  const auto [rows, classes, input_offset, output_offset] = shape;
  const int64_t n = rows * classes;
  const Guarded<T> x(RowLogits<T>(shape), input_offset);
  auto targets = RandomValues<T>(n, 5);
  for (int64_t i = 0; i < n; ++i) {
    const bool is_one = i % classes == i / classes % classes;
    targets[i] =
        Narrow<T>(i / classes % 4 == 0 ? static_cast<Value>(is_one)
                                       : std::abs(Widen(targets[i])) / classes);
  }
  const Guarded<T> labels(targets, input_offset);
  struct Results {
    Guarded<Value> loss, largest, rest, label_sum;
    explicit Results(int64_t rows)
        : loss(rows, 1), largest(rows, 0), rest(rows, 0), label_sum(rows, 0) {}
  };
  Results expected(rows), actual(rows);
  auto scratch = ScratchOf<T>(shape);
  const auto args = [&](Results& to) {
    return CrossEntropyArgs<T>{rows,
                               classes,
                               smoothing,
                               labels.data(),
                               x.data(),
                               to.loss.data(),
                               {to.largest.data(), to.rest.data()},
                               to.label_sum.data()};
  };
  RunRowFunction(ThreadedCpu(1), args(expected));
  TFO_EXPECT_RUNS(RunRowFunction(GpuWith(scratch), args(actual)));
  TFO_EXPECT(actual.loss.IsIntact() && actual.largest.IsIntact() &&
             actual.rest.IsIntact() && actual.label_sum.IsIntact());
  for (int64_t row = 0; row < rows; ++row) {
    // The CPU adds many equal targets with larger rounding errors.
    long double sum = 0, loss = 0;
    const long double log = std::log1p(
        static_cast<long double>(std::max(expected.rest[row], Value(0))));
    for (int64_t i = row * classes; i < (row + 1) * classes; ++i) {
      const long double keep = static_cast<Value>(1 - smoothing);
      const long double each = static_cast<Value>(smoothing / classes);
      const long double t = keep * Widen(labels[i]) + each;
      sum += t;
      const long double below =
          static_cast<long double>(Widen(x[i])) - expected.largest[row];
      loss += t == 0 ? 0 : t * (log - below);
    }
    if (!std::isfinite(expected.loss[row])) loss = expected.loss[row];
    const auto expect = [&](const char* name, const Guarded<Value>& a,
                            double e) {
      ExpectNear<T>(name, shape, row, 0, a[row], static_cast<Value>(e));
    };
    expect("cross entropy", actual.loss, loss);
    expect("largest", actual.largest, expected.largest[row]);
    expect("rest", actual.rest, expected.rest[row]);
    expect("sum of labels", actual.label_sum, sum);
  }

  const Guarded<Value> d(RandomValues<Value>(rows, 3), 0);
  Guarded<T> expected_d(n, output_offset), actual_d(n, output_offset),
      expected_l(n, output_offset), actual_l(n, output_offset),
      alone(n, output_offset);
  const auto grad_args = [&](T* to, T* to_labels) {
    return CrossEntropyGradArgs<T>{
        rows,
        classes,
        smoothing,
        d.data(),
        labels.data(),
        x.data(),
        {expected.largest.data(), expected.rest.data()},
        expected.label_sum.data(),
        to,
        to_labels};
  };
  RunRowFunction(ThreadedCpu(1),
                 grad_args(expected_d.data(), expected_l.data()));
  TFO_EXPECT_RUNS(RunRowFunction(GpuWith(scratch),
                                 grad_args(actual_d.data(), actual_l.data())));
  TFO_EXPECT_RUNS(
      RunRowFunction(GpuWith(scratch), grad_args(alone.data(), nullptr)));
  TFO_EXPECT(actual_d.IsIntact() && actual_l.IsIntact());
  TFO_EXPECT(alone.HasBitsOf(actual_d));
  for (int64_t i = 0; i < n; ++i) {
    const int64_t row = i / classes, c = i % classes;
    const double t = (1 - smoothing) * Widen(labels[i]) + smoothing / classes;
    ExpectNear<T>("cross entropy's gradient", shape, row, c, actual_d[i],
                  expected_d[i], std::abs(d[row]) * t);
    ExpectNear<T>("gradient to labels", shape, row, c, actual_l[i],
                  expected_l[i]);
  }
}

template <typename T>
void CheckLabelLosses() {
  LabelLossOptions plain, ignoring, smoothing, z_loss, log_prob, all;
  ignoring.ignores = all.ignores = true;
  ignoring.ignore_index = all.ignore_index = kIgnored;
  smoothing.label_smoothing = all.label_smoothing = 0.1;
  z_loss.z_loss = all.z_loss = 0.01;
  log_prob.log_prob = true;
  for (const RowShape& shape : RowShapes()) {
    CheckLabelLoss<T, int32_t>(shape, plain);
    CheckLabelLoss<T, int64_t>(shape, all);
    if (shape.classes > 10000) continue;
    CheckLabelLoss<T, int64_t>(shape, ignoring);
    CheckLabelLoss<T, int32_t>(shape, smoothing);
    CheckLabelLoss<T, int64_t>(shape, z_loss);
    CheckLabelLoss<T, int32_t>(shape, log_prob);
  }
}
TFO_CUDA_TEST(LabelLossGpu, Float) { CheckLabelLosses<float>(); }
TFO_CUDA_TEST(LabelLossGpu, Double) { CheckLabelLosses<double>(); }
TFO_CUDA_TEST(LabelLossGpu, Half) { CheckLabelLosses<Half>(); }
TFO_CUDA_TEST(LabelLossGpu, BFloat16) { CheckLabelLosses<BFloat16>(); }

template <typename T>
void CheckCrossEntropies() {
  for (const RowShape& shape : RowShapes()) {
    CheckCrossEntropy<T>(shape, 0);
    if (shape.classes <= 10000 || shape.rows == 2) {
      CheckCrossEntropy<T>(shape, 0.1);
    }
  }
}
TFO_CUDA_TEST(CrossEntropyGpu, Float) { CheckCrossEntropies<float>(); }
TFO_CUDA_TEST(CrossEntropyGpu, Double) { CheckCrossEntropies<double>(); }
TFO_CUDA_TEST(CrossEntropyGpu, Half) { CheckCrossEntropies<Half>(); }
TFO_CUDA_TEST(CrossEntropyGpu, BFloat16) { CheckCrossEntropies<BFloat16>(); }

template <typename T>
void TimeLosses(int64_t rows, int64_t classes) {
  const auto x = testing::RandomOnGpu<T>(rows * classes, 1);
  const auto targets = testing::RandomOnGpu<T>(rows * classes, 2);
  testing::GpuVector<T> to(rows * classes), to_targets(rows * classes);
  testing::GpuVector<Accumulator<T>> d(rows), loss(rows), largest(rows),
      rest(rows), total(rows);
  testing::GpuVector<int32_t> labels(rows);
  for (int64_t row = 0; row < rows; ++row) labels[row] = row * 37 % classes;
  TimeRows<T>("label_loss", 1, 4,
              LabelLossArgs<T>{rows,
                               classes,
                               {},
                               x.data(),
                               labels.data(),
                               loss.data(),
                               {largest.data(), rest.data()},
                               nullptr});
  TimeRows<T>("label_loss_grad", 2, 4,
              LabelLossGradArgs<T>{rows,
                                   classes,
                                   {},
                                   d.data(),
                                   x.data(),
                                   labels.data(),
                                   {largest.data(), rest.data()},
                                   to.data(),
                                   nullptr});
  TimeRows<T>("cross_entropy", 2, 4,
              CrossEntropyArgs<T>{rows,
                                  classes,
                                  0,
                                  targets.data(),
                                  x.data(),
                                  loss.data(),
                                  {largest.data(), rest.data()},
                                  total.data()});
  TimeRows<T>("cross_entropy_grad", 4, 4,
              CrossEntropyGradArgs<T>{rows,
                                      classes,
                                      0,
                                      d.data(),
                                      targets.data(),
                                      x.data(),
                                      {largest.data(), rest.data()},
                                      total.data(),
                                      to.data(),
                                      to_targets.data()});
}
TFO_BENCHMARK(CrossEntropyGpu, Rows) {
  ForBenchmarkRows([](auto t, int64_t rows, int64_t classes) {
    TimeLosses<decltype(t)>(rows, classes);
  });
}

}  // namespace
}  // namespace tfo
