// elementwise.h's functions on arrays, for elementwise_test.cc.
#ifndef TENSORFLOW_OPS_CORE_CC_ELEMENTWISE_TEST_SIMD_H_
#define TENSORFLOW_OPS_CORE_CC_ELEMENTWISE_TEST_SIMD_H_

#include <cstdint>

#include "tensorflow_ops/core/cc/cpu_dispatch.h"

// The functions of one argument and their error bounds: X(Name, ulp).
#define TFO_TESTED_FUNCTIONS(X) \
  X(Abs, 0)                     \
  X(Atan, 1.5)                  \
  X(Cos, 0.6)                   \
  X(Cosh, 2)                    \
  X(Exp, 1.2)                   \
  X(Expm1, 2)                   \
  X(Log, 1)                     \
  X(Log1p, 1)                   \
  X(Sin, 0.6)                   \
  X(Sinh, 2)                    \
  X(Sqrt, 0.5)                  \
  X(Tanh, 3)

namespace tfo {

enum class TestedFunction {
#define TFO_NAME(Name, ulp) k##Name,
  TFO_TESTED_FUNCTIONS(TFO_NAME)
#undef TFO_NAME
};

TFO_PER_CPU_LEVEL(template <typename T>
                  void ApplyFunction(TestedFunction function, const T* x,
                                     int64_t n, T* y);

                  template <typename T>
                  void ApplyPow(const T* x, const T* exponent, int64_t n, T* y);

                  // A formula with all kinds of conditions.
                  template <typename T>
                  void ApplyConditions(bool flag, double number, const T* x,
                                       const T* y, int64_t n, T* chosen);)

}  // namespace tfo

#endif  // TENSORFLOW_OPS_CORE_CC_ELEMENTWISE_TEST_SIMD_H_
