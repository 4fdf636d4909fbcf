// The recurrence on the CPU. A step is a product of the examples' states with
// the recurrent kernel, and a pass over the units.
#include <algorithm>
#include <vector>

#include "tensorflow_ops/nn/cc/kernels/recurrent/lstm.h"
#include "tensorflow_ops/nn/cc/kernels/recurrent/lstm_simd.h"
#include "tensorflow_ops/nn/cc/kernels/recurrent/recurrent_cpu.h"

namespace tfo {
namespace {

template <typename T>
void RunSteps(const LstmArgs<T>& args, const PackedMatrix<T>& kernel,
              int64_t first, int64_t examples) {
  const auto step = TFO_DISPATCH(LstmStep<T>);
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
      step(args, {args.inputs + row * 4 * units, args.bias,
                  sums.data() + m * padded, c[m], gates, cell, output});
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
  const auto step = TFO_DISPATCH(LstmStepGradient<T>);
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
      const T* const cell = args.cells + row * units;
      step(args, {args.gates + row * 4 * units,
                  t == 0 ? args.c0 + example * units : cell - units, cell,
                  d_output, d_state, args.d_c0 + example * units, d_inputs});
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

TFO_INSTANTIATE_WIDE_ALGORITHM(Lstm, Cpu, LstmArgs);
TFO_INSTANTIATE_WIDE_ALGORITHM(LstmGrad, Cpu, LstmGradArgs);

}  // namespace tfo
