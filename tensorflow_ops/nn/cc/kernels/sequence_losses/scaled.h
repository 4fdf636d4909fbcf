// Numbers mantissa * 2^exponent, for probabilities of paths, which underflow
// any float. They add and multiply without logarithms, and their relative error
// does not depend on their size.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_SEQUENCE_LOSSES_SCALED_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_SEQUENCE_LOSSES_SCALED_H_

#include <cmath>
#include <cstdint>
#include <cstring>

#include "tensorflow_ops/core/cc/float16.h"

namespace tfo {

inline constexpr double kLn2 = 0.6931471805599453094;

// The type of exponents in vectors: as wide as the mantissas of type Value, so
// that lanes match.
template <typename Value>
struct ScaledLimits {  // of float
  using Exponent = int32_t;
  // The exponent of 0. Twice this does not overflow.
  static constexpr Exponent kZero = -1000000000;
  // No sum of a path's exponents may be below this.
  static constexpr Exponent kLowest = -500000000;
  // The lowest exponent of a factor: a logarithm below this counts as this.
  static constexpr double kLowestFactor = -268435456.0;  // -2^28
};
template <>
struct ScaledLimits<double> {
  using Exponent = int64_t;
  static constexpr Exponent kZero = -(int64_t{1} << 61);
  static constexpr Exponent kLowest = -(int64_t{1} << 60);
  static constexpr double kLowestFactor = -274877906944.0;  // -2^38
};

// Rows of numbers mantissa * 2^exponent.
template <typename Value>
struct ScaledRows {
  using Exponent = typename ScaledLimits<Value>::Exponent;
  Value* mantissas;
  Exponent* exponents;
};

// The probability of all paths of a lattice: mantissa * 2^exponent.
template <typename Value>
struct ScaledTotal {
  Value mantissa;
  int64_t exponent;
};

// Zeros in front of each row of states, so that a vector may begin one state
// before the first. Rows' sizes are multiples of it, and so of any vector's.
inline constexpr int64_t kStateGuard = 16;
inline int64_t StatesStride(int64_t states) {
  return (states + 2 * kStateGuard - 1) / kStateGuard * kStateGuard;
}

// Returns the value to subtract from scores whose largest is `largest`, so that
// a large common offset does not cost accuracy.
TFO_HOST_DEVICE static inline double FiniteShift(double largest) {
  return largest > -INFINITY && largest < INFINITY ? largest : 0;
}

// A number by itself, with an exponent of 64 bits: in CUDA kernels, and where
// the CPU's plain doubles do not suffice. A mantissa is 0, with the exponent
// kZero, or in [1/2, 2), or NaN.
template <typename Value>
struct alignas(16) Scaled {
  Value mantissa;
  int64_t exponent;

  static constexpr int64_t kZero = ScaledLimits<double>::kZero;

  TFO_HOST_DEVICE static Scaled Zero() { return {0, kZero}; }
  TFO_HOST_DEVICE static Scaled One() { return {1, 0}; }

  // 2^k for k <= 1023 (127 of float); 0 for those below the normal numbers.
  TFO_HOST_DEVICE static Value PowerOfTwo(int64_t k) {
    const int64_t biased = k < -kOne ? 0 : k + kOne;
    const Bits bits = static_cast<Bits>(biased) << kFractionBits;
    Value power;
    memcpy(&power, &bits, sizeof(bits));
    return power;
  }
  // e^x for x <= 1, else e: larger x are from statistics of other logits.
  TFO_HOST_DEVICE static Scaled Exp(double x) {
    if (x == -INFINITY) return Zero();
    constexpr double kLowest = ScaledLimits<double>::kLowestFactor * kLn2;
    x = x < kLowest ? kLowest : x > 1 ? 1 : x;
    // Rounds to an integer; a call of rint takes longer.
    constexpr double kShift = 0x1.8p52;
    const double exponent = (x * (1 / kLn2) + kShift) - kShift;
    const Value rest = static_cast<Value>(x - exponent * kLn2);
    return {std::exp(rest), x == x ? static_cast<int64_t>(exponent) : 0};
  }
  // mantissa * 2^exponent for any mantissa that is positive and normal, or 0 or
  // NaN. Its bits are faster than frexp and ldexp.
  TFO_HOST_DEVICE static Scaled Normalized(Value mantissa, int64_t exponent) {
    // Selects, since branches take longer in CUDA kernels.
    const bool is_normal = mantissa > 0;
    Bits bits;
    memcpy(&bits, &mantissa, sizeof(bits));
    const Bits more = is_normal ? (bits >> kFractionBits) - (kOne - 1) : 0;
    bits -= more * (Bits{1} << kFractionBits);  // `more` may be negative
    exponent = is_normal ? exponent + more : mantissa == 0 ? kZero : 0;
    memcpy(&mantissa, &bits, sizeof(bits));
    return {mantissa, exponent};
  }
  TFO_HOST_DEVICE friend Scaled operator*(const Scaled& a, const Scaled& b) {
    return Normalized(a.mantissa * b.mantissa, a.exponent + b.exponent);
  }
  TFO_HOST_DEVICE friend Scaled operator+(const Scaled& a, const Scaled& b) {
    const bool swap = a.exponent < b.exponent;
    const Scaled &high = swap ? b : a, &low = swap ? a : b;
    const int64_t below = high.exponent - low.exponent;
    constexpr int64_t kFar = 100;
    if (below > kFar) return high;
    return Normalized(high.mantissa + low.mantissa * PowerOfTwo(-below),
                      high.exponent);
  }
  // Returns this / total. Requires this <= total.
  TFO_HOST_DEVICE Value Share(const Scaled& total) const {
    const int64_t difference = exponent - total.exponent;
    if (mantissa == 0 || difference < -1000) return 0;
    const Value ratio = mantissa / total.mantissa;
    if (difference >= 1 - kOne) return ratio * PowerOfTwo(difference);
    return std::ldexp(ratio, static_cast<int>(difference));
  }
  TFO_HOST_DEVICE double Log() const {
    if (mantissa == 0) return -INFINITY;
    return std::log(static_cast<double>(mantissa)) + exponent * kLn2;
  }

 private:
  using Bits = typename ScaledLimits<Value>::Exponent;  // as wide
  static constexpr int kFractionBits = sizeof(Value) == 8 ? 52 : 23;
  static constexpr Bits kOne = sizeof(Value) == 8 ? 1023 : 127;  // in 1's bits
};

}  // namespace tfo

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_SEQUENCE_LOSSES_SCALED_H_
