#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tensorflow_ops/core/cc/cuda/cuda_emulation_testing_gpu.h"
#include "tensorflow_ops/core/cc/cuda/mma_testing_gpu.h"
#include "tensorflow_ops/core/cc/scratch.h"
#include "tensorflow_ops/core/cc/testing/gpu_testing.h"

namespace tfo {
namespace {

using testing::GpuVector;

// With --define=emulated_as=races.
TFO_CUDA_TEST(CudaEmulation, RacesAreErrors) {
  if (!kFindsRaces) return;
  for (Race race :
       {Race::kNone, Race::kWithoutSyncThreads, Race::kWithoutSyncWarp,
        Race::kShuffleForSyncWarp, Race::kAmongBlocks, Race::kWithAtomic,
        Race::kWithAsyncCopy}) {
    const testing::Case of_test({}, "race ", static_cast<int>(race));
    const GpuVector<int> from(64, 1);
    GpuVector<int> to(129, 0);
    TFO_EXPECT(RunWithRace(Gpu{}, race, from.data(), to.data()) == nullptr);
    TFO_EXPECT_EQ(testing::WaitForGpu() != nullptr, race != Race::kNone);
  }
}

TFO_CUDA_TEST(CudaEmulation, MemoryOfTheHostIsAnError) {
  if (!kIsEmulated) return;
  const std::vector<int> from(64, 1);
  GpuVector<int> to(129, 0);
  TFO_EXPECT(RunWithRace(Gpu{}, Race::kNone, from.data(), to.data()) !=
             nullptr);

  // A struct may have a float, 0.1, or an int, 3 or -5, and padding from an
  // earlier address.
  constexpr uint64_t kFloat = 0x70003DCCCCCD, kInt = 0x700000000003,
                     kNegative = 0x7000FFFFFFFB, kAddress = 0x700070000010;
  for (uint64_t word : {kFloat, kInt, kNegative, kAddress}) {
    // Fails if the page exists.
    mmap(reinterpret_cast<void*>(word & ~uint64_t{4095}), 4096, PROT_READ,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    TFO_EXPECT_EQ(LaunchWithWord(Gpu{}, word) != nullptr, word == kAddress);
  }
}

// With --config=asan.
TFO_CUDA_TEST(CudaEmulation, GapsBetweenArraysOfScratchAreNotAccessed) {
  if (!kIsEmulated || kScratchGap == 0) return;
  constexpr int64_t kCount = 6;
  GpuVector<char> scratch(2 * (sizeof(int) * kCount + 2 * kScratchGap));
  const Gpu gpu{nullptr, scratch.data(), false};
  TFO_EXPECT_RUNS(WriteToScratch(gpu, kCount, kCount - 1));
  const pid_t child = fork();
  if (child == 0) {
    WriteToScratch(gpu, kCount, kCount);
    _exit(0);
  }
  int status = 0;
  TFO_EXPECT(waitpid(child, &status, 0) == child && status != 0);
}

}  // namespace
}  // namespace tfo
