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

// T is float or double.
template <typename T>
struct LstmArgs : RecurrentSpec {
  const T *inputs, *recurrent_kernel, *bias, *h0, *c0;
  T *outputs, *h, *c, *gates, *cells;
};

template <typename T, typename V>
void Describe(LstmArgs<T>& a, V& v) {
  v.In("gate_inputs", "[batch, steps, 4, units]", &a.inputs);
  v.In("recurrent_kernel", "[units, 4, units]", &a.recurrent_kernel);
  v.In("bias", "[4, units]", &a.bias);
  v.In("h0", "[batch, units]", &a.h0);
  v.In("c0", "[batch, units]", &a.c0);
  DescribeRecurrence(a, v);
  v.Out("outputs", "[batch, steps, units]", &a.outputs);
  // After the last step.
  v.Out("h", "[batch, units]", &a.h);
  v.Out("c", "[batch, units]", &a.c);
  // For the gradient: i, f, g, o, which are 0 in masked steps, and c after each
  // step.
  v.Out("gates", "[batch, steps, 4, units]", &a.gates, "gate_inputs");
  v.Out("cells", "[batch, steps, units]", &a.cells);
}

template <typename T>
struct LstmGradArgs : RecurrentSpec {
  const T *gates, *recurrent_kernel, *c0, *cells, *d_outputs, *d_h, *d_c;
  T *d_inputs, *d_h0, *d_c0;
};

template <typename T, typename V>
void Describe(LstmGradArgs<T>& a, V& v) {
  v.In("gates", "[batch, steps, 4, units]", &a.gates);
  v.In("recurrent_kernel", "[units, 4, units]", &a.recurrent_kernel);
  v.In("c0", "[batch, units]", &a.c0);
  v.In("cells", "[batch, steps, units]", &a.cells);
  v.In("d_outputs", "[batch, steps, units]", &a.d_outputs);
  v.In("d_h", "[batch, units]", &a.d_h);
  v.In("d_c", "[batch, units]", &a.d_c);
  DescribeRecurrence(a, v);
  v.Out("d_gate_inputs", "[batch, steps, 4, units]", &a.d_inputs, "gates");
  v.Out("d_h0", "[batch, units]", &a.d_h0);
  v.Out("d_c0", "[batch, units]", &a.d_c0);
}

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
