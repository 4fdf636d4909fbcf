// Exponentials, logarithms, tanh and arctangents of vectors, for *_simd.cc
// files. elementwise_test.cc checks the error bounds. Results do not depend on
// the lane.
#ifndef TENSORFLOW_OPS_CORE_CC_SIMD_MATH_SIMD_H_
#define TENSORFLOW_OPS_CORE_CC_SIMD_MATH_SIMD_H_

#include <cmath>

#include "tensorflow_ops/core/cc/simd/simd.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {

template <typename V>
static TFO_INLINE auto FirstLane(V v) {
  if constexpr (std::is_arithmetic_v<V>) {
    return v;
  } else {
    return v[0];
  }
}

template <typename V>
using ScalarOf = decltype(FirstLane(V{}));

// The greater of two; b if either is NaN.
static inline FloatVector Max(FloatVector a, FloatVector b) {
#ifdef __AVX512F__
  return _mm512_max_ps(a, b);
#elif defined(__aarch64__)
  return a > b ? a : b;
#else
  return _mm256_max_ps(a, b);
#endif
}
static inline DoubleVector Max(DoubleVector a, DoubleVector b) {
#ifdef __AVX512F__
  return _mm512_max_pd(a, b);
#elif defined(__aarch64__)
  return a > b ? a : b;
#else
  return _mm256_max_pd(a, b);
#endif
}

static TFO_INLINE FloatVector SquareRoot(FloatVector v) {
#ifdef __AVX512F__
  return _mm512_sqrt_ps(v);
#elif defined(__aarch64__)
  return vsqrtq_f32(v);
#else
  return _mm256_sqrt_ps(v);
#endif
}
static TFO_INLINE DoubleVector SquareRoot(DoubleVector v) {
#ifdef __AVX512F__
  return _mm512_sqrt_pd(v);
#elif defined(__aarch64__)
  return vsqrtq_f64(v);
#else
  return _mm256_sqrt_pd(v);
#endif
}

// The greatest integer that is not greater; the nearest integer, halves to
// even. NaN and infinities stay.
static inline FloatVector Floor(FloatVector v) {
#ifdef __AVX512F__
  return _mm512_roundscale_ps(v, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
#elif defined(__aarch64__)
  return vrndmq_f32(v);
#else
  return _mm256_floor_ps(v);
#endif
}
static inline DoubleVector Floor(DoubleVector v) {
#ifdef __AVX512F__
  return _mm512_roundscale_pd(v, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
#elif defined(__aarch64__)
  return vrndmq_f64(v);
#else
  return _mm256_floor_pd(v);
#endif
}
static inline FloatVector RoundEven(FloatVector v) {
#ifdef __AVX512F__
  return _mm512_roundscale_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#elif defined(__aarch64__)
  return vrndnq_f32(v);
#else
  return _mm256_round_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#endif
}
static inline DoubleVector RoundEven(DoubleVector v) {
#ifdef __AVX512F__
  return _mm512_roundscale_pd(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#elif defined(__aarch64__)
  return vrndnq_f64(v);
#else
  return _mm256_round_pd(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#endif
}

namespace math_internal {

// Adding and subtracting kShift rounds to an integer.
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
  // ln 2 in two parts; any exponent times the first is exact.
  static constexpr float kLn2High = 0.693145752f, kLn2Low = 1.4286068e-6f;
  static constexpr float kLowest = -104.0f, kHighest = 89.0f;
  // Below this, 2^n is subnormal.
  static constexpr float kLowestNormal = -87.33654f;
  // (e^r - 1 - r) / r^2 on |r| <= ln(2) / 2, with minimal relative error.
  static constexpr float kExp[] = {0.49999994f, 0.16666521f, 0.04166839f,
                                   0.008368745f, 0.001381454f};
  // e^x - 1 rounds to -1 below the first, and to x where |x| is below the
  // second.
  static constexpr float kLessOneLowest = -25.0f, kLessOneTiny = 0x1p-25f;
  static constexpr int kExpTerms = 5, kLogTerms = 4;
  // (atan(u) / u - 1) / u^2 on |u| <= tan(pi / 8), powers of u^2.
  static constexpr float kAtan[] = {-0.333333318f, 0.199995403f, -0.142639498f,
                                    0.107436683f, -0.0645171887f};
  static constexpr int kAtanTerms = 5;
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
  static constexpr double kAtan[] = {
      -0.333333333333333332,  0.199999999999998043,   -0.142857142856597778,
      0.111111111051505879,   -0.0909090875325911294, 0.0769229636804229712,
      -0.0666642476020052014, 0.0587892755447380676,  -0.0523044364068694771,
      0.0455154473402216165,  -0.0345693150633260898, 0.0162843750500433944};
  static constexpr int kAtanTerms = 12;
};

// 2^n for integers n with a normal result.
template <typename V>
static TFO_INLINE V PowerOfTwo(V n) {
  using C = Constants<V>;
  // Rounding to integers leaves the integer in the low bits.
  const auto bits = reinterpret_cast<typename C::Bits>(n + C::kShift);
  const auto shift =
      reinterpret_cast<typename C::Bits>(Broadcast<V>(C::kShift));
  return reinterpret_cast<V>((bits - shift + C::kBias) << C::kFractionBits);
}

// p * 2^n.
template <bool kNegative, typename V>
static TFO_INLINE V Scale(V p, V n, V x) {
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
    // In two steps: near both ends of the range, 2^n itself is not normal.
    const V half = (n * decltype(n[0] + 0)(0.5) + C::kShift) - C::kShift;
    return p * PowerOfTwo(half) * PowerOfTwo(n - half);
  }
#endif
}

// Splits x = n ln 2 + rest, so that e^x = 2^n e^rest. Returns
// (e^rest - 1 - rest) / rest^2.
template <int kTerms, typename V>
static TFO_INLINE V ExpParts(V x, V& n, V& rest) {
  using C = Constants<V>;
  n = MulAdd(x, Broadcast<V>(C::kLog2E), Broadcast<V>(C::kShift)) - C::kShift;
  rest = MulAdd(n, V{} - C::kLn2High, x);
  rest = MulAdd(n, V{} - C::kLn2Low, rest);
  V p = Broadcast<V>(C::kExp[kTerms - 1]);
#pragma GCC unroll 16
  for (int i = kTerms - 2; i >= 0; --i)
    p = MulAdd(p, rest, Broadcast<V>(C::kExp[i]));
  return p;
}

// e^x. With kNegative, subnormal results are zero.
template <bool kNegative, typename V>
static TFO_INLINE V ExpOf(V x) {
  using Value = decltype(x[0] + 0);
  V n, r;
  V p = ExpParts<Constants<V>::kExpTerms>(x, n, r);
  const V one = Broadcast<V>(Value(1));
  p = MulAdd(MulAdd(p, r, one), r, one);
  return Scale<kNegative>(p, n, x);
}

}  // namespace math_internal

// e^x to within 1.2 ulp. Keeps NaN; subnormal results may be zero.
template <typename V>
static TFO_INLINE V Exp(V x) {
  using C = math_internal::Constants<V>;
  x = Max(Broadcast<V>(C::kLowest), x);
  x = -Max(V{} - C::kHighest, -x);
  return math_internal::ExpOf</*kNegative=*/false>(x);
}

namespace math_internal {
// log(2^more y) + lost for a finite, positive, normal y; `lost` is at most a
// rounding error of y.
template <int kLogTerms, typename V>
static TFO_INLINE V LogOf(V y, V lost, V more) {
  using C = Constants<V>;
  using Value = decltype(y[0] + 0);
  using Bits = typename C::Bits;
  // y = 2^k (1 + f), sqrt(1/2) <= 1 + f < sqrt(2).
  // Meaningless for y <= 0 (callers mask it); unsigned, so overflow is defined.
  const Bits above = reinterpret_cast<Bits>(
      reinterpret_cast<typename C::Unsigned>(y) - C::kHalfRoot);
  const Bits exponent = above >> C::kFractionBits;
  V k;
  if constexpr (sizeof(Value) == 4) {
    k = __builtin_convertvector(exponent, V);
  } else {  // AVX2 has no conversion from 64-bit integers
    const V shift = Broadcast<V>(C::kShift);
    k = reinterpret_cast<V>(exponent + reinterpret_cast<Bits>(shift)) - shift;
  }
  k += more;
  constexpr auto kFraction =
      (decltype(C::kHalfRoot){1} << C::kFractionBits) - 1;
  const V f =
      reinterpret_cast<V>((above & kFraction) + C::kHalfRoot) - Value(1);
  // log(1 + f) = 2 atanh(f / (2 + f)) = f - (f^2/2 - s (f^2/2 + R(s^2))).
  const V s = f / (f + Value(2)), z = s * s, half = Value(0.5) * f * f;
  V series = Broadcast<V>(Value(2) / (2 * kLogTerms + 1));
#pragma GCC unroll 16
  for (int i = kLogTerms - 1; i >= 1; --i) {
    series = MulAdd(series, z, Broadcast<V>(Value(2) / (2 * i + 1)));
  }
  const V low = MulAdd(k, Broadcast<V>(C::kLn2Low), lost);
  return MulAdd(k, Broadcast<V>(C::kLn2High),
                (MulAdd(s, MulAdd(series, z, half), low) - half) + f);
}
}  // namespace math_internal

// log(x) to within 1 ulp; -inf at 0, NaN below.
template <typename V>
static TFO_INLINE V Log(V x) {
  using C = math_internal::Constants<V>;
  using Value = decltype(x[0] + 0);
  constexpr Value kInfinity = Value(INFINITY);
  constexpr Value kScale = Value(int64_t{1} << C::kFractionBits);
  const auto tiny = x < C::kSmallest;
  const V more = tiny ? V{} - Value(C::kFractionBits) : V{};
  V log = math_internal::LogOf<C::kLogTerms>(tiny ? x * kScale : x, V{}, more);
  log = x < kInfinity ? log : x;
  return x <= Value(0)
             ? (x == Value(0) ? V{} - kInfinity : Broadcast<V>(Value(NAN)))
             : log;
}

// log(1 + x) to within 1 ulp; -inf at -1, NaN below.
template <typename V>
static TFO_INLINE V Log1p(V x) {
  using Value = decltype(x[0] + 0);
  constexpr Value kInfinity = Value(INFINITY);
  const V y = x + Value(1);
  // The rounding error of y: x + 1 = y + lost.
  const V lost = x < Value(1) ? x - (y - Value(1)) : Value(1) - (y - x);
  constexpr int kTerms = math_internal::Constants<V>::kLogTerms;
  V log = math_internal::LogOf<kTerms>(y, lost / y, V{});
  log = x < kInfinity && x != Value(0) ? log : x;
  return x <= Value(-1)
             ? (x == Value(-1) ? V{} - kInfinity : Broadcast<V>(Value(NAN)))
             : log;
}

// e^x - 1 without the cancellation near 0, to within 2 ulp. Keeps NaN.
template <typename V>
static TFO_INLINE V Expm1(V x) {
  using C = math_internal::Constants<V>;
  using Value = decltype(x[0] + 0);
  V clamped = Max(Broadcast<V>(C::kLessOneLowest), x);
  clamped = -Max(V{} - C::kHighest, -clamped);
  V n, r;
  const V p = math_internal::ExpParts<C::kExpTerms>(clamped, n, r);
  // 2^n (e^r - 1) + (2^n - 1), halved: 2^n may overflow.
  const V half = math_internal::PowerOfTwo(n - Value(1));
  const V sum = MulAdd(MulAdd(p, r * r, r), half, half - Value(0.5));
  return x < C::kLessOneTiny && x > -C::kLessOneTiny ? x : sum + sum;
}

// tanh(x) to within 3 ulp. Keeps NaN.
template <typename V>
static TFO_INLINE V Tanh(V x) {
  using Bits = typename math_internal::Constants<V>::Bits;
  using Value = decltype(x[0] + 0);
  const Bits sign = reinterpret_cast<Bits>(Broadcast<V>(Value(-0.0)));
  const Bits bits = reinterpret_cast<Bits>(x);
  const V size = reinterpret_cast<V>(bits & ~sign);
  const V e = Expm1(size * Value(-2));
  const V tanh = -e / (e + Value(2));
  return reinterpret_cast<V>(reinterpret_cast<Bits>(tanh) | (bits & sign));
}

// The angle of (x, y) in the first quadrant, x >= 0 and y >= 0, in [0, pi / 2]:
// atan2(y, x) to within 3 ulp. 0 for (0, 0).
template <typename V>
static TFO_INLINE V QuadrantAngle(V y, V x) {
  using C = math_internal::Constants<V>;
  using Value = decltype(x[0] + 0);
  constexpr Value kTanEighth = Value(0.41421356237309503);  // tan(pi / 8)
  constexpr Value kQuarter = Value(0.78539816339744831);    // pi / 4
  const auto steep = y > x;
  const V low = steep ? x : y, high = steep ? y : x;
  // atan(low / high) = pi / 4 + atan((low - high) / (low + high)).
  const auto near_diagonal = low > high * kTanEighth;
  const V ratio =
      (near_diagonal ? low - high : low) / (near_diagonal ? low + high : high);
  const V u = high == V{} ? V{} : ratio, z = u * u;
  V p = Broadcast<V>(C::kAtan[C::kAtanTerms - 1]);
#pragma GCC unroll 16
  for (int i = C::kAtanTerms - 2; i >= 0; --i)
    p = MulAdd(p, z, Broadcast<V>(C::kAtan[i]));
  V angle = MulAdd(p, z * u, u);
  angle = near_diagonal ? angle + kQuarter : angle;
  return steep ? 2 * kQuarter - angle : angle;
}
}  // namespace TFO_CPU_NAMESPACE
}  // namespace tfo

#endif  // TENSORFLOW_OPS_CORE_CC_SIMD_MATH_SIMD_H_
