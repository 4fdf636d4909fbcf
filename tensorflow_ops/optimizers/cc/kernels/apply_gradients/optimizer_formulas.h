// The formulas of optimizers: those of Keras, operation by operation.
#ifndef TENSORFLOW_OPS_OPTIMIZERS_CC_KERNELS_APPLY_GRADIENTS_OPTIMIZER_FORMULAS_H_
#define TENSORFLOW_OPS_OPTIMIZERS_CC_KERNELS_APPLY_GRADIENTS_OPTIMIZER_FORMULAS_H_

#include "tensorflow_ops/core/cc/simd/elementwise.h"
#include "tensorflow_ops/optimizers/cc/kernels/apply_gradients/apply_gradients.h"

namespace tfo {
namespace TFO_FORMULA_NAMESPACE {

// NaN if one of them is.
template <typename V>
TFO_FORMULA V MaxOrNan(V a, V b) {
  return (a > b) | (a != a) ? a : b;
}

template <typename V>
TFO_FORMULA V Sign(V x) {
  const V one = Broadcast<V>(1);
  return x > 0 ? one : x < 0 ? -one : x;
}

// Changes a variable w and its slots s, by a gradient g and the scalars p.
template <Optimizer kOptimizer, typename V>
TFO_FORMULA void StepOf(const V (&p)[kMaxScalars], V g, V& w,
                        V (&s)[kMaxSlots]) {
  const V rate = p[0];
  if constexpr (kOptimizer == Optimizer::kSgd) {
    w -= g * rate;
  } else if constexpr (kOptimizer == Optimizer::kMomentum ||
                       kOptimizer == Optimizer::kNesterov) {
    const V momentum = p[3];
    s[0] = s[0] * momentum - g * rate;
    if constexpr (kOptimizer == Optimizer::kNesterov) {
      w += s[0] * momentum - g * rate;
    } else {
      w += s[0];
    }
  } else if constexpr (kOptimizer == Optimizer::kAdam ||
                       kOptimizer == Optimizer::kAmsgrad) {
    const V corrected_rate = p[3], m_part = p[4], v_part = p[5], epsilon = p[6];
    s[0] += (g - s[0]) * m_part;
    s[1] += (g * g - s[1]) * v_part;
    V v = s[1];
    if constexpr (kOptimizer == Optimizer::kAmsgrad) {
      v = s[2] = MaxOrNan(s[2], v);
    }
    w -= (s[0] * corrected_rate) / (SquareRoot(v) + epsilon);
  } else if constexpr (kOptimizer == Optimizer::kAdagrad) {
    const V epsilon = p[3];
    s[0] += g * g;
    w -= (rate * g) / SquareRoot(s[0] + epsilon);
  } else if constexpr (kOptimizer == Optimizer::kAdamax) {
    const V m_part = p[3], beta_2 = p[4], epsilon = p[5], correction = p[6];
    s[0] += (g - s[0]) * m_part;
    s[1] = MaxOrNan<V>(beta_2 * s[1], g > 0 ? g : 0 - g);
    w -= (rate * s[0]) / (correction * (s[1] + epsilon));
  } else if constexpr (kOptimizer == Optimizer::kNadam) {
    const V m_part = p[3], v_part = p[4], epsilon = p[5];
    const V m_factor = p[6], m_divisor = p[7], g_factor = p[8],
            g_divisor = p[9], v_divisor = p[10];
    s[0] += (g - s[0]) * m_part;
    s[1] += (g * g - s[1]) * v_part;
    const V m = (m_factor * s[0]) / m_divisor + (g_factor * g) / g_divisor;
    w -= (m * rate) / (SquareRoot(s[1] / v_divisor) + epsilon);
  } else if constexpr (kOptimizer == Optimizer::kLion) {
    const V beta_1 = p[3], g_part = p[4], beta_2 = p[5], m_part = p[6];
    w -= rate * Sign(s[0] * beta_1 + g * g_part);
    s[0] = s[0] * beta_2 + g * m_part;
  } else {  // RMSprop
    constexpr bool kIsCentered =
        kOptimizer == Optimizer::kRmspropCentered ||
        kOptimizer == Optimizer::kRmspropCenteredMomentum;
    constexpr bool kHasMomentum = kSlotsOf<kOptimizer> > 1 + kIsCentered;
    const V rho = p[3], part = p[4], epsilon = p[5];
    s[0] = rho * s[0] + part * (g * g);
    V v = s[0];
    if constexpr (kIsCentered) {
      V& mean = s[kSlotsOf<kOptimizer> - 1];
      mean = rho * mean + part * g;
      v = s[0] - mean * mean;
    }
    V change = (rate * g) / SquareRoot(v + epsilon);
    if constexpr (kHasMomentum) {
      const V momentum = p[6];
      change = s[1] = momentum * s[1] + change;
    }
    w -= change;
  }
}

// The same, after the weight decay.
template <Optimizer kOptimizer, typename V>
TFO_FORMULA void DecayAndStep(const V (&p)[kMaxScalars], bool decays, V g, V& w,
                              V (&s)[kMaxSlots]) {
  if (decays) w -= w * p[1] * p[0];
  StepOf<kOptimizer>(p, g, w, s);
}

}  // namespace TFO_FORMULA_NAMESPACE
}  // namespace tfo

#endif  // TENSORFLOW_OPS_OPTIMIZERS_CC_KERNELS_APPLY_GRADIENTS_OPTIMIZER_FORMULAS_H_
