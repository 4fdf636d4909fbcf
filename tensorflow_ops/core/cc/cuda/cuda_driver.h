// What OpKernels need of CUDA: its driver on this machine, memory.
#ifndef TENSORFLOW_OPS_CORE_CC_CUDA_CUDA_DRIVER_H_
#define TENSORFLOW_OPS_CORE_CC_CUDA_CUDA_DRIVER_H_

#include <cstdint>

#include "tensorflow_ops/core/cc/device.h"

namespace tfo {

// Returns the newest CUDA that the driver runs: 12040 for 12.4, or 0 if there
// is no driver.
int CudaOfDriver();

// Returns the CUDA that the kernels are compiled with, likewise.
int CudaOfKernels();

// Enqueues zeroing of memory on the GPU.
Error SetZero(const Gpu& gpu, void* data, int64_t bytes);

}  // namespace tfo

#endif  // TENSORFLOW_OPS_CORE_CC_CUDA_CUDA_DRIVER_H_
