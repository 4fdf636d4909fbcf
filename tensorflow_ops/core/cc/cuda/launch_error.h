// Texts of CUDA's errors, apart from CUDA, so that tests run without it.
#ifndef TENSORFLOW_OPS_CORE_CC_CUDA_LAUNCH_ERROR_H_
#define TENSORFLOW_OPS_CORE_CC_CUDA_LAUNCH_ERROR_H_

#include <cstdio>

#include "tensorflow_ops/core/cc/device.h"

namespace tfo {

struct LaunchInfo {
  const char* kernel;
  unsigned grid, block;
  int shared_bytes;
};

// Whether `error`, a cudaError_t, is a fault of a kernel that was running, of
// any library. Kernels are asynchronous: CUDA returns it from later calls.
inline bool IsKernelFault(int error) {
  constexpr int kUncorrectableEcc = 214, kUncorrectableNvlink = 220,
                kIllegalAddress = 700, kLaunchTimeout = 702, kAssert = 710;
  // In between: illegal instruction, misaligned address, invalid address
  // space, invalid program counter.
  constexpr int kHardwareStackError = 714, kLaunchFailure = 719;
  return error == kUncorrectableEcc || error == kUncorrectableNvlink ||
         error == kIllegalAddress || error == kLaunchTimeout ||
         error == kAssert ||
         (error >= kHardwareStackError && error <= kLaunchFailure);
}

// Describes the error of a launch, of which CUDA says `message`. The text is
// valid until the thread's next error.
inline Error LaunchError(int error, const char* message,
                         const LaunchInfo& launch) {
  static thread_local char text[1024];
  std::snprintf(
      text, sizeof(text),
      "%s: %s: %u blocks of %u threads and %d bytes of dynamic shared memory, "
      "kernel %s",
      IsKernelFault(error)
          ? "A CUDA kernel failed, maybe an earlier one, of another op or "
            "library; with CUDA_LAUNCH_BLOCKING=1 it is the one named here"
          : "The CUDA kernel was not launched",
      message, launch.grid, launch.block, launch.shared_bytes, launch.kernel);
  return text;
}

}  // namespace tfo

#endif  // TENSORFLOW_OPS_CORE_CC_CUDA_LAUNCH_ERROR_H_
