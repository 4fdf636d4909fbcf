// Compares the row functions with sums in long double at every CPU level, for
// every vector layout (tiles, rows, parts of rows) and for special values.
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "tensorflow_ops/core/cc/testing.h"
#include "tensorflow_ops/nn/cc/kernels/cross_entropy/cross_entropy.h"
#include "tensorflow_ops/nn/cc/kernels/gaussian_kl/gaussian_kl.h"
#include "tensorflow_ops/nn/cc/kernels/rows/rows_testing.h"
#include "tensorflow_ops/nn/cc/kernels/softmax/softmax.h"

namespace tfo {
namespace {

using testing::RandomValues;
using testing::ThreadedCpu;

// The reference for one row. Sums of many terms are long doubles.
struct Row {
  std::vector<double> x, p;
  double largest = -kInfinity, log = 0;
  long double rest = 0;
  bool none = false, nan = false;

  template <typename T>
  Row(const T* from, int64_t n) {
    for (int64_t c = 0; c < n; ++c) x.push_back(Widen(from[c]));
    int64_t at = -1;
    for (int64_t c = 0; c < n; ++c) {
      nan |= std::isnan(x[c]);
      if (x[c] > largest) largest = x[at = c];
    }
    none = at < 0 && !nan;
    for (int64_t c = 0; c < n; ++c) {
      if (c != at) rest += std::exp(x[c] - (none ? 0 : largest));
    }
    log = none ? 0 : std::log1p(rest);
    for (int64_t c = 0; c < n; ++c) {
      p.push_back(none ? 0 : std::exp(x[c] - largest) / (1 + rest));
      if (nan) p.back() = NAN;
    }
  }
  double LogP(int64_t c) const {
    return nan ? NAN : none ? -kInfinity : x[c] - largest - log;
  }
  double Entropy() const {
    long double sum = nan ? NAN : 0;
    for (size_t c = 0; c < x.size(); ++c) {
      if (p[c] > 0) sum -= p[c] * LogP(c);
    }
    return sum;
  }
};

template <typename T>
void CheckSoftmax(const RowsShape& shape, const Cpu& cpu) {
  const auto [rows, classes] = shape;
  const auto x = Logits<T>(shape);
  std::vector<T> p(x.size()), l(x.size()), d(x.size());
  RunRowFunction(cpu, SoftmaxArgs<T>{rows, classes, false, x.data(), p.data()});
  RunRowFunction(cpu, SoftmaxArgs<T>{rows, classes, true, x.data(), l.data()});
  const auto dy = RandomValues<T>(x.size(), 9);
  RunRowFunction(cpu, SoftmaxGradArgs<T>{rows, classes, false, dy.data(),
                                         p.data(), d.data()});
  const double tolerance = Tolerance<T>();
  for (int64_t r = 0; r < rows; ++r) {
    const Row row(&x[r * classes], classes);
    long double sum = 0;
    for (int64_t c = 0; c < classes; ++c) {
      sum += double{Widen(dy[r * classes + c])} * Widen(p[r * classes + c]);
    }
    for (int64_t c = 0; c < classes; ++c) {
      const int64_t i = r * classes + c;
      // Rounding errors of x - largest become relative errors of e^x.
      const double far = std::is_same_v<T, double> ? 1e-14 : 3e-6;
      ExpectNear<T>("softmax", Widen(p[i]), row.p[c], tolerance + far,
                    std::is_same_v<T, Half> ? 1e-4 : 1e-30);
      ExpectNear<T>("log_softmax", Widen(l[i]), row.LogP(c), tolerance, 1);
      if (!row.nan) {
        const double y = Widen(p[i]);
        ExpectNear<T>("softmax's gradient", Widen(d[i]),
                      y * (double{Widen(dy[i])} - sum), 4 * tolerance,
                      y * (std::abs(double(sum)) + 1) + 1e-6);
      }
    }
  }
}

template <typename T>
void CheckEntropy(const RowsShape& shape, const Cpu& cpu) {
  using Value = Accumulator<T>;
  const auto [rows, classes] = shape;
  const auto x = Logits<T>(shape);
  std::vector<Value> entropy(rows), largest(rows), rest(rows);
  RunRowFunction(cpu, EntropyArgs<T>{rows,
                                     classes,
                                     x.data(),
                                     entropy.data(),
                                     {largest.data(), rest.data()}});
  const auto d = RandomValues<Value>(rows, 3);
  std::vector<T> dx(x.size());
  RunRowFunction(cpu, EntropyGradArgs<T>{rows,
                                         classes,
                                         d.data(),
                                         x.data(),
                                         entropy.data(),
                                         {largest.data(), rest.data()},
                                         dx.data()});
  for (int64_t r = 0; r < rows; ++r) {
    const Row row(&x[r * classes], classes);
    const double h = row.Entropy();
    ExpectNear<Value>("entropy", entropy[r], h, Tolerance<Value>() * 2);
    for (int64_t c = 0; c < classes; ++c) {
      const double p = row.p[c];
      const double expected = p > 0 ? -d[r] * p * (row.LogP(c) + h) : p;
      ExpectNear<T>("entropy's gradient", Widen(dx[r * classes + c]),
                    row.nan ? NAN : expected, Tolerance<T>() * 2,
                    std::abs(d[r]) * p * (std::abs(h) + 1) + 1e-6);
    }
  }
}

template <typename T, typename Label>
void CheckLabelLoss(const RowsShape& shape, const Cpu& cpu,
                    const LabelLossOptions& options) {
  using Value = Accumulator<T>;
  const auto [rows, classes] = shape;
  const auto x = Logits<T>(shape);
  std::vector<Label> labels(rows);
  for (int64_t r = 0; r < rows; ++r) {
    labels[r] = options.ignores && r % 5 == 1 ? options.ignore_index
                                              : r * 7919 % classes;
  }
  std::vector<Value> loss(rows), largest(rows), rest(rows);
  int64_t bad_row = rows;
  RunRowFunction(cpu, LabelLossArgs<T>{rows,
                                       classes,
                                       options,
                                       x.data(),
                                       labels.data(),
                                       loss.data(),
                                       {largest.data(), rest.data()},
                                       &bad_row});
  TFO_EXPECT_EQ(bad_row, rows);
  const auto d = RandomValues<Value>(rows, 5);
  std::vector<T> dx(x.size());
  RunRowFunction(cpu, LabelLossGradArgs<T>{rows,
                                           classes,
                                           options,
                                           d.data(),
                                           x.data(),
                                           labels.data(),
                                           {largest.data(), rest.data()},
                                           dx.data(),
                                           &bad_row});
  const double e = options.label_smoothing, z = options.z_loss;
  const double sign = options.log_prob ? -1 : 1;
  for (int64_t r = 0; r < rows; ++r) {
    const Row row(&x[r * classes], classes);
    const bool ignored = options.ignores && labels[r] == options.ignore_index;
    const double lse = row.largest + row.log;
    long double expected = row.nan ? NAN : z == 0 ? 0 : z * lse * lse;
    for (int64_t c = 0; c < classes; ++c) {
      const double t = (1 - e) * (c == labels[r]) + e / classes;
      if (t != 0) expected -= t * row.LogP(c);
    }
    if (ignored) expected = 0;
    ExpectNear<Value>("loss", sign * loss[r], expected, 2 * Tolerance<Value>());
    for (int64_t c = 0; c < classes; ++c) {
      const double t = (1 - e) * (c == labels[r]) + e / classes;
      // p - 1 of the label, without cancellation.
      double off = row.p[c] - t;
      if (e == 0 && c == labels[r] && row.p[c] > 0.5) {
        off = -row.rest / (1 + row.rest);
      }
      const double more = z == 0 ? 0 : 2 * z * lse * row.p[c];
      const double dl = sign * d[r];
      ExpectNear<T>("loss's gradient", Widen(dx[r * classes + c]),
                    ignored || row.none ? 0
                    : row.nan           ? NAN
                                        : dl * (off + more),
                    Tolerance<T>() * 2 + 3e-6 * !std::is_same_v<T, double>,
                    std::abs(dl) * e + 1e-6);
    }
  }
}

template <typename T>
void CheckCrossEntropy(const RowsShape& shape, const Cpu& cpu,
                       double smoothing) {
  using Value = Accumulator<T>;
  const auto [rows, classes] = shape;
  const auto x = Logits<T>(shape);
  auto t = RandomValues<T>(x.size(), 11);
  for (size_t i = 0; i < t.size(); ++i) {
    const Value value = std::abs(Widen(t[i]));
    // Masked classes have no target, unless smoothing adds one.
    t[i] = Narrow<T>(std::isinf(Widen(x[i])) ? 0 : value);
  }
  std::vector<Value> loss(rows), largest(rows), rest(rows), sum(rows);
  RunRowFunction(cpu, CrossEntropyArgs<T>{rows,
                                          classes,
                                          smoothing,
                                          t.data(),
                                          x.data(),
                                          loss.data(),
                                          {largest.data(), rest.data()},
                                          sum.data()});
  const auto d = RandomValues<Value>(rows, 5);
  std::vector<T> dx(x.size()), dt(x.size());
  RunRowFunction(cpu, CrossEntropyGradArgs<T>{rows,
                                              classes,
                                              smoothing,
                                              d.data(),
                                              t.data(),
                                              x.data(),
                                              {largest.data(), rest.data()},
                                              sum.data(),
                                              dx.data(),
                                              dt.data()});
  for (int64_t r = 0; r < rows; ++r) {
    const Row row(&x[r * classes], classes);
    long double expected = row.nan ? NAN : 0, all = 0;
    std::vector<double> targets(classes);
    for (int64_t c = 0; c < classes; ++c) {
      targets[c] =
          (1 - smoothing) * Widen(t[r * classes + c]) + smoothing / classes;
      all += targets[c];
      if (targets[c] != 0) expected -= targets[c] * row.LogP(c);
    }
    ExpectNear<Value>("dense loss", loss[r], expected, 4 * Tolerance<Value>());
    for (int64_t c = 0; c < classes && !row.nan; ++c) {
      const int64_t i = r * classes + c;
      ExpectNear<T>(
          "gradient to logits", Widen(dx[i]),
          row.none ? 0 : d[r] * (row.p[c] * all - targets[c]),
          3 * Tolerance<T>(),
          std::abs(d[r]) * (row.p[c] * double(all) + targets[c]) + 1e-6);
      const bool without = row.x[c] == -kInfinity && targets[c] == 0;
      const double to_label = without ? 0
                                      : -d[r] * (1 - smoothing) *
                                            (row.none ? row.x[c] : row.LogP(c));
      ExpectNear<T>("gradient to labels", Widen(dt[i]), to_label,
                    3 * Tolerance<T>(), 1e-5);
    }
  }
}

template <typename T, bool kUnit>
void CheckGaussianKl(const RowsShape& shape, const Cpu& cpu) {
  using Value = Accumulator<T>;
  const auto [rows, dims] = shape;
  const int64_t n = rows * dims;
  const auto q_mean = RandomValues<T>(n, 1), p_mean = RandomValues<T>(n, 2);
  auto q_log = RandomValues<T>(n, 3), p_log = RandomValues<T>(n, 4);
  for (int64_t i = 0; i < n; ++i) {
    if (i % 5 == 0) q_log[i] = Narrow<T>(Value(1e-4));  // nearly p's
    if (i % 5 == 0) p_log[i] = Narrow<T>(Value(0));
    if (i % 11 == 1) q_log[i] = p_log[i] = Narrow<T>(Value(-8));
  }
  std::vector<Value> kl(rows);
  RunRowFunction(
      cpu, GaussianKlArgs<T, kUnit>{rows, dims, q_mean.data(), q_log.data(),
                                    p_mean.data(), p_log.data(), kl.data()});
  const auto d = RandomValues<Value>(rows, 6);
  std::vector<T> g[4];
  for (auto& one : g) one.resize(n);
  RunRowFunction(cpu, GaussianKlGradArgs<T, kUnit>{
                          rows, dims, d.data(), q_mean.data(), q_log.data(),
                          p_mean.data(), p_log.data(), g[0].data(), g[1].data(),
                          g[2].data(), g[3].data()});
  const double tolerance = 4 * Tolerance<T>();
  for (int64_t r = 0; r < rows; ++r) {
    long double sum = 0;
    for (int64_t i = r * dims; i < (r + 1) * dims; ++i) {
      const double m =
          double{Widen(q_mean[i])} - (kUnit ? 0 : double{Widen(p_mean[i])});
      const double s = kUnit ? 0 : Widen(p_log[i]);
      const double ratio = Widen(q_log[i]) - s, square = m * m * std::exp(-s);
      sum += (std::expm1(ratio) - ratio + square) / 2;
      const double expected[] = {
          d[r] * m * std::exp(-s), d[r] * std::expm1(ratio) / 2,
          -d[r] * m * std::exp(-s), -d[r] * (std::expm1(ratio) + square) / 2};
      for (int k = 0; k < (kUnit ? 2 : 4); ++k) {
        ExpectNear<T>("gradient " + std::to_string(k), Widen(g[k][i]),
                      expected[k], tolerance,
                      k == 3 ? std::abs(d[r]) * square : 1e-6);
      }
    }
    ExpectNear<Value>("divergence", kl[r], sum, 4 * Tolerance<Value>());
  }
}

template <typename T>
void CheckAll(const RowsShape& shape, int threads,
              const testing::Caller& caller = {}) {
  const testing::Case of_test(caller, testing::NameOf<T>(), "rows ", shape.rows,
                              ", classes ", shape.classes, ", threads ",
                              threads);
  const Cpu cpu = ThreadedCpu(threads);
  CheckSoftmax<T>(shape, cpu);
  CheckEntropy<T>(shape, cpu);
  CheckLabelLoss<T, int32_t>(shape, cpu, {});
  LabelLossOptions options;
  options.ignores = true;
  options.ignore_index = -100;
  options.z_loss = 1e-3;
  CheckLabelLoss<T, int64_t>(shape, cpu, options);
  options.label_smoothing = 0.1;
  options.log_prob = true;
  CheckLabelLoss<T, int32_t>(shape, cpu, options);
  CheckCrossEntropy<T>(shape, cpu, 0);
  CheckCrossEntropy<T>(shape, cpu, 0.2);
  CheckGaussianKl<T, false>(shape, cpu);
  CheckGaussianKl<T, true>(shape, cpu);
}

TFO_TEST(Rows, EqualReferenceInFloat) {
  for (const RowsShape& shape : kShapes) CheckAll<float>(shape, 2);
}
TFO_TEST(Rows, EqualReferenceInDouble) {
  for (const RowsShape& shape : kShapes) CheckAll<double>(shape, 3);
}
TFO_TEST(Rows, EqualReferenceInBFloat16) {
  for (const RowsShape& shape : kShapes) CheckAll<BFloat16>(shape, 2);
}
TFO_TEST(Rows, EqualReferenceInHalf) {
  for (const RowsShape& shape : kShapes) CheckAll<Half>(shape, 2);
}

// NaN in a row makes only that row's results NaN, in every function.
TFO_TEST(Rows, KeepNanAndInfinityInTheirRow) {
  for (const int64_t classes : {2, 3, 17, 40, 300, 3000}) {
    for (const float bad : {NAN, INFINITY}) {
      for (const int64_t at : {int64_t{0}, classes / 2, classes - 1}) {
        auto x = RandomValues<float>(5 * classes, 1);
        x[2 * classes + at] = bad;
        std::vector<float> p(x.size()), h(5), largest(5), rest(5), dx(x.size());
        const std::vector<float> d(5, 1.f);
        const Cpu cpu = ThreadedCpu(2);
        RunRowFunction(
            cpu, SoftmaxArgs<float>{5, classes, false, x.data(), p.data()});
        RunRowFunction(
            cpu,
            EntropyArgs<float>{
                5, classes, x.data(), h.data(), {largest.data(), rest.data()}});
        RunRowFunction(cpu,
                       EntropyGradArgs<float>{5,
                                              classes,
                                              d.data(),
                                              x.data(),
                                              h.data(),
                                              {largest.data(), rest.data()},
                                              dx.data()});
        for (int64_t i = 0; i < 5 * classes; ++i) {
          TFO_EXPECT_EQ(std::isnan(p[i]), i / classes == 2);
          TFO_EXPECT_EQ(std::isnan(dx[i]), i / classes == 2);
        }
        for (int r = 0; r < 5; ++r) TFO_EXPECT_EQ(std::isnan(h[r]), r == 2);
      }
    }
  }
}

// For tiles, whole rows and rows in parts, from the loss and from its gradient.
TFO_TEST(Rows, ReportTheFirstBadLabel) {
  for (const auto [rows, classes] :
       {RowsShape{40, 3}, {40, 2000}, {8, 70000}}) {
    const std::vector<float> x(rows * classes), d_loss(rows, 1);
    std::vector<float> loss(rows), largest(rows), rest(rows), dx(x.size());
    std::vector<int64_t> labels(rows, 1);
    labels[7] = classes;
    labels[5] = int64_t{1} << 32;
    labels[6] = -1;
    const Cpu cpu = ThreadedCpu(3);
    int64_t bad_row = rows, bad_row_of_gradient = rows;
    RunRowFunction(cpu, LabelLossArgs<float>{rows,
                                             classes,
                                             {},
                                             x.data(),
                                             labels.data(),
                                             loss.data(),
                                             {largest.data(), rest.data()},
                                             &bad_row});
    RunRowFunction(cpu, LabelLossGradArgs<float>{rows,
                                                 classes,
                                                 {},
                                                 d_loss.data(),
                                                 x.data(),
                                                 labels.data(),
                                                 {largest.data(), rest.data()},
                                                 dx.data(),
                                                 &bad_row_of_gradient});
    TFO_EXPECT_EQ(bad_row, 5);
    TFO_EXPECT_EQ(bad_row_of_gradient, 5);
    for (int64_t r = 0; r < rows; ++r) {
      const bool is_bad = 5 <= r && r <= 7;
      TFO_EXPECT_EQ(std::isnan(loss[r]), is_bad);
      TFO_EXPECT_EQ(std::isnan(dx[r * classes]), is_bad);
    }
  }
}

// A confident row's sum is 1 plus a tiny remainder.
TFO_TEST(Rows, KeepTheLossOfConfidentRows) {
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
    ExpectNear<float>("loss", loss, 2.0611536203e-9, 3e-7);
  }
}

}  // namespace
}  // namespace tfo
