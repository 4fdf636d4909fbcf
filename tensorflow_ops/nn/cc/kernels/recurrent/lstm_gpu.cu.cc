#include "tensorflow_ops/core/cc/cuda/cuda_launch.h"
#include "tensorflow_ops/nn/cc/kernels/recurrent/lstm.h"
#include "tensorflow_ops/nn/cc/kernels/recurrent/lstm_step.h"
#include "tensorflow_ops/nn/cc/kernels/recurrent/recurrent_gpu.h"

namespace tfo {
namespace {

// Step t of all examples; after the last, the states.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    RunStep(const __grid_constant__ LstmArgs<T> args, int64_t t) {
  const int64_t units = args.units;
  const auto state = [&](int64_t b, bool has_begun) {
    return has_begun ? args.outputs + (b * args.steps + t - 1) * units
                     : args.h0 + b * units;
  };
  const auto finish = [&](int64_t b, int64_t u, bool has_begun, T(&z)[4]) {
    const int64_t row = b * args.steps + t, at = row * 4 * units + u;
    const T h = state(b, has_begun)[u];
    const T c =
        t > 0 ? args.cells[(row - 1) * units + u] : args.c0[b * units + u];
    if (t == args.steps) {
      args.h[b * units + u] = h;
      args.c[b * units + u] = c;
      return;
    }
    T& output = args.outputs[row * units + u];
    T& cell = args.cells[row * units + u];
    if (args.IsMasked(b, t)) {
      output = has_begun ? h : T(0);
      cell = c;
      for (int g = 0; g < 4; ++g) args.gates[at + g * units] = T(0);
      return;
    }
    for (int g = 0; g < 4; ++g) {
      z[g] += args.inputs[at + g * units] + args.bias[g * units + u];
    }
    const auto step =
        scalar::LstmStepOf(args.activation, args.recurrent_activation, z, c);
    for (int g = 0; g < 4; ++g) args.gates[at + g * units] = step.gates[g];
    cell = step.c;
    output = step.h;
  };
  MultiplyColumns<4>(args, t, args.recurrent_kernel, 4 * units,
                     t < args.steps ? units : 0, state, finish);
}

// The gradient of step t, given that of step t + 1; before the first, that to
// the initial states.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    RunGradient(const __grid_constant__ LstmGradArgs<T> args, int64_t t) {
  const int64_t units = args.units;
  const bool is_last = t + 1 == args.steps;
  const auto row_of = [&](int64_t b) {
    return args.d_inputs + (b * args.steps + t + 1) * 4 * units;
  };
  const auto finish = [&](int64_t b, int64_t u, bool has_begun, T sum) {
    const int64_t state = b * units + u;
    T& d_h = args.d_h0[state];
    T& d_c = args.d_c0[state];
    if (is_last) {
      d_h = args.d_h[state];
      d_c = args.d_c[state];
    } else if (!args.IsMasked(b, t + 1)) {
      d_h = sum;
    }
    if (t < 0) return;
    const int64_t row = b * args.steps + t, at = row * units + u;
    T* const d_inputs = args.d_inputs + row * 4 * units + u;
    if (args.IsMasked(b, t)) {
      for (int g = 0; g < 4; ++g) d_inputs[g * units] = T(0);
      // Outputs before the first step are constants.
      if (has_begun) d_h += args.d_outputs[at];
      return;
    }
    T gates[4];
    for (int g = 0; g < 4; ++g) {
      gates[g] = args.gates[row * 4 * units + g * units + u];
    }
    const auto d = scalar::LstmStepGradientOf(
        args.activation, args.recurrent_activation, gates,
        t > 0 ? args.cells[at - units] : args.c0[state], args.cells[at],
        args.d_outputs[at] + d_h, d_c);
    for (int g = 0; g < 4; ++g) d_inputs[g * units] = d.d_z[g];
    d_c = d.d_c;
  };
  MultiplyRows(args, t, args.recurrent_kernel, 4 * units,
               is_last ? 0 : 4 * units, row_of, finish);
}

}  // namespace

template <typename T>
Error Lstm(const Gpu& gpu, const LstmArgs<T>& args) {
  Error error = nullptr;
  for (int64_t t = 0; t <= args.steps && error == nullptr; ++t) {
    error =
        Launch(gpu, BlocksForColumns<T>(args), kThreads, RunStep<T>, args, t);
  }
  return error;
}

template <typename T>
Error LstmGrad(const Gpu& gpu, const LstmGradArgs<T>& args) {
  Error error = nullptr;
  for (int64_t t = args.steps - 1; t >= -1 && error == nullptr; --t) {
    error = Launch(gpu, BlocksForRows(args), kThreads, RunGradient<T>, args, t);
  }
  return error;
}

TFO_INSTANTIATE_WIDE_ALGORITHM(Lstm, Gpu, LstmArgs);
TFO_INSTANTIATE_WIDE_ALGORITHM(LstmGrad, Gpu, LstmGradArgs);

}  // namespace tfo
