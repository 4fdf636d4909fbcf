// A block takes an example through all steps; a thread has units.
#include "tensorflow_ops/core/cc/cuda/cuda_launch.h"
#include "tensorflow_ops/nn/cc/kernels/recurrent/gru.h"
#include "tensorflow_ops/nn/cc/kernels/recurrent/gru_step.h"

namespace tfo {
namespace {

constexpr int kThreads = 256;

// The product of x [units] and the recurrent kernel's column.
template <typename T>
__device__ T Dot(const T* x, const T* kernel, int64_t units, int64_t column) {
  T sum = 0;
  for (int64_t k = 0; k < units; ++k) {
    sum += x[k] * kernel[k * 3 * units + column];
  }
  return sum;
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    RunSteps(const __grid_constant__ GruArgs<T> args) {
  using scalar::Activate;
  const int64_t units = args.units;
  for (int64_t b = blockIdx.x; b < args.batch; b += gridDim.x) {
    const T* const h0 = args.h0 + b * units;
    // The state: of the last step that was not masked, or the initial one.
    const T* h = h0;
    for (int64_t t = 0; t < args.steps; ++t) {
      const int64_t row = b * args.steps + t;
      T* const output = args.outputs + row * units;
      T* const resets = args.resets + row * units;
      T* const gates = args.gates + row * 3 * units;
      if (args.IsMasked(b, t)) {
        for (int64_t u = threadIdx.x; u < units; u += kThreads) {
          output[u] = h == h0 ? T(0) : h[u];
          resets[u] = T(0);
          for (int g = 0; g < 3; ++g) gates[g * units + u] = T(0);
        }
        continue;
      }
      const auto x = [&](int64_t at) {
        return args.inputs[row * 3 * units + at] + args.bias[at];
      };
      const auto y = [&](const T* of, int64_t at) {
        return Dot(of, args.recurrent_kernel, units, at) +
               args.bias[3 * units + at];
      };
      for (int64_t u = threadIdx.x; u < units; u += kThreads) {
        const int64_t to_r = units + u, to_g = 2 * units + u;
        const T z = Activate(args.recurrent_activation, x(u) + y(h, u));
        const T r = Activate(args.recurrent_activation, x(to_r) + y(h, to_r));
        gates[u] = z;
        gates[to_r] = r;
        if (args.reset_after) {
          resets[u] = y(h, to_g);
          const T g = Activate(args.activation, x(to_g) + r * resets[u]);
          gates[to_g] = g;
          output[u] = scalar::GruState(z, g, h[u]);
        } else {
          resets[u] = r * h[u];
        }
      }
      __syncthreads();
      if (!args.reset_after) {
        for (int64_t u = threadIdx.x; u < units; u += kThreads) {
          const int64_t to_g = 2 * units + u;
          const T g = Activate(args.activation, x(to_g) + y(resets, to_g));
          gates[to_g] = g;
          output[u] = scalar::GruState(gates[u], g, h[u]);
        }
        __syncthreads();
      }
      h = output;
    }
    for (int64_t u = threadIdx.x; u < units; u += kThreads) {
      args.h[b * units + u] = h[u];
    }
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    RunGradient(const __grid_constant__ GruGradArgs<T> args) {
  const int64_t units = args.units;
  for (int64_t b = blockIdx.x; b < args.batch; b += gridDim.x) {
    T* const d_h = args.d_h0 + b * units;
    for (int64_t u = threadIdx.x; u < units; u += kThreads) {
      d_h[u] = args.d_h[b * units + u];
    }
    const int64_t first_step = args.FirstStep(b);
    for (int64_t t = args.steps - 1; t >= 0; --t) {
      const int64_t row = b * args.steps + t;
      const T* const h = t > first_step ? args.outputs + (row - 1) * units
                                        : args.h0 + b * units;
      const T* const d_output = args.d_outputs + row * units;
      const T* const gates = args.gates + row * 3 * units;
      T* const d_inputs = args.d_inputs + row * 3 * units;
      T* const d_recurrent = args.d_recurrent + row * 3 * units;
      if (args.IsMasked(b, t)) {
        for (int64_t u = threadIdx.x; u < units; u += kThreads) {
          for (int g = 0; g < 3; ++g) {
            d_inputs[g * units + u] = d_recurrent[g * units + u] = T(0);
          }
          // Outputs before the first step are constants.
          if (t > first_step) d_h[u] += d_output[u];
        }
        continue;
      }
      for (int64_t u = threadIdx.x; u < units; u += kThreads) {
        const int64_t to_r = units + u, to_g = 2 * units + u;
        const T r = gates[to_r];
        const auto d = scalar::GruStateGradientOf(
            args.activation, args.recurrent_activation, gates[u], gates[to_g],
            h[u], d_output[u] + d_h[u]);
        if (args.reset_after) {
          d_inputs[to_r] = d_recurrent[to_r] =
              scalar::GruResetGradientOf(args.recurrent_activation, r,
                                         args.resets[row * units + u], d.d_g);
        }
        d_inputs[u] = d_recurrent[u] = d.d_z;
        d_inputs[to_g] = d.d_g;
        d_recurrent[to_g] = args.reset_after ? d.d_g * r : d.d_g;
        d_h[u] = d.d_h;
      }
      __syncthreads();
      // Of gates [first, end), to what they multiply.
      const auto product = [&](int64_t u, int64_t first, int64_t end) {
        const T* const weights = args.recurrent_kernel + u * 3 * units;
        T sum = 0;
        for (int64_t k = first * units; k < end * units; ++k) {
          sum += d_recurrent[k] * weights[k];
        }
        return sum;
      };
      if (!args.reset_after) {
        for (int64_t u = threadIdx.x; u < units; u += kThreads) {
          const int64_t to_r = units + u;
          const T r = gates[to_r], d = product(u, 2, 3);
          d_inputs[to_r] = d_recurrent[to_r] =
              scalar::GruResetGradientOf(args.recurrent_activation, r, h[u], d);
          d_h[u] += d * r;
        }
        __syncthreads();
      }
      for (int64_t u = threadIdx.x; u < units; u += kThreads) {
        d_h[u] += product(u, 0, args.reset_after ? 3 : 2);
      }
    }
  }
}

}  // namespace

template <typename T>
Error Gru(const Gpu& gpu, const GruArgs<T>& args) {
  return Launch(gpu, GridSize(args.batch), kThreads, RunSteps<T>, args);
}

template <typename T>
Error GruGrad(const Gpu& gpu, const GruGradArgs<T>& args) {
  return Launch(gpu, GridSize(args.batch), kThreads, RunGradient<T>, args);
}

TFO_INSTANTIATE_WIDE_ALGORITHM(Gru, Gpu, GruArgs);
TFO_INSTANTIATE_WIDE_ALGORITHM(GruGrad, Gpu, GruGradArgs);

}  // namespace tfo
