#include "tensorflow_ops/nn/cc/kernels/recurrent/lstm_simd.h"

#include "tensorflow_ops/core/cc/simd.h"
#include "tensorflow_ops/nn/cc/kernels/recurrent/lstm_step.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {
namespace {

template <typename T>
TFO_INLINE void Step(int64_t units, const LstmRow<T>& row,
                     CellActivation activation,
                     CellActivation recurrent_activation) {
  using V = typename Lanes<T>::Vector;
  ForVectors<T>(units, [&](auto part, int64_t u) {
    V z[4];
    for (int g = 0; g < 4; ++g) {
      const int64_t at = g * units + u;
      z[g] = part.Load(row.inputs + at, 0) + part.Load(row.bias + at, 0) +
             part.Load(row.sums + at, 0);
    }
    const auto step = LstmStepOf(activation, recurrent_activation, z,
                                 part.Load(row.c_before + u, 0));
    for (int g = 0; g < 4; ++g) {
      part.Store(step.gates[g], row.gates + g * units + u);
    }
    part.Store(step.c, row.c + u);
    part.Store(step.h, row.h + u);
  });
}

template <typename T>
TFO_INLINE void StepGradient(int64_t units, const LstmGradRow<T>& row,
                             CellActivation activation,
                             CellActivation recurrent_activation) {
  using V = typename Lanes<T>::Vector;
  ForVectors<T>(units, [&](auto part, int64_t u) {
    V gates[4];
    for (int g = 0; g < 4; ++g) {
      gates[g] = part.Load(row.gates + g * units + u, 0);
    }
    const auto d = LstmStepGradientOf(
        activation, recurrent_activation, gates, part.Load(row.c_before + u, 0),
        part.Load(row.c + u, 0),
        part.Load(row.d_output + u, 0) + part.Load(row.d_h + u, 0),
        part.Load(row.d_c + u, 0));
    for (int g = 0; g < 4; ++g) {
      part.Store(d.d_z[g], row.d_inputs + g * units + u);
    }
    part.Store(V{}, row.d_h + u);
    part.Store(d.d_c, row.d_c + u);
  });
}

}  // namespace

template <typename T>
void LstmStep(const RecurrentSpec& spec, const LstmRow<T>& row) {
  WithActivations(spec, [&](CellActivation activation, CellActivation gates)
                            __attribute__((always_inline)) {
                              Step(spec.units, row, activation, gates);
                            });
}

template <typename T>
void LstmStepGradient(const RecurrentSpec& spec, const LstmGradRow<T>& row) {
  WithActivations(spec, [&](CellActivation activation, CellActivation gates)
                            __attribute__((always_inline)) {
                              StepGradient(spec.units, row, activation, gates);
                            });
}

#define TFO_INSTANTIATE(T)                                                  \
  template void LstmStep(const RecurrentSpec& spec, const LstmRow<T>& row); \
  template void LstmStepGradient(const RecurrentSpec& spec,                 \
                                 const LstmGradRow<T>& row)
TFO_INSTANTIATE(float);
TFO_INSTANTIATE(double);
#undef TFO_INSTANTIATE

}  // namespace TFO_CPU_NAMESPACE
}  // namespace tfo
