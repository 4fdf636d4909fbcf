// The recurrence on the CPU. A step is a product of the examples' states with
// the recurrent kernel, and a pass over the units; two of each without
// reset_after, which has the candidate's product wait for r.
#include <algorithm>
#include <optional>
#include <vector>

#include "tensorflow_ops/nn/cc/kernels/recurrent/gru.h"
#include "tensorflow_ops/nn/cc/kernels/recurrent/gru_step.h"
#include "tensorflow_ops/nn/cc/kernels/recurrent/recurrent_simd.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {
namespace {

// The recurrent kernel of all gates; without reset_after, of z and r, and of g.
template <typename T>
struct GruKernels {
  GruKernels(const Cpu& cpu, const GruSpec& spec, const T* kernel,
             bool transposed) {
    const int64_t units = spec.units;
    const auto pack = [&](int64_t first, int64_t gates,
                          std::optional<PackedMatrix<T>>* packed) {
      if (transposed) {
        packed->emplace(cpu, kernel + first * units, 1, 3 * units,
                        gates * units, units);
      } else {
        packed->emplace(cpu, kernel + first * units, 3 * units, 1, units,
                        gates * units);
      }
    };
    pack(0, spec.reset_after ? 3 : 2, &of_state);
    if (!spec.reset_after) pack(2, 1, &of_resets);
  }
  std::optional<PackedMatrix<T>> of_state, of_resets;
};

template <typename T>
void RunSteps(const GruArgs<T>& args, const GruKernels<T>& kernels,
              int64_t first, int64_t examples) {
  using V = typename Lanes<T>::Vector;
  const int64_t units = args.units;
  const int64_t padded = kernels.of_state->padded_columns();
  const int64_t padded_units =
      args.reset_after ? 0 : kernels.of_resets->padded_columns();
  const Buffer<T> tile(examples * kGemmStride), sums(examples * padded),
      sums_of_g(examples * padded_units);
  // The states: of the last step that was not masked, or the initial ones.
  std::vector<const T*> h(examples);
  for (int64_t m = 0; m < examples; ++m) h[m] = args.h0 + (first + m) * units;
  for (int64_t t = 0; t < args.steps; ++t) {
    const auto row_of = [&](int64_t m) { return (first + m) * args.steps + t; };
    // Calls body(m, row) for the examples whose step is not masked.
    const auto for_rows = [&](const auto& body) {
      for (int64_t m = 0; m < examples; ++m) {
        if (!args.IsMasked(first + m, t)) body(m, row_of(m));
      }
    };
    kernels.of_state->Multiply(
        examples, [&](int64_t m) { return h[m]; }, /*add=*/false, tile.data(),
        sums.data());
    for (int64_t m = 0; m < examples; ++m) {
      if (!args.IsMasked(first + m, t)) continue;
      const int64_t row = row_of(m);
      RepeatOutput(h[m], h[m] != args.h0 + (first + m) * units, units,
                   args.outputs + row * units);
      std::fill_n(args.resets + row * units, units, T(0));
      std::fill_n(args.gates + row * 3 * units, 3 * units, T(0));
    }
    for_rows([&](int64_t m, int64_t row) {
      const T* const inputs = args.inputs + row * 3 * units;
      const T* const sums_of_m = sums.data() + m * padded;
      const T* const h_before = h[m];
      T* const gates = args.gates + row * 3 * units;
      T* const resets = args.resets + row * units;
      T* const output = args.outputs + row * units;
      WithActivations(args, [&](auto activation, auto recurrent_activation) {
        ForVectors<T>(units, [&](auto part, int64_t u) {
          const auto x = [&](int gate) {
            const int64_t at = gate * units + u;
            return part.Load(inputs + at, 0) + part.Load(args.bias + at, 0);
          };
          const auto y = [&](int gate) {
            const int64_t at = gate * units + u;
            return part.Load(sums_of_m + at, 0) +
                   part.Load(args.bias + 3 * units + at, 0);
          };
          const V state = part.Load(h_before + u, 0);
          const V z = Activate(recurrent_activation, x(0) + y(0));
          const V r = Activate(recurrent_activation, x(1) + y(1));
          part.Store(z, gates + u);
          part.Store(r, gates + units + u);
          if (!args.reset_after) {
            part.Store(r * state, resets + u);
            return;
          }
          const V y_of_g = y(2);
          const V g = Activate(activation, MulAdd(r, y_of_g, x(2)));
          part.Store(g, gates + 2 * units + u);
          part.Store(y_of_g, resets + u);
          part.Store(GruState(z, g, state), output + u);
        });
      });
    });
    if (!args.reset_after) {
      kernels.of_resets->Multiply(
          examples, [&](int64_t m) { return args.resets + row_of(m) * units; },
          /*add=*/false, tile.data(), sums_of_g.data());
      for_rows([&](int64_t m, int64_t row) {
        const T* const inputs = args.inputs + (3 * row + 2) * units;
        const T* const bias = args.bias + 2 * units;
        const T* const sums_of_m = sums_of_g.data() + m * padded_units;
        const T* const h_before = h[m];
        T* const gates = args.gates + row * 3 * units;
        T* const output = args.outputs + row * units;
        WithActivations(args, [&](auto activation, auto) {
          ForVectors<T>(units, [&](auto part, int64_t u) {
            const V x = part.Load(inputs + u, 0) + part.Load(bias + u, 0);
            const V y = part.Load(sums_of_m + u, 0) +
                        part.Load(bias + 3 * units + u, 0);
            const V g = Activate(activation, x + y);
            part.Store(g, gates + 2 * units + u);
            part.Store(GruState(part.Load(gates + u, 0), g,
                                part.Load(h_before + u, 0)),
                       output + u);
          });
        });
      });
    }
    for_rows(
        [&](int64_t m, int64_t row) { h[m] = args.outputs + row * units; });
  }
  for (int64_t m = 0; m < examples; ++m) {
    std::copy_n(h[m], units, args.h + (first + m) * units);
  }
}

// The kernels are transposed.
template <typename T>
void RunGradient(const GruGradArgs<T>& args, const GruKernels<T>& kernels,
                 int64_t first, int64_t examples) {
  const int64_t units = args.units;
  const int64_t padded = kernels.of_state->padded_columns();
  const Buffer<T> tile(examples * kGemmStride), d_h(examples * padded),
      d_resets(args.reset_after ? 0 : examples * padded);
  std::fill_n(d_h.data(), examples * padded, T(0));
  std::vector<int64_t> first_step(examples);
  for (int64_t m = 0; m < examples; ++m) {
    std::copy_n(args.d_h + (first + m) * units, units, d_h.data() + m * padded);
    first_step[m] = args.FirstStep(first + m);
  }
  for (int64_t t = args.steps - 1; t >= 0; --t) {
    const auto row_of = [&](int64_t m) { return (first + m) * args.steps + t; };
    // The gradient of the recurrent products, from a gate.
    const auto from_gate = [&](int64_t gate) {
      return [&, gate](int64_t m) {
        return args.d_recurrent + (3 * row_of(m) + gate) * units;
      };
    };
    // Calls body(m, row, h_before) for the examples whose step is not masked.
    const auto for_rows = [&](const auto& body) {
      for (int64_t m = 0; m < examples; ++m) {
        if (args.IsMasked(first + m, t)) continue;
        const int64_t row = row_of(m);
        body(m, row,
             t > first_step[m] ? args.outputs + (row - 1) * units
                               : args.h0 + (first + m) * units);
      }
    };
    for (int64_t m = 0; m < examples; ++m) {
      if (!args.IsMasked(first + m, t)) continue;
      const int64_t row = row_of(m);
      std::fill_n(args.d_inputs + row * 3 * units, 3 * units, T(0));
      std::fill_n(args.d_recurrent + row * 3 * units, 3 * units, T(0));
      // Outputs before the first step are constants.
      for (int64_t u = 0; t > first_step[m] && u < units; ++u) {
        d_h.data()[m * padded + u] += args.d_outputs[row * units + u];
      }
    }
    for_rows([&](int64_t m, int64_t row, const T* h_before) {
      const T* const gates = args.gates + row * 3 * units;
      const T* const resets = args.resets + row * units;
      const T* const d_output = args.d_outputs + row * units;
      T* const d_state = d_h.data() + m * padded;
      T* const d_inputs = args.d_inputs + row * 3 * units;
      T* const d_recurrent = args.d_recurrent + row * 3 * units;
      WithActivations(args, [&](auto activation, auto recurrent_activation) {
        ForVectors<T>(units, [&](auto part, int64_t u) {
          const auto r = part.Load(gates + units + u, 0);
          const auto d = GruStateGradientOf(
              activation, recurrent_activation, part.Load(gates + u, 0),
              part.Load(gates + 2 * units + u, 0), part.Load(h_before + u, 0),
              part.Load(d_output + u, 0) + part.Load(d_state + u, 0));
          part.Store(d.d_h, d_state + u);
          if (args.reset_after) {
            const auto d_r = GruResetGradientOf(
                recurrent_activation, r, part.Load(resets + u, 0), d.d_g);
            part.Store(d_r, d_inputs + units + u);
            part.Store(d_r, d_recurrent + units + u);
          }
          part.Store(d.d_z, d_inputs + u);
          part.Store(d.d_z, d_recurrent + u);
          part.Store(d.d_g, d_inputs + 2 * units + u);
          part.Store(args.reset_after ? d.d_g * r : d.d_g,
                     d_recurrent + 2 * units + u);
        });
      });
    });
    if (!args.reset_after) {
      kernels.of_resets->Multiply(examples, from_gate(2), /*add=*/false,
                                  tile.data(), d_resets.data());
      for_rows([&](int64_t m, int64_t row, const T* h_before) {
        const T* const gate = args.gates + (3 * row + 1) * units;
        const T* const d_resets_of_m = d_resets.data() + m * padded;
        T* const d_state = d_h.data() + m * padded;
        T* const d_inputs = args.d_inputs + (3 * row + 1) * units;
        T* const d_recurrent = args.d_recurrent + (3 * row + 1) * units;
        WithActivations(args, [&](auto, auto recurrent_activation) {
          ForVectors<T>(units, [&](auto part, int64_t u) {
            const auto r = part.Load(gate + u, 0);
            const auto d = part.Load(d_resets_of_m + u, 0);
            const auto d_r = GruResetGradientOf(recurrent_activation, r,
                                                part.Load(h_before + u, 0), d);
            part.Store(d_r, d_inputs + u);
            part.Store(d_r, d_recurrent + u);
            part.Store(MulAdd(d, r, part.Load(d_state + u, 0)), d_state + u);
          });
        });
      });
    }
    kernels.of_state->Multiply(examples, from_gate(0), /*add=*/true,
                               tile.data(), d_h.data());
  }
  for (int64_t m = 0; m < examples; ++m) {
    std::copy_n(d_h.data() + m * padded, units,
                args.d_h0 + (first + m) * units);
  }
}

}  // namespace

template <typename T>
Error Gru(const Cpu& cpu, const GruArgs<T>& args) {
  if (args.batch * args.units == 0) return nullptr;
  const GruKernels<T> kernels(cpu, args, args.recurrent_kernel,
                              /*transposed=*/false);
  ForExamples(cpu, args, [&](int64_t first, int64_t examples) {
    RunSteps(args, kernels, first, examples);
  });
  return nullptr;
}

template <typename T>
Error GruGrad(const Cpu& cpu, const GruGradArgs<T>& args) {
  if (args.batch * args.units == 0) return nullptr;
  const GruKernels<T> kernels(cpu, args, args.recurrent_kernel,
                              /*transposed=*/true);
  ForExamples(cpu, args, [&](int64_t first, int64_t examples) {
    RunGradient(args, kernels, first, examples);
  });
  return nullptr;
}

}  // namespace TFO_CPU_NAMESPACE

TFO_INSTANTIATE_WIDE_ALGORITHM_PER_LEVEL(Gru, GruArgs);
TFO_INSTANTIATE_WIDE_ALGORITHM_PER_LEVEL(GruGrad, GruGradArgs);

}  // namespace tfo
