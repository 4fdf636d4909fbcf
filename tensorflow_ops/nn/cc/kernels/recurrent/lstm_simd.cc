// The recurrence on the CPU. A step is a product of the examples' states with
// the recurrent kernel, and a pass over the units.
#include <algorithm>
#include <vector>

#include "tensorflow_ops/nn/cc/kernels/recurrent/lstm.h"
#include "tensorflow_ops/nn/cc/kernels/recurrent/lstm_step.h"
#include "tensorflow_ops/nn/cc/kernels/recurrent/recurrent_simd.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {
namespace {

template <typename T>
void RunSteps(const LstmArgs<T>& args, const PackedMatrix<T>& kernel,
              int64_t first, int64_t examples) {
  using V = typename Lanes<T>::Vector;
  const int64_t units = args.units, padded = kernel.padded_columns();
  const Buffer<T> tile(examples * kGemmStride), sums(examples * padded);
  // The states: of the last step that was not masked, or the initial ones.
  std::vector<const T*> h(examples), c(examples);
  for (int64_t m = 0; m < examples; ++m) {
    h[m] = args.h0 + (first + m) * units;
    c[m] = args.c0 + (first + m) * units;
  }
  for (int64_t t = 0; t < args.steps; ++t) {
    kernel.Multiply(
        examples, [&](int64_t m) { return h[m]; }, /*add=*/false, tile.data(),
        sums.data());
    for (int64_t m = 0; m < examples; ++m) {
      const int64_t row = (first + m) * args.steps + t;
      T* const output = args.outputs + row * units;
      T* const cell = args.cells + row * units;
      T* const gates = args.gates + row * 4 * units;
      if (args.IsMasked(first + m, t)) {
        RepeatOutput(h[m], h[m] != args.h0 + (first + m) * units, units,
                     output);
        std::copy_n(c[m], units, cell);
        std::fill_n(gates, 4 * units, T(0));
        continue;
      }
      const T* const inputs = args.inputs + row * 4 * units;
      const T* const sums_of_m = sums.data() + m * padded;
      const T* const cell_before = c[m];
      WithActivations(args, [&](auto activation, auto recurrent_activation) {
        ForVectors<T>(units, [&](auto part, int64_t u) {
          V z[4];
          for (int g = 0; g < 4; ++g) {
            const int64_t at = g * units + u;
            z[g] = part.Load(inputs + at, 0) + part.Load(args.bias + at, 0) +
                   part.Load(sums_of_m + at, 0);
          }
          const auto step = LstmStepOf(activation, recurrent_activation, z,
                                       part.Load(cell_before + u, 0));
          for (int g = 0; g < 4; ++g) {
            part.Store(step.gates[g], gates + g * units + u);
          }
          part.Store(step.c, cell + u);
          part.Store(step.h, output + u);
        });
      });
      h[m] = output;
      c[m] = cell;
    }
  }
  for (int64_t m = 0; m < examples; ++m) {
    std::copy_n(h[m], units, args.h + (first + m) * units);
    std::copy_n(c[m], units, args.c + (first + m) * units);
  }
}

// `kernel` is transposed.
template <typename T>
void RunGradient(const LstmGradArgs<T>& args, const PackedMatrix<T>& kernel,
                 int64_t first, int64_t examples) {
  using V = typename Lanes<T>::Vector;
  const int64_t units = args.units, padded = kernel.padded_columns();
  const Buffer<T> tile(examples * kGemmStride), d_h(examples * padded);
  std::fill_n(d_h.data(), examples * padded, T(0));
  std::copy_n(args.d_c + first * units, examples * units,
              args.d_c0 + first * units);
  // Outputs before the first step are constants.
  std::vector<int64_t> first_step(examples);
  for (int64_t m = 0; m < examples; ++m) {
    std::copy_n(args.d_h + (first + m) * units, units, d_h.data() + m * padded);
    first_step[m] = args.FirstStep(first + m);
  }
  for (int64_t t = args.steps - 1; t >= 0; --t) {
    for (int64_t m = 0; m < examples; ++m) {
      const int64_t example = first + m, row = example * args.steps + t;
      const T* const d_output = args.d_outputs + row * units;
      T* const d_state = d_h.data() + m * padded;
      T* const d_inputs = args.d_inputs + row * 4 * units;
      if (args.IsMasked(example, t)) {
        std::fill_n(d_inputs, 4 * units, T(0));
        for (int64_t u = 0; t > first_step[m] && u < units; ++u) {
          d_state[u] += d_output[u];
        }
        continue;
      }
      const T* const all_gates = args.gates + row * 4 * units;
      const T* const cell = args.cells + row * units;
      const T* const cell_before =
          t == 0 ? args.c0 + example * units : cell - units;
      T* const d_cell = args.d_c0 + example * units;
      WithActivations(args, [&](auto activation, auto recurrent_activation) {
        ForVectors<T>(units, [&](auto part, int64_t u) {
          V gates[4];
          for (int g = 0; g < 4; ++g) {
            gates[g] = part.Load(all_gates + g * units + u, 0);
          }
          const auto d = LstmStepGradientOf(
              activation, recurrent_activation, gates,
              part.Load(cell_before + u, 0), part.Load(cell + u, 0),
              part.Load(d_output + u, 0) + part.Load(d_state + u, 0),
              part.Load(d_cell + u, 0));
          for (int g = 0; g < 4; ++g) {
            part.Store(d.d_z[g], d_inputs + g * units + u);
          }
          part.Store(V{}, d_state + u);
          part.Store(d.d_c, d_cell + u);
        });
      });
    }
    kernel.Multiply(
        examples,
        [&](int64_t m) {
          return args.d_inputs + ((first + m) * args.steps + t) * 4 * units;
        },
        /*add=*/true, tile.data(), d_h.data());
  }
  for (int64_t m = 0; m < examples; ++m) {
    std::copy_n(d_h.data() + m * padded, units,
                args.d_h0 + (first + m) * units);
  }
}

}  // namespace

template <typename T>
Error Lstm(const Cpu& cpu, const LstmArgs<T>& args) {
  if (args.batch * args.units == 0) return nullptr;
  const PackedMatrix<T> kernel(cpu, args.recurrent_kernel, 4 * args.units, 1,
                               args.units, 4 * args.units);
  ForExamples(cpu, args, [&](int64_t first, int64_t examples) {
    RunSteps(args, kernel, first, examples);
  });
  return nullptr;
}

template <typename T>
Error LstmGrad(const Cpu& cpu, const LstmGradArgs<T>& args) {
  if (args.batch * args.units == 0) return nullptr;
  const PackedMatrix<T> kernel(cpu, args.recurrent_kernel, 1, 4 * args.units,
                               4 * args.units, args.units);
  ForExamples(cpu, args, [&](int64_t first, int64_t examples) {
    RunGradient(args, kernel, first, examples);
  });
  return nullptr;
}

}  // namespace TFO_CPU_NAMESPACE

TFO_INSTANTIATE_WIDE_ALGORITHM_PER_LEVEL(Lstm, LstmArgs);
TFO_INSTANTIATE_WIDE_ALGORITHM_PER_LEVEL(LstmGrad, LstmGradArgs);

}  // namespace tfo
