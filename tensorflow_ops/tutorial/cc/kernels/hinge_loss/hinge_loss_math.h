// The formulas of hinge_loss.h, for the CPU's vectors and for CUDA
// (elementwise.h).
#ifndef TENSORFLOW_OPS_TUTORIAL_CC_KERNELS_HINGE_LOSS_HINGE_LOSS_MATH_H_
#define TENSORFLOW_OPS_TUTORIAL_CC_KERNELS_HINGE_LOSS_HINGE_LOSS_MATH_H_

#include "tensorflow_ops/core/cc/simd/elementwise.h"

namespace tfo {
namespace TFO_FORMULA_NAMESPACE {

// What a class adds to the loss, for x = x_c - x_label. NaN stays NaN.
template <typename V>
TFO_FORMULA V HingeLossTerm(V x) {
  const V z = x + ScalarOf<V>(1);
  return z < 0 ? V{} : z * z;
}

// Its derivative.
template <typename V>
TFO_FORMULA V HingeLossSlope(V x) {
  const V z = x + ScalarOf<V>(1);
  return z < 0 ? V{} : z + z;
}

}  // namespace TFO_FORMULA_NAMESPACE
}  // namespace tfo

#endif  // TENSORFLOW_OPS_TUTORIAL_CC_KERNELS_HINGE_LOSS_HINGE_LOSS_MATH_H_
