#include "tensorflow_ops/core/cc/cuda/cuda_emulation_testing_gpu.h"

#include "tensorflow_ops/core/cc/cuda/cuda_launch.h"
#include "tensorflow_ops/core/cc/cuda/mma_gpu.h"
#include "tensorflow_ops/core/cc/scratch.h"

namespace tfo {
namespace {

__global__ void RaceKernel(Race race, const int* from, int* to) {
  __shared__ int values[64], copied[64];
  const int t = threadIdx.x;
  values[t] = from[t];
  if (race == Race::kShuffleForSyncWarp) {
    __shfl_sync(~0u, t, 0);
  } else if (race != Race::kWithoutSyncWarp) {
    __syncwarp(~0u);
  }
  int sum = values[t ^ 1];  // of the same warp
  AsyncCopies copies;
  copies.Copy<4>(&copied[t], from + t);
  copies.Commit();
  if (race != Race::kWithAsyncCopy) copies.Wait<0>();
  if (race != Race::kWithoutSyncThreads) __syncthreads();
  sum += values[t ^ 32] + copied[t ^ 1];
  copies.Wait<0>();
  to[(race == Race::kAmongBlocks ? 0 : 64 * blockIdx.x) + t] = sum;
  atomicAdd(to + 128, sum);
  if (race == Race::kWithAtomic && t == 0 && blockIdx.x == 0) to[128] = 0;
}

__global__ void WriteKernel(int* to) { *to = 1; }

struct OneWord {
  uint64_t word;
};
__global__ void WordKernel(OneWord) {}

}  // namespace

#ifdef TFO_EMULATED_RACES
const bool kFindsRaces = true;
#else
const bool kFindsRaces = false;
#endif

Error RunWithRace(const Gpu& gpu, Race race, const int* from, int* to) {
  return Launch(gpu, 2, 64, RaceKernel, race, from, to);
}

Error WriteToScratch(const Gpu& gpu, int64_t count, int64_t at) {
  int *first, *second;
  ScratchLayout layout(gpu.scratch);
  layout.Reserve(&first, count);
  layout.Reserve(&second, count);
  return Launch(gpu, 1, 1, WriteKernel, first + at);
}

Error LaunchWithWord(const Gpu& gpu, uint64_t word) {
  return Launch(gpu, 1, 1, WordKernel, OneWord{word});
}

}  // namespace tfo
