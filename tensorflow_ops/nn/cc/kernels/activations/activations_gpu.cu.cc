#include <algorithm>

#include "tensorflow_ops/core/cc/cuda/cuda_launch.h"
#include "tensorflow_ops/core/cc/int_math.h"
#include "tensorflow_ops/nn/cc/kernels/activations/activation_formulas.h"

namespace tfo {
namespace {

constexpr int kThreads = 256;
constexpr int kColumns = 32, kWarps = kThreads / kColumns;
constexpr int64_t kRows = 8 * kWarps;  // of a band, unless there are many
constexpr int64_t kMaxBands = 256;

// The elements of an activation or, if d is not null, of its gradient.
template <typename T>
struct Elements {
  int64_t size, channels;
  const T *d, *x, *bias;  // bias may be null
  T* to;
};

// Packs of N values.
template <Activation kActivation, bool kGrad, int N, typename T>
__global__ void __launch_bounds__(kThreads)
    RunElements(const __grid_constant__ Elements<T> a) {
  const int64_t step = int64_t{gridDim.x} * kThreads * N;
  for (int64_t at = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * N;
       at < a.size; at += step) {
    Pack<T, N> pack = LoadPack<N>(a.x + at), bias, d;
    if (a.bias != nullptr) {
      // 64-bit divisions are slow.
      const int64_t channel =
          a.size <= UINT32_MAX
              ? static_cast<uint32_t>(at) % static_cast<uint32_t>(a.channels)
              : at % a.channels;
      bias = LoadPack<N>(a.bias + channel);
    }
    if constexpr (kGrad) d = LoadPack<N>(a.d + at);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      auto v = Widen(pack.values[i]);
      if (a.bias != nullptr) v += Widen(bias.values[i]);
      v = scalar::Activate<kActivation, kGrad>(v);
      if constexpr (kGrad) v *= Widen(d.values[i]);
      pack.values[i] = Narrow<T>(v);
    }
    StorePack(pack, a.to + at);
  }
}

template <Activation kActivation, bool kGrad, typename T>
Error EnqueueElements(const Gpu& gpu, const Elements<T>& a) {
  return WithWidestPack<T>(
      [&](auto n) {
        constexpr int N = decltype(n)::value;
        return FitsPacks<N>(a.size, a.x, a.to, kGrad ? a.d : a.x) &&
               (a.bias == nullptr || FitsPacks<N>(a.channels, a.bias));
      },
      [&](auto n) {
        constexpr int N = decltype(n)::value;
        return Launch(gpu, GridSize(DivideUp(a.size, kThreads * N)), kThreads,
                      RunElements<kActivation, kGrad, N, T>, a);
      });
}

// The gradient to the bias is summed in bands of rows, whose sums are added in
// order.
int64_t BandsOf(int64_t rows) {
  return std::clamp<int64_t>(rows / kRows, 1, kMaxBands);
}

// Adds the sums of a column's warps, in order: for the first warp.
template <typename A>
__device__ A SumOfWarps(A sum) {
  __shared__ A sums[kThreads];
  __syncthreads();
  sums[threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.x >= kColumns) return 0;
  for (int warp = 1; warp < kWarps; ++warp) {
    sum += sums[warp * kColumns + threadIdx.x];
  }
  return sum;
}

// A block has columns of a band, and a warp every kWarps-th row.
template <Activation kActivation, typename T>
__global__ void __launch_bounds__(kThreads)
    RunBands(const __grid_constant__ BiasActivationGradArgs<T> a,
             Accumulator<T>* sums, int64_t bands) {
  const int64_t parts = DivideUp(a.channels, kColumns);
  for (int64_t i = blockIdx.x; i < parts * bands; i += gridDim.x) {
    const int64_t band = i / parts;
    const int64_t column = i % parts * kColumns + threadIdx.x % kColumns;
    Accumulator<T> sum = 0;
    if (column < a.channels) {
      const auto bias = Widen(a.bias[column]);
      const int64_t end = a.rows * (band + 1) / bands;
#pragma unroll 4
      for (int64_t row = a.rows * band / bands + threadIdx.x / kColumns;
           row < end; row += kWarps) {
        const int64_t at = row * a.channels + column;
        const auto v =
            Widen(a.d_output[at]) *
            scalar::Activate<kActivation, true>(Widen(a.features[at]) + bias);
        a.d_features[at] = Narrow<T>(v);
        sum += v;
      }
    }
    sum = SumOfWarps(sum);
    if (threadIdx.x < kColumns && column < a.channels) {
      sums[band * a.channels + column] = sum;
    }
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    AddBands(const Accumulator<T>* sums, int64_t bands, int64_t channels,
             T* to) {
  for (int64_t part = blockIdx.x; part < DivideUp(channels, kColumns);
       part += gridDim.x) {
    const int64_t column = part * kColumns + threadIdx.x % kColumns;
    Accumulator<T> sum = 0;
    if (column < channels) {
#pragma unroll 4
      for (int64_t i = threadIdx.x / kColumns; i < bands; i += kWarps) {
        sum += sums[i * channels + column];
      }
    }
    sum = SumOfWarps(sum);
    if (threadIdx.x < kColumns && column < channels) {
      to[column] = Narrow<T>(sum);
    }
  }
}

}  // namespace

template <typename T>
Error BiasActivation(const Gpu& gpu, const BiasActivationArgs<T>& a) {
  return WithActivation(a.activation, [&](auto k) {
    return EnqueueElements<decltype(k)::value, false, T>(
        gpu, {a.rows * a.channels, a.channels, nullptr, a.features, a.bias,
              a.output});
  });
}

template <typename T>
Error BiasActivationGrad(const Gpu& gpu, const BiasActivationGradArgs<T>& a) {
  return WithActivation(a.activation, [&](auto k) -> Error {
    constexpr Activation kActivation = decltype(k)::value;
    if (a.bias == nullptr) {
      return EnqueueElements<kActivation, true, T>(
          gpu, {a.rows * a.channels, a.channels, a.d_output, a.features,
                nullptr, a.d_features});
    }
    const int64_t parts = DivideUp(a.channels, kColumns);
    const int64_t bands = BandsOf(a.rows);
    auto* const sums = static_cast<Accumulator<T>*>(gpu.scratch);
    const Error error = Launch(gpu, GridSize(parts * bands), kThreads,
                               RunBands<kActivation, T>, a, sums, bands);
    if (error != nullptr) return error;
    return Launch(gpu, GridSize(parts), kThreads, AddBands<T>, sums, bands,
                  a.channels, a.d_bias);
  });
}

template <typename T>
int64_t BiasActivationGradScratchBytes(const BiasActivationGradArgs<T>& args) {
  if (args.bias == nullptr) return 0;
  return BandsOf(args.rows) * args.channels *
         static_cast<int64_t>(sizeof(Accumulator<T>));
}

TFO_INSTANTIATE_ALGORITHM(BiasActivation, Gpu, BiasActivationArgs);
TFO_INSTANTIATE_ALGORITHM(BiasActivationGrad, Gpu, BiasActivationGradArgs);
#define TFO_INSTANTIATE(T)                         \
  template int64_t BiasActivationGradScratchBytes( \
      const BiasActivationGradArgs<T>&)
TFO_FOR_EACH_FLOAT(TFO_INSTANTIATE);
#undef TFO_INSTANTIATE

}  // namespace tfo
