#include <cmath>

#include "tensorflow_ops/core/cc/cuda/warp_gpu.h"
#include "tensorflow_ops/core/cc/int_math.h"
#include "tensorflow_ops/nn/cc/kernels/normalization/normalization.h"

namespace tfo {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;

// The sum of kLanes threads, a warp or the block; all get it.
template <int kLanes, typename V>
__device__ V SumOfThreads(V v, V* of_warps) {
  v = SumOfLanes(v);
  if constexpr (kLanes > kWarp) {
    __syncthreads();
    if (threadIdx.x % kWarp == 0) of_warps[threadIdx.x / kWarp] = v;
    __syncthreads();
    v = of_warps[0];
    for (int i = 1; i < kWarps; ++i) v += of_warps[i];
  }
  return v;
}

// The numbers of a group: Place(i) and Channel(i) for i in [0, count).
struct Group {
  __device__ Group(const NormalizationSpec& a, int64_t index)
      : channels(a.channels),
        group_channels(a.GroupChannels()),
        count(a.Count()),
        is_row(a.pixels == 1),
        channel(index % a.groups * group_channels),
        first(index / a.groups * a.pixels * channels + channel) {}
  __device__ int64_t Place(int64_t i) const {
    return is_row ? first + i
                  : first + i / group_channels * channels + i % group_channels;
  }
  __device__ int64_t Channel(int64_t i) const {
    return channel + (is_row ? i : i % group_channels);
  }
  int64_t channels, group_channels, count;
  bool is_row;
  int64_t channel, first;
};

// kLanes threads normalize a group.
template <int kLanes, typename T>
__global__ void __launch_bounds__(kThreads)
    Normalize(const __grid_constant__ NormalizationArgs<T> a) {
  using Value = Accumulator<T>;
  __shared__ Value of_warps[kWarps];
  constexpr int kGroups = kThreads / kLanes;
  const int lane = threadIdx.x % kLanes;
  for (int64_t i = int64_t{blockIdx.x} * kGroups + threadIdx.x / kLanes;
       i < a.batch * a.groups; i += int64_t{gridDim.x} * kGroups) {
    const Group group(a, i);
    const Value count = static_cast<Value>(group.count > 0 ? group.count : 1);
    Value mean = 0, squares = 0;
    // Twice: the second sum is what rounding left of the first.
    for (int pass = 0; pass < 2 && a.centered; ++pass) {
      Value sum = 0;
      for (int64_t k = lane; k < group.count; k += kLanes) {
        sum += Widen(a.x[group.Place(k)]) - mean;
      }
      mean += SumOfThreads<kLanes>(sum, of_warps) / count;
    }
    for (int64_t k = lane; k < group.count; k += kLanes) {
      const Value d = Widen(a.x[group.Place(k)]) - mean;
      squares += d * d;
    }
    squares = SumOfThreads<kLanes>(squares, of_warps);
    const Value inverse =
        1 / std::sqrt(squares / count + static_cast<Value>(a.epsilon));
    for (int64_t k = lane; k < group.count; k += kLanes) {
      const int64_t at = group.Place(k), c = group.Channel(k);
      Value y = (Widen(a.x[at]) - mean) * inverse * a.gamma[c];
      if (a.beta != nullptr) y += a.beta[c];
      a.y[at] = Narrow<T>(y);
    }
    if (lane == 0) {
      a.statistics[2 * i] = mean;
      a.statistics[2 * i + 1] = inverse;
    }
  }
}

// kLanes threads compute a group's d_x.
template <int kLanes, typename T>
__global__ void __launch_bounds__(kThreads)
    GradientToX(const __grid_constant__ NormalizationGradArgs<T> a) {
  using Value = Accumulator<T>;
  __shared__ Value of_warps[kWarps];
  constexpr int kGroups = kThreads / kLanes;
  const int lane = threadIdx.x % kLanes;
  for (int64_t i = int64_t{blockIdx.x} * kGroups + threadIdx.x / kLanes;
       i < a.batch * a.groups; i += int64_t{gridDim.x} * kGroups) {
    const Group group(a, i);
    const Value mean = a.statistics[2 * i], inverse = a.statistics[2 * i + 1];
    const auto scaled = [&](int64_t k) {
      return Widen(a.d_y[group.Place(k)]) * a.gamma[group.Channel(k)];
    };
    Value by_one = 0, by_z = 0;
    for (int64_t k = lane; k < group.count; k += kLanes) {
      const Value d = scaled(k);
      by_one += d;
      by_z += d * ((Widen(a.x[group.Place(k)]) - mean) * inverse);
    }
    const Value count = static_cast<Value>(group.count > 0 ? group.count : 1);
    by_one = SumOfThreads<kLanes>(by_one, of_warps) / count;
    by_z = SumOfThreads<kLanes>(by_z, of_warps) / count;
    if (!a.centered) by_one = 0;
    for (int64_t k = lane; k < group.count; k += kLanes) {
      const int64_t at = group.Place(k);
      const Value z = (Widen(a.x[at]) - mean) * inverse;
      a.d_x[at] = Narrow<T>((scaled(k) - by_one - z * by_z) * inverse);
    }
  }
}

// A block sums 32 channels over a band of rows into [bands, 2, channels].
template <typename T>
__global__ void __launch_bounds__(kThreads)
    SumBands(const __grid_constant__ NormalizationGradArgs<T> a, int64_t bands,
             Accumulator<T>* sums) {
  using Value = Accumulator<T>;
  __shared__ Value parts[2][kWarps][kWarp];
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int64_t rows = a.batch * a.pixels;
  const int64_t tiles = DivideUp(a.channels, kWarp);
  for (int64_t unit = blockIdx.x; unit < bands * tiles; unit += gridDim.x) {
    const int64_t band = unit / tiles, c = unit % tiles * kWarp + lane;
    Value by_z = 0, by_one = 0;
    if (c < a.channels) {
      const int64_t group = c / a.GroupChannels();
      const int64_t end = rows * (band + 1) / bands;
      for (int64_t row = rows * band / bands + warp; row < end; row += kWarps) {
        const Value* const statistics =
            a.statistics + (row / a.pixels * a.groups + group) * 2;
        const Value d = Widen(a.d_y[row * a.channels + c]);
        const Value x = Widen(a.x[row * a.channels + c]);
        by_z += d * ((x - statistics[0]) * statistics[1]);
        by_one += d;
      }
    }
    __syncthreads();
    parts[0][warp][lane] = by_z;
    parts[1][warp][lane] = by_one;
    __syncthreads();
    if (warp < 2 && c < a.channels) {
      Value sum = 0;
      for (int i = 0; i < kWarps; ++i) sum += parts[warp][i][lane];
      sums[(2 * band + warp) * a.channels + c] = sum;
    }
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    AddBands(const __grid_constant__ NormalizationGradArgs<T> a, int64_t bands,
             const Accumulator<T>* sums) {
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
       i < 2 * a.channels; i += int64_t{gridDim.x} * kThreads) {
    Accumulator<T> sum = 0;
    for (int64_t band = 0; band < bands; ++band) {
      sum += sums[band * 2 * a.channels + i];
    }
    (i < a.channels ? a.d_gamma[i] : a.d_beta[i - a.channels]) = sum;
  }
}

template <typename Args>
Error LaunchGroups(const Gpu& gpu, const Args& args, void (*by_warps)(Args),
                   void (*by_blocks)(Args)) {
  const int64_t groups = args.batch * args.groups;
  // A warp keeps eight loads of each lane in flight.
  if (args.Count() <= 1024) {
    return Launch(gpu, GridSize(DivideUp(groups, kWarps)), kThreads, by_warps,
                  args);
  }
  return Launch(gpu, GridSize(groups), kThreads, by_blocks, args);
}

}  // namespace

template <typename T>
Error Normalization(const Gpu& gpu, const NormalizationArgs<T>& args) {
  return LaunchGroups(gpu, args, Normalize<kWarp, T>, Normalize<kThreads, T>);
}

template <typename T>
Error NormalizationGrad(const Gpu& gpu, const NormalizationGradArgs<T>& args) {
  // First, since d_x may be d_y.
  const int64_t bands = NormalizationBands(args);
  auto* const sums = static_cast<Accumulator<T>*>(gpu.scratch);
  Error error =
      Launch(gpu, GridSize(bands * DivideUp(args.channels, int64_t{kWarp})),
             kThreads, SumBands<T>, args, bands, sums);
  if (error != nullptr) return error;
  error = Launch(gpu, GridSize(DivideUp(2 * args.channels, kThreads)), kThreads,
                 AddBands<T>, args, bands, sums);
  if (error != nullptr) return error;
  return LaunchGroups(gpu, args, GradientToX<kWarp, T>,
                      GradientToX<kThreads, T>);
}

TFO_INSTANTIATE_ALGORITHM(Normalization, Gpu, NormalizationArgs);
TFO_INSTANTIATE_ALGORITHM(NormalizationGrad, Gpu, NormalizationGradArgs);

}  // namespace tfo
