// Exponentials and logarithms of vectors, for *_simd.cc files; the other
// elementary functions are in elementwise_simd.h. elementwise_test.cc and
// rows_test.cc hold the errors to their bounds; results do not depend on the
// lane.
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

// What functions of a type need. kShift, added and taken away, rounds to an
// integer.
template <typename V>
struct Constants;
template <>
struct Constants<FloatVector> {
  using Bits = IntVector;
  using Unsigned = Bits32;
  static constexpr int kFractionBits = 23, kBias = 127;
  static constexpr int32_t kHalfRoot = 0x3F3504F3;  // the bits of sqrt(1/2)
  static constexpr float kSmallest = 0x1p-126f;     // normal number
  static constexpr float kLog2E = 1.44269504f, kShift = 12582912.0f;
  // ln 2 in two parts; the first times any exponent is exact.
  static constexpr float kLn2High = 0.693145752f, kLn2Low = 1.4286068e-6f;
  static constexpr float kLowest = -104.0f, kHighest = 89.0f;
  // Below, 2^n has no normal exponent.
  static constexpr float kLowestNormal = -87.33654f;
  // (e^r - 1 - r) / r^2 on |r| <= ln(2) / 2, by least relative error.
  static constexpr float kExp[] = {0.49999994f, 0.16666521f, 0.04166839f,
                                   0.008368745f, 0.001381454f};
  // e^x - 1 rounds to -1 below the first, and to x nearer to 0 than the second.
  static constexpr float kLessOneLowest = -25.0f, kLessOneTiny = 0x1p-25f;
  static constexpr int kExpTerms = 5, kLogTerms = 4;
};
template <>
struct Constants<DoubleVector> {
  using Bits = Lanes<double>::Index;
  typedef uint64_t Unsigned __attribute__((vector_size(kVectorBytes)));
  static constexpr int kFractionBits = 52, kBias = 1023;
  static constexpr int64_t kHalfRoot = 0x3FE6A09E667F3BCD;
  static constexpr double kSmallest = 0x1p-1022;
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
  static constexpr double kLessOneLowest = -50.0, kLessOneTiny = 0x1p-54;
  static constexpr int kExpTerms = 12, kLogTerms = 10;
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

// x = n ln 2 + rest: e^x is 2^n e^rest, and this is (e^rest - 1 - rest) /
// rest^2.
template <int kTerms, typename V>
static inline __attribute__((always_inline)) V ExpParts(V x, V& n, V& rest) {
  using C = Constants<V>;
  n = MulAdd(x, V{} + C::kLog2E, V{} + C::kShift) - C::kShift;
  rest = MulAdd(n, V{} - C::kLn2High, x);
  rest = MulAdd(n, V{} - C::kLn2Low, rest);
  V p = V{} + C::kExp[kTerms - 1];
#pragma GCC unroll 16
  for (int i = kTerms - 2; i >= 0; --i) p = MulAdd(p, rest, V{} + C::kExp[i]);
  return p;
}

// e^x / 2^kHalvings, and zero for what is no normal number if kNegative.
template <bool kNegative, int kHalvings = 0, typename V>
static inline __attribute__((always_inline)) V ExpOf(V x) {
  using Value = decltype(x[0] + 0);
  V n, r;
  V p = ExpParts<Constants<V>::kExpTerms>(x, n, r);
  const V one = V{} + Value(1);
  p = MulAdd(MulAdd(p, r, one), r, one);
  return Scale<kNegative>(p, kHalvings == 0 ? n : n - Value(kHalvings), x);
}

}  // namespace math_internal

// e^x to within 1.2 ulp; NaN stays one. What is no normal number may be zero.
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

namespace math_internal {
// log(2^more y) + lost of a finite y that is a positive normal number; `lost`
// is no more than a rounding of y adds.
template <int kLogTerms, typename V>
static inline __attribute__((always_inline)) V LogOf(V y, V lost, V more) {
  using C = Constants<V>;
  using Value = decltype(y[0] + 0);
  using Bits = typename C::Bits;
  // y = 2^k (1 + f), sqrt(1/2) <= 1 + f < sqrt(2).
  // Of a y that is not positive this is nobody's, and may pass the ends.
  const Bits above = reinterpret_cast<Bits>(
      reinterpret_cast<typename C::Unsigned>(y) - C::kHalfRoot);
  const Bits exponent = above >> C::kFractionBits;
  V k;
  if constexpr (sizeof(Value) == 4) {
    k = __builtin_convertvector(exponent, V);
  } else {  // which AVX2 has no conversion for
    const V shift = V{} + C::kShift;
    k = reinterpret_cast<V>(exponent + reinterpret_cast<Bits>(shift)) - shift;
  }
  k += more;
  constexpr auto kFraction =
      (decltype(C::kHalfRoot){1} << C::kFractionBits) - 1;
  const V f =
      reinterpret_cast<V>((above & kFraction) + C::kHalfRoot) - Value(1);
  // log(1 + f) = 2 atanh(f / (2 + f)) = f - (f^2/2 - s (f^2/2 + R(s^2))).
  const V s = f / (f + Value(2)), z = s * s, half = Value(0.5) * f * f;
  V series = V{} + Value(2) / (2 * kLogTerms + 1);
#pragma GCC unroll 16
  for (int i = kLogTerms - 1; i >= 1; --i) {
    series = MulAdd(series, z, V{} + Value(2) / (2 * i + 1));
  }
  const V low = MulAdd(k, V{} + C::kLn2Low, lost);
  return MulAdd(k, V{} + C::kLn2High,
                (MulAdd(s, MulAdd(series, z, half), low) - half) + f);
}
}  // namespace math_internal

// log(x) to within 1 ulp; -inf of 0, NaN of what is below.
template <typename V>
static inline __attribute__((always_inline)) V Log(V x) {
  using C = math_internal::Constants<V>;
  using Value = decltype(x[0] + 0);
  constexpr Value kInfinity = Value(INFINITY);
  constexpr Value kScale = Value(int64_t{1} << C::kFractionBits);
  const auto tiny = x < C::kSmallest;
  const V more = tiny ? V{} - Value(C::kFractionBits) : V{};
  V log = math_internal::LogOf<C::kLogTerms>(tiny ? x * kScale : x, V{}, more);
  log = x < kInfinity ? log : x;
  return x <= Value(0) ? (x == Value(0) ? V{} - kInfinity : V{} + Value(NAN))
                       : log;
}

// log(1 + x) to within 1 ulp; -inf of -1, NaN of what is below.
template <typename V>
static inline __attribute__((always_inline)) V Log1p(V x) {
  using Value = decltype(x[0] + 0);
  constexpr Value kInfinity = Value(INFINITY);
  const V y = x + Value(1);
  // What y lost: x + 1 = y + lost.
  const V lost = x < Value(1) ? x - (y - Value(1)) : Value(1) - (y - x);
  constexpr int kTerms = math_internal::Constants<V>::kLogTerms;
  V log = math_internal::LogOf<kTerms>(y, lost / y, V{});
  log = x < kInfinity && x != Value(0) ? log : x;
  return x <= Value(-1) ? (x == Value(-1) ? V{} - kInfinity : V{} + Value(NAN))
                        : log;
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

// e^x - 1, and e^x - 1 - x, without the cancellation near 0: the first to
// within 2 ulp. NaN stays one.
template <typename V>
static inline __attribute__((always_inline)) V ExpLessOne(V x) {
  using C = math_internal::Constants<V>;
  using Value = decltype(x[0] + 0);
  V clamped = Greater(V{} + C::kLessOneLowest, x);
  clamped = -Greater(V{} - C::kHighest, -clamped);
  V n, r;
  const V p = math_internal::ExpParts<C::kExpTerms>(clamped, n, r);
  // 2^n (e^r - 1) + (2^n - 1), of halves: 2^n may be too large.
  const V half = math_internal::PowerOfTwo(n - Value(1));
  const V sum = MulAdd(MulAdd(p, r * r, r), half, half - Value(0.5));
  return x < C::kLessOneTiny && x > -C::kLessOneTiny ? x : sum + sum;
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
