#include "tensorflow_ops/core/cc/cuda/cuda_launch.h"
#include "tensorflow_ops/core/cc/int_math.h"
#include "tensorflow_ops/nn/cc/kernels/update_cache/update_cache.h"

namespace tfo {
namespace {

constexpr int kThreads = 256;

// The largest unit of memory in which a position is a whole number of units.
struct alignas(16) SixteenBytes {
  uint64_t parts[2];
};

// A thread copies units of the output: those of all positions, from the cache
// or the rows, or of the rows only.
template <typename Unit, bool kOfRows>
__global__ void __launch_bounds__(kThreads)
    Write(const __grid_constant__ UpdateCacheArgs args) {
  const int64_t units = args.bytes / sizeof(Unit);
  const int64_t length = kOfRows ? args.count : args.length;
  const int64_t all = args.batch * length * units;
  const Unit* const cache = reinterpret_cast<const Unit*>(args.cache);
  const Unit* const rows = reinterpret_cast<const Unit*>(args.rows);
  Unit* const output = reinterpret_cast<Unit*>(args.output);
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < all;
       i += int64_t{gridDim.x} * kThreads) {
    const int64_t place = i / units, unit = i % units;
    const int64_t b = place / length, t = place % length;
    const bool is_inside = args.IsInside(b);
    const int64_t first = args.positions[b];
    if constexpr (kOfRows) {
      if (is_inside)
        output[(b * args.length + first + t) * units + unit] = rows[i];
    } else {
      const int64_t row = t - first;
      output[i] = is_inside && row >= 0 && row < args.count
                      ? rows[(b * args.count + row) * units + unit]
                      : cache[i];
    }
  }
}

template <typename Unit>
Error Enqueue(const Gpu& gpu, const UpdateCacheArgs& args) {
  const bool of_rows = args.output == args.cache;
  const int64_t all = args.batch * (of_rows ? args.count : args.length) *
                      (args.bytes / int64_t{sizeof(Unit)});
  const unsigned grid = GridSize(DivideUp(all, kThreads));
  return of_rows ? Launch(gpu, grid, kThreads, Write<Unit, true>, args)
                 : Launch(gpu, grid, kThreads, Write<Unit, false>, args);
}

}  // namespace

Error UpdateCache(const Gpu& gpu, const UpdateCacheArgs& args) {
  if (args.bytes % 16 == 0) return Enqueue<SixteenBytes>(gpu, args);
  if (args.bytes % 4 == 0) return Enqueue<uint32_t>(gpu, args);
  return Enqueue<char>(gpu, args);
}

}  // namespace tfo
