// The inner loops of hinge_loss.h, for each CPU level.
#ifndef TENSORFLOW_OPS_TUTORIAL_CC_KERNELS_HINGE_LOSS_HINGE_LOSS_SIMD_H_
#define TENSORFLOW_OPS_TUTORIAL_CC_KERNELS_HINGE_LOSS_HINGE_LOSS_SIMD_H_

#include "tensorflow_ops/core/cc/cpu_dispatch.h"
#include "tensorflow_ops/tutorial/cc/kernels/hinge_loss/hinge_loss.h"

namespace tfo {

// For a row that has a loss.
TFO_PER_CPU_LEVEL(template <typename T>
                  void HingeLossRow(const HingeLossArgs<T>& args, int64_t row);
                  template <typename T>
                  void HingeLossGradRow(const HingeLossGradArgs<T>& args,
                                        int64_t row);)

}  // namespace tfo

#endif  // TENSORFLOW_OPS_TUTORIAL_CC_KERNELS_HINGE_LOSS_HINGE_LOSS_SIMD_H_
