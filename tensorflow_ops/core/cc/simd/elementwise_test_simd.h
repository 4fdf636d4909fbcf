// elementwise.h's functions on arrays, for elementwise_test.cc.
#ifndef TENSORFLOW_OPS_CORE_CC_SIMD_ELEMENTWISE_TEST_SIMD_H_
#define TENSORFLOW_OPS_CORE_CC_SIMD_ELEMENTWISE_TEST_SIMD_H_

#include <cstdint>

#include "tensorflow_ops/core/cc/simd/cpu_dispatch.h"

// The functions of one argument and their error bounds: X(Name, ulp).
#define TFO_TESTED_FUNCTIONS(X) \
  X(Exp, 1.2)                   \
  X(Expm1, 2)                   \
  X(Log, 1)                     \
  X(Log1p, 1)                   \
  X(Tanh, 3)

namespace tfo {

enum class TestedFunction {
#define TFO_NAME(Name, ulp) k##Name,
  TFO_TESTED_FUNCTIONS(TFO_NAME)
#undef TFO_NAME
};

TFO_PER_CPU_LEVEL(template <typename T>
                  void ApplyFunction(TestedFunction function, const T* x,
                                     int64_t n, T* y);)

}  // namespace tfo

#endif  // TENSORFLOW_OPS_CORE_CC_SIMD_ELEMENTWISE_TEST_SIMD_H_
