// Shapes, inputs, references and error bounds for tests of row functions.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_ROWS_ROWS_TESTING_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_ROWS_ROWS_TESTING_H_

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "tensorflow_ops/core/cc/testing/args_testing.h"
#include "tensorflow_ops/nn/cc/kernels/rows/rows.h"

namespace tfo {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct RowShape {
  int64_t rows, classes;
  // Distance of inputs and outputs from 16-byte alignment, in elements.
  int input_offset = 0, output_offset = 0;

  // What failures say.
  template <typename T>
  std::string Text() const {
    return testing::Text(testing::NameOf<T>(), "[", rows, ", ", classes,
                         "], offsets ", input_offset, ", ", output_offset);
  }
};

// Every path and its edge cases. On a CPU: tiles with and without a partial
// vector of rows, rows of one or more blocks, rows in parts. On a GPU: tiles
// with one to four threads per row, in one and several blocks; rows for a few
// threads, a warp or a block; rows that exceed a block's registers; rows in
// parts.
inline std::vector<RowShape> RowShapes() {
  return {
      {0, 3},           {0, 3000},      {1, 1},           {5, 1},
      {300, 2},         {129, 3},       {258, 5, 1, 1},   {257, 10, 1, 2},
      {128, 16},        {70, 17},       {9, 31},          {65, 32, 2, 2},
      {66, 33},         {17, 63, 1, 1}, {33, 64},         {9, 65},
      {20, 66, 3, 3},   {33, 80},       {5, 100, 1, 0},   {33, 128},
      {7, 257, 1, 1},   {10, 1000},     {9, 1001},        {3, 1000, 1, 1},
      {3, 1002, 0, 1},  {3, 2049},      {2, 4097},        {2, 4096, 3, 3},
      {1, 9001, 1, 2},  {1, 20000},     {1, 20001, 1, 1}, {1, 32767, 1, 1},
      {1, 40000, 1, 1}, {2, 33001},     {3, 65537},
  };
}

// An array of n values at an offset, between guards that must not change.
template <typename T>
class Guarded {
 public:
  Guarded(int64_t n, int offset)
      : bytes_((n + 2 * kGuard + offset) * sizeof(T), kPoison) {
    const auto place = reinterpret_cast<uintptr_t>(bytes_.data());
    begin_ = (16 - place % 16) % 16 + (kGuard / 2 + offset) * sizeof(T);
    size_ = n;
  }
  Guarded(const std::vector<T>& values, int offset)
      : Guarded(static_cast<int64_t>(values.size()), offset) {
    if (size_ > 0) {
      std::memcpy(data(), values.data(), values.size() * sizeof(T));
    }
  }
  // A copy would have another address.
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;

  T* data() { return reinterpret_cast<T*>(bytes_.data() + begin_); }
  const T* data() const {
    return reinterpret_cast<const T*>(bytes_.data() + begin_);
  }
  T operator[](int64_t i) const { return data()[i]; }
  bool IsIntact() const {
    const auto is_intact = [](char c) { return c == kPoison; };
    const auto begin = bytes_.begin() + begin_;
    return std::all_of(bytes_.begin(), begin, is_intact) &&
           std::all_of(begin + size_ * sizeof(T), bytes_.end(), is_intact);
  }
  bool HasBitsOf(const Guarded& other) const {
    return std::memcmp(data(), other.data(), size_ * sizeof(T)) == 0;
  }

 private:
  static constexpr int kGuard = 64;
  static constexpr char kPoison = 0x5A;
  testing::GpuVector<char> bytes_;
  size_t begin_;
  int64_t size_;
};

// Error bound for rounding of the computation and of the result.
template <typename T>
double Tolerance() {
  return std::is_same_v<T, double>     ? 1e-14
         : std::is_same_v<T, float>    ? 1.5e-6
         : std::is_same_v<T, BFloat16> ? 4.1e-3
                                       : 6e-4;
}

// Rounding errors of x - largest become relative errors of e^x.
template <typename T>
inline constexpr double kOfExp = std::is_same_v<T, double> ? 1e-14 : 3e-6;

// Subnormal results may be 0.
template <typename T>
inline constexpr double kSmallest =
    std::is_same_v<T, Half> ? 0x1p-25 : std::numeric_limits<float>::min();

// `i` is the value's index. `least`: the magnitude of the terms whose
// difference it is.
template <typename T>
void ExpectNear(const char* what, int64_t i, T actual_value, double expected,
                double tolerance, double least = 0) {
  const double actual = Widen(actual_value);
  const bool same =
      std::isnan(expected) ? std::isnan(actual)
      : std::isinf(expected)
          ? actual == expected
          : std::abs(actual - expected) <=
                tolerance * std::max(std::abs(expected), least) + kSmallest<T>;
  if (same) return;
  std::ostringstream message;
  message.precision(10);
  message << what << "[" << i << "] is " << actual << ", expected " << expected
          << ": off by " << actual - expected;
  testing::Fail(__FILE__, __LINE__, message.str());
}

// Rows of different kinds: logits far apart, masked logits, all logits masked,
// NaN, +inf, one logit above or far above the others, equal logits.
template <typename T>
std::vector<T> RowLogits(const RowShape& shape) {
  auto x = testing::RandomValues<T>(shape.rows * shape.classes, 7);
  for (int64_t i = 0; i < shape.rows * shape.classes; ++i) {
    const int64_t kind = i / shape.classes % 10, c = i % shape.classes;
    auto value = Widen(x[i]);
    if (kind == 1) value *= 30;
    if (kind == 2 && c % 3 == 1) value = -kInfinity;
    if (kind == 3 && c == shape.classes / 2) value += 18;
    if (kind == 4) value = -kInfinity;
    if (kind == 5 && c == shape.classes - 1) value = NAN;
    if (kind == 6 && c == shape.classes / 3) value = kInfinity;
    if (kind == 7) value = 1;
    if (kind == 8 && c == shape.classes / 2) value += 100;
    x[i] = Narrow<T>(value);
  }
  return x;
}

// The reference for the softmax of one row. Sums of many terms are long
// doubles.
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
      nan |= std::isnan(x[c]) || x[c] == kInfinity;
      if (x[c] > largest) largest = x[at = c];
    }
    none = at < 0 && !nan;
    for (int64_t c = 0; c < n; ++c) {
      if (c != at) rest += std::exp(x[c] - (none ? 0 : largest));
    }
    log = none ? 0 : std::log1p(rest);
    const double inverse = 1 / (1 + rest);
    for (int64_t c = 0; c < n; ++c) {
      p.push_back(nan ? NAN : none ? 0 : std::exp(x[c] - largest) * inverse);
    }
  }
  double LogP(int64_t c) const {
    return nan ? NAN : none ? -kInfinity : x[c] - largest - log;
  }

  // The relative error of `rest`, if it is far below 1, and of what it makes.
  template <typename Value>
  double Far() const {
    return rest < 1e-3 ? kOfExp<Value> : 0;
  }
  // Compares what a function stores of its softmax.
  template <typename Value>
  void ExpectSums(int64_t row, Value of_largest, Value of_rest) const {
    if (!nan) TFO_EXPECT_EQ(of_largest, largest);
    ExpectNear("rest", row, of_rest,
               nan    ? NAN
               : none ? -1
                      : double(rest),
               2 * Tolerance<Value>() + Far<Value>());
  }
};

// Logits and their softmax.
template <typename T>
struct LogitRows {
  RowShape shape;
  Guarded<T> x;
  std::vector<Row> rows;

  explicit LogitRows(const RowShape& of_shape)
      : shape(of_shape), x(RowLogits<T>(shape), shape.input_offset) {
    for (int64_t r = 0; r < shape.rows; ++r) {
      rows.emplace_back(x.data() + r * shape.classes, shape.classes);
    }
  }
};

// Of [rows, classes], for descriptions.
inline testing::Tensors RowTensors(int64_t rows, int64_t classes) {
  return testing::Tensors({{"...", rows}, {"classes", classes}});
}

template <typename Device, typename Args>
void Run(const Device& device, const Args& args) {
  testing::WithScratch(
      device, [&] { return RowScratchBytes(args); },
      [&](const Device& on) { TFO_EXPECT_RUNS(RunRowFunction(on, args)); });
}

// Calls check(T(), shape) for all dtypes and shapes.
template <typename Check>
void ForRows(const Check& check) {
  for (const RowShape& shape : RowShapes()) {
    check(float(), shape);
    check(double(), shape);
    check(Half(), shape);
    check(BFloat16(), shape);
  }
}

// Calls run(T(), rows, classes) for sizes of vocabularies, images and wide
// rows.
template <typename Run>
void ForBenchmarkRows(const Run& run) {
  const std::pair<int64_t, int64_t> shapes[] = {{4096, 32000},
                                                {16384, 1000},
                                                {1 << 20, 10},
                                                {1024, 128256},
                                                {1, 10'000'000}};
  for (const auto& [rows, classes] : shapes) {
    const int64_t r = testing::BenchmarkSize(rows);
    const int64_t c = testing::BenchmarkSize(classes);
    run(float(), r, c);
    run(BFloat16(), r, c);
  }
}

// Times a function that reads and writes `tensors` of [rows, classes] and
// `row_values` of [rows].
template <typename T, typename Args>
void TimeRows(const char* name, int tensors, int row_values, const Args& args) {
  using Value = Accumulator<T>;
  testing::TimeOnGpu(testing::Text(testing::NameOf<T>(), name, " [", args.rows,
                                   ", ", args.classes, "]"),
                     args.rows * (tensors * args.classes * sizeof(T) +
                                  row_values * sizeof(Value)),
                     RowScratchBytes(args),
                     [&](const Gpu& gpu) { return RunRowFunction(gpu, args); });
}

}  // namespace tfo

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_ROWS_ROWS_TESTING_H_
