// What the tests of recurrent layers share: activations in double, tensors,
// sizes.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_RECURRENT_RECURRENT_TESTING_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_RECURRENT_RECURRENT_TESTING_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>

#include "tensorflow_ops/core/cc/args_testing.h"
#include "tensorflow_ops/nn/cc/kernels/recurrent/recurrent.h"

namespace tfo {
namespace testing {

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

inline Tensors RecurrentTensors(int64_t batch, int64_t steps, int64_t units,
                                bool has_mask, bool in_place) {
  Tensors tensors({{"batch", batch}, {"steps", steps}, {"units", units}},
                  in_place);
  tensors.Scale("gate_inputs", 0.7);
  tensors.Scale("recurrent_kernel", 0.5 / std::sqrt(units + 1.0));
  tensors.Scale("bias", 0.3);
  tensors.Scale("h0", 0.5);
  tensors.Scale("c0", 0.5);
  if (has_mask) tensors.Set("mask", StepMask(batch, steps));
  return tensors;
}

inline Tensors BenchmarkTensors() {
  return RecurrentTensors(BenchmarkSize(64), BenchmarkSize(100),
                          BenchmarkSize(256), false, false);
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
