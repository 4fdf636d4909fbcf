// A block takes an example through all steps; a thread has units.
#include "tensorflow_ops/core/cc/cuda/cuda_launch.h"
#include "tensorflow_ops/nn/cc/kernels/recurrent/lstm.h"
#include "tensorflow_ops/nn/cc/kernels/recurrent/lstm_step.h"

namespace tfo {
namespace {

constexpr int kThreads = 256;

template <typename T>
__global__ void __launch_bounds__(kThreads)
    RunSteps(const __grid_constant__ LstmArgs<T> args) {
  const int64_t units = args.units;
  for (int64_t b = blockIdx.x; b < args.batch; b += gridDim.x) {
    const T* const h0 = args.h0 + b * units;
    // The states: of the last step that was not masked, or the initial ones.
    const T *h = h0, *c = args.c0 + b * units;
    for (int64_t t = 0; t < args.steps; ++t) {
      const int64_t row = b * args.steps + t;
      const bool is_masked = args.IsMasked(b, t);
      T* const output = args.outputs + row * units;
      T* const cell = args.cells + row * units;
      for (int64_t u = threadIdx.x; u < units; u += kThreads) {
        const int64_t at = row * 4 * units + u;
        if (is_masked) {
          output[u] = h == h0 ? T(0) : h[u];
          cell[u] = c[u];
          for (int g = 0; g < 4; ++g) args.gates[at + g * units] = T(0);
          continue;
        }
        T z[4];
        for (int g = 0; g < 4; ++g) {
          z[g] = args.inputs[at + g * units] + args.bias[g * units + u];
        }
        for (int64_t k = 0; k < units; ++k) {
          const T* const weights = args.recurrent_kernel + k * 4 * units + u;
          for (int g = 0; g < 4; ++g) z[g] += h[k] * weights[g * units];
        }
        const auto step = scalar::LstmStepOf(
            args.activation, args.recurrent_activation, z, c[u]);
        for (int g = 0; g < 4; ++g) {
          args.gates[at + g * units] = step.gates[g];
        }
        cell[u] = step.c;
        output[u] = step.h;
      }
      if (!is_masked) {
        h = output;
        c = cell;
      }
      __syncthreads();
    }
    for (int64_t u = threadIdx.x; u < units; u += kThreads) {
      args.h[b * units + u] = h[u];
      args.c[b * units + u] = c[u];
    }
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    RunGradient(const __grid_constant__ LstmGradArgs<T> args) {
  const int64_t units = args.units;
  for (int64_t b = blockIdx.x; b < args.batch; b += gridDim.x) {
    T *const d_h = args.d_h0 + b * units, *const d_c = args.d_c0 + b * units;
    for (int64_t u = threadIdx.x; u < units; u += kThreads) {
      d_h[u] = args.d_h[b * units + u];
      d_c[u] = args.d_c[b * units + u];
    }
    // Outputs before the first step are constants.
    const int64_t first_step = args.FirstStep(b);
    for (int64_t t = args.steps - 1; t >= 0; --t) {
      const int64_t row = b * args.steps + t;
      const bool is_masked = args.IsMasked(b, t);
      const T* const d_output = args.d_outputs + row * units;
      T* const d_inputs = args.d_inputs + row * 4 * units;
      for (int64_t u = threadIdx.x; u < units; u += kThreads) {
        if (is_masked) {
          for (int g = 0; g < 4; ++g) d_inputs[g * units + u] = T(0);
          if (t > first_step) d_h[u] += d_output[u];
          continue;
        }
        const T* const cell = args.cells + row * units;
        const T* const c_before = t == 0 ? args.c0 + b * units : cell - units;
        T gates[4];
        for (int g = 0; g < 4; ++g) {
          gates[g] = args.gates[row * 4 * units + g * units + u];
        }
        const auto d = scalar::LstmStepGradientOf(
            args.activation, args.recurrent_activation, gates, c_before[u],
            cell[u], d_output[u] + d_h[u], d_c[u]);
        for (int g = 0; g < 4; ++g) d_inputs[g * units + u] = d.d_z[g];
        d_c[u] = d.d_c;
      }
      if (is_masked) continue;
      __syncthreads();
      for (int64_t u = threadIdx.x; u < units; u += kThreads) {
        const T* const weights = args.recurrent_kernel + u * 4 * units;
        T sum = 0;
        for (int64_t k = 0; k < 4 * units; ++k) sum += d_inputs[k] * weights[k];
        d_h[u] = sum;
      }
    }
  }
}

}  // namespace

template <typename T>
Error Lstm(const Gpu& gpu, const LstmArgs<T>& args) {
  return Launch(gpu, GridSize(args.batch), kThreads, RunSteps<T>, args);
}

template <typename T>
Error LstmGrad(const Gpu& gpu, const LstmGradArgs<T>& args) {
  return Launch(gpu, GridSize(args.batch), kThreads, RunGradient<T>, args);
}

TFO_INSTANTIATE_WIDE_ALGORITHM(Lstm, Gpu, LstmArgs);
TFO_INSTANTIATE_WIDE_ALGORITHM(LstmGrad, Gpu, LstmGradArgs);

}  // namespace tfo
