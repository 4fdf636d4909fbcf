#include "tensorflow_ops/core/cc/gpu_testing.h"

#ifdef TFO_CUDA_EMULATION
#include <cstdlib>
#else
#include <cuda_runtime_api.h>

#include <cstdio>
#endif

namespace tfo::testing {

#ifdef TFO_CUDA_EMULATION

void* AllocateForGpu(size_t bytes) {
  // Not rounded up, so that a sanitizer detects accesses beyond the end.
  void* memory = nullptr;
  return posix_memalign(&memory, 256, bytes) == 0 ? memory : nullptr;
}
void FreeForGpu(void* memory) { std::free(memory); }
Error WaitForGpu() { return nullptr; }

#else

void* AllocateForGpu(size_t bytes) {
  void* memory = nullptr;
  const cudaError_t error = cudaMallocManaged(&memory, bytes > 0 ? bytes : 1);
  if (error == cudaSuccess) return memory;
  std::fprintf(stderr, "no memory for a GPU: %s\n", cudaGetErrorString(error));
  return nullptr;
}
void FreeForGpu(void* memory) { cudaFree(memory); }
Error WaitForGpu() {
  const cudaError_t error = cudaDeviceSynchronize();
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}

#endif

}  // namespace tfo::testing
