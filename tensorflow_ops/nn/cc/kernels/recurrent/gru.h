// The recurrence of a gated recurrent unit (Cho et al. 2014), as Keras defines
// it. A step computes, of x = inputs + bias[0] and y = h * recurrent_kernel +
// bias[1],
//   z = recurrent_activation(x + y), r = recurrent_activation(x + y)
//   g = activation(x + r * y)
//   h = z * h + (1 - z) * g
// from the x and y of each, in the order z, r, g. Without reset_after, the y of
// g is (r * h) * recurrent_kernel + bias[1], and g = activation(x + y).
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_RECURRENT_GRU_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_RECURRENT_GRU_H_

#include "tensorflow_ops/nn/cc/kernels/recurrent/recurrent.h"

namespace tfo {

struct GruSpec : RecurrentSpec {
  bool reset_after;
};

// T is float or double. The tensors of each unit are [.., units].
template <typename T>
struct GruArgs : GruSpec {
  const T* inputs;            // [batch, steps, 3, units]
  const T* recurrent_kernel;  // [units, 3, units]
  const T* bias;              // [2, 3, units]
  const T* h0;                // [batch, units]
  T* outputs;                 // [batch, steps, units]
  T* h;                       // [batch, units], after the last step
  // For the gradient. Of masked steps, both are 0.
  T* gates;   // [batch, steps, 3, units]: z, r, g; may be the inputs
  T* resets;  // [batch, steps, units]: g's y; without reset_after, r * h
};

template <typename T>
struct GruGradArgs : GruSpec {
  const T *gates, *recurrent_kernel, *h0, *outputs, *resets;
  const T *d_outputs, *d_h;
  T* d_inputs;     // [batch, steps, 3, units]; may be the gates
  T* d_recurrent;  // [batch, steps, 3, units], to y
  T* d_h0;         // [batch, units]
};

template <typename T>
Error Gru(const Cpu& cpu, const GruArgs<T>& args);
template <typename T>
Error Gru(const Gpu& gpu, const GruArgs<T>& args);

template <typename T>
Error GruGrad(const Cpu& cpu, const GruGradArgs<T>& args);
template <typename T>
Error GruGrad(const Gpu& gpu, const GruGradArgs<T>& args);

}  // namespace tfo

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_RECURRENT_GRU_H_
