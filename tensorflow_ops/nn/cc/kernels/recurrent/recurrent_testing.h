// What the tests of recurrent layers share: activations in double, random
// values, masks, sizes.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_RECURRENT_RECURRENT_TESTING_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_RECURRENT_RECURRENT_TESTING_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>

#include "tensorflow_ops/core/cc/gpu_testing.h"
#include "tensorflow_ops/nn/cc/kernels/recurrent/recurrent.h"

namespace tfo {
namespace testing {

inline constexpr CellActivation kCellActivations[] = {
    CellActivation::kTanh, CellActivation::kSigmoid, CellActivation::kRelu,
    CellActivation::kLinear, CellActivation::kHardSigmoid};

inline double Activate(CellActivation activation, double x) {
  switch (activation) {
    case CellActivation::kTanh:
      return std::tanh(x);
    case CellActivation::kSigmoid:
      return 1 / (1 + std::exp(-x));
    case CellActivation::kRelu:
      return x > 0 ? x : 0;
    case CellActivation::kHardSigmoid:
      return std::min(1.0, std::max(0.0, x / 6 + 0.5));
    default:
      return x;
  }
}

// The derivative, at x.
inline double Slope(CellActivation activation, double x) {
  const double y = Activate(activation, x);
  switch (activation) {
    case CellActivation::kTanh:
      return 1 - y * y;
    case CellActivation::kSigmoid:
      return y * (1 - y);
    case CellActivation::kRelu:
      return x > 0;
    case CellActivation::kHardSigmoid:
      return std::abs(x) < 3 ? 1.0 / 6 : 0;
    default:
      return 1;
  }
}

template <typename T>
GpuVector<T> NormalValues(uint32_t seed, int64_t count, double scale) {
  std::mt19937 engine(seed);
  std::normal_distribution<double> normal(0, scale);
  GpuVector<T> values(count);
  for (T& value : values) value = static_cast<T>(normal(engine));
  return values;
}

// Of booleans. The first examples have no step, all steps, and some.
inline GpuVector<char> StepMask(int64_t batch, int64_t steps) {
  std::mt19937 engine(7);
  GpuVector<char> kept;
  for (int64_t i = 0; i < batch * steps; ++i) {
    const int64_t b = i / steps;
    kept.push_back(b == 1 || (b > 1 && engine() % 3 > 0));
  }
  return kept;
}

// Calls check(batch, steps, units, in_place).
template <typename Function>
void ForEachSize(const Function& check) {
  for (const bool in_place : {false, true}) {
    for (const int64_t units : {1, 3, 16, 21}) check(5, 6, units, in_place);
    check(1, 3, 40, in_place);
    check(21, 3, 7, in_place);
    // More than one block of the products' depth.
    check(3, 2, 90, in_place);
    check(2, 2, 261, in_place);
  }
  check(0, 3, 4, false);
  check(3, 0, 4, false);
  check(3, 4, 0, false);
}

}  // namespace testing
}  // namespace tfo

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_RECURRENT_RECURRENT_TESTING_H_
