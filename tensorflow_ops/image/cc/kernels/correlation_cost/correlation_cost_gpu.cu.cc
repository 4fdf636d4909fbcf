// CUDA kernels of correlation_cost. A thread sums one result: no atomics, and
// the same bits on each run.
#include "tensorflow_ops/core/cc/cuda_launch.h"
#include "tensorflow_ops/image/cc/kernels/correlation_cost/correlation_cost.h"

namespace tfo {
namespace {

constexpr int kThreads = 128;

// An element of a tensor of images, in memory order.
struct Element {
  int64_t image, y, x, channel;
};
__device__ Element ElementOf(int64_t i, int64_t height, int64_t width,
                             int64_t channels) {
  Element at;
  at.channel = i % channels;
  at.x = i / channels % width;
  at.y = i / (channels * width) % height;
  at.image = i / (width * height * channels);
  return at;
}

__device__ bool IsPixel(const CorrelationSpec& args, int64_t y, int64_t x) {
  return y >= 0 && y < args.height && x >= 0 && x < args.width;
}

// kPack neighboring channels are read at once.
template <typename T, int kPack>
__global__ void __launch_bounds__(kThreads)
    Costs(const __grid_constant__ CorrelationCostArgs<T> args, int64_t count) {
  using Sum = Accumulator<T>;
  const ImageSteps steps = FeatureSteps(args);
  const int64_t radius = args.Radius(), kernel = args.KernelRadius();
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
       i < count; i += static_cast<int64_t>(gridDim.x) * kThreads) {
    const Element at = ElementOf(i, args.OutputHeight(), args.OutputWidth(),
                                 args.Displacements());
    const int64_t dy = (at.channel / args.Side() - radius) * args.stride_2;
    const int64_t dx = (at.channel % args.Side() - radius) * args.stride_2;
    const int64_t start = args.Border() - args.padding;
    Sum sum = 0;
    for (int64_t j = -kernel; j <= kernel; ++j) {
      for (int64_t k = -kernel; k <= kernel; ++k) {
        const int64_t y = at.y * args.stride_1 + start + j;
        const int64_t x = at.x * args.stride_1 + start + k;
        if (!IsPixel(args, y, x) || !IsPixel(args, y + dy, x + dx)) continue;
        const int64_t image = at.image * steps.image;
        const T* const from_a =
            args.a + image + y * steps.row + x * steps.pixel;
        const T* const from_b =
            args.b + image + (y + dy) * steps.row + (x + dx) * steps.pixel;
        for (int64_t c = 0; c < args.channels; c += kPack) {
          const auto pack_a = LoadPack<kPack>(from_a + c);
          const auto pack_b = LoadPack<kPack>(from_b + c);
#pragma unroll
          for (int n = 0; n < kPack; ++n) {
            sum += Widen(pack_a.values[n]) * Widen(pack_b.values[n]);
          }
        }
      }
    }
    args.costs[i] = Narrow<T>(sum / static_cast<Sum>(args.Terms()));
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    Gradient(const __grid_constant__ CorrelationCostGradArgs<T> args,
             int64_t count) {
  using Sum = Accumulator<T>;
  const bool to_b = args.to_b;
  const ImageSteps steps = FeatureSteps(args), up = CostSteps(args);
  const int64_t radius = args.Radius(), kernel = args.KernelRadius();
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
       i < count; i += static_cast<int64_t>(gridDim.x) * kThreads) {
    const Element at = ElementOf(i, args.height, args.width, args.channels);
    Sum sum = 0;
    for (int64_t dy = -radius; dy <= radius; ++dy) {
      for (int64_t dx = -radius; dx <= radius; ++dx) {
        // The pixel of a, and the other map's.
        const int64_t sign = to_b ? -args.stride_2 : args.stride_2;
        const int64_t y2 = at.y + sign * dy, x2 = at.x + sign * dx;
        if (!IsPixel(args, y2, x2)) continue;
        const int64_t y_a = to_b ? y2 : at.y, x_a = to_b ? x2 : at.x;
        Sum weight = 0;
        for (int64_t j = -kernel; j <= kernel; ++j) {
          const int64_t y = y_a + args.padding - args.Border() - j;
          if (y < 0 || y % args.stride_1 != 0 ||
              y / args.stride_1 >= args.OutputHeight()) {
            continue;
          }
          for (int64_t k = -kernel; k <= kernel; ++k) {
            const int64_t x = x_a + args.padding - args.Border() - k;
            if (x < 0 || x % args.stride_1 != 0 ||
                x / args.stride_1 >= args.OutputWidth()) {
              continue;
            }
            weight += Widen(
                args.d_costs[at.image * up.image + y / args.stride_1 * up.row +
                             x / args.stride_1 * up.pixel +
                             (dy + radius) * args.Side() + dx + radius]);
          }
        }
        sum +=
            weight * Widen(args.other[at.image * steps.image + y2 * steps.row +
                                      x2 * steps.pixel + at.channel]);
      }
    }
    args.gradient[i] = Narrow<T>(sum / static_cast<Sum>(args.Terms()));
  }
}

unsigned Blocks(int64_t threads) {
  return GridSize((threads + kThreads - 1) / kThreads);
}

}  // namespace

template <typename T>
Error CorrelationCost(const Gpu& gpu, const CorrelationCostArgs<T>& args) {
  const int64_t count = args.batch * args.OutputHeight() * args.OutputWidth() *
                        args.Displacements();
  return WithWidestPack<T>(
      [&](auto n) {
        constexpr int kPack = decltype(n)::value;
        return kPack == 1 || FitsPacks<kPack>(args.channels, args.a, args.b);
      },
      [&](auto n) {
        return Launch(gpu, Blocks(count), kThreads,
                      Costs<T, decltype(n)::value>, args, count);
      });
}

template <typename T>
Error CorrelationCostGrad(const Gpu& gpu,
                          const CorrelationCostGradArgs<T>& args) {
  const int64_t count = args.batch * args.height * args.width * args.channels;
  return Launch(gpu, Blocks(count), kThreads, Gradient<T>, args, count);
}

TFO_INSTANTIATE_ALGORITHM(CorrelationCost, Gpu, CorrelationCostArgs);
TFO_INSTANTIATE_ALGORITHM(CorrelationCostGrad, Gpu, CorrelationCostGradArgs);

}  // namespace tfo
