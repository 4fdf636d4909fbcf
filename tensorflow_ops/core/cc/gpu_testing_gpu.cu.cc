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

namespace {
std::vector<double> Milliseconds(const std::function<Error()>&) { return {}; }
}  // namespace

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

namespace {

void Check(cudaError_t error, int line) {
  if (error != cudaSuccess) Fail(__FILE__, line, cudaGetErrorString(error));
}

std::vector<double> Milliseconds(const std::function<Error()>& run) {
  constexpr int kWarmUps = 3, kRuns = 31;
  // Long enough for the host to enqueue a run while it is written.
  constexpr size_t kFlushBytes = size_t{512} << 20;
  static void* const flushed = [] {
    void* memory = nullptr;
    Check(cudaMalloc(&memory, kFlushBytes), __LINE__);
    return memory;
  }();
  cudaEvent_t start, end;
  Check(cudaEventCreate(&start), __LINE__);
  Check(cudaEventCreate(&end), __LINE__);
  std::vector<double> times;
  for (int i = 0; i < kWarmUps + kRuns; ++i) {
    Check(cudaMemsetAsync(flushed, 0, kFlushBytes), __LINE__);
    Check(cudaEventRecord(start), __LINE__);
    if (const Error error = run()) {
      Fail(__FILE__, __LINE__, error);
      return {};
    }
    Check(cudaEventRecord(end), __LINE__);
    Check(cudaEventSynchronize(end), __LINE__);
    float ms = 0;
    Check(cudaEventElapsedTime(&ms, start, end), __LINE__);
    if (i >= kWarmUps) times.push_back(ms);
  }
  Check(cudaEventDestroy(start), __LINE__);
  Check(cudaEventDestroy(end), __LINE__);
  return times;
}

}  // namespace

#endif

void TimeOnGpu(const std::string& name, int64_t num_bytes,
               int64_t scratch_bytes,
               const std::function<Error(const Gpu&)>& run) {
  GpuVector<char> scratch(scratch_bytes);
  Gpu gpu;
  gpu.scratch = scratch.data();
  if (!IsTiming()) {
    TFO_EXPECT_RUNS(run(gpu));
    return;
  }
  const auto times = Milliseconds([&] { return run(gpu); });
  if (!times.empty()) PrintTime(name, "cuda", times, num_bytes);
}

}  // namespace tfo::testing
