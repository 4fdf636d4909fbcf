#include "tensorflow_ops/core/cc/cuda/cuda_launch.h"
#include "tensorflow_ops/nn/cc/kernels/recurrent/gru.h"
#include "tensorflow_ops/nn/cc/kernels/recurrent/gru_step.h"
#include "tensorflow_ops/nn/cc/kernels/recurrent/recurrent_gpu.h"

namespace tfo {
namespace {

// Where the state before step t of example b is.
template <typename T, typename Args>
__device__ const T* StateBefore(const Args& args, const T* outputs, int64_t b,
                                int64_t t, bool has_begun) {
  return has_begun ? outputs + (b * args.steps + t - 1) * args.units
                   : args.h0 + b * args.units;
}

// Step t of all examples; after the last, the states. kGates is 3 or, for
// RunResetStep to do the rest, 2.
template <int kGates, typename T>
__global__ void __launch_bounds__(kThreads)
    RunStep(const __grid_constant__ GruArgs<T> args, int64_t t) {
  const int64_t units = args.units;
  const auto state = [&](int64_t b, bool has_begun) {
    return StateBefore<T>(args, args.outputs, b, t, has_begun);
  };
  const auto finish = [&](int64_t b, int64_t u, bool has_begun, T(&y)[kGates]) {
    const T h = state(b, has_begun)[u];
    if (t == args.steps) {
      args.h[b * units + u] = h;
      return;
    }
    const int64_t row = b * args.steps + t;
    T* const gates = args.gates + row * 3 * units + u;
    T& output = args.outputs[row * units + u];
    T& reset = args.resets[row * units + u];
    if (args.IsMasked(b, t)) {
      output = has_begun ? h : T(0);
      reset = T(0);
      for (int g = 0; g < 3; ++g) gates[g * units] = T(0);
      return;
    }
    T x[kGates];
    for (int g = 0; g < kGates; ++g) {
      const int64_t at = g * units + u;
      x[g] = args.inputs[row * 3 * units + at] + args.bias[at];
      y[g] += args.bias[3 * units + at];
    }
    const T z = scalar::Activate(args.recurrent_activation, x[0] + y[0]);
    const T r = scalar::Activate(args.recurrent_activation, x[1] + y[1]);
    gates[0] = z;
    gates[units] = r;
    if constexpr (kGates == 3) {
      const T g = scalar::Activate(args.activation, x[2] + r * y[2]);
      reset = y[2];
      gates[2 * units] = g;
      output = scalar::GruState(z, g, h);
    } else {
      reset = r * h;
    }
  };
  MultiplyColumns<kGates>(args, t, args.recurrent_kernel, 3 * units,
                          t < args.steps ? units : 0, state, finish);
}

// The third gate and the state of step t without reset_after.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    RunResetStep(const __grid_constant__ GruArgs<T> args, int64_t t) {
  const int64_t units = args.units;
  const auto resets = [&](int64_t b, bool) {
    return args.resets + (b * args.steps + t) * units;
  };
  const auto finish = [&](int64_t b, int64_t u, bool has_begun, T(&y)[1]) {
    if (args.IsMasked(b, t)) return;
    const int64_t row = b * args.steps + t, to_g = 2 * units + u;
    T* const gates = args.gates + row * 3 * units;
    const T x = args.inputs[row * 3 * units + to_g] + args.bias[to_g];
    const T g = gates[to_g] = scalar::Activate(
        args.activation, x + y[0] + args.bias[3 * units + to_g]);
    const T h = StateBefore<T>(args, args.outputs, b, t, has_begun)[u];
    args.outputs[row * units + u] = scalar::GruState(gates[u], g, h);
  };
  MultiplyColumns<1>(args, t, args.recurrent_kernel + 2 * units, 3 * units,
                     units, resets, finish);
}

// The gradient of step t, given that of step t + 1; before the first, that to
// the initial state. Without reset_after, RunResetGradient does the rest.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    RunGradient(const __grid_constant__ GruGradArgs<T> args, int64_t t) {
  const int64_t units = args.units;
  const bool is_last = t + 1 == args.steps;
  const auto row_of = [&](int64_t b) {
    return args.d_recurrent + (b * args.steps + t + 1) * 3 * units;
  };
  const auto finish = [&](int64_t b, int64_t u, bool has_begun, T sum) {
    T& d_h = args.d_h0[b * units + u];
    if (is_last) {
      d_h = args.d_h[b * units + u];
    } else if (!args.IsMasked(b, t + 1)) {
      d_h += sum;
    }
    if (t < 0) return;
    const int64_t row = b * args.steps + t;
    const T d_output = args.d_outputs[row * units + u];
    const T* const gates = args.gates + row * 3 * units + u;
    T* const d_inputs = args.d_inputs + row * 3 * units + u;
    T* const d_recurrent = args.d_recurrent + row * 3 * units + u;
    if (args.IsMasked(b, t)) {
      for (int g = 0; g < 3; ++g) {
        d_inputs[g * units] = d_recurrent[g * units] = T(0);
      }
      // Outputs before the first step are constants.
      if (has_begun) d_h += d_output;
      return;
    }
    const T r = gates[units];
    const auto d = scalar::GruStateGradientOf(
        args.activation, args.recurrent_activation, gates[0], gates[2 * units],
        StateBefore<T>(args, args.outputs, b, t, has_begun)[u], d_output + d_h);
    if (args.reset_after) {
      d_inputs[units] = d_recurrent[units] = scalar::GruResetGradientOf(
          args.recurrent_activation, r, args.resets[row * units + u], d.d_g);
    }
    d_inputs[0] = d_recurrent[0] = d.d_z;
    d_inputs[2 * units] = d.d_g;
    d_recurrent[2 * units] = args.reset_after ? d.d_g * r : d.d_g;
    d_h = d.d_h;
  };
  MultiplyRows(args, t, args.recurrent_kernel, 3 * units,
               is_last ? 0 : (args.reset_after ? 3 : 2) * units, row_of,
               finish);
}

// The gradients of step t to r, and by it to the state before.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    RunResetGradient(const __grid_constant__ GruGradArgs<T> args, int64_t t) {
  const int64_t units = args.units;
  const auto row_of = [&](int64_t b) {
    return args.d_recurrent + ((b * args.steps + t) * 3 + 2) * units;
  };
  const auto finish = [&](int64_t b, int64_t u, bool has_begun, T sum) {
    if (args.IsMasked(b, t)) return;
    const int64_t to_r = ((b * args.steps + t) * 3 + 1) * units + u;
    const T r = args.gates[to_r];
    args.d_inputs[to_r] = args.d_recurrent[to_r] = scalar::GruResetGradientOf(
        args.recurrent_activation, r,
        StateBefore<T>(args, args.outputs, b, t, has_begun)[u], sum);
    args.d_h0[b * units + u] += sum * r;
  };
  MultiplyRows(args, t, args.recurrent_kernel + 2 * units, 3 * units, units,
               row_of, finish);
}

}  // namespace

template <typename T>
Error Gru(const Gpu& gpu, const GruArgs<T>& args) {
  const auto launch = [&](auto kernel, int64_t t) {
    return Launch(gpu, BlocksForColumns<T>(args), kThreads, kernel, args, t);
  };
  Error error = nullptr;
  for (int64_t t = 0; t <= args.steps && error == nullptr; ++t) {
    error = launch(args.reset_after ? RunStep<3, T> : RunStep<2, T>, t);
    if (error == nullptr && t < args.steps && !args.reset_after) {
      error = launch(RunResetStep<T>, t);
    }
  }
  return error;
}

template <typename T>
Error GruGrad(const Gpu& gpu, const GruGradArgs<T>& args) {
  const auto launch = [&](auto kernel, int64_t t) {
    return Launch(gpu, BlocksForRows(args), kThreads, kernel, args, t);
  };
  Error error = nullptr;
  for (int64_t t = args.steps - 1; t >= -1 && error == nullptr; --t) {
    error = launch(RunGradient<T>, t);
    if (error == nullptr && t >= 0 && !args.reset_after) {
      error = launch(RunResetGradient<T>, t);
    }
  }
  return error;
}

TFO_INSTANTIATE_WIDE_ALGORITHM(Gru, Gpu, GruArgs);
TFO_INSTANTIATE_WIDE_ALGORITHM(GruGrad, Gpu, GruGradArgs);

}  // namespace tfo
