// The row functions return the same bits for any number of threads and any
// alignment, write nothing but their results, and read nothing but their
// arguments (which are surrounded by NaN).
#include <cmath>
#include <cstdint>
#include <vector>

#include "tensorflow_ops/core/cc/testing/testing.h"
#include "tensorflow_ops/nn/cc/kernels/rows/cross_entropy.h"
#include "tensorflow_ops/nn/cc/kernels/rows/gaussian_kl.h"
#include "tensorflow_ops/nn/cc/kernels/rows/softmax.h"

namespace tfo {
namespace {

using testing::RandomValues;
using testing::ThreadedCpu;

struct Shape {
  int64_t rows, classes;
};

// The results of every function, with all tensors shifted by `offset` values.
template <typename T>
std::vector<std::vector<double>> AllResults(const Shape& shape, int threads,
                                            int64_t offset) {
  using Value = Accumulator<T>;
  const int64_t rows = shape.rows, classes = shape.classes;
  const Cpu cpu = ThreadedCpu(threads);
  const int64_t n = rows * classes;
  std::vector<std::vector<double>> results;
  const auto keep = [&](const auto& v, int64_t from, int64_t count) {
    std::vector<double> wide;
    for (int64_t i = 0; i < count; ++i) wide.push_back(Widen(v[from + i]));
    results.push_back(wide);
    // Nothing outside the result is written.
    for (int64_t i = 0; i < from; ++i) TFO_EXPECT_EQ(Widen(v[i]), 77);
    for (size_t i = from + count; i < v.size(); ++i) {
      TFO_EXPECT_EQ(Widen(v[i]), 77);
    }
  };
  // Guards: `offset` values before the tensor, and some after it.
  const auto array = [&](uint32_t seed) {
    const auto values = RandomValues<T>(n, seed);
    std::vector<T> moved(offset, Narrow<T>(Value(NAN)));
    moved.insert(moved.end(), values.begin(), values.end());
    moved.resize(n + offset + 40, Narrow<T>(Value(NAN)));
    return moved;
  };
  const auto x = array(1), t = array(2), d = array(3);
  const auto empty = [&] {
    return std::vector<T>(n + offset + 40, Narrow<T>(Value(77)));
  };
  const auto row_values = [&] {
    return std::vector<Value>(rows + offset + 40, 77);
  };
  auto y = empty(), dx = empty(), dt = empty();
  RunRowFunction(cpu,
                 SoftmaxArgs<T>{rows, classes, false, &x[offset], &y[offset]});
  RunRowFunction(cpu, SoftmaxGradArgs<T>{rows, classes, false, &d[offset],
                                         &y[offset], &dx[offset]});
  keep(y, offset, n);
  keep(dx, offset, n);
  RunRowFunction(cpu,
                 SoftmaxArgs<T>{rows, classes, true, &x[offset], &y[offset]});
  RunRowFunction(cpu, SoftmaxGradArgs<T>{rows, classes, true, &d[offset],
                                         &y[offset], &dx[offset]});
  keep(y, offset, n);
  keep(dx, offset, n);

  auto d_rows = RandomValues<Value>(rows, 4);
  d_rows.insert(d_rows.begin(), offset, Value(NAN));
  auto of_rows = row_values(), largest = row_values(), rest = row_values(),
       sum = row_values();
  RunRowFunction(cpu, EntropyArgs<T>{rows,
                                     classes,
                                     &x[offset],
                                     &of_rows[offset],
                                     {&largest[offset], &rest[offset]}});
  RunRowFunction(cpu, EntropyGradArgs<T>{rows,
                                         classes,
                                         &d_rows[offset],
                                         &x[offset],
                                         &of_rows[offset],
                                         {&largest[offset], &rest[offset]},
                                         &dx[offset]});
  keep(of_rows, offset, rows);
  keep(largest, offset, rows);
  keep(rest, offset, rows);
  keep(dx, offset, n);

  std::vector<int64_t> labels(rows + offset, -1);
  for (int64_t r = 0; r < rows; ++r) labels[offset + r] = r * 31 % classes;
  LabelLossOptions options;
  options.label_smoothing = 0.1;
  options.z_loss = 0.01;
  int64_t bad_row = rows;
  RunRowFunction(cpu, LabelLossArgs<T>{rows,
                                       classes,
                                       options,
                                       &x[offset],
                                       &labels[offset],
                                       &of_rows[offset],
                                       {&largest[offset], &rest[offset]},
                                       &bad_row});
  RunRowFunction(cpu, LabelLossGradArgs<T>{rows,
                                           classes,
                                           options,
                                           &d_rows[offset],
                                           &x[offset],
                                           &labels[offset],
                                           {&largest[offset], &rest[offset]},
                                           &dx[offset],
                                           &bad_row});
  TFO_EXPECT_EQ(bad_row, rows);
  keep(of_rows, offset, rows);
  keep(dx, offset, n);

  RunRowFunction(cpu, CrossEntropyArgs<T>{rows,
                                          classes,
                                          0.1,
                                          &t[offset],
                                          &x[offset],
                                          &of_rows[offset],
                                          {&largest[offset], &rest[offset]},
                                          &sum[offset]});
  for (T* d_labels : {&dt[offset], static_cast<T*>(nullptr)}) {
    RunRowFunction(cpu,
                   CrossEntropyGradArgs<T>{rows,
                                           classes,
                                           0.1,
                                           &d_rows[offset],
                                           &t[offset],
                                           &x[offset],
                                           {&largest[offset], &rest[offset]},
                                           &sum[offset],
                                           &dx[offset],
                                           d_labels});
    keep(dx, offset, n);
  }
  TFO_EXPECT(results[results.size() - 1] == results[results.size() - 2]);
  keep(of_rows, offset, rows);
  keep(sum, offset, rows);
  keep(dt, offset, n);

  auto g2 = empty(), g3 = empty();
  RunRowFunction(
      cpu, GaussianKlArgs<T, false>{rows, classes, &x[offset], &t[offset],
                                    &d[offset], &x[offset], &of_rows[offset]});
  RunRowFunction(cpu, GaussianKlGradArgs<T, false>{
                          rows, classes, &d_rows[offset], &x[offset],
                          &t[offset], &d[offset], &x[offset], &dx[offset],
                          &dt[offset], &g2[offset], &g3[offset]});
  keep(of_rows, offset, rows);
  for (const auto* g : {&dx, &dt, &g2, &g3}) keep(*g, offset, n);
  return results;
}

// NaN equals NaN.
bool SameBits(const std::vector<std::vector<double>>& a,
              const std::vector<std::vector<double>>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i].size() != b[i].size()) return false;
    for (size_t k = 0; k < a[i].size(); ++k) {
      if (a[i][k] != b[i][k] && !(std::isnan(a[i][k]) && std::isnan(b[i][k]))) {
        return false;
      }
    }
  }
  return true;
}

template <typename T>
void CheckThreadsAndAlignments() {
  for (const Shape& shape : {Shape{37, 2}, Shape{50, 17}, Shape{33, 129},
                             Shape{5, 2049}, Shape{3, 65537}}) {
    const auto one = AllResults<T>(shape, 1, 0);
    TFO_EXPECT(SameBits(AllResults<T>(shape, 3, 0), one));
    TFO_EXPECT(SameBits(AllResults<T>(shape, 2, 1), one));
    TFO_EXPECT(SameBits(AllResults<T>(shape, 4, 7), one));
  }
}

TFO_TEST(Rows, GiveTheSameBitsForThreadsAndAlignmentsInFloat) {
  CheckThreadsAndAlignments<float>();
}
TFO_TEST(Rows, GiveTheSameBitsForThreadsAndAlignmentsInDouble) {
  CheckThreadsAndAlignments<double>();
}
TFO_TEST(Rows, GiveTheSameBitsForThreadsAndAlignmentsIn16Bits) {
  CheckThreadsAndAlignments<Half>();
  CheckThreadsAndAlignments<BFloat16>();
}

// Random values, again and again: drawing each takes longer than the test.
std::vector<float> ManyValues(int64_t n, uint32_t seed) {
  const auto few = RandomValues<float>(65537, seed);
  std::vector<float> many;
  many.reserve(n + few.size());
  while (static_cast<int64_t>(many.size()) < n) {
    many.insert(many.end(), few.begin(), few.end());
  }
  many.resize(n);
  return many;
}

// 32 MiB of results bypass the caches, with the same bits.
TFO_TEST(Rows, WriteTheSameBitsPastTheCaches) {
  for (const Shape& shape :
       {Shape{10, 900'000}, Shape{500, 17000}, Shape{40'000, 211}}) {
    const auto x = ManyValues(shape.rows * shape.classes, 1);
    std::vector<float> large(x.size() + 20, 77.f);
    // Only aligned results bypass them.
    size_t first = 1;
    while (reinterpret_cast<intptr_t>(&large[first]) % 64 != 0) ++first;
    RunRowFunction(ThreadedCpu(2),
                   SoftmaxArgs<float>{shape.rows, shape.classes, false,
                                      x.data(), &large[first]});
    for (int64_t row = 0; row < shape.rows; ++row) {
      // Compares with single rows, whose results stay in the caches.
      if (row % (shape.rows / 10) != 0) continue;
      const int64_t at = row * shape.classes;
      std::vector<float> one(shape.classes);
      RunRowFunction(ThreadedCpu(1), SoftmaxArgs<float>{1, shape.classes, false,
                                                        &x[at], one.data()});
      double worst = 0;
      for (int64_t c = 0; c < shape.classes; ++c) {
        worst = std::max<double>(
            worst, std::abs(one[c] - large[first + at + c]) / double{one[c]});
      }
      TFO_EXPECT(worst < 1e-6);
    }
    TFO_EXPECT(large[first - 1] == 77.f && large[first + x.size()] == 77.f);
  }
}

TFO_TEST(Rows, WriteResultsWithDifferentAlignmentsPastTheCaches) {
  const Shape shape{300, 17000};
  const int64_t n = shape.rows * shape.classes;
  const auto mean = ManyValues(n, 1), log = ManyValues(n, 2);
  const std::vector<float> d(shape.rows, 1.f);
  std::vector<float> to_mean(n + 20), to_log(n + 20);
  RunRowFunction(
      ThreadedCpu(2),
      GaussianKlGradArgs<float, true>{
          shape.rows, shape.classes, d.data(), mean.data(), log.data(), nullptr,
          nullptr, &to_mean[1], &to_log[2], nullptr, nullptr});
  int64_t differ = 0;
  for (int64_t i = 0; i < n; ++i) {
    differ += to_mean[1 + i] != mean[i];
    differ += std::abs(to_log[2 + i] - std::expm1(log[i]) / 2) >
              1e-6 * (1 + std::abs(to_log[2 + i]));
  }
  TFO_EXPECT_EQ(differ, 0);
}

}  // namespace
}  // namespace tfo
