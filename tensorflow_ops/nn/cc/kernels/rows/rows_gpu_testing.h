// Shared by tests of the row functions' CUDA kernels, which compare with the
// CPU algorithms (those have their own tests).
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_ROWS_ROWS_GPU_TESTING_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_ROWS_ROWS_GPU_TESTING_H_

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "tensorflow_ops/core/cc/gpu_testing.h"
#include "tensorflow_ops/nn/cc/kernels/rows/partition.h"

namespace tfo {

struct RowShape {
  int64_t rows, classes;
  // Distance of inputs and outputs from 16-byte alignment, in elements.
  int input_offset = 0, output_offset = 0;
};

// Every path and its edge cases: tiles with one to four threads per row, in one
// and several blocks; rows for a few threads, a warp or a block; rows that
// exceed a block's registers; rows split into parts.
inline std::vector<RowShape> RowShapes() {
  return {
      {0, 3},           {0, 3000},        {1, 1},           {5, 1},
      {300, 2},         {129, 3},         {258, 5, 1, 1},   {257, 10, 1, 2},
      {128, 16},        {70, 17},         {9, 31},          {65, 32, 2, 2},
      {66, 33},         {17, 63, 1, 1},   {33, 64},         {9, 65},
      {20, 66, 3, 3},   {33, 80},         {5, 100, 1, 0},   {7, 257, 1, 1},
      {10, 1000},       {9, 1001},        {3, 1000, 1, 1},  {3, 1002, 0, 1},
      {2, 4097},        {2, 4096, 3, 3},  {1, 9001, 1, 2},  {1, 20000},
      {1, 20001, 1, 1}, {1, 32767, 1, 1}, {1, 40000, 1, 1}, {2, 33001},
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
    const size_t end = begin_ + size_ * sizeof(T);
    for (size_t i = 0; i < bytes_.size(); ++i) {
      if ((i < begin_ || i >= end) && bytes_[i] != kPoison) return false;
    }
    return true;
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

// Error bounds of results of type T computed from Data: relative to the
// result's own size, relative to the terms it is computed from, and absolute.
template <typename T, typename Data>
struct Tolerance {
  static constexpr double kOwn = std::is_same_v<T, Half>       ? 1.0 / 1024
                                 : std::is_same_v<T, BFloat16> ? 1.0 / 128
                                                               : 0;
  // A few ulp; (2 + |x|) / 2 for e^x of 16-bit numbers.
  static constexpr double kRelative = std::is_same_v<Data, double>  ? 6e-15
                                      : std::is_same_v<Data, float> ? 1e-6
                                                                    : 8e-6;
  // Without AVX-512, the CPU takes a subnormal probability for 0; the gradients
  // multiply it by up to 300: a logarithm below 104 and the output's gradient.
  static constexpr double kAbsolute =
      std::is_same_v<T, Half>     ? 6e-8
      : std::is_same_v<T, double> ? 300 * std::numeric_limits<double>::min()
                                  : 300 * std::numeric_limits<float>::min();
};

// Data: the type of inputs. `size`: the magnitude of the terms whose difference
// the result is.
template <typename Data, typename T>
void ExpectNear(const std::string& name, const RowShape& shape, int64_t row,
                int64_t c, T actual_value, T expected_value, double size = 0) {
  using Bounds = Tolerance<T, Data>;
  const double actual = Widen(actual_value), expected = Widen(expected_value);
  if (actual == expected || (std::isnan(actual) && std::isnan(expected))) {
    return;
  }
  const double own = std::abs(expected);
  const double tolerance = Bounds::kOwn * own +
                           Bounds::kRelative * std::max(own, size) +
                           Bounds::kAbsolute;
  if (std::isfinite(expected) && std::abs(actual - expected) <= tolerance) {
    return;
  }
  std::ostringstream message;
  message.precision(10);
  message << name << " [" << shape.rows << ", " << shape.classes << "] of "
          << sizeof(Data) << " bytes, at " << row << ", " << c << ": " << actual
          << ", expected " << expected << ", within " << tolerance;
  testing::Fail(__FILE__, __LINE__, message.str());
}

// Rows of different kinds: logits far apart, masked logits, all logits masked,
// NaN, +inf, one logit far above the others, equal logits.
template <typename T>
std::vector<T> RowLogits(const RowShape& shape, uint32_t seed = 7) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  auto x = testing::RandomValues<T>(shape.rows * shape.classes, seed);
  for (int64_t i = 0; i < shape.rows * shape.classes; ++i) {
    const int64_t row = i / shape.classes, c = i % shape.classes;
    auto value = Widen(x[i]);
    switch (row % 9) {
      case 1:
        value *= 30;
        break;
      case 2:
        if (c % 3 == 1) value = -kInfinity;
        break;
      case 3:
        if (c == shape.classes / 2) value += 18;
        break;
      case 4:
        value = -kInfinity;
        break;
      case 5:
        if (c == shape.classes - 1) value = NAN;
        break;
      case 6:
        if (c == shape.classes / 3) value = kInfinity;
        break;
      case 7:
        value = 1;  // ties
        break;
    }
    x[i] = Narrow<T>(value);
  }
  return x;
}

// The scratch memory of a function that reduces rows of this shape.
template <typename T>
testing::GpuVector<Accumulator<T>> ScratchOf(const RowShape& shape) {
  return testing::GpuVector<Accumulator<T>>(
      GpuStateValues(shape.rows, shape.classes), NAN);
}
template <typename Value>
Gpu GpuWith(testing::GpuVector<Value>& scratch) {
  return {nullptr, scratch.data()};
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
  const int64_t values =
      Args::kReduces ? GpuStateValues(args.rows, args.classes) : 0;
  testing::TimeOnGpu(testing::Text(testing::NameOf<T>(), name, " [", args.rows,
                                   ", ", args.classes, "]"),
                     args.rows * (tensors * args.classes * sizeof(T) +
                                  row_values * sizeof(Value)),
                     values * sizeof(Value),
                     [&](const Gpu& gpu) { return RunRowFunction(gpu, args); });
}

}  // namespace tfo

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_ROWS_ROWS_GPU_TESTING_H_
