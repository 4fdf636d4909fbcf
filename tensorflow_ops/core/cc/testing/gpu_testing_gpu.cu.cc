#include <algorithm>

#include "tensorflow_ops/core/cc/cuda/cuda_launch.h"
#include "tensorflow_ops/core/cc/cuda/gpu_mirror.h"
#include "tensorflow_ops/core/cc/testing/gpu_testing.h"

#ifdef TFO_EMULATED_RACES
#include "tensorflow_ops/core/cc/cuda/gpu_races.h"
#endif

namespace tfo::testing {

void* AllocateForGpu(size_t bytes) { return gpu_mirror::Allocate(bytes); }
void FreeForGpu(void* memory) { gpu_mirror::Free(memory); }

#ifdef TFO_CUDA_EMULATION

Error WaitForGpu() {
  const Error error = gpu_mirror::Fetch();
  if (cuda_emulation::num_races == 0) return error;
  cuda_emulation::num_races = 0;
  return "the races printed above";
}

namespace {
std::vector<double> Milliseconds(const std::function<Error()>&) { return {}; }
}  // namespace

Error GpuError() { return nullptr; }

#else

Error WaitForGpu() {
  const cudaError_t error = cudaDeviceSynchronize();
  if (error == cudaSuccess) return gpu_mirror::Fetch();
  return cuda_launch_internal::Describe(error,
                                        cuda_launch_internal::last_launch);
}

namespace {

void Check(cudaError_t error, int line) {
  if (error != cudaSuccess) Fail(__FILE__, line, cudaGetErrorString(error));
}

std::vector<double> Milliseconds(const std::function<Error()>& run) {
  constexpr int kWarmUps = 3, kRuns = 31;
  // While it is written, half a millisecond of a large GPU, the host enqueues a
  // run. peers.py does the same.
  static size_t flush_bytes = size_t{2} << 30;
  static void* const flushed = [] {
    size_t available = 0, total = 0;
    Check(cudaMemGetInfo(&available, &total), __LINE__);
    flush_bytes = std::min(flush_bytes, available / 8);
    void* memory = nullptr;
    Check(cudaMalloc(&memory, flush_bytes), __LINE__);
    return memory;
  }();
  cudaEvent_t start, end;
  Check(cudaEventCreate(&start), __LINE__);
  Check(cudaEventCreate(&end), __LINE__);
  std::vector<double> times;
  for (int i = 0; i < kWarmUps + kRuns; ++i) {
    Check(cudaMemsetAsync(flushed, 0, flush_bytes), __LINE__);
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

__global__ void DoNothing() {}

}  // namespace

Error GpuError() {
  DoNothing<<<1, 1>>>();
  cudaError_t error = cudaGetLastError();
  if (error == cudaSuccess) error = cudaDeviceSynchronize();
  return gpu_mirror::ToError(error);
}

#endif

void TimeOnGpu(const std::string& name, int64_t num_bytes,
               int64_t scratch_bytes,
               const std::function<Error(const Gpu&)>& run) {
  GpuVector<char> scratch(scratch_bytes);
  Gpu gpu;
  gpu.scratch = scratch.data();
  if (!IsTiming()) {
    Error error = run(gpu);
    if (error == nullptr) error = WaitForGpu();
    if (error != nullptr) Fail(__FILE__, __LINE__, error);
    return;
  }
  const auto times = Milliseconds([&] { return run(gpu); });
  if (!times.empty()) PrintTime(name, "cuda", times, num_bytes);
}

}  // namespace tfo::testing
