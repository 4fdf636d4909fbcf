// Functions that a formula may call, under one name for every V: a vector in
// *_simd.cc files, a float or double in CUDA files and elsewhere.
//
//   namespace tfo::TFO_FORMULA_NAMESPACE {
//   template <typename V>
//   TFO_FORMULA V LogOfOnePlusExp(V x) {
//     return x > 0 ? x + Log1p(Exp(-x)) : Log1p(Exp(x));
//   }
//   }
//
// Conditions of vectors are masks: both sides of ?: are computed. ScalarOf<V>
// is the type of an element. Methods of formulas are TFO_FORMULA_METHOD;
// TFO_UNROLL precedes a loop.
//
// The namespace is the CPU level's, or else `scalar`: files compiled for
// different instruction sets share no function.
#ifndef TENSORFLOW_OPS_CORE_CC_SIMD_ELEMENTWISE_H_
#define TENSORFLOW_OPS_CORE_CC_SIMD_ELEMENTWISE_H_

#ifdef TFO_CPU_NAMESPACE

#include "tensorflow_ops/core/cc/simd/math_simd.h"

#define TFO_FORMULA_NAMESPACE TFO_CPU_NAMESPACE
#define TFO_FORMULA static TFO_INLINE
#define TFO_FORMULA_METHOD TFO_INLINE
#define TFO_UNROLL _Pragma("GCC unroll 20")

#else

#include <cmath>

#include "tensorflow_ops/core/cc/float16.h"

#define TFO_FORMULA_NAMESPACE scalar
#define TFO_FORMULA TFO_HOST_DEVICE static inline
#ifdef __CUDACC__
#define TFO_FORMULA_METHOD __device__ inline
#else
#define TFO_FORMULA_METHOD inline
#endif
#ifdef __CUDA_ARCH__
#define TFO_UNROLL _Pragma("unroll")
#else
#define TFO_UNROLL
#endif

namespace tfo {
namespace scalar {

template <typename V>
using ScalarOf = V;

template <typename V, typename T>
TFO_FORMULA V Broadcast(T value) {
  return static_cast<V>(value);
}
template <typename V>
TFO_FORMULA V FirstLane(V v) {
  return v;
}
// One value, widened.
template <typename T>
TFO_FORMULA Accumulator<T> LoadOne(const T* from) {
  return Widen(*from);
}

// a * b + c; nvcc fuses it.
template <typename V>
TFO_FORMULA V MulAdd(V a, V b, V c) {
  return a * b + c;
}
// The greater of two; b if a is NaN.
template <typename V>
TFO_FORMULA V Max(V a, V b) {
  return std::fmax(a, b);
}

#define TFO_FUNCTION(Name, name) \
  template <typename V>          \
  TFO_FORMULA V Name(V x) {      \
    return std::name(x);         \
  }
TFO_FUNCTION(Exp, exp)
TFO_FUNCTION(Expm1, expm1)
TFO_FUNCTION(Log, log)
TFO_FUNCTION(Log1p, log1p)
TFO_FUNCTION(Tanh, tanh)
TFO_FUNCTION(SquareRoot, sqrt)
TFO_FUNCTION(Floor, floor)
TFO_FUNCTION(RoundEven, rint)  // halves to even
#undef TFO_FUNCTION

// atan2(y, x) for x >= 0 and y >= 0.
template <typename V>
TFO_FORMULA V QuadrantAngle(V y, V x) {
  return std::atan2(y, x);
}

}  // namespace scalar
}  // namespace tfo

#endif

#endif  // TENSORFLOW_OPS_CORE_CC_SIMD_ELEMENTWISE_H_
