#include <cmath>

#include "tensorflow_ops/core/cc/cuda/warp_gpu.h"
#include "tensorflow_ops/core/cc/int_math.h"
#include "tensorflow_ops/nn/cc/kernels/normalization/normalization.h"

namespace tfo {
namespace {

constexpr int kThreads = 256, kMaxThreads = 1024;
constexpr int kWarps = kThreads / kWarp;
// Threads of a block in which each group has kLanes of them.
template <int kLanes>
constexpr int kThreadsFor = kLanes == kWarp ? kThreads : kLanes;

// The sum of kLanes threads, a warp or the block; all get it.
template <int kLanes, typename V>
__device__ V SumOfThreads(V v, V* of_warps) {
  v = SumOfLanes(v);
  if constexpr (kLanes > kWarp) {
    __syncthreads();
    if (threadIdx.x % kWarp == 0) of_warps[threadIdx.x / kWarp] = v;
    __syncthreads();
    v = of_warps[0];
    for (int i = 1; i < kLanes / kWarp; ++i) v += of_warps[i];
  }
  return v;
}

// A thread's numbers of a group: every kLanes-th.
template <int kLanes>
class Group {
 public:
  __device__ Group(const NormalizationSpec& a, int64_t index)
      : count_(a.Count()), width_(a.GroupChannels()), channels_(a.channels) {
    const int64_t example = a.groups == 1 ? index : index / a.groups;
    base_ = (index - example * a.groups) * width_;
    const int lane = threadIdx.x % kLanes;
    const bool is_narrow = 0 < width_ && width_ <= kLanes;
    const int width = is_narrow ? static_cast<int>(width_) : kLanes + 1;
    first_ = lane;
    channel_ = lane % width;
    place_ = (example * a.pixels + lane / width) * channels_ + base_ + channel_;
    channel_step_ = kLanes % width;
    place_step_ = kLanes / width * channels_ + channel_step_;
  }

  // Calls use(place, channel) for each.
  template <typename Use>
  __device__ void ForEach(const Use& use) const {
    int64_t channel = channel_, place = place_;
#pragma unroll 4
    for (int64_t i = first_; i < count_; i += kLanes) {
      use(place, base_ + channel);
      channel += channel_step_;
      place += place_step_;
      if (channel >= width_) {  // a division for each number is slow
        channel -= width_;
        place += channels_ - width_;
      }
    }
  }

 private:
  int64_t count_, width_, channels_;
  int64_t base_;  // the group's first channel
  // The thread's first number, and to the next.
  int64_t first_, channel_, place_, channel_step_, place_step_;
};

// kLanes threads normalize a group.
template <int kLanes, typename T>
__global__ void __launch_bounds__(kThreadsFor<kLanes>)
    Normalize(const __grid_constant__ NormalizationArgs<T> a) {
  using Value = Accumulator<T>;
  __shared__ Value of_warps[kLanes / kWarp];
  constexpr int kGroups = kThreadsFor<kLanes> / kLanes;
  for (int64_t i = int64_t{blockIdx.x} * kGroups + threadIdx.x / kLanes;
       i < a.batch * a.groups; i += int64_t{gridDim.x} * kGroups) {
    const Group<kLanes> group(a, i);
    const Value count = static_cast<Value>(a.Count() > 0 ? a.Count() : 1);
    Value mean = 0, squares = 0;
    // Twice: the second sum is what rounding left of the first.
    for (int pass = 0; pass < 2 && a.centered; ++pass) {
      Value sum = 0;
      group.ForEach([&](int64_t at, int64_t) { sum += Widen(a.x[at]) - mean; });
      mean += SumOfThreads<kLanes>(sum, of_warps) / count;
    }
    group.ForEach([&](int64_t at, int64_t) {
      const Value d = Widen(a.x[at]) - mean;
      squares += d * d;
    });
    squares = SumOfThreads<kLanes>(squares, of_warps);
    const Value inverse =
        1 / std::sqrt(squares / count + static_cast<Value>(a.epsilon));
    group.ForEach([&](int64_t at, int64_t c) {
      Value y = (Widen(a.x[at]) - mean) * inverse * a.gamma[c];
      if (a.beta != nullptr) y += a.beta[c];
      a.y[at] = Narrow<T>(y);
    });
    if (threadIdx.x % kLanes == 0) {
      a.statistics[2 * i] = mean;
      a.statistics[2 * i + 1] = inverse;
    }
  }
}

// kLanes threads compute a group's d_x.
template <int kLanes, typename T>
__global__ void __launch_bounds__(kThreadsFor<kLanes>)
    GradientToX(const __grid_constant__ NormalizationGradArgs<T> a) {
  using Value = Accumulator<T>;
  __shared__ Value of_warps[kLanes / kWarp];
  constexpr int kGroups = kThreadsFor<kLanes> / kLanes;
  for (int64_t i = int64_t{blockIdx.x} * kGroups + threadIdx.x / kLanes;
       i < a.batch * a.groups; i += int64_t{gridDim.x} * kGroups) {
    const Group<kLanes> group(a, i);
    const Value mean = a.statistics[2 * i], inverse = a.statistics[2 * i + 1];
    const auto z = [&](int64_t at) {
      return (Widen(a.x[at]) - mean) * inverse;
    };
    Value by_one = 0, by_z = 0;
    group.ForEach([&](int64_t at, int64_t c) {
      const Value d = Widen(a.d_y[at]) * a.gamma[c];
      by_one += d;
      by_z += d * z(at);
    });
    const Value count = static_cast<Value>(a.Count() > 0 ? a.Count() : 1);
    by_one = SumOfThreads<kLanes>(by_one, of_warps) / count;
    by_z = SumOfThreads<kLanes>(by_z, of_warps) / count;
    if (!a.centered) by_one = 0;
    group.ForEach([&](int64_t at, int64_t c) {
      const Value d = Widen(a.d_y[at]) * a.gamma[c];
      a.d_x[at] = Narrow<T>((d - by_one - z(at) * by_z) * inverse);
    });
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
#pragma unroll 4
      for (int64_t row = rows * band / bands + warp; row < end; row += kWarps) {
        const int64_t example = a.pixels == 1 ? row : row / a.pixels;
        const Value* const statistics =
            a.statistics + (example * a.groups + group) * 2;
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
#pragma unroll 8
    for (int64_t band = 0; band < bands; ++band) {
      sum += sums[band * 2 * a.channels + i];
    }
    (i < a.channels ? a.d_gamma[i] : a.d_beta[i - a.channels]) = sum;
  }
}

template <typename Args>
Error LaunchGroups(const Gpu& gpu, const Args& args, void (*by_warps)(Args),
                   void (*by_blocks)(Args), void (*by_large_blocks)(Args)) {
  const int64_t groups = args.batch * args.groups;
  // A warp keeps several loads of each lane in flight.
  if (args.Count() <= 1024) {
    return Launch(gpu, GridSize(DivideUp(groups, kWarps)), kThreads, by_warps,
                  args);
  }
  // Groups of images are large and few.
  const bool is_large = args.Count() > 8192;
  return Launch(gpu, GridSize(groups), is_large ? kMaxThreads : kThreads,
                is_large ? by_large_blocks : by_blocks, args);
}

}  // namespace

template <typename T>
Error Normalization(const Gpu& gpu, const NormalizationArgs<T>& args) {
  return LaunchGroups(gpu, args, Normalize<kWarp, T>, Normalize<kThreads, T>,
                      Normalize<kMaxThreads, T>);
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
                      GradientToX<kThreads, T>, GradientToX<kMaxThreads, T>);
}

TFO_INSTANTIATE_ALGORITHM(Normalization, Gpu, NormalizationArgs);
TFO_INSTANTIATE_ALGORITHM(NormalizationGrad, Gpu, NormalizationGradArgs);

}  // namespace tfo
