// Depthwise convolution on a GPU: a thread for a pack of channels, and a block
// for each tap of 32 channels and band of rows.
#include "tensorflow_ops/core/cc/cuda/cuda_launch.h"
#include "tensorflow_ops/core/cc/cuda/sum_parts_gpu.h"
#include "tensorflow_ops/core/cc/int_math.h"
#include "tensorflow_ops/nn/cc/kernels/depthwise_conv/depthwise_conv.h"

namespace tfo {
namespace {

constexpr int kThreads = 256, kChannels = 32, kSlices = kThreads / kChannels;

// Of an axis of the tensor that a kernel reads or writes.
template <bool kOfOutput>
__device__ int64_t SizeOf(const ConvAxis& axis) {
  return kOfOutput ? axis.outputs : axis.size;
}

// output = input by filter or, with kGradient, d_input = d_output by filter,
// which are `output` and `input` here. N channels at once.
template <bool kGradient, int N, typename T>
__global__ void __launch_bounds__(kThreads)
    Convolve(const __grid_constant__ DepthwiseConvArgs<T> args) {
  const ConvAxis &y = args.y, &x = args.x;
  const int64_t channels = args.channels, packs = channels / N;
  const int64_t rows = SizeOf<!kGradient>(y), columns = SizeOf<!kGradient>(x);
  const int64_t all = args.batch * rows * columns * packs;
  // Where the tap of a place is in what is read, or -1.
  const auto source = [](const ConvAxis& axis, int64_t place, int64_t tap) {
    if constexpr (kGradient) return axis.OutputOf(place, tap);
    const int64_t pixel = axis.PixelOf(place, tap);
    return axis.HasPixel(pixel) ? pixel : -1;
  };
  for (int64_t at = int64_t{blockIdx.x} * kThreads + threadIdx.x; at < all;
       at += int64_t{gridDim.x} * kThreads) {
    const int64_t c = at % packs * N, place = at / packs;
    const int64_t column = place % columns, row = place / columns;
    const int64_t first = row / rows * SizeOf<kGradient>(y);
    Accumulator<T> sums[N] = {};
    for (int64_t p = 0; p < y.taps; ++p) {
      const int64_t h = source(y, row % rows, p);
      if (h < 0) continue;
      for (int64_t q = 0; q < x.taps; ++q) {
        const int64_t w = source(x, column, q);
        if (w < 0) continue;
        const int64_t pixel = (first + h) * SizeOf<kGradient>(x) + w;
        const auto values = LoadPack<N>(args.input + pixel * channels + c);
        const auto weights =
            LoadPack<N>(args.filter + (p * x.taps + q) * channels + c);
#pragma unroll
        for (int n = 0; n < N; ++n) {
          sums[n] += Widen(values.values[n]) * Widen(weights.values[n]);
        }
      }
    }
    Pack<T, N> result;
#pragma unroll
    for (int n = 0; n < N; ++n) result.values[n] = Narrow<T>(sums[n]);
    StorePack(result, args.output + at * N);
  }
}

// Each of kSlices threads of a filter sums rows of outputs kSlices apart.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    FilterGradient(const __grid_constant__ DepthwiseConvGradArgs<T> args,
                   int64_t bands, Accumulator<T>* to) {
  using C = Accumulator<T>;
  __shared__ C sums[kSlices][kChannels];
  const ConvAxis &y = args.y, &x = args.x;
  const int64_t channels = args.channels, rows = args.batch * y.outputs;
  const int64_t tiles = DivideUp(channels, kChannels), taps = args.Taps();
  const int lane = threadIdx.x % kChannels, slice = threadIdx.x / kChannels;
  for (int64_t block = blockIdx.x; block < bands * taps * tiles;
       block += gridDim.x) {
    const int64_t c = block % tiles * kChannels + lane;
    const int64_t tap = block / tiles % taps, band = block / tiles / taps;
    const int64_t p = tap / x.taps, q = tap % x.taps;
    // Outputs [first, last) of a row read its pixels [w, w + x.stride, ...).
    const int64_t before = -x.PixelOf(0, q);
    const int64_t first = before > 0 ? DivideUp(before, x.stride) : 0;
    const int64_t room = DivideUp(x.size + before, x.stride);
    const int64_t last = room < x.outputs ? room : x.outputs;
    const int64_t w = x.PixelOf(first, q), end = rows * (band + 1) / bands;
    C sum = 0;
    for (int64_t row = rows * band / bands + slice; c < channels && row < end;
         row += kSlices) {
      const int64_t h = y.PixelOf(row % y.outputs, p);
      if (!y.HasPixel(h)) continue;
      const T* input =
          args.input + ((row / y.outputs * y.size + h) * x.size + w) * channels;
      const T* d_output = args.d_output + (row * x.outputs + first) * channels;
#pragma unroll 4
      for (int64_t j = 0; j < last - first; ++j) {
        sum += Widen(input[j * x.stride * channels + c]) *
               Widen(d_output[j * channels + c]);
      }
    }
    sums[slice][lane] = sum;
    __syncthreads();
    if (slice == 0 && c < channels) {
      for (int s = 1; s < kSlices; ++s) sum += sums[s][lane];
      to[(band * taps + tap) * channels + c] = sum;
    }
    __syncthreads();
  }
}

template <bool kGradient, typename T>
Error EnqueueConvolve(const Gpu& gpu, const DepthwiseConvArgs<T>& args) {
  const int64_t places =
      args.batch *
      (kGradient ? args.y.size * args.x.size : args.y.outputs * args.x.outputs);
  return WithWidestPack<T>(
      [&](auto n) {
        return FitsPacks<decltype(n)::value>(args.channels, args.input,
                                             args.filter, args.output);
      },
      [&](auto n) {
        const int64_t all = places * (args.channels / n);
        return Launch(gpu, GridSize(DivideUp(all, kThreads)), kThreads,
                      Convolve<kGradient, decltype(n)::value, T>, args);
      });
}

}  // namespace

template <typename T>
Error DepthwiseConv(const Gpu& gpu, const DepthwiseConvArgs<T>& args) {
  return EnqueueConvolve<false>(gpu, args);
}

template <typename T>
Error DepthwiseConvGrad(const Gpu& gpu, const DepthwiseConvGradArgs<T>& args) {
  Error error = EnqueueConvolve<true>(
      gpu,
      DepthwiseConvArgs<T>{args, args.d_output, args.filter, args.d_input});
  if (error != nullptr) return error;
  const int64_t bands = DepthwiseConvBands(args);
  auto* const sums = static_cast<Accumulator<T>*>(gpu.scratch);
  const int64_t blocks =
      bands * args.Taps() * DivideUp(args.channels, kChannels);
  error = Launch(gpu, GridSize(blocks), kThreads, FilterGradient<T>, args,
                 bands, sums);
  if (error != nullptr) return error;
  return EnqueueSumParts<T>(gpu, args.Taps() * args.channels, bands, sums,
                            args.d_filter);
}

TFO_INSTANTIATE_ALGORITHM(DepthwiseConv, Gpu, DepthwiseConvArgs);
TFO_INSTANTIATE_ALGORITHM(DepthwiseConvGrad, Gpu, DepthwiseConvGradArgs);

}  // namespace tfo
