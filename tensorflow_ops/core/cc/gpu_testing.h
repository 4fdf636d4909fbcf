// Memory and synchronization for tests of CUDA kernels. tfo_algorithm_test
// links each test to run kernels on the CPU (cuda_emulation.h) or on a GPU.
#ifndef TENSORFLOW_OPS_CORE_CC_GPU_TESTING_H_
#define TENSORFLOW_OPS_CORE_CC_GPU_TESTING_H_

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <functional>
#include <new>
#include <sstream>
#include <string>
#include <type_traits>
#include <vector>

#include "tensorflow_ops/core/cc/testing.h"

namespace tfo::testing {

// Allocates memory that kernels and the host both access, aligned to 256 bytes.
// Returns null on failure.
void* AllocateForGpu(size_t bytes);
void FreeForGpu(void* memory);

// Waits for all kernels. Returns null or their first error.
Error WaitForGpu();

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

// A vector that kernels can access.
template <typename T>
using GpuVector = std::vector<T, GpuAllocator<T>>;

template <typename T>
GpuVector<T> ToGpu(const std::vector<T>& values) {
  return GpuVector<T>(values.begin(), values.end());
}

template <typename T>
bool HaveSameBits(const GpuVector<T>& a, const GpuVector<T>& b) {
  return a.size() == b.size() &&
         (a.empty() ||
          std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

// n random values, for benchmarks: a million of them are drawn, and repeated.
template <typename T>
GpuVector<T> RandomOnGpu(int64_t n, uint32_t seed) {
  const auto drawn = RandomValues<T>(std::min<int64_t>(n, 1 << 20), seed);
  GpuVector<T> values(n);
  for (int64_t i = 0; i < n; ++i) values[i] = drawn[i % drawn.size()];
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

// Times `run` on the GPU, by events, each time after the L2 cache was
// overwritten; gives it `scratch_bytes` of scratch memory. Does nothing where
// the GPU is emulated, except in tests. For num_bytes see TimeOnCpu.
void TimeOnGpu(const std::string& name, int64_t num_bytes,
               int64_t scratch_bytes,
               const std::function<Error(const Gpu&)>& run);

// Expects what an algorithm computes to be near what a plain loop in double
// computes: off by a few roundings of T, relative to it or, below 1, absolute.
template <typename T>
void ExpectClose(const char* name, const GpuVector<T>& actual,
                 const std::vector<double>& expected) {
  constexpr double kTolerance = std::is_same_v<T, double>  ? 1e-12
                                : std::is_same_v<T, float> ? 1e-5
                                : std::is_same_v<T, Half>  ? 1e-3
                                                           : 8e-3;
  TFO_EXPECT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < expected.size() && i < actual.size(); ++i) {
    const double value = Widen(actual[i]);
    const double most = kTolerance * std::max(1.0, std::abs(expected[i]));
    if (std::abs(value - expected[i]) <= most) continue;
    std::ostringstream message;
    message << name << "[" << i << "] of " << expected.size() << " is " << value
            << ", expected " << expected[i] << " in " << 8 * sizeof(T)
            << " bits";
    return Fail(__FILE__, __LINE__, message.str());
  }
}

}  // namespace tfo::testing

// Evaluates `launch`, an Error, and waits for it; expects that neither fails.
#define TFO_EXPECT_RUNS(launch)                                         \
  do {                                                                  \
    ::tfo::Error tfo_error = (launch);                                  \
    if (tfo_error == nullptr) tfo_error = ::tfo::testing::WaitForGpu(); \
    if (tfo_error != nullptr) {                                         \
      ::tfo::testing::Fail(__FILE__, __LINE__,                          \
                           std::string(tfo_error) + ": " #launch);      \
    }                                                                   \
  } while (false)

// SUITE.NAME on the CPU and SUITEGpu.NAME on a GPU; the body uses `device`.
#define TFO_DEVICE_TEST(suite, name)                                 \
  template <typename Device>                                         \
  static void suite##name##On(const Device& device);                 \
  TFO_TEST(suite, name) { suite##name##On(::tfo::Cpu()); }           \
  TFO_CUDA_TEST(suite##Gpu, name) { suite##name##On(::tfo::Gpu()); } \
  template <typename Device>                                         \
  static void suite##name##On([[maybe_unused]] const Device& device)

#endif  // TENSORFLOW_OPS_CORE_CC_GPU_TESTING_H_
