// Vector versions of elementwise.h's functions that math_simd.h does not have.
// Only *_simd.cc files include this header. Each comment gives the error bound
// in units in the last place (ulp); elementwise_test.cc checks it over the
// whole range. Results do not depend on the lane. Special values give the
// results of C's functions. Subnormal results may be off by the smallest normal
// number.
#ifndef TENSORFLOW_OPS_CORE_CC_ELEMENTWISE_SIMD_H_
#define TENSORFLOW_OPS_CORE_CC_ELEMENTWISE_SIMD_H_

#include <cmath>

#include "tensorflow_ops/core/cc/math_simd.h"
#include "tensorflow_ops/core/cc/simd.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {

template <typename V>
using ScalarOf = decltype(V{}[0] + 0);

template <typename V>
static TFO_INLINE ScalarOf<V> FirstLane(V v) {
  return v[0];
}

// A vector with `number` in all lanes. (Minus zero, since -0 + 0 is 0.)
template <typename V, typename N>
static TFO_INLINE V Number(N number) {
  return static_cast<decltype(V{}[0] + 0)>(number) - V{};
}

static TFO_INLINE FloatVector Sqrt(FloatVector x) {
#ifdef __AVX512F__
  return reinterpret_cast<FloatVector>(
      _mm512_sqrt_ps(reinterpret_cast<__m512>(x)));
#else
  return reinterpret_cast<FloatVector>(
      _mm256_sqrt_ps(reinterpret_cast<__m256>(x)));
#endif
}
static TFO_INLINE DoubleVector Sqrt(DoubleVector x) {
#ifdef __AVX512F__
  return reinterpret_cast<DoubleVector>(
      _mm512_sqrt_pd(reinterpret_cast<__m512d>(x)));
#else
  return reinterpret_cast<DoubleVector>(
      _mm256_sqrt_pd(reinterpret_cast<__m256d>(x)));
#endif
}

namespace math_internal {

template <typename V>
static TFO_INLINE auto SignBit(V x) {
  using Bits = typename Constants<V>::Bits;
  return reinterpret_cast<Bits>(x) & reinterpret_cast<Bits>(-V{});
}
// A nonnegative magnitude with the sign of `sign`.
template <typename V>
static TFO_INLINE V WithSign(V magnitude, V sign) {
  using Bits = typename Constants<V>::Bits;
  return reinterpret_cast<V>(reinterpret_cast<Bits>(magnitude) | SignBit(sign));
}

// c[0] + c[1] x + ...
template <int kTerms, typename V, typename Value>
static TFO_INLINE V Polynomial(V x, const Value (&c)[kTerms]) {
  V p = V{} + c[kTerms - 1];
#pragma GCC unroll 32
  for (int i = kTerms - 2; i >= 0; --i) p = MulAdd(p, x, V{} + c[i]);
  return p;
}

// e^x / 2 for x >= 0; finite for slightly larger x than e^x.
template <typename V>
static TFO_INLINE V HalfExp(V x) {
  using Value = decltype(x[0] + 0);
  constexpr Value kHighest = Constants<V>::kHighest + 2;
  return ExpOf</*kNegative=*/false, /*kHalvings=*/1>(-Max(V{} - kHighest, -x));
}

}  // namespace math_internal

template <typename V>
static TFO_INLINE V Abs(V x) {
  return reinterpret_cast<V>(
      reinterpret_cast<typename math_internal::Constants<V>::Bits>(x) ^
      math_internal::SignBit(x));
}

// 3 ulp.
template <typename V>
static TFO_INLINE V Tanh(V x) {
  using Value = decltype(x[0] + 0);
  // -tanh(a) = (e^-2a - 1) / (e^-2a + 1).
  const V t = Expm1(Value(-2) * Abs(x));
  return math_internal::WithSign(-t / (t + Value(2)), x);
}

// 2 ulp.
template <typename V>
static TFO_INLINE V Sinh(V x) {
  using Value = decltype(x[0] + 0);
  const V a = Abs(x), half = math_internal::HalfExp(a), z = a * a;
  constexpr Value kSeries[] = {Value(1. / 6),
                               Value(1. / 120),
                               Value(1. / 5040),
                               Value(1. / 362880),
                               Value(1. / 39916800),
                               Value(1. / 6227020800),
                               Value(1. / 1307674368e3),
                               Value(1. / 355687428096e3)};
  const V near = MulAdd(math_internal::Polynomial(z, kSeries) * z, a, a);
  const V far = half - Value(0.25) / half;
  return math_internal::WithSign(a < Value(1) ? near : far, x);
}

// 2 ulp.
template <typename V>
static TFO_INLINE V Cosh(V x) {
  using Value = decltype(x[0] + 0);
  const V half = math_internal::HalfExp(Abs(x));
  return half + Value(0.25) / half;
}

namespace math_internal {
// (atan(x) / x - 1) / x^2 for |x| <= 1 as a polynomial in x^2, interpolated at
// Chebyshev nodes.
template <typename V>
struct AtanTerms;
template <>
struct AtanTerms<FloatVector> {
  static constexpr float kTerms[] = {
      -0.33333334f, 0.1999995f,    -0.14284004f, 0.11088262f,   -0.08931827f,
      0.070319146f, -0.048960514f, 0.026305001f, -0.009144629f, 0.0014886919f};
  static constexpr float kHalfPi = 1.57079637f, kRest = -4.37113883e-8f;
};
template <>
struct AtanTerms<DoubleVector> {
  static constexpr double kTerms[] = {
      -0.3333333333333333,    0.1999999999999992,    -0.14285714285701234,
      0.11111111110268297,    -0.0909090906193528,   0.07692307078827029,
      -0.06666657934573768,   0.05882264416776449,   -0.052624922290256754,
      0.04758080083637821,    -0.043306538430670664, 0.03938687540798632,
      -0.035271331066871296,  0.030330719265790507,  -0.024191345810140718,
      0.01718398172211335,    -0.010412153260359241, 0.005140912856746939,
      -0.0019612554271685326, 0.0005376839297396244, -9.371186345052626e-05,
      7.767624330289919e-06};
  static constexpr double kHalfPi = 1.5707963267948966,
                          kRest = 6.123233995736766e-17;
};
}  // namespace math_internal

// 1.5 ulp.
template <typename V>
static TFO_INLINE V Atan(V x) {
  using Value = decltype(x[0] + 0);
  using Terms = math_internal::AtanTerms<V>;
  // atan(a) = pi/2 - atan(1/a).
  const V a = Abs(x);
  const auto above = a > Value(1);
  const V t = (above ? V{} - Value(1) : a) / (above ? a : V{} + Value(1));
  const V z = t * t;
  const V turned = math_internal::Polynomial(z, Terms::kTerms) * z * t;
  const V atan = (above ? turned + Terms::kRest : turned) + t;
  return math_internal::WithSign(above ? atan + Terms::kHalfPi : atan, x);
}

// ---- Float functions computed in double.

namespace math_internal {

// Applies f, a function of double vectors, to float vectors.
template <typename Function, typename... Vectors>
static TFO_INLINE FloatVector InDoubles(const Function& f, Vectors... x) {
  typedef float HalfVector __attribute__((vector_size(kVectorBytes / 2)));
  FloatVector all;
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {
    const auto part = [i](const FloatVector& v) {
      HalfVector half;
      memcpy(&half, reinterpret_cast<const char*>(&v) + i * sizeof(half),
             sizeof(half));
      return __builtin_convertvector(half, DoubleVector);
    };
    const HalfVector half = __builtin_convertvector(f(part(x)...), HalfVector);
    memcpy(reinterpret_cast<char*>(&all) + i * sizeof(half), &half,
           sizeof(half));
  }
  return all;
}

// sin(x + quarters pi/2) for |x| <= kTurned, to within 1 ulp of float.
inline constexpr float kTurned = 0x1p20f;
static TFO_INLINE DoubleVector SinOf(DoubleVector x, int quarters) {
  using Bits = Constants<DoubleVector>::Bits;
  constexpr double kShift = Constants<DoubleVector>::kShift;
  // x = n pi/2 + r, with pi/2 in two parts: n times the first is exact.
  const DoubleVector turned =
      MulAdd(x, Number<DoubleVector>(0.63661977236758134),
             Number<DoubleVector>(kShift));
  const DoubleVector n = turned - kShift;
  DoubleVector r = MulAdd(n, Number<DoubleVector>(-1.57079632673412561), x);
  r = MulAdd(n, Number<DoubleVector>(-6.07710050650619225e-11), r);
  const DoubleVector z = r * r;
  constexpr double kSin[] = {-1. / 6, 1. / 120, -1. / 5040, 1. / 362880};
  constexpr double kCos[] = {-1. / 2, 1. / 24, -1. / 720, 1. / 40320,
                             -1. / 3628800};
  const DoubleVector sin = MulAdd(Polynomial(z, kSin) * z, r, r);
  const DoubleVector cos =
      MulAdd(Polynomial(z, kCos), z, Number<DoubleVector>(1));
  // The low bits hold n.
  const Bits quarter = reinterpret_cast<Bits>(turned) + int64_t{quarters};
  const DoubleVector value = (quarter & int64_t{1}) != 0 ? cos : sin;
  return reinterpret_cast<DoubleVector>(reinterpret_cast<Bits>(value) ^
                                        (quarter & int64_t{2}) << 62);
}

// Applies a C function to one lane at a time.
template <typename V, typename Function>
static TFO_INLINE V Lanewise(const Function& f, V x) {
  for (size_t i = 0; i < sizeof(x) / sizeof(x[0]); ++i) x[i] = f(x[i]);
  return x;
}

// The same for any x: calls the C function f where x is so large that pi needs
// more digits.
template <typename Function>
static TFO_INLINE FloatVector SinOrElse(FloatVector x, int quarters,
                                        const Function& f) {
  const FloatVector sin =
      InDoubles([=](DoubleVector v) { return SinOf(v, quarters); }, x);
  const auto large = Abs(x) > kTurned;
  if (__builtin_expect(!AnyLane(large), true)) return sin;
  return large ? Lanewise(f, x) : sin;
}

}  // namespace math_internal

// 0.6 ulp.
static TFO_INLINE FloatVector Sin(FloatVector x) {
  const FloatVector sin =
      math_internal::SinOrElse(x, 0, [](float v) { return __builtin_sinf(v); });
  return x == 0.0f ? x : sin;  // keeps the sign of 0
}
static TFO_INLINE FloatVector Cos(FloatVector x) {
  return math_internal::SinOrElse(x, 1,
                                  [](float v) { return __builtin_cosf(v); });
}

// C's functions, one lane at a time.
static TFO_INLINE DoubleVector Sin(DoubleVector x) {
  return math_internal::Lanewise([](double v) { return __builtin_sin(v); }, x);
}
static TFO_INLINE DoubleVector Cos(DoubleVector x) {
  return math_internal::Lanewise([](double v) { return __builtin_cos(v); }, x);
}

}  // namespace TFO_CPU_NAMESPACE
}  // namespace tfo

#endif  // TENSORFLOW_OPS_CORE_CC_ELEMENTWISE_SIMD_H_
