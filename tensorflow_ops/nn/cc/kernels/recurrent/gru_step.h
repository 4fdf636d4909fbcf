// The formulas of a step and of its gradient, for vectors and for CUDA.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_RECURRENT_GRU_STEP_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_RECURRENT_GRU_STEP_H_

#include "tensorflow_ops/nn/cc/kernels/recurrent/activation.h"

namespace tfo {
namespace TFO_FORMULA_NAMESPACE {

// The state after a step, from that before.
template <typename V>
TFO_FORMULA V GruState(V z, V g, V h) {
  const V one = Broadcast<V>(ScalarOf<V>(1));
  return MulAdd(z, h, (one - z) * g);
}

// Gradients to the sums of z and g, and to h directly. d is that to the state
// after the step, h the state before.
template <typename V>
struct GruStateSlopes {
  V d_z, d_g, d_h;
};
template <typename V>
TFO_FORMULA GruStateSlopes<V> GruStateGradientOf(
    CellActivation activation, CellActivation recurrent_activation, V z, V g,
    V h, V d) {
  const V one = Broadcast<V>(ScalarOf<V>(1));
  return {d * (h - g) * SlopeAt(recurrent_activation, z),
          d * (one - z) * SlopeAt(activation, g), d * z};
}

// The gradient to the sum of r, which multiplies `of`; d is that to r * of.
template <typename V>
TFO_FORMULA V GruResetGradientOf(CellActivation recurrent_activation, V r, V of,
                                 V d) {
  return d * of * SlopeAt(recurrent_activation, r);
}

}  // namespace TFO_FORMULA_NAMESPACE
}  // namespace tfo

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_RECURRENT_GRU_STEP_H_
