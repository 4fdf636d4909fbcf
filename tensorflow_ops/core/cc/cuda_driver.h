// The driver of this machine's GPUs.
#ifndef TENSORFLOW_OPS_CORE_CC_CUDA_DRIVER_H_
#define TENSORFLOW_OPS_CORE_CC_CUDA_DRIVER_H_

namespace tfo {

// Returns the newest CUDA that the driver runs: 12040 for 12.4, or 0 if there
// is no driver.
int CudaOfDriver();

// Returns the CUDA that the kernels are compiled with, likewise.
int CudaOfKernels();

}  // namespace tfo

#endif  // TENSORFLOW_OPS_CORE_CC_CUDA_DRIVER_H_
