#include "tensorflow_ops/core/cc/cuda_launch.h"
#include "tensorflow_ops/core/cc/host_call.h"

namespace tfo {

#ifdef TFO_CUDA_EMULATION

Error EnqueueCopyToHost(const Gpu&, void* to, const void* from, size_t bytes) {
  std::memcpy(to, from, bytes);
  return nullptr;
}

Error EnqueueHostCall(const Gpu&, void (*function)(void* argument),
                      void* argument) {
  function(argument);
  return nullptr;
}

#else

Error EnqueueCopyToHost(const Gpu& gpu, void* to, const void* from,
                        size_t bytes) {
  const cudaError_t error =
      cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost,
                      static_cast<cudaStream_t>(gpu.stream));
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}

Error EnqueueHostCall(const Gpu& gpu, void (*function)(void* argument),
                      void* argument) {
  const cudaError_t error = cudaLaunchHostFunc(
      static_cast<cudaStream_t>(gpu.stream), function, argument);
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}

#endif

}  // namespace tfo
