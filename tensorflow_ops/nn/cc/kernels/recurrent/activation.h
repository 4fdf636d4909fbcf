// Activations and their derivatives, for vectors and for CUDA.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_RECURRENT_ACTIVATION_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_RECURRENT_ACTIVATION_H_

#include "tensorflow_ops/core/cc/simd/elementwise.h"
#include "tensorflow_ops/nn/cc/kernels/recurrent/recurrent.h"

namespace tfo {
namespace TFO_FORMULA_NAMESPACE {

template <typename V>
TFO_FORMULA V Activate(CellActivation activation, V x) {
  using Value = ScalarOf<V>;
  const V one = Broadcast<V>(Value(1));
  switch (activation) {
    case CellActivation::kTanh:
      return Tanh(x);
    case CellActivation::kSigmoid:
      return one / (one + Exp(-x));
    case CellActivation::kRelu:  // keeps NaN
      return x < V{} ? V{} : x;
    case CellActivation::kHardSigmoid: {
      const V y = x * Value(1.0 / 6) + Value(0.5);
      return y < V{} ? V{} : (y > one ? one : y);
    }
    default:
      return x;
  }
}

// The derivative where the activation is y.
template <typename V>
TFO_FORMULA V SlopeAt(CellActivation activation, V y) {
  using Value = ScalarOf<V>;
  const V one = Broadcast<V>(Value(1));
  switch (activation) {
    case CellActivation::kTanh:
      return (one - y) * (one + y);
    case CellActivation::kSigmoid:
      return y * (one - y);
    case CellActivation::kRelu:
      return y > V{} ? one : V{};
    case CellActivation::kHardSigmoid:
      return (y > V{}) & (y < one) ? Broadcast<V>(Value(1.0 / 6)) : V{};
    default:
      return one;
  }
}

}  // namespace TFO_FORMULA_NAMESPACE
}  // namespace tfo

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_RECURRENT_ACTIVATION_H_
