// The recurrence on the CPU. A step is a product of the examples' states with
// the recurrent kernel, and a pass over the units; two of each without
// reset_after, which has the candidate's product wait for r.
#include <algorithm>
#include <optional>
#include <vector>

#include "tensorflow_ops/nn/cc/kernels/recurrent/gru.h"
#include "tensorflow_ops/nn/cc/kernels/recurrent/gru_simd.h"
#include "tensorflow_ops/nn/cc/kernels/recurrent/recurrent_cpu.h"

namespace tfo {
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
  const auto step = TFO_DISPATCH(GruStep<T>);
  const auto candidate = TFO_DISPATCH(GruCandidate<T>);
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
    // Calls body(example, its row) for those whose step is not masked.
    const auto for_rows = [&](const auto& body) {
      for (int64_t m = 0; m < examples; ++m) {
        if (args.IsMasked(first + m, t)) continue;
        const int64_t row = row_of(m);
        body(m,
             GruRow<T>{args.inputs + row * 3 * units, args.bias,
                       sums.data() + m * padded,
                       sums_of_g.data() + m * padded_units, h[m],
                       args.gates + row * 3 * units, args.resets + row * units,
                       args.outputs + row * units});
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
    for_rows([&](int64_t, const GruRow<T>& row) { step(args, row); });
    if (!args.reset_after) {
      kernels.of_resets->Multiply(
          examples, [&](int64_t m) { return args.resets + row_of(m) * units; },
          /*add=*/false, tile.data(), sums_of_g.data());
      for_rows([&](int64_t, const GruRow<T>& row) { candidate(args, row); });
    }
    for_rows([&](int64_t m, const GruRow<T>& row) { h[m] = row.h; });
  }
  for (int64_t m = 0; m < examples; ++m) {
    std::copy_n(h[m], units, args.h + (first + m) * units);
  }
}

// The kernels are transposed.
template <typename T>
void RunGradient(const GruGradArgs<T>& args, const GruKernels<T>& kernels,
                 int64_t first, int64_t examples) {
  const auto step = TFO_DISPATCH(GruStepGradient<T>);
  const auto reset = TFO_DISPATCH(GruResetGradient<T>);
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
    const auto for_rows = [&](const auto& body) {
      for (int64_t m = 0; m < examples; ++m) {
        const int64_t example = first + m, row = row_of(m);
        if (args.IsMasked(example, t)) continue;
        body(GruGradRow<T>{
            args.gates + row * 3 * units, args.resets + row * units,
            t > first_step[m] ? args.outputs + (row - 1) * units
                              : args.h0 + example * units,
            args.d_outputs + row * units, d_resets.data() + m * padded,
            d_h.data() + m * padded, args.d_inputs + row * 3 * units,
            args.d_recurrent + row * 3 * units});
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
    for_rows([&](const GruGradRow<T>& row) { step(args, row); });
    if (!args.reset_after) {
      kernels.of_resets->Multiply(examples, from_gate(2), /*add=*/false,
                                  tile.data(), d_resets.data());
      for_rows([&](const GruGradRow<T>& row) { reset(args, row); });
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

TFO_INSTANTIATE_WIDE_ALGORITHM(Gru, Cpu, GruArgs);
TFO_INSTANTIATE_WIDE_ALGORITHM(GruGrad, Cpu, GruGradArgs);

}  // namespace tfo
