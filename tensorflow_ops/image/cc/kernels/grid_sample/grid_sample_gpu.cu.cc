// CUDA kernels of grid_sample. A thread of the forward pass has a sample and a
// pack of channels.
#include <type_traits>

#include "tensorflow_ops/core/cc/cuda/warp_gpu.h"
#include "tensorflow_ops/core/cc/int_math.h"
#include "tensorflow_ops/image/cc/kernels/grid_sample/grid_sample.h"
#include "tensorflow_ops/image/cc/kernels/grid_sample/sample_taps_gpu.h"

namespace tfo {
namespace {

constexpr int kThreads = 128;

// Channel c of a sample of all images, and of pixel 0 of its image: indices.
__device__ int64_t OutputIndex(const GridSampleSpec& args, int64_t sample,
                               int64_t c) {
  return sample * args.channels + c;
}
__device__ int64_t FeatureIndex(const GridSampleSpec& args, int64_t image,
                                int64_t c) {
  return image * args.Pixels() * args.channels + c;
}

template <typename T, int N, int kAxis>
__global__ void __launch_bounds__(kThreads)
    Sample(const __grid_constant__ GridSampleArgs<T> args, int64_t units) {
  using Sum = Accumulator<T>;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
       i < units; i += static_cast<int64_t>(gridDim.x) * kThreads) {
    const int64_t packs = args.channels / N;
    const int64_t sample = i / packs, c = i % packs * N;
    const auto taps = TapsAt<kAxis>(args, args.grid, sample);
    const bool is_tangent = args.direction != nullptr;
    const bool y_first = YIsFirst(args.coordinates);
    const Sum d_y = is_tangent ? args.direction[2 * sample + !y_first] : Sum(0);
    const Sum d_x = is_tangent ? args.direction[2 * sample + y_first] : Sum(0);
    const auto along = [&](Sum y, Sum x) {
      return (y == 0 ? 0 : y * d_y) + (x == 0 ? 0 : x * d_x);
    };
    const auto fill = taps.Start(args);
    const Sum start = is_tangent ? along(fill.y, fill.x) : fill.value;
    const T* const image =
        args.features + FeatureIndex(args, sample / args.samples, c);
    Sum sums[N];
#pragma unroll
    for (int n = 0; n < N; ++n) sums[n] = start;
#pragma unroll
    for (int k = 0; k < kAxis; ++k) {
#pragma unroll
      for (int j = 0; j < kAxis; ++j) {
        Sum weight = taps.y.weight[k] * taps.x.weight[j];
        if (is_tangent) {
          const Sum y = taps.y.slope[k] * taps.x.weight[j];
          const Sum x = taps.y.weight[k] * taps.x.slope[j];
          weight = along(y, x);
        }
        if (weight == 0) continue;
        const auto pack =
            LoadPack<N>(image + taps.Pixel(args, k, j) * args.channels);
#pragma unroll
        for (int n = 0; n < N; ++n) sums[n] += weight * Widen(pack.values[n]);
      }
    }
    Pack<T, N> out;
#pragma unroll
    for (int n = 0; n < N; ++n) out.values[n] = Narrow<T>(sums[n]);
    StorePack(out, args.output + OutputIndex(args, sample, c));
  }
}

// Adds to zeros, in no order.
template <typename T, int N, int kAxis>
__global__ void __launch_bounds__(kThreads)
    AddAtomic(const __grid_constant__ GridSampleGradArgs<T> args,
              Accumulator<T>* sums, int64_t units) {
  using Sum = Accumulator<T>;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
       i < units; i += static_cast<int64_t>(gridDim.x) * kThreads) {
    const int64_t packs = args.channels / N;
    const int64_t sample = i / packs, c = i % packs * N;
    const auto taps = TapsAt<kAxis>(args, args.grid, sample);
    Sum* const image = sums + FeatureIndex(args, sample / args.samples, c);
    const auto pack = LoadPack<N>(args.d_output + OutputIndex(args, sample, c));
#pragma unroll
    for (int k = 0; k < kAxis; ++k) {
#pragma unroll
      for (int j = 0; j < kAxis; ++j) {
        const Sum weight = taps.y.weight[k] * taps.x.weight[j];
        if (weight == 0) continue;
        Sum products[N];
#pragma unroll
        for (int n = 0; n < N; ++n)
          products[n] = weight * Widen(pack.values[n]);
        AddAtomically<N>(products,
                         image + taps.Pixel(args, k, j) * args.channels);
      }
    }
  }
}

// Adds to zeros in the order of samples: a block owns a row of an image. It
// looks at all samples of the image, kThreads at a time, and each thread adds
// those of the row to its own channels.
template <typename T, int kAxis>
__global__ void __launch_bounds__(kThreads)
    AddInOrder(const __grid_constant__ GridSampleGradArgs<T> args,
               Accumulator<T>* sums) {
  using Sum = Accumulator<T>;
  __shared__ PlaneTaps<kAxis, Sum> chunk[kThreads];
  __shared__ bool touches[kThreads];
  for (int64_t line = blockIdx.x; line < args.batch * args.height;
       line += gridDim.x) {
    const int64_t image = line / args.height, row = line % args.height;
    for (int64_t first = 0; first < args.samples; first += kThreads) {
      const int64_t mine = first + threadIdx.x;
      bool touch = false;
      if (mine < args.samples) {
        const auto taps =
            TapsAt<kAxis>(args, args.grid, image * args.samples + mine);
        for (int k = 0; k < kAxis; ++k) {
          touch |= taps.row[k] == row && taps.y.weight[k] != 0;
        }
        if (touch) chunk[threadIdx.x] = taps;
      }
      touches[threadIdx.x] = touch;
      if (!__syncthreads_or(touch)) continue;
      for (int64_t c = threadIdx.x; c < args.channels; c += kThreads) {
        Sum* const to = sums + FeatureIndex(args, image, c);
        for (int i = 0; i < kThreads; ++i) {
          if (!touches[i]) continue;
          const PlaneTaps<kAxis, Sum>& taps = chunk[i];
          const int64_t sample = image * args.samples + first + i;
          const Sum from = Widen(args.d_output[OutputIndex(args, sample, c)]);
          for (int k = 0; k < kAxis; ++k) {
            if (taps.row[k] != row) continue;
            for (int j = 0; j < kAxis; ++j) {
              const Sum weight = taps.y.weight[k] * taps.x.weight[j];
              if (weight == 0) continue;
              to[taps.Pixel(args, k, j) * args.channels] += weight * from;
            }
          }
        }
      }
      __syncthreads();
    }
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    NarrowSums(const float* sums, T* to, int64_t n) {
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
       i < n; i += static_cast<int64_t>(gridDim.x) * kThreads) {
    to[i] = Narrow<T>(sums[i]);
  }
}

// The gradient to the grid. kGroup neighboring threads share a sample, and its
// channels.
template <typename T, int N, int kAxis, int kGroup>
__global__ void __launch_bounds__(kThreads)
    GridGrad(const __grid_constant__ GridSampleGridGradArgs<T> args) {
  using Sum = Accumulator<T>;
  const int64_t samples = args.batch * args.samples;
  constexpr int kSamples = kThreads / kGroup;
  const int lane = threadIdx.x % kGroup;
  for (int64_t first = static_cast<int64_t>(blockIdx.x) * kSamples;
       first < samples; first += static_cast<int64_t>(gridDim.x) * kSamples) {
    const int64_t sample = first + threadIdx.x / kGroup;
    const bool valid = sample < samples;
    const int64_t read = valid ? sample : first;
    const auto taps = TapsAt<kAxis>(args, args.grid, read);
    const auto fill = taps.Start(args);
    Sum dots[kAxis * kAxis] = {}, ups = 0;
    for (int64_t c = lane * N; c < args.channels; c += kGroup * N) {
      const auto up = LoadPack<N>(args.d_output + OutputIndex(args, read, c));
      const T* const image =
          args.features + FeatureIndex(args, read / args.samples, c);
      if (args.fill_value != 0) {
#pragma unroll
        for (int n = 0; n < N; ++n) ups += Widen(up.values[n]);
      }
#pragma unroll
      for (int k = 0; k < kAxis; ++k) {
#pragma unroll
        for (int j = 0; j < kAxis; ++j) {
          const Sum y = taps.y.slope[k] * taps.x.weight[j];
          const Sum x = taps.y.weight[k] * taps.x.slope[j];
          if (y == 0 && x == 0) continue;
          const auto pack =
              LoadPack<N>(image + taps.Pixel(args, k, j) * args.channels);
#pragma unroll
          for (int n = 0; n < N; ++n) {
            dots[k * kAxis + j] += Widen(up.values[n]) * Widen(pack.values[n]);
          }
        }
      }
    }
    if (args.fill_value != 0) ups = SumOfLanes<kGroup>(ups);
    Sum d_y = fill.y == 0 ? 0 : fill.y * ups;
    Sum d_x = fill.x == 0 ? 0 : fill.x * ups;
#pragma unroll
    for (int k = 0; k < kAxis; ++k) {
#pragma unroll
      for (int j = 0; j < kAxis; ++j) {
        const Sum dot = SumOfLanes<kGroup>(dots[k * kAxis + j]);
        const Sum y = taps.y.slope[k] * taps.x.weight[j];
        const Sum x = taps.y.weight[k] * taps.x.slope[j];
        if (y != 0) d_y += y * dot;
        if (x != 0) d_x += x * dot;
      }
    }
    if (valid && lane == 0) {
      const bool y_first = YIsFirst(args.coordinates);
      args.d_grid[2 * sample] = y_first ? d_y : d_x;
      args.d_grid[2 * sample + 1] = y_first ? d_x : d_y;
    }
  }
}

// Calls run(N) with the widest packs of channels.
template <typename T, typename Run, typename... Values>
Error WithChannelPacks(const GridSampleSpec& args, const Run& run,
                       const Values*... places) {
  return WithWidestPack<T>(
      [&](auto n) {
        constexpr int N = decltype(n)::value;
        return N == 1 || FitsPacks<N>(args.channels, places...);
      },
      run);
}

unsigned Blocks(int64_t threads) {
  return GridSize(DivideUp(threads, kThreads));
}

}  // namespace

template <typename T>
Error GridSample(const Gpu& gpu, const GridSampleArgs<T>& args) {
  const auto run = [&](auto n) {
    constexpr int N = decltype(n)::value;
    return WithTapsOnAxis(args.mode, [&](auto axis) {
      const int64_t units = args.batch * args.samples * (args.channels / N);
      return Launch(gpu, Blocks(units), kThreads,
                    Sample<T, N, decltype(axis)::value>, args, units);
    });
  };
  return WithChannelPacks<T>(args, run, args.features, args.output);
}

template <typename T>
Error GridSampleGrad(const Gpu& gpu, const GridSampleGradArgs<T>& args) {
  using Sum = Accumulator<T>;
  const int64_t elements = args.batch * args.Pixels() * args.channels;
  constexpr bool kNarrows = !std::is_same_v<T, Sum>;
  Sum* const sums = kNarrows ? static_cast<Sum*>(gpu.scratch)
                             : reinterpret_cast<Sum*>(args.d_features);
  Error error = EnqueueZeros(gpu, sums, elements * sizeof(Sum));
  if (error != nullptr) return error;
  if (gpu.deterministic) {
    error = WithTapsOnAxis(args.mode, [&](auto axis) {
      return Launch(gpu, GridSize(args.batch * args.height), kThreads,
                    AddInOrder<T, decltype(axis)::value>, args, sums);
    });
  } else {
    const auto run = [&](auto n) {
      constexpr int N = decltype(n)::value;
      return WithTapsOnAxis(args.mode, [&](auto axis) {
        const int64_t units = args.batch * args.samples * (args.channels / N);
        return Launch(gpu, Blocks(units), kThreads,
                      AddAtomic<T, N, decltype(axis)::value>, args, sums,
                      units);
      });
    };
    error = WithChannelPacks<T>(args, run, args.d_output, sums);
  }
  if constexpr (kNarrows) {
    if (error != nullptr) return error;
    return Launch(gpu, Blocks(elements), kThreads, NarrowSums<T>, sums,
                  args.d_features, elements);
  }
  return error;
}

template <typename T>
Error GridSampleGridGrad(const Gpu& gpu,
                         const GridSampleGridGradArgs<T>& args) {
  const int64_t samples = args.batch * args.samples;
  const auto run = [&](auto n) {
    constexpr int N = decltype(n)::value;
    return WithTapsOnAxis(args.mode, [&](auto axis) {
      constexpr int kAxis = decltype(axis)::value;
      if (args.channels < 4 * N) {
        return Launch(gpu, Blocks(samples), kThreads, GridGrad<T, N, kAxis, 1>,
                      args);
      }
      constexpr int kGroup = 8;
      return Launch(gpu, Blocks(samples * kGroup), kThreads,
                    GridGrad<T, N, kAxis, kGroup>, args);
    });
  };
  return WithChannelPacks<T>(args, run, args.d_output, args.features);
}

TFO_INSTANTIATE_ALGORITHM(GridSample, Gpu, GridSampleArgs);
TFO_INSTANTIATE_ALGORITHM(GridSampleGrad, Gpu, GridSampleGradArgs);
TFO_INSTANTIATE_ALGORITHM(GridSampleGridGrad, Gpu, GridSampleGridGradArgs);

}  // namespace tfo
