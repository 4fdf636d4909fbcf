// Launching a CUDA kernel, in one place: on the caller's stream, with the error
// returned. Compiled by g++ with TFO_CUDA_EMULATION (cuda_emulation.h), the
// same kernels run on the processor, for tests on machines without a GPU.
#ifndef TENSORFLOW_OPS_CORE_CC_CUDA_LAUNCH_H_
#define TENSORFLOW_OPS_CORE_CC_CUDA_LAUNCH_H_

#ifdef TFO_CUDA_EMULATION
#include "tensorflow_ops/core/cc/cuda_emulation.h"
#else
#include <cuda_runtime_api.h>
#endif

#include <cstdint>

#include "tensorflow_ops/core/cc/device.h"

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

// May packs be used for n values in a row at these places?
template <typename T, typename... Pointers>
bool FitsPacks(int64_t n, Pointers... pointers) {
  return n % kPackSize<T> == 0 &&
         (... && (reinterpret_cast<uintptr_t>(pointers) % 16 == 0));
}

// A grid's x dimension holds 2^31 - 1 blocks; kernels stride over more.
inline unsigned GridSize(int64_t blocks) {
  constexpr int64_t kMost = 0x7FFFFFFF;
  return static_cast<unsigned>(blocks < kMost ? blocks : kMost);
}

// Enqueues kernel(args...) on grid x block threads. Null, or the launch's
// error.
template <typename... Parameters, typename... Arguments>
Error Launch([[maybe_unused]] const Gpu& gpu, unsigned grid, unsigned block,
             void (*kernel)(Parameters...), Arguments... arguments) {
  if (grid == 0) return nullptr;
#ifdef TFO_CUDA_EMULATION
  cuda_emulation::Run(grid, block, [&] { kernel(arguments...); });
  return nullptr;
#else
  cudaStream_t stream = static_cast<cudaStream_t>(gpu.stream);
  // clang-format off
  kernel<<<grid, block, 0, stream>>>(arguments...);
  // clang-format on
  const cudaError_t error = cudaGetLastError();
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
#endif
}

}  // namespace tfo

#endif  // TENSORFLOW_OPS_CORE_CC_CUDA_LAUNCH_H_
