// Launches CUDA kernels on the caller's stream and returns errors. Compiled by
// g++ with TFO_CUDA_EMULATION (cuda_emulation.h), the same kernels run on the
// CPU, for tests on machines without a GPU.
#ifndef TENSORFLOW_OPS_CORE_CC_CUDA_CUDA_LAUNCH_H_
#define TENSORFLOW_OPS_CORE_CC_CUDA_CUDA_LAUNCH_H_

#ifdef TFO_CUDA_EMULATION
#include "tensorflow_ops/core/cc/cuda/cuda_emulation.h"
#else
#include <cuda_runtime_api.h>

#include <mutex>
#include <set>
#include <utility>
#endif

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "tensorflow_ops/core/cc/cuda/launch_error.h"
#include "tensorflow_ops/core/cc/device.h"

#if defined(TFO_CUDA_EMULATION) || defined(TFO_GPU_MIRROR)
#include "tensorflow_ops/core/cc/cuda/gpu_mirror.h"
#endif

// The GPU that device code is compiled for, 900 for 9.0. In the emulation,
// tests of other paths define TFO_EMULATED_ARCH (op_family.bzl).
#if defined(__CUDA_ARCH__)
#define TFO_GPU_ARCH __CUDA_ARCH__
#elif defined(TFO_EMULATED_ARCH)
#define TFO_GPU_ARCH TFO_EMULATED_ARCH
#else
#define TFO_GPU_ARCH 900
#endif

namespace tfo {

// N values that a thread loads or stores at once; 16 bytes is the widest
// access.
template <typename T, int N>
struct alignas(N * sizeof(T) < 16 ? N * sizeof(T) : 16) Pack {
  T values[N];
};

// Values of T in 16 bytes.
template <typename T>
inline constexpr int kPackSize = 16 / sizeof(T);

namespace cuda_launch_internal {
// The words that nvcc loads and stores in one instruction.
template <size_t kBytes>
struct Word {
  using Type = uint4;
};
template <>
struct Word<1> {
  using Type = uint8_t;
};
template <>
struct Word<2> {
  using Type = uint16_t;
};
template <>
struct Word<4> {
  using Type = uint32_t;
};
template <>
struct Word<8> {
  using Type = uint2;
};

// Aborts in the emulation; a GPU does so by itself.
__device__ inline void CheckAligned([[maybe_unused]] const void* address,
                                    [[maybe_unused]] size_t bytes) {
#ifdef TFO_CUDA_EMULATION
  cuda_emulation::CheckAligned(address, bytes);
#endif
}
}  // namespace cuda_launch_internal

// Loads and stores packs, one instruction per word. (For a plain copy of a
// Pack, nvcc may emit one per value.)
template <int N, typename T>
__device__ Pack<T, N> LoadPack(const T* from) {
  using Word = typename cuda_launch_internal::Word<sizeof(Pack<T, N>)>::Type;
  cuda_launch_internal::CheckAligned(from, alignof(Pack<T, N>));
  Pack<T, N> pack;
#pragma unroll
  for (size_t i = 0; i < sizeof(pack) / sizeof(Word); ++i) {
    const Word word = reinterpret_cast<const Word*>(from)[i];
    memcpy(reinterpret_cast<Word*>(&pack) + i, &word, sizeof(word));
  }
  return pack;
}
template <typename T, int N>
__device__ void StorePack(const Pack<T, N>& pack, T* to) {
  using Word = typename cuda_launch_internal::Word<sizeof(Pack<T, N>)>::Type;
  cuda_launch_internal::CheckAligned(to, alignof(Pack<T, N>));
#pragma unroll
  for (size_t i = 0; i < sizeof(pack) / sizeof(Word); ++i) {
    Word word;
    memcpy(&word, reinterpret_cast<const Word*>(&pack) + i, sizeof(word));
    __stwb(reinterpret_cast<Word*>(to) + i, word);
  }
}

// Adds N values to memory, in no order among threads. GPUs from sm_90 on add 16
// bytes at once, to which `to` is aligned where N is a multiple of 4.
template <int N, typename T>
__device__ void AddAtomically(const T (&values)[N], T* to) {
#if TFO_GPU_ARCH < 900
  constexpr int kTogether = 1;
#else
  constexpr int kTogether = sizeof(T) == sizeof(float) && N % 4 == 0 ? 4 : 1;
#endif
#pragma unroll
  for (int n = 0; n < N; n += kTogether) {
    if constexpr (kTogether == 4) {
      atomicAdd(
          reinterpret_cast<float4*>(to + n),
          make_float4(values[n], values[n + 1], values[n + 2], values[n + 3]));
    } else {
      atomicAdd(to + n, values[n]);
    }
  }
}

// Can n consecutive values at these addresses be accessed in packs of N?
template <int N, typename... Values>
bool FitsPacks(int64_t n, const Values*... places) {
  return n % N == 0 && (... && (reinterpret_cast<uintptr_t>(places) %
                                    alignof(Pack<Values, N>) ==
                                0));
}

// Calls run(N) with packs of 16 bytes if fits(N) is true, else of one value. N
// is an integral_constant.
template <typename T, typename Fits, typename Run>
Error WithWidestPack(const Fits& fits, const Run& run) {
  const std::integral_constant<int, kPackSize<T>> widest;
  if (fits(widest)) return run(widest);
  return run(std::integral_constant<int, 1>());
}

// A grid's x dimension holds 2^31 - 1 blocks; kernels stride over more.
inline unsigned GridSize(int64_t blocks) {
  constexpr int64_t kMax = 0x7FFFFFFF;
  return static_cast<unsigned>(blocks < kMax ? blocks : kMax);
}

// The shared memory that LaunchWithShared gives each block, aligned for packs.
__device__ inline void* DynamicShared() {
#ifdef TFO_CUDA_EMULATION
  return cuda_emulation::DynamicShared();
#else
  extern __shared__ uint4 dynamic_shared[];
  return dynamic_shared;
#endif
}

// An upper bound of the bytes that a kernel with DynamicShared has in
// __shared__ variables, and that the system takes of each block.
inline constexpr int kOtherShared = 2 << 10;

// The most DynamicShared of a block: sm_75 has 64 kB.
inline constexpr int kMaxDynamicShared = (64 << 10) - kOtherShared;

namespace cuda_launch_internal {
// In tests, gives addresses on the GPU to arguments of a kernel.
template <typename... Arguments>
Error Replace([[maybe_unused]] Arguments*... arguments) {
  Error error = nullptr;
#if defined(TFO_CUDA_EMULATION) || defined(TFO_GPU_MIRROR)
  ((error = error != nullptr ? error : gpu_mirror::Replace(arguments)), ...);
#endif
  return error;
}

#ifndef TFO_CUDA_EMULATION
// Returns the name of a kernel, valid until CUDA unloads it.
inline const char* NameOf([[maybe_unused]] const void* kernel) {
  const char* name = "?";
#if CUDART_VERSION >= 12030
  if (cudaFuncGetName(&name, kernel) != cudaSuccess) {
    name = "?";
    // Drivers before CUDA 12.3 fail, which the next launch would report.
    cudaGetLastError();
  }
#endif
  return name;
}

// Describes an error, and clears CUDA's record of it, which the next launch
// would report again. The text is valid until the thread's next error.
inline Error Describe(cudaError_t error, const LaunchInfo& launch) {
  static_assert(cudaErrorIllegalAddress == 700 && cudaErrorLaunchFailure == 719,
                "as launch_error.h has them");
  cudaGetLastError();
  return LaunchError(error, cudaGetErrorString(error), launch);
}

// Of tests: after a fault, CUDA no longer says which kernel it was.
inline LaunchInfo last_launch = {"?", 0, 0, 0};

// Lets blocks of `kernel` have kMaxDynamicShared on the current device. Once,
// and not each launch's own bytes: another thread may launch the same kernel in
// between.
inline cudaError_t AskForShared(const void* kernel) {
  static std::mutex mutex;
  static auto& asked = *new std::set<std::pair<const void*, int>>;
  int device = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error != cudaSuccess) return error;
  const std::lock_guard<std::mutex> lock(mutex);
  if (asked.count({kernel, device}) != 0) return cudaSuccess;
  error = cudaFuncSetAttribute(
      kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kMaxDynamicShared);
  if (error == cudaSuccess) asked.insert({kernel, device});
  return error;
}
#endif
}  // namespace cuda_launch_internal

// Enqueues kernel(args...) on grid x block threads; each block has
// `shared_bytes` of DynamicShared, at most kMaxDynamicShared. Returns null or
// the launch's error.
template <typename... Parameters, typename... Arguments>
Error LaunchWithShared([[maybe_unused]] const Gpu& gpu, unsigned grid,
                       unsigned block, int shared_bytes,
                       void (*kernel)(Parameters...), Arguments... arguments) {
  static_assert((sizeof(Parameters) + ... + 0) <= 4096, "of all GPUs");
  if (grid == 0) return nullptr;
  if (const Error error = cuda_launch_internal::Replace(&arguments...)) {
    return error;
  }
  // A block has 48 kB, __shared__ variables included, unless its kernel asks
  // for more.
  const bool ask = shared_bytes + kOtherShared > (48 << 10);
#ifdef TFO_CUDA_EMULATION
  cuda_emulation::RecordLaunch(reinterpret_cast<const void*>(kernel), block,
                               shared_bytes);
  cuda_emulation::Run(grid, block, shared_bytes,
                      ask ? kMaxDynamicShared : (48 << 10) - kOtherShared,
                      [&] { kernel(arguments...); });
  return nullptr;
#else
  using namespace cuda_launch_internal;
  const void* const function = reinterpret_cast<const void*>(kernel);
#ifdef TFO_GPU_MIRROR
  last_launch = {NameOf(function), grid, block, shared_bytes};
#endif
  cudaError_t error = ask ? AskForShared(function) : cudaSuccess;
  if (error == cudaSuccess) {
    cudaStream_t stream = static_cast<cudaStream_t>(gpu.stream);
    // clang-format off
    kernel<<<grid, block, shared_bytes, stream>>>(arguments...);
    // clang-format on
    error = cudaGetLastError();
  }
  if (error == cudaSuccess) return nullptr;
#ifdef TFO_GPU_MIRROR
  return Describe(error, last_launch);
#else
  return Describe(error, {NameOf(function), grid, block, shared_bytes});
#endif
#endif
}

// The same without dynamic shared memory.
template <typename... Parameters, typename... Arguments>
Error Launch(const Gpu& gpu, unsigned grid, unsigned block,
             void (*kernel)(Parameters...), Arguments... arguments) {
  return LaunchWithShared(gpu, grid, block, 0, kernel, arguments...);
}

// Enqueues zeroing `bytes` bytes. Returns null or the error.
inline Error EnqueueZeros([[maybe_unused]] const Gpu& gpu, void* data,
                          size_t bytes) {
  if (bytes == 0) return nullptr;
  if (const Error error = cuda_launch_internal::Replace(&data)) return error;
#ifdef TFO_CUDA_EMULATION
  std::memset(data, 0, bytes);
  return nullptr;
#else
  const cudaError_t error =
      cudaMemsetAsync(data, 0, bytes, static_cast<cudaStream_t>(gpu.stream));
  if (error == cudaSuccess) return nullptr;
  return cuda_launch_internal::Describe(error, {"cudaMemsetAsync", 0, 0, 0});
#endif
}

}  // namespace tfo

#endif  // TENSORFLOW_OPS_CORE_CC_CUDA_CUDA_LAUNCH_H_
