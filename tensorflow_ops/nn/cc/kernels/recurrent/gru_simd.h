// A step of one example.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_RECURRENT_GRU_SIMD_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_RECURRENT_GRU_SIMD_H_

#include "tensorflow_ops/core/cc/cpu_dispatch.h"
#include "tensorflow_ops/nn/cc/kernels/recurrent/gru.h"

namespace tfo {

template <typename T>
struct GruRow {
  const T* inputs;  // [3, units]
  const T* bias;    // [2, 3, units]
  const T* sums;    // [3, units], without reset_after [2, units]: products of
                    // the state and the recurrent kernel
  const T* sums_of_g;  // [units]: without reset_after, that of resets
  const T* h_before;   // [units]
  T* gates;            // [3, units]
  T *resets, *h;       // [units]
};

template <typename T>
struct GruGradRow {
  const T* gates;                // [3, units]
  const T *resets, *h_before;    // [units]
  const T *d_output, *d_resets;  // [units]
  T* d_h;                        // [units]
  T *d_inputs, *d_recurrent;     // [3, units]
};

// With reset_after, GruStep and GruStepGradient are a whole step. Otherwise,
// GruStep computes z, r and resets, and GruCandidate the rest; GruStepGradient
// the gradients to z and g, and GruResetGradient that to r, from d_resets. Both
// gradients leave in d_h what does not go through d_recurrent.
TFO_PER_CPU_LEVEL(template <typename T>
                  void GruStep(const GruSpec& spec, const GruRow<T>& row);
                  template <typename T>
                  void GruCandidate(const GruSpec& spec, const GruRow<T>& row);
                  template <typename T>
                  void GruStepGradient(const GruSpec& spec,
                                       const GruGradRow<T>& row);
                  template <typename T>
                  void GruResetGradient(const GruSpec& spec,
                                        const GruGradRow<T>& row);)

}  // namespace tfo

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_RECURRENT_GRU_SIMD_H_
