// x^y of vectors, part of elementwise.h; only *_simd.cc files include this
// header. e^(y log x) needs a logarithm with additional digits, as many as y
// log x has before the point: floats are computed in doubles, doubles in pairs
// of doubles.
#ifndef TENSORFLOW_OPS_CORE_CC_POW_SIMD_H_
#define TENSORFLOW_OPS_CORE_CC_POW_SIMD_H_

#include <cfloat>
#include <cmath>

#include "tensorflow_ops/core/cc/elementwise_simd.h"
#include "tensorflow_ops/core/cc/math_simd.h"
#include "tensorflow_ops/core/cc/simd.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {
namespace math_internal {

// An unevaluated sum; `low` is at most a rounding error of `high`.
struct DoublePair {
  DoubleVector high, low;
};

// a b exactly, unless a 2^27 or b 2^27 overflows.
static TFO_INLINE DoublePair ExactProduct(DoubleVector a, DoubleVector b) {
  const DoubleVector high = a * b;
#ifdef __FMA__
  return {high, MulAdd(a, b, -high)};
#else
  // Products of half the digits are exact.
  const auto upper = [](DoubleVector v) {
    const DoubleVector scaled = 134217729.0 * v;
    return scaled - (scaled - v);
  };
  const DoubleVector a1 = upper(a), a2 = a - a1, b1 = upper(b), b2 = b - b1;
  return {high, ((a1 * b1 - high) + a1 * b2 + a2 * b1) + a2 * b2};
#endif
}

// a + b exactly, for |a| >= |b|.
static TFO_INLINE DoublePair ExactSum(DoubleVector a, DoubleVector b) {
  const DoubleVector high = a + b;
  return {high, b - (high - a)};
}

// log(x) for a positive, finite x, with a relative error of 2^-62.
static TFO_INLINE DoublePair LogPair(DoubleVector x) {
  using C = Constants<DoubleVector>;
  using Bits = C::Bits;
  constexpr double kScale = 0x1p52;
  const auto tiny = x < C::kSmallest;
  // As in LogOf: x = 2^k m, sqrt(1/2) <= m < sqrt(2).
  const Bits above =
      reinterpret_cast<Bits>(tiny ? x * kScale : x) - C::kHalfRoot;
  const DoubleVector shift = Number<DoubleVector>(C::kShift);
  DoubleVector k =
      reinterpret_cast<DoubleVector>((above >> C::kFractionBits) +
                                     reinterpret_cast<Bits>(shift)) -
      shift;
  k = tiny ? k - 52.0 : k;
  constexpr int64_t kFraction = (int64_t{1} << C::kFractionBits) - 1;
  const DoubleVector m =
      reinterpret_cast<DoubleVector>((above & kFraction) + C::kHalfRoot);
  // log(m) = 2 atanh(s) = s (2 + z t), s = (m - 1) / (m + 1), z = s^2,
  // t = 2/3 + 2/5 z + ...
  const DoubleVector f = m - 1.0;
  const DoubleVector sum = m + 1.0, sum_low = m - (sum - 1.0);
  const DoubleVector s = f / sum;
  const DoublePair back = ExactProduct(s, sum);
  const DoubleVector s_low = (((f - back.high) - back.low) - s * sum_low) / sum;
  DoublePair z = ExactProduct(s, s);
  z.low += 2.0 * s * s_low;
  constexpr double kSeries[] = {2. / 5,  2. / 7,  2. / 9,  2. / 11, 2. / 13,
                                2. / 15, 2. / 17, 2. / 19, 2. / 21, 2. / 23};
  DoublePair t = ExactSum(Number<DoubleVector>(2. / 3),
                          Polynomial(z.high, kSeries) * z.high);
  t.low += 3.70074341541718826e-17;  // the rounding error of 2/3
  DoublePair zt = ExactProduct(z.high, t.high);
  zt.low += z.high * t.low + z.low * t.high;
  const DoublePair szt = ExactProduct(s, zt.high);
  DoublePair log = ExactSum(2.0 * s, szt.high);
  log.low += 2.0 * s_low + (szt.low + (s * zt.low + s_low * zt.high));
  // If k is not 0, its term is the larger one.
  const DoublePair all = ExactSum(k * C::kLn2High, log.high);
  return ExactSum(all.high, all.low + (log.low + k * C::kLn2Low));
}

// |x|^y, except for 0, infinities and NaN.
static TFO_INLINE DoubleVector PowOfMagnitude(DoubleVector a, DoubleVector y) {
  // Beyond this, every power over- or underflows.
  constexpr double kMax = 0x1p70;
  y = y > kMax ? Number<DoubleVector>(kMax) : y;
  y = y < -kMax ? Number<DoubleVector>(-kMax) : y;
  const DoublePair log = LogPair(a);
  const DoublePair product = ExactProduct(y, log.high);
  const DoubleVector high = product.high;
  const DoubleVector low = product.low + y * log.low;
  const DoubleVector pow = Exp(high);
  // Not where infinities would cancel.
  return pow <= DBL_MAX ? MulAdd(pow, low, pow) : pow;
}

// The same for floats, to 30 binary digits.
static TFO_INLINE DoubleVector PowOfFloats(DoubleVector a, DoubleVector y) {
  constexpr double kMax = 200;
  const DoubleVector product = y * LogOf<5>(a, DoubleVector{}, DoubleVector{});
  DoubleVector n, r;
  const DoubleVector limited = -Max(Number<DoubleVector>(-kMax),
                                    -Max(Number<DoubleVector>(-kMax), product));
  DoubleVector p = ExpParts<6>(limited, n, r);
  const DoubleVector one = Number<DoubleVector>(1);
  p = MulAdd(MulAdd(p, r, one), r, one);
  return p * PowerOfTwo(n);
}

// x^y for all x and y as C defines it, given |x|^y.
static TFO_INLINE DoubleVector WithSpecialPowers(DoubleVector pow,
                                                 DoubleVector x,
                                                 DoubleVector y) {
  const DoubleVector zero = {}, one = Number<DoubleVector>(1);
  const DoubleVector infinity = Number<DoubleVector>(INFINITY);
  const DoubleVector a = Abs(x), b = Abs(y);
  pow = a == 0.0 || a == infinity ? ((a == 0.0) == (y < 0.0) ? infinity : zero)
                                  : pow;
  pow = x != x || y != y ? Number<DoubleVector>(NAN) : pow;
  pow = y == 0.0 || (a == 1.0 && (y == y || x > 0.0)) ? one : pow;
  // Doubles from 2^52 on are integers, and from 2^53 on even.
  const auto is_whole = [](DoubleVector v) {
    return v >= 0x1p52 || (v + 0x1p52) - 0x1p52 == v;
  };
  const auto whole = is_whole(b);
  const auto odd = whole && !is_whole(0.5 * b);
  pow = odd ? WithSign(pow, x) : pow;
  return x < 0.0 && a < infinity && !whole ? Number<DoubleVector>(NAN) : pow;
}

}  // namespace math_internal

// 1 ulp.
static TFO_INLINE FloatVector Pow(FloatVector x, FloatVector y) {
  const auto pow = [](DoubleVector a, DoubleVector b) {
    using math_internal::PowOfFloats;
    return math_internal::WithSpecialPowers(PowOfFloats(Abs(a), b), a, b);
  };
  return math_internal::InDoubles(pow, x, y);
}

// 1.6 ulp.
static TFO_INLINE DoubleVector Pow(DoubleVector x, DoubleVector y) {
  using math_internal::PowOfMagnitude;
  return math_internal::WithSpecialPowers(PowOfMagnitude(Abs(x), y), x, y);
}

}  // namespace TFO_CPU_NAMESPACE
}  // namespace tfo

#endif  // TENSORFLOW_OPS_CORE_CC_POW_SIMD_H_
