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

template <typename V>
void DescribeGru(GruSpec& s, V& v) {
  DescribeRecurrence(s, v);
  v.Option("reset_after", true, &s.reset_after);
}

// T is float or double.
template <typename T>
struct GruArgs : GruSpec {
  const T *inputs, *recurrent_kernel, *bias, *h0;
  T *outputs, *h, *gates, *resets;
};

template <typename T, typename V>
void Describe(GruArgs<T>& a, V& v) {
  v.In("gate_inputs", "[batch, steps, 3, units]", &a.inputs);
  v.In("recurrent_kernel", "[units, 3, units]", &a.recurrent_kernel);
  v.In("bias", "[2, 3, units]", &a.bias);
  v.In("h0", "[batch, units]", &a.h0);
  DescribeGru(a, v);
  v.Out("outputs", "[batch, steps, units]", &a.outputs);
  v.Out("h", "[batch, units]", &a.h);  // after the last step
  // For the gradient: z, r, g, and g's y or, without reset_after, r * h; 0 in
  // masked steps.
  v.Out("gates", "[batch, steps, 3, units]", &a.gates, "gate_inputs");
  v.Out("resets", "[batch, steps, units]", &a.resets);
}

template <typename T>
struct GruGradArgs : GruSpec {
  const T *gates, *recurrent_kernel, *h0, *outputs, *resets, *d_outputs, *d_h;
  T *d_inputs, *d_recurrent, *d_h0;
};

template <typename T, typename V>
void Describe(GruGradArgs<T>& a, V& v) {
  v.In("gates", "[batch, steps, 3, units]", &a.gates);
  v.In("recurrent_kernel", "[units, 3, units]", &a.recurrent_kernel);
  v.In("h0", "[batch, units]", &a.h0);
  v.In("outputs", "[batch, steps, units]", &a.outputs);
  v.In("resets", "[batch, steps, units]", &a.resets);
  v.In("d_outputs", "[batch, steps, units]", &a.d_outputs);
  v.In("d_h", "[batch, units]", &a.d_h);
  DescribeGru(a, v);
  v.Out("d_gate_inputs", "[batch, steps, 3, units]", &a.d_inputs, "gates");
  v.Out("d_recurrent_sums", "[batch, steps, 3, units]",
        &a.d_recurrent);  // to y
  v.Out("d_h0", "[batch, units]", &a.d_h0);
}

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
