#include "tensorflow_ops/core/cc/cuda/cuda_launch.h"
#include "tensorflow_ops/core/cc/philox.h"
#include "tensorflow_ops/nn/cc/kernels/dropout/dropout.h"

namespace tfo {
namespace {

constexpr int kThreads = 256;

// The bits of the 8 numbers from 8 * byte on.
template <typename T>
__device__ int Draw(const DropoutArgs<T>& a, int64_t byte) {
  constexpr int kPerCounter = kDropoutPerCounter<T>;
  constexpr uint64_t kFraction = (uint64_t{1} << kDropoutBits<T>)-1;
  const uint64_t least = static_cast<uint64_t>(a.least);
  const uint32_t key[2] = {static_cast<uint32_t>(a.key[0]),
                           static_cast<uint32_t>(a.key[0] >> 32)};
  int bits = 0;
#pragma unroll
  for (int i = 0; i < 8; i += kPerCounter) {
    const uint64_t low = a.counter[0] + (8 * byte + i) / kPerCounter;
    const uint64_t high = a.counter[1] + (low < a.counter[0]);
    uint32_t words[4] = {
        static_cast<uint32_t>(low), static_cast<uint32_t>(low >> 32),
        static_cast<uint32_t>(high), static_cast<uint32_t>(high >> 32)};
    Philox(key, words);
#pragma unroll
    for (int j = 0; j < kPerCounter; ++j) {
      const uint64_t number =
          kPerCounter == 2 ? uint64_t{words[2 * j]} << 32 | words[2 * j + 1]
                           : words[j];
      bits |= int{(number & kFraction) >= least} << (i + j);
    }
  }
  return bits;
}

template <typename T>
__device__ T Scaled(T x, Accumulator<T> scale, bool is_kept) {
  return is_kept ? Narrow<T>(Widen(x) * scale) : T{};
}

// A thread scales the 8 numbers of a byte of the mask. kPacked: x and y are
// aligned for packs.
template <typename T, bool kPacked>
__device__ void Drop(int64_t byte, int64_t size, Accumulator<T> scale,
                     const T* x, int bits, T* y) {
  const int64_t first = 8 * byte;
  if (kPacked && first + 8 <= size) {
    Pack<T, 8> pack = LoadPack<8>(x + first);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      pack.values[i] = Scaled(pack.values[i], scale, bits >> i & 1);
    }
    StorePack(pack, y + first);
  } else {
    for (int i = 0; i < 8 && first + i < size; ++i) {
      y[first + i] = Scaled(x[first + i], scale, bits >> i & 1);
    }
  }
}

template <typename T, bool kPacked>
__global__ void __launch_bounds__(kThreads)
    Forward(const __grid_constant__ DropoutArgs<T> a) {
  for (int64_t byte = int64_t{blockIdx.x} * kThreads + threadIdx.x;
       byte < DropoutMaskBytes(a.size); byte += int64_t{gridDim.x} * kThreads) {
    const int64_t rest = a.size - 8 * byte;
    const int bits = Draw(a, byte) & (rest < 8 ? (1 << rest) - 1 : 0xFF);
    a.mask[byte] = static_cast<uint8_t>(bits);
    Drop<T, kPacked>(byte, a.size, a.scale, a.inputs, bits, a.output);
  }
}

template <typename T, bool kPacked>
__global__ void __launch_bounds__(kThreads)
    Backward(const __grid_constant__ DropoutGradArgs<T> a) {
  for (int64_t byte = int64_t{blockIdx.x} * kThreads + threadIdx.x;
       byte < DropoutMaskBytes(a.size); byte += int64_t{gridDim.x} * kThreads) {
    Drop<T, kPacked>(byte, a.size, a.scale, a.d_output, a.mask[byte],
                     a.d_inputs);
  }
}

template <typename Args>
Error Enqueue(const Gpu& gpu, const Args& args, bool is_packed,
              void (*packed)(Args), void (*plain)(Args)) {
  const unsigned grid =
      GridSize(DivideUp(DropoutMaskBytes(args.size), kThreads));
  return Launch(gpu, grid, kThreads, is_packed ? packed : plain, args);
}

}  // namespace

template <typename T>
Error Dropout(const Gpu& gpu, const DropoutArgs<T>& args) {
  return Enqueue(gpu, args, FitsPacks<8>(0, args.inputs, args.output),
                 Forward<T, true>, Forward<T, false>);
}
template <typename T>
Error DropoutGrad(const Gpu& gpu, const DropoutGradArgs<T>& args) {
  return Enqueue(gpu, args, FitsPacks<8>(0, args.d_output, args.d_inputs),
                 Backward<T, true>, Backward<T, false>);
}

TFO_INSTANTIATE_ALGORITHM(Dropout, Gpu, DropoutArgs);
TFO_INSTANTIATE_ALGORITHM(DropoutGrad, Gpu, DropoutGradArgs);

}  // namespace tfo
