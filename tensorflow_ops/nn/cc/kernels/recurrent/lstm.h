// The recurrence of a long short-term memory layer (Hochreiter and Schmidhuber
// 1997, with a forget gate), as Keras defines it. A step computes
//   i, f, o = recurrent_activation(z), g = activation(z),
//   z = inputs + h * recurrent_kernel + bias of each, in the order i, f, g, o
//   c = f * c + i * g
//   h = o * activation(c)
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_RECURRENT_LSTM_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_RECURRENT_LSTM_H_

#include "tensorflow_ops/nn/cc/kernels/recurrent/recurrent.h"

namespace tfo {

// T is float or double. The tensors of each unit are [.., units].
template <typename T>
struct LstmArgs : RecurrentSpec {
  const T* inputs;            // [batch, steps, 4, units]
  const T* recurrent_kernel;  // [units, 4, units]
  const T* bias;              // [4, units]
  const T *h0, *c0;           // [batch, units]
  T* outputs;                 // [batch, steps, units]
  T *h, *c;                   // [batch, units], after the last step
  // For the gradient. Of masked steps, gates are 0.
  T* gates;  // [batch, steps, 4, units]: i, f, g, o; may be the inputs
  T* cells;  // [batch, steps, units]: c after each step
};

template <typename T>
struct LstmGradArgs : RecurrentSpec {
  const T *gates, *recurrent_kernel, *c0, *cells;
  const T *d_outputs, *d_h, *d_c;
  T* d_inputs;     // [batch, steps, 4, units]; may be the gates
  T *d_h0, *d_c0;  // [batch, units]
};

template <typename T>
Error Lstm(const Cpu& cpu, const LstmArgs<T>& args);
template <typename T>
Error Lstm(const Gpu& gpu, const LstmArgs<T>& args);

template <typename T>
Error LstmGrad(const Cpu& cpu, const LstmGradArgs<T>& args);
template <typename T>
Error LstmGrad(const Gpu& gpu, const LstmGradArgs<T>& args);

}  // namespace tfo

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_RECURRENT_LSTM_H_
