// Memory, scratch and times for tests of CUDA kernels. tfo_algorithm_test
// links each test to run kernels on the CPU (cuda_emulation.h) or on a GPU.
#ifndef TENSORFLOW_OPS_CORE_CC_TESTING_GPU_TESTING_H_
#define TENSORFLOW_OPS_CORE_CC_TESTING_GPU_TESTING_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>
#include <new>
#include <string>
#include <type_traits>
#include <vector>

#include "tensorflow_ops/core/cc/testing/testing.h"

namespace tfo::testing {

// Allocates memory of the host, aligned to 256 bytes, whose address a test may
// give to kernels: they get that of its mirror (gpu_mirror.h), which
// TFO_EXPECT_RUNS copies back. Returns null on failure.
void* AllocateForGpu(size_t bytes);
void FreeForGpu(void* memory);

template <typename T>
struct GpuAllocator {
  using value_type = T;
  GpuAllocator() = default;
  template <typename Other>
  GpuAllocator(const GpuAllocator<Other>&) {}
  T* allocate(size_t n) {
    void* const memory = AllocateForGpu(n * sizeof(T));
    if (memory == nullptr) throw std::bad_alloc();
    return static_cast<T*>(memory);
  }
  void deallocate(T* memory, size_t) { FreeForGpu(memory); }
  template <typename Other>
  bool operator==(const GpuAllocator<Other>&) const {
    return true;
  }
  template <typename Other>
  bool operator!=(const GpuAllocator<Other>&) const {
    return false;
  }
};

// A vector for the arguments of kernels.
template <typename T>
using GpuVector = std::vector<T, GpuAllocator<T>>;

template <typename T>
GpuVector<T> ToGpu(const std::vector<T>& values) {
  return GpuVector<T>(values.begin(), values.end());
}

// n random values, for benchmarks: a million of them are drawn, and repeated.
template <typename T>
GpuVector<T> RandomOnGpu(int64_t n, uint32_t seed) {
  const auto drawn = RandomValues<T>(std::min<int64_t>(n, 1 << 20), seed);
  GpuVector<T> values(n);
  for (int64_t i = 0; i < n; i += drawn.size()) {
    const auto end = std::min<int64_t>(drawn.size(), n - i);
    std::copy_n(drawn.begin(), end, values.begin() + i);
  }
  return values;
}

// Calls run(device); a GPU has scratch_bytes() of scratch memory, full of NaN
// (of bytes `fill`), behind which `run` must not write.
template <typename Device, typename Bytes, typename Run>
void WithScratch(Device device, [[maybe_unused]] const Bytes& scratch_bytes,
                 const Run& run, [[maybe_unused]] char fill = '\xFF') {
  if constexpr (std::is_same_v<Device, Gpu>) {
    const int64_t bytes = scratch_bytes();
    GpuVector<char> scratch(bytes + 1, fill);
    scratch[bytes] = 0x5A;
    device.scratch = scratch.data();
    run(device);
    TFO_EXPECT_EQ(scratch[bytes], 0x5A);
  } else {
    run(device);
  }
}

// A GPU whose sums are fast, and one whose sums are deterministic.
inline std::array<Gpu, 2> Gpus() {
  return {Gpu{}, Gpu{nullptr, nullptr, true}};
}

// What compute(device, &results) makes of `results`: on the CPU for several
// numbers of threads, which must not change bits, on a GPU once for each of
// Gpus(), with scratch_bytes(gpu) of scratch memory.
template <typename Results, typename Bytes, typename Compute>
std::vector<Results> ComputeOn(const Cpu&, const Results& results, const Bytes&,
                               const Compute& compute) {
  std::vector<Results> all(3, results);
  compute(ThreadedCpu(1), &all[0]);
  compute(ThreadedCpu(2), &all[1]);
  compute(ThreadedCpu(7), &all[2]);
  TFO_EXPECT(all[1].HasBitsOf(all[0]) && all[2].HasBitsOf(all[0]));
  return {all[0]};
}
template <typename Results, typename Bytes, typename Compute>
std::vector<Results> ComputeOn(const Gpu&, const Results& results,
                               const Bytes& scratch_bytes,
                               const Compute& compute) {
  std::vector<Results> all;
  for (const Gpu& gpu : Gpus()) {
    Results& to = all.emplace_back(results);
    WithScratch(
        gpu, [&] { return scratch_bytes(gpu); },
        [&](const Gpu& on) { compute(on, &to); });
  }
  return all;
}

// Without scratch memory.
template <typename Device, typename Results, typename Compute>
std::vector<Results> ComputeOn(const Device& device, const Results& results,
                               const Compute& compute) {
  return ComputeOn(device, results, [](const Gpu&) { return 0; }, compute);
}

// Times `run` on the GPU, by events, each time after the L2 cache was
// overwritten; gives it `scratch_bytes` of scratch memory. Does nothing where
// the GPU is emulated, except in tests. For num_bytes see TimeOnCpu.
void TimeOnGpu(const std::string& name, int64_t num_bytes,
               int64_t scratch_bytes,
               const std::function<Error(const Gpu&)>& run);

}  // namespace tfo::testing

// SUITE.NAME on the CPU and SUITEGpu.NAME on a GPU; the body uses `device`.
#define TFO_DEVICE_TEST(suite, name)                                 \
  template <typename Device>                                         \
  static void suite##name##On(const Device& device);                 \
  TFO_TEST(suite, name) { suite##name##On(::tfo::Cpu()); }           \
  TFO_CUDA_TEST(suite##Gpu, name) { suite##name##On(::tfo::Gpu()); } \
  template <typename Device>                                         \
  static void suite##name##On([[maybe_unused]] const Device& device)

#endif  // TENSORFLOW_OPS_CORE_CC_TESTING_GPU_TESTING_H_
