// Depthwise convolution on a GPU: a thread for each output or pixel, and a
// block for each tap of 32 channels.
#include <algorithm>

#include "tensorflow_ops/core/cc/cuda/cuda_launch.h"
#include "tensorflow_ops/core/cc/int_math.h"
#include "tensorflow_ops/nn/cc/kernels/depthwise_conv/depthwise_conv.h"

namespace tfo {
namespace {

constexpr int kThreads = 256, kChannels = 32, kSlices = kThreads / kChannels;

template <typename T>
__global__ void __launch_bounds__(kThreads)
    Convolve(const __grid_constant__ DepthwiseConvArgs<T> args) {
  using C = Accumulator<T>;
  const ConvAxis &y = args.y, &x = args.x;
  const int64_t channels = args.channels;
  const int64_t all = args.batch * y.outputs * x.outputs * channels;
  for (int64_t at = int64_t{blockIdx.x} * kThreads + threadIdx.x; at < all;
       at += int64_t{gridDim.x} * kThreads) {
    const int64_t c = at % channels, place = at / channels;
    const int64_t j = place % x.outputs, row = place / x.outputs;
    const int64_t i = row % y.outputs, image = row / y.outputs;
    const T* const from = args.input + image * y.size * x.size * channels + c;
    C sum = 0;
    for (int64_t p = 0; p < y.taps; ++p) {
      const int64_t h = y.PixelOf(i, p);
      if (!y.HasPixel(h)) continue;
      for (int64_t q = 0; q < x.taps; ++q) {
        const int64_t w = x.PixelOf(j, q);
        if (!x.HasPixel(w)) continue;
        sum += Widen(from[(h * x.size + w) * channels]) *
               Widen(args.filter[(p * x.taps + q) * channels + c]);
      }
    }
    args.output[at] = Narrow<T>(sum);
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    InputGradient(const __grid_constant__ DepthwiseConvGradArgs<T> args) {
  using C = Accumulator<T>;
  const ConvAxis &y = args.y, &x = args.x;
  const int64_t channels = args.channels;
  const int64_t all = args.batch * y.size * x.size * channels;
  for (int64_t at = int64_t{blockIdx.x} * kThreads + threadIdx.x; at < all;
       at += int64_t{gridDim.x} * kThreads) {
    const int64_t c = at % channels, place = at / channels;
    const int64_t w = place % x.size, row = place / x.size;
    const int64_t h = row % y.size, image = row / y.size;
    C sum = 0;
    for (int64_t p = 0; p < y.taps; ++p) {
      const int64_t i = y.OutputOf(h, p);
      if (i < 0) continue;
      for (int64_t q = 0; q < x.taps; ++q) {
        const int64_t j = x.OutputOf(w, q);
        if (j < 0) continue;
        const int64_t output = (image * y.outputs + i) * x.outputs + j;
        sum += Widen(args.d_output[output * channels + c]) *
               Widen(args.filter[(p * x.taps + q) * channels + c]);
      }
    }
    args.d_input[at] = Narrow<T>(sum);
  }
}

// Each of kSlices threads of a filter sums rows of outputs kSlices apart.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    FilterGradient(const __grid_constant__ DepthwiseConvGradArgs<T> args) {
  using C = Accumulator<T>;
  __shared__ C sums[kSlices][kChannels];
  const ConvAxis &y = args.y, &x = args.x;
  const int64_t channels = args.channels;
  const int64_t tiles = (channels + kChannels - 1) / kChannels;
  const int lane = threadIdx.x % kChannels, slice = threadIdx.x / kChannels;
  for (int64_t block = blockIdx.x; block < tiles * args.Taps();
       block += gridDim.x) {
    const int64_t tap = block / tiles, c = block % tiles * kChannels + lane;
    const int64_t p = tap / x.taps, q = tap % x.taps;
    C sum = 0;
    for (int64_t row = slice; c < channels && row < args.batch * y.outputs;
         row += kSlices) {
      const int64_t h = y.PixelOf(row % y.outputs, p);
      if (!y.HasPixel(h)) continue;
      const int64_t pixels = (row / y.outputs * y.size + h) * x.size;
      for (int64_t j = 0; j < x.outputs; ++j) {
        const int64_t w = x.PixelOf(j, q);
        if (!x.HasPixel(w)) continue;
        sum += Widen(args.input[(pixels + w) * channels + c]) *
               Widen(args.d_output[(row * x.outputs + j) * channels + c]);
      }
    }
    sums[slice][lane] = sum;
    __syncthreads();
    if (slice == 0 && c < channels) {
      for (int s = 1; s < kSlices; ++s) sum += sums[s][lane];
      args.d_filter[tap * channels + c] = Narrow<T>(sum);
    }
    __syncthreads();
  }
}

}  // namespace

template <typename T>
Error DepthwiseConv(const Gpu& gpu, const DepthwiseConvArgs<T>& args) {
  const int64_t all =
      args.batch * args.y.outputs * args.x.outputs * args.channels;
  return Launch(gpu, GridSize(DivideUp(all, kThreads)), kThreads, Convolve<T>,
                args);
}

template <typename T>
Error DepthwiseConvGrad(const Gpu& gpu, const DepthwiseConvGradArgs<T>& args) {
  const int64_t pixels = args.batch * args.y.size * args.x.size * args.channels;
  const Error error = Launch(gpu, GridSize(DivideUp(pixels, kThreads)),
                             kThreads, InputGradient<T>, args);
  if (error != nullptr) return error;
  return Launch(gpu, GridSize(DivideUp(args.channels, kChannels) * args.Taps()),
                kThreads, FilterGradient<T>, args);
}

TFO_INSTANTIATE_ALGORITHM(DepthwiseConv, Gpu, DepthwiseConvArgs);
TFO_INSTANTIATE_ALGORITHM(DepthwiseConvGrad, Gpu, DepthwiseConvGradArgs);

}  // namespace tfo
