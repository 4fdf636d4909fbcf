// Activations and their derivatives, for vectors and for CUDA. Relative errors
// are a few roundings: for negative numbers, too, where 1 + erf or 1 + tanh
// would cancel.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_ACTIVATIONS_ACTIVATION_FORMULAS_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_ACTIVATIONS_ACTIVATION_FORMULAS_H_

#include "tensorflow_ops/core/cc/simd/elementwise.h"
#include "tensorflow_ops/nn/cc/kernels/activations/activations.h"

namespace tfo {
namespace TFO_FORMULA_NAMESPACE {

template <typename V>
inline constexpr bool kIsDouble = sizeof(ScalarOf<V>) == 8;

// coefficients[0] + coefficients[1] x + ...
template <typename V, typename... Rest>
TFO_FORMULA V Polynomial(V x, ScalarOf<V> first, Rest... rest) {
  if constexpr (sizeof...(rest) == 0) {
    return Broadcast<V>(first);
  } else {
    return MulAdd(x, Polynomial(x, rest...), Broadcast<V>(first));
  }
}

// |x|, at most `limit`. Keeps NaN.
template <typename V>
TFO_FORMULA V SizeUpTo(V x, ScalarOf<V> limit) {
  const V size = Max(-x, x), most = Broadcast<V>(limit);
  return size > most ? most : size;
}

// e^x of a finite x <= 0.
template <typename V>
TFO_FORMULA V ExpOfNotPositive(V x) {
#ifdef TFO_CPU_NAMESPACE
  return math_internal::ExpOf</*kNegative=*/true>(x);
#else
  return Exp(x);
#endif
}

// The rounding error of a square: a a - square.
template <typename V>
TFO_FORMULA V SquareError(V a, V square) {
#if defined(__FMA__) || defined(__aarch64__) || defined(__CUDA_ARCH__)
  return MulAdd(a, a, -square);
#else
  const V shifted = a * ScalarOf<V>(kIsDouble<V> ? 134217729 : 4097);
  const V high = shifted - (shifted - a), low = a - high;
  return (high * high - square) + 2 * high * low + low * low;
#endif
}

// e^(-a^2 / 2). Far from 0, the rounding error of a^2 changes it much.
template <typename V>
TFO_FORMULA V Bell(V a) {
  using Value = ScalarOf<V>;
  const V square = Product(a, a);
  const V bell = ExpOfNotPositive(square * Value(-0.5));
  return MulAdd(bell, SquareError(a, square) * Value(-0.5), bell);
}

// The normal distribution's tail from a on, divided by e^(-a^2 / 2): a minimax
// polynomial of (a - 4) / (a + 4), up to a = 14.5 in float and 39 in double.
template <typename V>
TFO_FORMULA V TailOverBell(V a) {
  using Value = ScalarOf<V>;
  const V part = Broadcast<V>(Value(1)) / (a + Value(4));
  const V t = (a - Value(4)) * part;
  if constexpr (kIsDouble<V>) {
    return part * Polynomial(t, 0.7552851304157515, -0.607896641971891,
                             0.3871374007422045, -0.1865218579597736,
                             0.06039657489137532, -0.00754018896310587,
                             -0.003479692374410255, 0.0016308184055919227,
                             0.00013334436347723014, -0.00023109452349699203,
                             -1.9084176255120743e-06, 3.514272874233549e-05,
                             7.166154819147747e-07, -5.914380081034766e-06,
                             -6.277422341697653e-07, 1.0109156422074605e-06,
                             2.654359145965975e-07, -1.4350074067758307e-07,
                             -7.548408794530701e-08, 7.275819365679484e-09,
                             1.1778492581634052e-08, 2.1976330925973466e-09);
  } else {
    return part * Polynomial(t, 0.7552851438522339f, -0.607896625995636f,
                             0.38713666796684265f, -0.18652300536632538f,
                             0.06040646880865097f, -0.007527213077992201f,
                             -0.0035235739778727293f, 0.001569313695654273f,
                             0.0001948018471011892f, -0.00012298315414227545f);
  }
}

// 1 / (1 + e^-x) and 1 / (1 + e^x).
template <typename V>
struct Sigmoids {
  V of_x, of_minus_x;
};
template <typename V>
TFO_FORMULA Sigmoids<V> SigmoidsOf(V x) {
  const V one = Broadcast<V>(1), e = ExpOfNotPositive(x > V{} ? -x : x);
  const V greater = one / (one + e), lesser = e * greater;
  return {x < V{} ? lesser : greater, x < V{} ? greater : lesser};
}

// An activation of x; its derivative if kSlope.
template <Activation kActivation, bool kSlope, typename V>
TFO_FORMULA V Activate(V x) {
  using Value = ScalarOf<V>;
  const V one = Broadcast<V>(1);
  if constexpr (kActivation == Activation::kGelu) {
    // Beyond, e^(-a^2 / 2) is 0.
    const V a = SizeUpTo(x, Value(kIsDouble<V> ? 39 : 14.5));
    const V bell = Bell(a), tail = TailOverBell(a);
    const V near = x < V{} ? -a : a;
    if constexpr (!kSlope) {
      const V of_tail = bell * (near * tail);  // tail * bell may be too small
      return x < V{} ? of_tail : x - of_tail;
    }
    const V cdf = x < V{} ? tail * bell : one - tail * bell;
    const V slope = MulAdd(near, bell * Value(0.3989422804014327), cdf);
    return x == x ? slope : x;  // not another NaN, depending on the compiler
  } else {
    const V a = SizeUpTo(x, Value(kIsDouble<V> ? 746 : 104));  // e^-a is 0
    const V near = x < V{} ? -a : a, value = x < V{} ? -a : x;
    if constexpr (kActivation == Activation::kSilu) {
      const auto [sigmoid, rest] = SigmoidsOf(near);
      if constexpr (!kSlope) return value * sigmoid;
      return sigmoid * MulAdd(near, rest, one);
    } else {
      // (1 + tanh u) / 2 is the sigmoid of 2 u.
      constexpr double kTwice = 2 * 0.7978845608028654;  // sqrt(2 / pi)
      constexpr double kCubic = kTwice * 0.044715;
      const V square = near * near;
      const auto [sigmoid, rest] =
          SigmoidsOf(near * (square * Value(kCubic) + Value(kTwice)));
      if constexpr (!kSlope) return value * sigmoid;
      const V slope = near * (square * Value(3 * kCubic) + Value(kTwice));
      return sigmoid * MulAdd(rest, slope, one);
    }
  }
}

}  // namespace TFO_FORMULA_NAMESPACE
}  // namespace tfo

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_ACTIVATIONS_ACTIVATION_FORMULAS_H_
