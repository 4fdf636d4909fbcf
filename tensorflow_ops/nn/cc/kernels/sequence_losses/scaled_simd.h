// Vectors of numbers mantissa * 2^exponent (scaled.h). Only *_simd.cc files
// include this header.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_SEQUENCE_LOSSES_SCALED_SIMD_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_SEQUENCE_LOSSES_SCALED_SIMD_H_

#include <type_traits>

#include "tensorflow_ops/core/cc/simd/math_simd.h"
#include "tensorflow_ops/nn/cc/kernels/sequence_losses/halves_simd.h"
#include "tensorflow_ops/nn/cc/kernels/sequence_losses/scaled.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {

// Value is float or double. Mantissas are 0, with the exponent kZero, or in
// [1/2, 16); `Normalized` returns them to [1, 2).
template <typename Value>
struct ScaledVector {
  using V = typename Lanes<Value>::Vector;
  using I = typename Lanes<Value>::Index;
  using Limits = ScaledLimits<Value>;
  using Exponent = typename Limits::Exponent;
  using Constants = math_internal::Constants<V>;
  static constexpr int kCount = Lanes<Value>::kCount;

  V mantissa;
  I exponent;

  static TFO_INLINE ScaledVector Load(const Value* mantissas,
                                      const Exponent* exponents) {
    ScaledVector s;
    memcpy(&s.mantissa, mantissas, sizeof(s.mantissa));
    memcpy(&s.exponent, exponents, sizeof(s.exponent));
    return s;
  }
  TFO_INLINE void Store(Value* mantissas, Exponent* exponents) const {
    memcpy(mantissas, &mantissa, sizeof(mantissa));
    memcpy(exponents, &exponent, sizeof(exponent));
  }

  // Exponents of logits with the statistics of others may wrap around.
  typedef std::make_unsigned_t<Exponent> Unsigned
      __attribute__((vector_size(sizeof(I))));
  static TFO_INLINE I Plus(I a, I b) {
    return reinterpret_cast<I>(reinterpret_cast<Unsigned>(a) +
                               reinterpret_cast<Unsigned>(b));
  }
  static TFO_INLINE I Minus(I a, I b) {
    return reinterpret_cast<I>(reinterpret_cast<Unsigned>(a) -
                               reinterpret_cast<Unsigned>(b));
  }

  static TFO_INLINE I MaxOf(I a, I b) { return a > b ? a : b; }
  // 2^k for k <= 127 (1023); tiny, not 0, for low ones.
  static TFO_INLINE V PowerOfTwo(I k) {
    constexpr Exponent kBias = Constants::kBias;
    const I biased =
        MaxOf(Plus(k, Broadcast<I>(kBias)), Broadcast<I>(Exponent(1)));
    return reinterpret_cast<V>(biased << Constants::kFractionBits);
  }

  TFO_INLINE ScaledVector Normalized() const {
    constexpr Exponent kOne = Exponent(Constants::kBias)
                              << Constants::kFractionBits;
    constexpr Exponent kFraction =
        (Exponent(1) << Constants::kFractionBits) - 1;
    const I bits = reinterpret_cast<I>(mantissa);
    const I is_zero = mantissa == V{};
    const I more = (bits >> Constants::kFractionBits) - Constants::kBias;
    const V one_to_two = reinterpret_cast<V>((bits & kFraction) | kOne);
    return {is_zero ? V{} : one_to_two,
            is_zero ? Broadcast<I>(Limits::kZero) : Plus(exponent, more)};
  }
  // Zero where `mask` is zero.
  TFO_INLINE ScaledVector Where(I mask) const {
    return {reinterpret_cast<V>(reinterpret_cast<I>(mantissa) & mask),
            mask ? exponent : Broadcast<I>(Limits::kZero)};
  }

  friend TFO_INLINE ScaledVector operator*(const ScaledVector& a,
                                           const ScaledVector& b) {
    return {a.mantissa * b.mantissa, Plus(a.exponent, b.exponent)};
  }
  friend TFO_INLINE ScaledVector operator+(const ScaledVector& a,
                                           const ScaledVector& b) {
    const I exponent = MaxOf(a.exponent, b.exponent);
    return {a.mantissa * PowerOfTwo(Minus(a.exponent, exponent)) +
                b.mantissa * PowerOfTwo(Minus(b.exponent, exponent)),
            exponent};
  }
  static TFO_INLINE ScaledVector Sum(const ScaledVector& a,
                                     const ScaledVector& b,
                                     const ScaledVector& c) {
    const I exponent = MaxOf(MaxOf(a.exponent, b.exponent), c.exponent);
    return {a.mantissa * PowerOfTwo(Minus(a.exponent, exponent)) +
                b.mantissa * PowerOfTwo(Minus(b.exponent, exponent)) +
                c.mantissa * PowerOfTwo(Minus(c.exponent, exponent)),
            exponent};
  }
};

// e^x for x <= 0, or not much above; 0 for -inf. Lowers `lowest` to the
// exponents of numbers that are not 0.
static TFO_INLINE ScaledVector<double> ScaledExp(
    DoubleVector x, ScaledVector<double>::I& lowest) {
  using S = ScaledVector<double>;
  using C = S::Constants;
  const S::I is_zero = x == -INFINITY;
  x = Max(Broadcast<DoubleVector>(S::Limits::kLowestFactor * kLn2), x);
  const DoubleVector shift = Broadcast<DoubleVector>(C::kShift);
  const DoubleVector n = MulAdd(x, Broadcast<DoubleVector>(C::kLog2E), shift);
  const DoubleVector whole = n - shift;
  const DoubleVector rest =
      MulAdd(whole, DoubleVector{} - C::kLn2Low,
             MulAdd(whole, DoubleVector{} - C::kLn2High, x));
  const S::I exponent =
      reinterpret_cast<S::I>(n) - reinterpret_cast<S::I>(shift);
  const S::I counted = is_zero ? S::I{} : exponent;
  lowest = counted < lowest ? counted : lowest;
  return {is_zero ? DoubleVector{}
                  : math_internal::ExpOf</*kNegative=*/false>(rest),
          is_zero ? Broadcast<typename S::I>(S::Limits::kZero) : exponent};
}

// The same for x - shift - log, in double: the exponent is split off before
// anything is rounded, so the relative error is a few 2^-24 for any x.
static TFO_INLINE ScaledVector<float> ScaledSoftmax(
    FloatVector x, FloatVector shift, FloatVector log,
    ScaledVector<float>::I& lowest) {
  using S = ScaledVector<float>;
  using C = ScaledVector<double>::Constants;
  HalfOfFloats rests[2];
  HalfOfInts exponents[2];
  const DoubleVector differences[] = {
      WidenLow(x) - WidenLow(shift) - WidenLow(log),
      WidenHigh(x) - WidenHigh(shift) - WidenHigh(log)};
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {
    const DoubleVector d =
        Max(Broadcast<DoubleVector>(S::Limits::kLowestFactor * kLn2),
            differences[i]);
    const DoubleVector rounding = Broadcast<DoubleVector>(C::kShift);
    const DoubleVector whole =
        MulAdd(d, Broadcast<DoubleVector>(C::kLog2E), rounding) - rounding;
    rests[i] = __builtin_convertvector(MulAdd(whole, DoubleVector{} - kLn2, d),
                                       HalfOfFloats);
    exponents[i] = __builtin_convertvector(whole, HalfOfInts);
  }
  const FloatVector rest = JoinHalves(rests[0], rests[1]);
  const S::I exponent = JoinHalves(exponents[0], exponents[1]);
  const S::I is_zero = x == -INFINITY;
  const S::I counted = is_zero ? S::I{} : exponent;
  lowest = counted < lowest ? counted : lowest;
  return {
      is_zero ? FloatVector{} : math_internal::ExpOf</*kNegative=*/false>(rest),
      is_zero ? Broadcast<typename S::I>(S::Limits::kZero) : exponent};
}
static TFO_INLINE ScaledVector<double> ScaledSoftmax(
    DoubleVector x, DoubleVector shift, DoubleVector log,
    ScaledVector<double>::I& lowest) {
  return ScaledExp(x - shift - log, lowest);
}

// ---- Rows of such numbers.

template <typename Value>
static TFO_INLINE ScaledVector<Value> LoadAt(const ScaledRows<Value>& rows,
                                             int64_t at) {
  return ScaledVector<Value>::Load(rows.mantissas + at, rows.exponents + at);
}
template <typename Value>
static TFO_INLINE void StoreAt(const ScaledVector<Value>& v,
                               const ScaledRows<Value>& rows, int64_t at) {
  v.Store(rows.mantissas + at, rows.exponents + at);
}
template <typename Value>
static TFO_INLINE ScaledVector<Value> Broadcast(const ScaledRows<Value>& rows,
                                                int64_t at) {
  using S = ScaledVector<Value>;
  return {Broadcast<typename S::V>(rows.mantissas[at]),
          Broadcast<typename S::I>(rows.exponents[at])};
}
// Zeros values [begin, begin + size).
template <typename Value>
static TFO_INLINE void ClearRow(const ScaledRows<Value>& rows, int64_t begin,
                                int64_t size) {
  for (int64_t i = begin; i < begin + size; ++i) {
    rows.mantissas[i] = 0;
    rows.exponents[i] = ScaledLimits<Value>::kZero;
  }
}
// The logarithm of mantissa * 2^exponent.
static TFO_INLINE double LogOfScaled(double mantissa, int64_t exponent) {
  const DoubleVector log = Log(Broadcast<DoubleVector>(mantissa));
  return mantissa == 0 ? -INFINITY
                       : log[0] + static_cast<double>(exponent) * kLn2;
}
template <typename I>
static TFO_INLINE int64_t LeastLane(I v) {
  int64_t least = v[0];
  for (size_t i = 1; i < sizeof(v) / sizeof(v[0]); ++i) {
    least = v[i] < least ? static_cast<int64_t>(v[i]) : least;
  }
  return least;
}

// The mantissa * 2^exponent of shares, products / total, in [0, 1].
template <typename Value>
static TFO_INLINE typename Lanes<Value>::Vector Shares(
    const ScaledVector<Value>& product, Value inverse_mantissa,
    typename ScaledLimits<Value>::Exponent exponent) {
  using S = ScaledVector<Value>;
  const auto difference =
      S::Minus(product.exponent, Broadcast<typename S::I>(exponent));
  const typename S::V share =
      product.mantissa * inverse_mantissa * S::PowerOfTwo(difference);
  // PowerOfTwo is not 0.
  constexpr typename S::Exponent kLowest = 1 - S::Constants::kBias;
  return difference < kLowest ? typename S::V{} : share;
}

}  // namespace TFO_CPU_NAMESPACE
}  // namespace tfo

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_SEQUENCE_LOSSES_SCALED_SIMD_H_
