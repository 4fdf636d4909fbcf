// Compares the cross entropies and their gradients with sums in long double, on
// both devices.
#include "tensorflow_ops/nn/cc/kernels/rows/cross_entropy.h"

#include "tensorflow_ops/nn/cc/kernels/rows/rows_testing.h"

namespace tfo {
namespace {

using testing::Bound;
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

template <typename Label, typename Device, typename T>
void CheckLabelLoss(const Device& device, const LogitRows<T>& in,
                    const LabelLossOptions& options,
                    const testing::Caller& caller = {}) {
  const testing::Case of_test(caller, in.shape.template Text<T>());
  using Value = Accumulator<T>;
  const auto [rows, classes, input_offset, output_offset] = in.shape;
  const Guarded<Label> labels(RowLabels<Label>(in.shape, in.x.data()), 0);
  const Guarded<Value> d(RandomValues<Value>(rows, 5), 0);
  Guarded<Value> loss(rows, 1), largest(rows, 0), rest(rows, 0);
  Guarded<T> d_logits(rows * classes, output_offset);
  int64_t bad_row = rows, bad_row_of_gradient = rows;
  const bool reports = std::is_same_v<Device, Cpu>;
  Run(device, LabelLossArgs<T>{rows,
                               classes,
                               options,
                               in.x.data(),
                               labels.data(),
                               loss.data(),
                               {largest.data(), rest.data()},
                               reports ? &bad_row : nullptr});
  Run(device, LabelLossGradArgs<T>{rows,
                                   classes,
                                   options,
                                   d.data(),
                                   in.x.data(),
                                   labels.data(),
                                   {largest.data(), rest.data()},
                                   d_logits.data(),
                                   reports ? &bad_row_of_gradient : nullptr});
  TFO_EXPECT(loss.IsIntact() && largest.IsIntact() && rest.IsIntact() &&
             d_logits.IsIntact());
  const double e = options.label_smoothing, z = options.z_loss;
  const double sign = options.log_prob ? -1 : 1;
  int64_t first_bad = rows;
  for (int64_t r = 0; r < rows; ++r) {
    const Row& row = in.rows[r];
    row.ExpectSums(r, largest[r], rest[r]);
    const bool ignored = options.ignores && labels[r] == options.ignore_index;
    const bool bad = !ignored && (labels[r] < 0 || labels[r] >= classes);
    if (bad) first_bad = std::min(first_bad, r);
    const bool nan = row.nan || bad;
    const double lse = row.largest + row.log;
    long double expected = nan ? NAN : z == 0 ? 0 : z * lse * lse;
    for (int64_t c = 0; c < classes; ++c) {
      const double t = (1 - e) * (c == labels[r]) + e / classes;
      if (t != 0) expected -= t * row.LogP(c);
    }
    ExpectNear("loss", r, loss[r], ignored ? 0 : sign * double(expected),
               2 * Tolerance<Value>() + row.Far<Value>());
    for (int64_t c = 0; c < classes; ++c) {
      const int64_t i = r * classes + c;
      const double t = (1 - e) * (c == labels[r]) + e / classes;
      // p - 1 of the label, without cancellation.
      double off = row.p[c] - t;
      if (e == 0 && c == labels[r] && row.p[c] > 0.5) {
        off = -row.rest / (1 + row.rest);
      }
      const double more = z == 0 ? 0 : 2 * z * lse * row.p[c];
      const double dl = sign * d[r];
      ExpectNear("gradient", i, d_logits[i],
                 ignored || row.none ? 0
                 : nan               ? NAN
                                     : dl * (off + more),
                 Tolerance<T>() * 2 + 3e-6 * !std::is_same_v<T, double>,
                 std::abs(dl) * e + 1e-6);
    }
  }
  TFO_EXPECT_EQ(bad_row, reports ? first_bad : rows);
  TFO_EXPECT_EQ(bad_row_of_gradient, bad_row);
}

// Targets are distributions, some of them one-hot.
template <typename Device, typename T>
void CheckCrossEntropy(const Device& device, const LogitRows<T>& in,
                       double smoothing, const testing::Caller& caller = {}) {
  const testing::Case of_test(caller, in.shape.template Text<T>(),
                              ", smoothing ", smoothing);
  using Value = Accumulator<T>;
  const int64_t rows = in.shape.rows, classes = in.shape.classes;
  const int64_t n = rows * classes;
  auto values = RandomValues<T>(n, 11);
  for (int64_t i = 0; i < n; ++i) {
    const bool is_one = i % classes == i / classes % classes;
    Value value = std::abs(Widen(values[i]));
    // Masked classes have no target, unless smoothing adds one.
    if (std::isinf(Widen(in.x[i]))) value = 0;
    values[i] = Narrow<T>(i / classes % 4 == 0 ? Value(is_one) : value);
  }
  const Guarded<T> t(values, in.shape.input_offset);
  const Guarded<Value> d(RandomValues<Value>(rows, 5), 0);
  Guarded<Value> loss(rows, 1), largest(rows, 0), rest(rows, 0), sum(rows, 0);
  Guarded<T> d_logits(n, in.shape.output_offset),
      d_labels(n, in.shape.output_offset), alone(n, in.shape.output_offset);
  Run(device, CrossEntropyArgs<T>{rows,
                                  classes,
                                  smoothing,
                                  t.data(),
                                  in.x.data(),
                                  loss.data(),
                                  {largest.data(), rest.data()},
                                  sum.data()});
  const auto grad = [&](T* to_logits, T* to_labels) {
    Run(device, CrossEntropyGradArgs<T>{rows,
                                        classes,
                                        smoothing,
                                        d.data(),
                                        t.data(),
                                        in.x.data(),
                                        {largest.data(), rest.data()},
                                        sum.data(),
                                        to_logits,
                                        to_labels});
  };
  grad(d_logits.data(), d_labels.data());
  grad(alone.data(), nullptr);
  TFO_EXPECT(loss.IsIntact() && largest.IsIntact() && rest.IsIntact() &&
             sum.IsIntact() && d_logits.IsIntact() && d_labels.IsIntact());
  TFO_EXPECT(alone.HasBitsOf(d_logits));
  for (int64_t r = 0; r < rows; ++r) {
    const Row& row = in.rows[r];
    row.ExpectSums(r, largest[r], rest[r]);
    long double expected = row.nan ? NAN : 0, all = 0;
    std::vector<double> targets(classes);
    for (int64_t c = 0; c < classes; ++c) {
      targets[c] =
          (1 - smoothing) * Widen(t[r * classes + c]) + smoothing / classes;
      all += targets[c];
      if (targets[c] != 0) expected -= targets[c] * row.LogP(c);
    }
    ExpectNear("loss", r, loss[r], expected, 4 * Tolerance<Value>());
    ExpectNear("sum of labels", r, sum[r], all, 4 * Tolerance<Value>());
    for (int64_t c = 0; c < classes; ++c) {
      const int64_t i = r * classes + c;
      ExpectNear("gradient to logits", i, d_logits[i],
                 row.none ? 0 : d[r] * (row.p[c] * double(all) - targets[c]),
                 3 * Tolerance<T>(),
                 std::abs(d[r]) * (row.p[c] * double(all) + targets[c]) + 1e-6);
      if (row.nan) continue;
      const bool without = row.x[c] == -kInfinity && targets[c] == 0;
      const double to_label = without ? 0
                                      : -d[r] * (1 - smoothing) *
                                            (row.none ? row.x[c] : row.LogP(c));
      ExpectNear("gradient to labels", i, d_labels[i], to_label,
                 3 * Tolerance<T>(), 1e-5);
    }
  }
}

template <typename Device>
void CheckLabelLosses(const Device& device) {
  LabelLossOptions plain, z_loss, log_prob, all;
  z_loss.ignores = all.ignores = true;
  z_loss.ignore_index = all.ignore_index = kIgnored;
  z_loss.z_loss = all.z_loss = 1e-3;
  log_prob.log_prob = all.log_prob = true;
  log_prob.label_smoothing = all.label_smoothing = 0.1;
  ForRows([&](auto t, const RowShape& shape) {
    const LogitRows<decltype(t)> in(shape);
    CheckLabelLoss<int32_t>(device, in, plain);
    CheckLabelLoss<int64_t>(device, in, z_loss);
    CheckLabelLoss<int32_t>(device, in, log_prob);
    CheckLabelLoss<int64_t>(device, in, all);
  });
}
TFO_TEST(LabelLoss, EqualsReference) { CheckLabelLosses(ThreadedCpu(2)); }
TFO_CUDA_TEST(LabelLoss, CudaEqualsReference) { CheckLabelLosses(Gpu()); }

template <typename Device>
void CheckCrossEntropies(const Device& device) {
  ForRows([&](auto t, const RowShape& shape) {
    const LogitRows<decltype(t)> in(shape);
    CheckCrossEntropy(device, in, 0);
    CheckCrossEntropy(device, in, 0.2);
  });
}
TFO_TEST(CrossEntropy, EqualsReference) { CheckCrossEntropies(ThreadedCpu(3)); }
TFO_CUDA_TEST(CrossEntropy, CudaEqualsReference) { CheckCrossEntropies(Gpu()); }

// For tiles, whole rows and rows in parts, from the loss and from its gradient.
TFO_TEST(LabelLoss, ReportsTheFirstBadLabel) {
  for (const auto& [rows, classes] :
       {std::pair<int64_t, int64_t>{40, 3}, {40, 2000}, {8, 70000}}) {
    testing::GpuVector<int64_t> labels(rows, 1);
    labels[7] = classes;
    labels[5] = int64_t{1} << 32;
    labels[6] = -1;
    testing::Tensors tensors = RowTensors(rows, classes);
    tensors.Set("labels", labels);
    auto args = Bound<LabelLossArgs<float>>(&tensors);
    auto grad = Bound<LabelLossGradArgs<float>>(&tensors);
    int64_t bad_row = rows, bad_row_of_gradient = rows;
    args.bad_row = &bad_row;
    grad.bad_row = &bad_row_of_gradient;
    RunRowFunction(ThreadedCpu(3), args);
    RunRowFunction(ThreadedCpu(3), grad);
    TFO_EXPECT_EQ(bad_row, 5);
    TFO_EXPECT_EQ(bad_row_of_gradient, 5);
    for (int64_t r = 0; r < rows; ++r) {
      const bool is_bad = 5 <= r && r <= 7;
      TFO_EXPECT_EQ(std::isnan(args.loss[r]), is_bad);
      TFO_EXPECT_EQ(std::isnan(grad.d_logits[r * classes]), is_bad);
    }
  }
}

// A confident row's sum is 1 plus a tiny remainder.
TFO_TEST(LabelLoss, KeepsTheLossOfConfidentRows) {
  for (const int64_t classes : {2, 300}) {
    std::vector<float> x(classes, -200.f);
    x[0] = 20;
    x[1] = 0;
    const int32_t label = 0;
    float loss, largest, rest;
    int64_t bad_row = 1;
    RunRowFunction(ThreadedCpu(1), LabelLossArgs<float>{1,
                                                        classes,
                                                        {},
                                                        x.data(),
                                                        &label,
                                                        &loss,
                                                        {&largest, &rest},
                                                        &bad_row});
    ExpectNear("loss", 0, loss, 2.0611536203e-9, 3e-7);
  }
}

template <typename T>
void TimeLosses(int64_t rows, int64_t classes) {
  testing::GpuVector<int32_t> labels(rows);
  for (int64_t row = 0; row < rows; ++row) labels[row] = row * 37 % classes;
  testing::Tensors classed = RowTensors(rows, classes);
  classed.Set("labels", labels);
  TimeRows<T>("label_loss", 1, 4, Bound<LabelLossArgs<T>>(&classed));
  TimeRows<T>("label_loss_grad", 2, 4, Bound<LabelLossGradArgs<T>>(&classed));
  testing::Tensors tensors = RowTensors(rows, classes);
  TimeRows<T>("cross_entropy", 2, 4, Bound<CrossEntropyArgs<T>>(&tensors));
  TimeRows<T>("cross_entropy_grad", 4, 4,
              Bound<CrossEntropyGradArgs<T>>(&tensors));
}
TFO_BENCHMARK(CrossEntropy, Rows) {
  ForBenchmarkRows([](auto t, int64_t rows, int64_t classes) {
    TimeLosses<decltype(t)>(rows, classes);
  });
}

}  // namespace
}  // namespace tfo
