// Kernels with faults that the emulation of CUDA sees, for cuda_emulation_test.
#ifndef TENSORFLOW_OPS_CORE_CC_CUDA_CUDA_EMULATION_TESTING_GPU_H_
#define TENSORFLOW_OPS_CORE_CC_CUDA_CUDA_EMULATION_TESTING_GPU_H_

#include <cstdint>

#include "tensorflow_ops/core/cc/device.h"

namespace tfo {

extern const bool kFindsRaces;

enum class Race {
  kNone,
  kWithoutSyncThreads,
  kWithoutSyncWarp,
  kShuffleForSyncWarp,
  kAmongBlocks,
  kWithAtomic,
  kWithAsyncCopy
};

// In two blocks of 64 threads. `from` has 64 values, `to` 129.
Error RunWithRace(const Gpu& gpu, Race race, const int* from, int* to);

// Writes the element `at` of the first of two arrays of `count` in gpu.scratch.
Error WriteToScratch(const Gpu& gpu, int64_t count, int64_t at);

// Launches a kernel with a struct of one word.
Error LaunchWithWord(const Gpu& gpu, uint64_t word);

}  // namespace tfo

#endif  // TENSORFLOW_OPS_CORE_CC_CUDA_CUDA_EMULATION_TESTING_GPU_H_
