// Shapes, inputs and error bounds for tests of row functions.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_ROWS_ROWS_TESTING_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_ROWS_ROWS_TESTING_H_

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "tensorflow_ops/core/cc/testing.h"

namespace tfo {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct RowsShape {
  int64_t rows, classes;
};
// Covers tiles with and without a partial vector of rows, rows of one or more
// blocks, and rows in parts.
inline constexpr RowsShape kShapes[] = {
    {0, 3},   {1, 1},    {37, 2},   {16, 10},   {50, 17},  {33, 128},
    {5, 257}, {3, 2049}, {2, 9000}, {1, 70000}, {3, 65537}};

// Error bound for rounding of the computation and of the result.
template <typename T>
double Tolerance() {
  return std::is_same_v<T, double>     ? 1e-14
         : std::is_same_v<T, float>    ? 1.5e-6
         : std::is_same_v<T, BFloat16> ? 4.1e-3
                                       : 6e-4;
}

// Subnormal results may be 0.
template <typename T>
inline constexpr double kSmallest =
    std::is_same_v<T, Half> ? 0x1p-25 : std::numeric_limits<float>::min();

template <typename T>
void ExpectNear(const std::string& what, double actual, double expected,
                double tolerance, double least = 0) {
  const bool same =
      std::isnan(expected) ? std::isnan(actual)
      : std::isinf(expected)
          ? actual == expected
          : std::abs(actual - expected) <=
                tolerance * std::max(std::abs(expected), least) + kSmallest<T>;
  if (same) return;
  std::ostringstream message;
  message.precision(10);
  message << what << " is " << actual << ", expected " << expected
          << ": off by " << actual - expected;
  testing::Fail(__FILE__, __LINE__, message.str());
}

// Rows of different kinds: masked logits, logits far apart, NaN.
template <typename T>
std::vector<T> Logits(const RowsShape& shape) {
  auto x = testing::RandomValues<T>(shape.rows * shape.classes, 7);
  for (int64_t i = 0; i < shape.rows * shape.classes; ++i) {
    const int64_t row = i / shape.classes, c = i % shape.classes;
    Accumulator<T> value = Widen(x[i]);
    if (row % 7 == 2) value *= 30;
    if (row % 7 == 3 && c % 3 == 1) value = -kInfinity;
    if (row % 7 == 4) value = -kInfinity;
    if (row % 7 == 5 && c == shape.classes - 1) value = NAN;
    if (row % 7 == 6 && c == shape.classes / 2) value += 100;
    x[i] = Narrow<T>(value);
  }
  return x;
}

}  // namespace tfo

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_ROWS_ROWS_TESTING_H_
