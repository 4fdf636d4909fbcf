// Compares update_cache with copies of single bytes.
#include "tensorflow_ops/nn/cc/kernels/update_cache/update_cache.h"

#include <array>
#include <vector>

#include "tensorflow_ops/core/cc/testing/gpu_testing.h"

namespace tfo {
namespace {

using testing::GpuVector;
using testing::ThreadedCpu;

constexpr int64_t kBatch = 5;

// Positions, of which one may be outside. The cache, the rows and another
// output begin `shifts` bytes after aligned addresses.
template <typename Device>
void CheckUpdate(const Device& device, int64_t length, int64_t count,
                 int64_t bytes, bool in_place, int32_t outside,
                 const std::array<int64_t, 3>& shifts = {},
                 const testing::Caller& caller = {}) {
  const testing::Case of_test(caller, "length ", length, ", count ", count,
                              ", bytes ", bytes, in_place ? ", in place" : "",
                              ", outside ", outside, ", shifts ", shifts[0],
                              " ", shifts[1], " ", shifts[2]);
  GpuVector<char> cache(shifts[0]), rows(shifts[1]);
  for (int64_t i = 0; i < kBatch * length * bytes; ++i)
    cache.push_back(i % 101);
  for (int64_t i = 0; i < kBatch * count * bytes; ++i) {
    rows.push_back(static_cast<char>(-1 - i % 97));
  }
  GpuVector<int32_t> positions;
  for (int64_t b = 0; b < kBatch; ++b) {
    positions.push_back(static_cast<int32_t>((b * 7) % (length - count + 1)));
  }
  if (outside != 0) positions[3] = outside;
  std::vector<char> expected(cache.begin() + shifts[0], cache.end());
  const bool keeps_all = std::is_same_v<Device, Cpu> && outside != 0;
  for (int64_t i = 0; i < kBatch * count * bytes; ++i) {
    const int64_t b = i / (count * bytes), byte = i % (count * bytes);
    if (keeps_all || (outside != 0 && b == 3)) continue;
    expected[(b * length + positions[b]) * bytes + byte] = rows[shifts[1] + i];
  }
  GpuVector<char> other(shifts[2] + expected.size(), 77);
  char* const output =
      in_place ? cache.data() + shifts[0] : other.data() + shifts[2];
  const UpdateCacheArgs args{kBatch,
                             length,
                             count,
                             bytes,
                             cache.data() + shifts[0],
                             rows.data() + shifts[1],
                             positions.data(),
                             output};
  if constexpr (std::is_same_v<Device, Gpu>) {
    TFO_EXPECT_RUNS(UpdateCache(device, args));
  } else {
    int64_t bad;
    TFO_EXPECT_RUNS(UpdateCache(device, args, &bad));
    TFO_EXPECT_EQ(bad, outside != 0 ? 3 : -1);
    if (keeps_all && !in_place) return;
  }
  for (size_t i = 0; i < expected.size(); ++i) {
    TFO_EXPECT_EQ(output[i], expected[i]);
  }
}

template <typename Device>
void CheckSizes(const Device& device) {
  for (const bool in_place : {false, true}) {
    for (const int64_t bytes : {0, 1, 6, 20, 32, 4096}) {
      CheckUpdate(device, 9, 1, bytes, in_place, 0);
      CheckUpdate(device, 9, 4, bytes, in_place, 0);
      CheckUpdate(device, 3, 3, bytes, in_place, 0);
      CheckUpdate(device, 3, 0, bytes, in_place, 0);
      for (const int32_t outside : {-1, 6, -2147483647 - 1, 2147483647}) {
        CheckUpdate(device, 9, 4, bytes, in_place, outside);
      }
    }
    for (const int64_t shift : {1, 4, 8}) {
      for (int tensor = 0; tensor < 3; ++tensor) {
        std::array<int64_t, 3> shifts = {};
        shifts[tensor] = shift;
        CheckUpdate(device, 9, 4, 32, in_place, 0, shifts);
      }
    }
  }
}

TFO_TEST(UpdateCache, WritesRows) {
  for (const int threads : {1, 3}) CheckSizes(ThreadedCpu(threads));
}
TFO_CUDA_TEST(UpdateCache, CudaWritesRows) { CheckSizes(Gpu()); }

void TimeUpdate(bool in_place) {
  const int64_t batch = testing::BenchmarkSize(16), length = 1024, bytes = 4096;
  GpuVector<char> cache(batch * length * bytes), rows(batch * bytes),
      other(in_place ? 0 : cache.size());
  GpuVector<int32_t> positions(batch, 7);
  const UpdateCacheArgs args{batch,
                             length,
                             1,
                             bytes,
                             cache.data(),
                             rows.data(),
                             positions.data(),
                             in_place ? cache.data() : other.data()};
  testing::TimeOnGpu(
      testing::Text("update_cache [", batch, ", 1024, 4096 bytes]",
                    in_place ? " in place" : ""),
      2 * (in_place ? rows.size() : cache.size()), 0,
      [&](const Gpu& gpu) { return UpdateCache(gpu, args); });
}
TFO_BENCHMARK(UpdateCache, Caches) {
  TimeUpdate(false);
  TimeUpdate(true);
}

}  // namespace
}  // namespace tfo
