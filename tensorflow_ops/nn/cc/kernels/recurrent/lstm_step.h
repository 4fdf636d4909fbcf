// The formulas of a step and of its gradient, for vectors and for CUDA.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_RECURRENT_LSTM_STEP_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_RECURRENT_LSTM_STEP_H_

#include "tensorflow_ops/nn/cc/kernels/recurrent/activation.h"

namespace tfo {
namespace TFO_FORMULA_NAMESPACE {

template <typename V>
struct LstmStepResult {
  V gates[4];
  V c, h;
};

// z has the sums of the gates, c is the cell before.
template <typename V>
TFO_FORMULA LstmStepResult<V> LstmStepOf(CellActivation activation,
                                         CellActivation recurrent_activation,
                                         const V (&z)[4], V c) {
  LstmStepResult<V> r;
  r.gates[0] = Activate(recurrent_activation, z[0]);
  r.gates[1] = Activate(recurrent_activation, z[1]);
  r.gates[2] = Activate(activation, z[2]);
  r.gates[3] = Activate(recurrent_activation, z[3]);
  r.c = MulAdd(r.gates[1], c, r.gates[0] * r.gates[2]);
  r.h = r.gates[3] * Activate(activation, r.c);
  return r;
}

template <typename V>
struct LstmStepSlopes {
  V d_z[4];
  V d_c;  // to the cell before
};

// c is the cell after the step; d_h and d_c are gradients to its results.
template <typename V>
TFO_FORMULA LstmStepSlopes<V> LstmStepGradientOf(
    CellActivation activation, CellActivation recurrent_activation,
    const V (&gates)[4], V c_before, V c, V d_h, V d_c) {
  const V i = gates[0], f = gates[1], g = gates[2], o = gates[3];
  const V y = Activate(activation, c);
  const V d = MulAdd(d_h * o, SlopeAt(activation, y), d_c);
  return {{d * g * SlopeAt(recurrent_activation, i),
           d * c_before * SlopeAt(recurrent_activation, f),
           d * i * SlopeAt(activation, g),
           d_h * y * SlopeAt(recurrent_activation, o)},
          d * f};
}

}  // namespace TFO_FORMULA_NAMESPACE
}  // namespace tfo

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_RECURRENT_LSTM_STEP_H_
