// Elementary functions of vectors, for *_simd.cc files. Errors are measured
// against binary64 by rows_test.cc; results do not depend on the lane.
#ifndef TENSORFLOW_OPS_CORE_CC_MATH_SIMD_H_
#define TENSORFLOW_OPS_CORE_CC_MATH_SIMD_H_

#include <cmath>

#include "tensorflow_ops/core/cc/simd.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {

// The greater of two, and b if one is NaN.
static inline FloatVector Greater(FloatVector a, FloatVector b) {
#ifdef __AVX512F__
  return reinterpret_cast<FloatVector>(
      _mm512_max_ps(reinterpret_cast<__m512>(a), reinterpret_cast<__m512>(b)));
#else
  return reinterpret_cast<FloatVector>(
      _mm256_max_ps(reinterpret_cast<__m256>(a), reinterpret_cast<__m256>(b)));
#endif
}
static inline DoubleVector Greater(DoubleVector a, DoubleVector b) {
#ifdef __AVX512F__
  return reinterpret_cast<DoubleVector>(_mm512_max_pd(
      reinterpret_cast<__m512d>(a), reinterpret_cast<__m512d>(b)));
#else
  return reinterpret_cast<DoubleVector>(_mm256_max_pd(
      reinterpret_cast<__m256d>(a), reinterpret_cast<__m256d>(b)));
#endif
}

// Adds e to `sum` and 1 to `count` in the lanes where x and y differ, as NaN
// does from all. (The compiler makes more of it than these instructions.)
static inline __attribute__((always_inline)) void AddWhereOther(
    FloatVector x, FloatVector y, FloatVector e, FloatVector& sum,
    FloatVector& count) {
#ifdef __AVX512F__
  const __mmask16 other = _mm512_cmp_ps_mask(
      reinterpret_cast<__m512>(x), reinterpret_cast<__m512>(y), _CMP_NEQ_UQ);
  const auto add = [&](FloatVector to, FloatVector v) {
    return reinterpret_cast<FloatVector>(_mm512_mask_add_ps(
        reinterpret_cast<__m512>(to), other, reinterpret_cast<__m512>(to),
        reinterpret_cast<__m512>(v)));
  };
  sum = add(sum, e);
  count = add(count, FloatVector{} + 1.0f);
#else
  sum += x == y ? FloatVector{} : e;
  count += x == y ? FloatVector{} : FloatVector{} + 1.0f;
#endif
}
static inline __attribute__((always_inline)) void AddWhereOther(
    DoubleVector x, DoubleVector y, DoubleVector e, DoubleVector& sum,
    DoubleVector& count) {
  sum += x == y ? DoubleVector{} : e;
  count += x == y ? DoubleVector{} : DoubleVector{} + 1.0;
}

namespace math_internal {

// What Exp of a type needs. kShift, added and taken away, rounds to an integer.
template <typename V>
struct Constants;
template <>
struct Constants<FloatVector> {
  using Bits = IntVector;
  static constexpr int kFractionBits = 23, kBias = 127;
  static constexpr float kLog2E = 1.44269504f, kShift = 12582912.0f;
  // ln 2 in two parts; the first times any exponent is exact.
  static constexpr float kLn2High = 0.693145752f, kLn2Low = 1.4286068e-6f;
  static constexpr float kLowest = -104.0f, kHighest = 89.0f;
  // Below, 2^n has no normal exponent.
  static constexpr float kLowestNormal = -87.33654f;
  // (e^r - 1 - r) / r^2 on |r| <= ln(2) / 2, by least relative error.
  static constexpr float kExp[] = {0.49999994f, 0.16666521f, 0.04166839f,
                                   0.008368745f, 0.001381454f};
};
template <>
struct Constants<DoubleVector> {
  using Bits = Lanes<double>::Index;
  static constexpr int kFractionBits = 52, kBias = 1023;
  static constexpr double kLog2E = 1.4426950408889634,
                          kShift = 6755399441055744.0;
  static constexpr double kLn2High = 0.693147180369123816490,
                          kLn2Low = 1.90821492927058770002e-10;
  static constexpr double kLowest = -746.0, kHighest = 710.0;
  static constexpr double kLowestNormal = -708.3964185322641;
  static constexpr double kExp[] = {
      1. / 2,       1. / 6,        1. / 24,        1. / 120,
      1. / 720,     1. / 5040,     1. / 40320,     1. / 362880,
      1. / 3628800, 1. / 39916800, 1. / 479001600, 1. / 6227020800};
};

// 2^n for whole n with a normal result.
template <typename V>
static inline __attribute__((always_inline)) V PowerOfTwo(V n) {
  using C = Constants<V>;
  // The integer stands in the low bits of what is rounded to integers.
  const auto bits = reinterpret_cast<typename C::Bits>(n + C::kShift);
  const auto shift = reinterpret_cast<typename C::Bits>(V{} + C::kShift);
  return reinterpret_cast<V>((bits - shift + C::kBias) << C::kFractionBits);
}

// p * 2^n.
template <bool kNegative, typename V>
static inline __attribute__((always_inline)) V Scale(V p, V n, V x) {
#ifdef __AVX512F__
  (void)x;
  if constexpr (sizeof(n[0]) == 4) {
    return reinterpret_cast<V>(_mm512_scalef_ps(reinterpret_cast<__m512>(p),
                                                reinterpret_cast<__m512>(n)));
  } else {
    return reinterpret_cast<V>(_mm512_scalef_pd(reinterpret_cast<__m512d>(p),
                                                reinterpret_cast<__m512d>(n)));
  }
#else
  using C = Constants<V>;
  if constexpr (kNegative) {
    const V scaled = p * PowerOfTwo(n);
    return x < C::kLowestNormal ? V{} : scaled;
  } else {
    // In two steps: at both ends of the range 2^n itself is not normal.
    const V half = (n * decltype(n[0] + 0)(0.5) + C::kShift) - C::kShift;
    return p * PowerOfTwo(half) * PowerOfTwo(n - half);
  }
#endif
}

template <bool kNegative, typename V>
static inline __attribute__((always_inline)) V ExpOf(V x) {
  using C = Constants<V>;
  const V n = MulAdd(x, V{} + C::kLog2E, V{} + C::kShift) - C::kShift;
  V r = MulAdd(n, V{} - C::kLn2High, x);
  r = MulAdd(n, V{} - C::kLn2Low, r);
  constexpr int kTerms = sizeof(C::kExp) / sizeof(C::kExp[0]);
  V p = V{} + C::kExp[kTerms - 1];
#pragma GCC unroll 16
  for (int i = kTerms - 2; i >= 0; --i) p = MulAdd(p, r, V{} + C::kExp[i]);
  const V one = V{} + decltype(r[0] + 0)(1);
  p = MulAdd(MulAdd(p, r, one), r, one);
  return Scale<kNegative>(p, n, x);
}

}  // namespace math_internal

// e^x to within 1 ulp; NaN stays one. What is no normal number may be zero.
template <typename V>
static inline __attribute__((always_inline)) V Exp(V x) {
  using C = math_internal::Constants<V>;
  x = Greater(V{} + C::kLowest, x);
  x = -Greater(V{} - C::kHighest, -x);
  return math_internal::ExpOf</*kNegative=*/false>(x);
}

// The x that ExpOfClamped takes: e^x is zero below. NaN stays one.
template <typename V>
static inline __attribute__((always_inline)) V ClampForExp(V x) {
  return Greater(V{} + math_internal::Constants<V>::kLowest, x);
}
// e^x of a clamped x that is not positive.
template <typename V>
static inline __attribute__((always_inline)) V ExpOfClamped(V x) {
  return math_internal::ExpOf</*kNegative=*/true>(x);
}
// The same, as a term of a sum, with two multiplications less: off by 1.6e-7 of
// itself, and 3e-9 for every 1 of -x.
static inline __attribute__((always_inline)) FloatVector
ExpTerm(FloatVector x) {
#ifdef __FMA__
  using C = math_internal::Constants<FloatVector>;
  const FloatVector n =
      MulAdd(x, FloatVector{} + C::kLog2E, FloatVector{} + C::kShift) -
      C::kShift;
  const FloatVector r = MulAdd(n, FloatVector{} - 0.693147182f, x);
  // e^r on |r| <= ln(2) / 2, by least relative error.
  FloatVector p = FloatVector{} + 0.00829030667f;
  p = MulAdd(p, r, FloatVector{} + 0.0418979786f);
  p = MulAdd(p, r, FloatVector{} + 0.166676372f);
  p = MulAdd(p, r, FloatVector{} + 0.499991506f);
  p = MulAdd(p, r, FloatVector{} + 0.999999702f);
  p = MulAdd(p, r, FloatVector{} + 1.0f);
  return math_internal::Scale</*kNegative=*/true>(p, n, x);
#else
  return ExpOfClamped(x);
#endif
}
static inline __attribute__((always_inline)) DoubleVector
ExpTerm(DoubleVector x) {
  return ExpOfClamped(x);
}
template <typename V>
static inline __attribute__((always_inline)) V ExpOfNegative(V x) {
  return ExpOfClamped(ClampForExp(x));
}

// log(1 + x) to within 1.5 ulp, of finite x >= 0; NaN stays one.
static inline FloatVector Log1p(FloatVector x) {
  const FloatVector y = x + 1.0f;
  // What y lost: x + 1 = y + lost.
  const FloatVector lost = x < 1.0f ? x - (y - 1.0f) : 1.0f - (y - x);
  // y = 2^k (1 + f), sqrt(1/2) <= 1 + f < sqrt(2).
  const IntVector kHalfRoot = IntVector{} + 0x3F3504F3;
  const IntVector above = reinterpret_cast<IntVector>(y) - kHalfRoot;
  const IntVector exponent = above >> 23;
  const FloatVector k = __builtin_convertvector(exponent, FloatVector);
  const FloatVector f =
      reinterpret_cast<FloatVector>((above & 0x7FFFFF) + kHalfRoot) - 1.0f;
  // log(1 + f) = 2 atanh(f / (2 + f)) = f - (f^2/2 - s (f^2/2 + R(s^2))).
  const FloatVector s = f / (f + 2.0f), z = s * s, half = 0.5f * f * f;
  FloatVector series = FloatVector{} + 2.0f / 11;
  series = MulAdd(series, z, FloatVector{} + 2.0f / 9);
  series = MulAdd(series, z, FloatVector{} + 2.0f / 7);
  series = MulAdd(series, z, FloatVector{} + 2.0f / 5);
  series = MulAdd(series, z, FloatVector{} + 2.0f / 3) * z;
  using C = math_internal::Constants<FloatVector>;
  const FloatVector low = k * C::kLn2Low + lost / y;
  return k * C::kLn2High + ((s * (half + series) + low) - half + f);
}
static inline DoubleVector Log1p(DoubleVector x) {
  DoubleVector log;
  for (int i = 0; i < Lanes<double>::kCount; ++i) {
    log[i] = __builtin_log1p(x[i]);
  }
  return log;
}

namespace math_internal {
// e^x - 1 - x = x^2/2 (1 + x/3 (1 + x/4 (...))) on |x| < 1.
template <typename V>
static inline __attribute__((always_inline)) V ExpSeries(V x) {
  using Value = decltype(x[0] + 0);
  V sum = V{} + Value(1);
#pragma GCC unroll 20
  for (int k = sizeof(Value) == 4 ? 11 : 19; k >= 3; --k) {
    sum = MulAdd(sum * x, V{} + Value(1) / k, V{} + Value(1));
  }
  return Value(0.5) * x * x * sum;
}
}  // namespace math_internal

// e^x - 1, and e^x - 1 - x, without the cancellation near 0; NaN stays one.
template <typename V>
static inline __attribute__((always_inline)) V ExpLessOne(V x) {
  using Value = decltype(x[0] + 0);
  const auto near = (x < Value(1)) & (x > Value(-1));
  return near ? math_internal::ExpSeries(x) + x : Exp(x) - Value(1);
}
template <typename V>
static inline __attribute__((always_inline)) V ExpLessTangent(V x) {
  using Value = decltype(x[0] + 0);
  const auto near = (x < Value(1)) & (x > Value(-1));
  // Infinity less a finite number is infinity.
  const V finite = -Greater(V{} - Value(1e30), -x);
  return near ? math_internal::ExpSeries(x) : Exp(x) - Value(1) - finite;
}

}  // namespace TFO_CPU_NAMESPACE
}  // namespace tfo

#endif  // TENSORFLOW_OPS_CORE_CC_MATH_SIMD_H_
