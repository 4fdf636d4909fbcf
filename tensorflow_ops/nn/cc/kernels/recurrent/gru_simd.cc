#include "tensorflow_ops/nn/cc/kernels/recurrent/gru_simd.h"

#include "tensorflow_ops/core/cc/simd.h"
#include "tensorflow_ops/nn/cc/kernels/recurrent/gru_step.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {
namespace {

template <bool kResetAfter, typename T>
TFO_INLINE void Step(int64_t units, const GruRow<T>& row,
                     CellActivation activation,
                     CellActivation recurrent_activation) {
  using V = typename Lanes<T>::Vector;
  ForVectors<T>(units, [&](auto part, int64_t u) {
    V x[3], y[3];
    for (int g = 0; g < (kResetAfter ? 3 : 2); ++g) {
      const int64_t at = g * units + u;
      x[g] = part.Load(row.inputs + at, 0) + part.Load(row.bias + at, 0);
      y[g] =
          part.Load(row.sums + at, 0) + part.Load(row.bias + 3 * units + at, 0);
    }
    const V h = part.Load(row.h_before + u, 0);
    const V z = Activate(recurrent_activation, x[0] + y[0]);
    const V r = Activate(recurrent_activation, x[1] + y[1]);
    part.Store(z, row.gates + u);
    part.Store(r, row.gates + units + u);
    if constexpr (kResetAfter) {
      const V g = Activate(activation, MulAdd(r, y[2], x[2]));
      part.Store(g, row.gates + 2 * units + u);
      part.Store(y[2], row.resets + u);
      part.Store(GruState(z, g, h), row.h + u);
    } else {
      part.Store(r * h, row.resets + u);
    }
  });
}

template <typename T>
TFO_INLINE void Candidate(int64_t units, const GruRow<T>& row,
                          CellActivation activation) {
  ForVectors<T>(units, [&](auto part, int64_t u) {
    const int64_t at = 2 * units + u;
    const auto x = part.Load(row.inputs + at, 0) + part.Load(row.bias + at, 0);
    const auto y = part.Load(row.sums_of_g + u, 0) +
                   part.Load(row.bias + 3 * units + at, 0);
    const auto g = Activate(activation, x + y);
    part.Store(g, row.gates + at);
    part.Store(GruState(part.Load(row.gates + u, 0), g,
                        part.Load(row.h_before + u, 0)),
               row.h + u);
  });
}

template <bool kResetAfter, typename T>
TFO_INLINE void StepGradient(int64_t units, const GruGradRow<T>& row,
                             CellActivation activation,
                             CellActivation recurrent_activation) {
  ForVectors<T>(units, [&](auto part, int64_t u) {
    const auto r = part.Load(row.gates + units + u, 0);
    const auto d = GruStateGradientOf(
        activation, recurrent_activation, part.Load(row.gates + u, 0),
        part.Load(row.gates + 2 * units + u, 0), part.Load(row.h_before + u, 0),
        part.Load(row.d_output + u, 0) + part.Load(row.d_h + u, 0));
    part.Store(d.d_h, row.d_h + u);
    if constexpr (kResetAfter) {
      const auto d_r = GruResetGradientOf(recurrent_activation, r,
                                          part.Load(row.resets + u, 0), d.d_g);
      part.Store(d_r, row.d_inputs + units + u);
      part.Store(d_r, row.d_recurrent + units + u);
    }
    part.Store(d.d_z, row.d_inputs + u);
    part.Store(d.d_z, row.d_recurrent + u);
    part.Store(d.d_g, row.d_inputs + 2 * units + u);
    part.Store(kResetAfter ? d.d_g * r : d.d_g,
               row.d_recurrent + 2 * units + u);
  });
}

template <typename T>
TFO_INLINE void ResetGradient(int64_t units, const GruGradRow<T>& row,
                              CellActivation recurrent_activation) {
  ForVectors<T>(units, [&](auto part, int64_t u) {
    const auto r = part.Load(row.gates + units + u, 0);
    const auto d = part.Load(row.d_resets + u, 0);
    const auto d_r = GruResetGradientOf(recurrent_activation, r,
                                        part.Load(row.h_before + u, 0), d);
    part.Store(d_r, row.d_inputs + units + u);
    part.Store(d_r, row.d_recurrent + units + u);
    part.Store(MulAdd(d, r, part.Load(row.d_h + u, 0)), row.d_h + u);
  });
}

}  // namespace

template <typename T>
void GruStep(const GruSpec& spec, const GruRow<T>& row) {
  WithActivations(spec, [&](CellActivation activation, CellActivation gates)
                            __attribute__((always_inline)) {
                              if (spec.reset_after) {
                                Step<true>(spec.units, row, activation, gates);
                              } else {
                                Step<false>(spec.units, row, activation, gates);
                              }
                            });
}

template <typename T>
void GruCandidate(const GruSpec& spec, const GruRow<T>& row) {
  WithActivations(spec, [&](CellActivation activation, CellActivation)
                            __attribute__((always_inline)) {
                              Candidate(spec.units, row, activation);
                            });
}

template <typename T>
void GruStepGradient(const GruSpec& spec, const GruGradRow<T>& row) {
  WithActivations(
      spec, [&](CellActivation activation, CellActivation gates)
                __attribute__((always_inline)) {
                  if (spec.reset_after) {
                    StepGradient<true>(spec.units, row, activation, gates);
                  } else {
                    StepGradient<false>(spec.units, row, activation, gates);
                  }
                });
}

template <typename T>
void GruResetGradient(const GruSpec& spec, const GruGradRow<T>& row) {
  WithActivations(spec, [&](CellActivation, CellActivation gates)
                            __attribute__((always_inline)) {
                              ResetGradient(spec.units, row, gates);
                            });
}

#define TFO_INSTANTIATE(T)                                               \
  template void GruStep(const GruSpec& spec, const GruRow<T>& row);      \
  template void GruCandidate(const GruSpec& spec, const GruRow<T>& row); \
  template void GruStepGradient(const GruSpec& spec,                     \
                                const GruGradRow<T>& row);               \
  template void GruResetGradient(const GruSpec& spec, const GruGradRow<T>& row)
TFO_INSTANTIATE(float);
TFO_INSTANTIATE(double);
#undef TFO_INSTANTIATE

}  // namespace TFO_CPU_NAMESPACE
}  // namespace tfo
