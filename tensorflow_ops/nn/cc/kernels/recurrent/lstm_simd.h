// A step of one example.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_RECURRENT_LSTM_SIMD_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_RECURRENT_LSTM_SIMD_H_

#include "tensorflow_ops/core/cc/cpu_dispatch.h"
#include "tensorflow_ops/nn/cc/kernels/recurrent/lstm.h"

namespace tfo {

template <typename T>
struct LstmRow {
  const T *inputs, *bias, *sums;  // [4, units]; sums: h * recurrent_kernel
  const T* c_before;              // [units]
  T* gates;                       // [4, units]
  T *c, *h;                       // [units]
};

template <typename T>
struct LstmGradRow {
  const T* gates;         // [4, units]
  const T *c_before, *c;  // [units]
  const T* d_output;      // [units]
  T *d_h, *d_c;           // [units]; sets d_h to 0
  T* d_inputs;            // [4, units]
};

TFO_PER_CPU_LEVEL(template <typename T> void LstmStep(const RecurrentSpec& spec,
                                                      const LstmRow<T>& row);
                  template <typename T>
                  void LstmStepGradient(const RecurrentSpec& spec,
                                        const LstmGradRow<T>& row);)

}  // namespace tfo

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_RECURRENT_LSTM_SIMD_H_
