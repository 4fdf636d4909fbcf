#include "tensorflow_ops/core/cc/cuda/cuda_driver.h"
#include "tensorflow_ops/core/cc/cuda/cuda_launch.h"

namespace tfo {

Error SetZero(const Gpu& gpu, void* data, int64_t bytes) {
  return EnqueueZeros(gpu, data, bytes);
}

#ifdef TFO_CUDA_EMULATION
int CudaOfDriver() { return 0; }
int CudaOfKernels() { return 0; }
#else
int CudaOfDriver() {
  int version = 0;
  return cudaDriverGetVersion(&version) == cudaSuccess ? version : 0;
}
int CudaOfKernels() { return CUDART_VERSION; }
#endif

}  // namespace tfo
