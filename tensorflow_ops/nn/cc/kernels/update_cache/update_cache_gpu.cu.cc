#include "tensorflow_ops/core/cc/cuda/cuda_launch.h"
#include "tensorflow_ops/core/cc/int_math.h"
#include "tensorflow_ops/nn/cc/kernels/update_cache/update_cache.h"

namespace tfo {
namespace {

constexpr int kThreads = 256;

// A thread copies units of kBytes of the output: those of all positions, from
// the cache or the rows, or of the rows only.
template <int kBytes, bool kOfRows>
__global__ void __launch_bounds__(kThreads)
    Write(const __grid_constant__ UpdateCacheArgs args) {
  const int64_t units = args.bytes / kBytes;
  const int64_t length = kOfRows ? args.count : args.length;
  const int64_t all = args.batch * length * units;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < all;
       i += int64_t{gridDim.x} * kThreads) {
    const int64_t place = i / units, unit = i % units;
    const int64_t b = place / length, t = place % length;
    const bool is_inside = args.IsInside(b);
    const int64_t first = args.positions[b];
    const char* from = args.rows;
    int64_t from_unit = i, to_unit = i;
    if constexpr (kOfRows) {
      if (!is_inside) continue;
      to_unit = (b * args.length + first + t) * units + unit;
    } else {
      const int64_t row = t - first;
      if (is_inside && row >= 0 && row < args.count) {
        from_unit = (b * args.count + row) * units + unit;
      } else {
        from = args.cache;
      }
    }
    StorePack(LoadPack<kBytes>(from + from_unit * kBytes),
              args.output + to_unit * kBytes);
  }
}

template <int kBytes>
Error Enqueue(const Gpu& gpu, const UpdateCacheArgs& args) {
  const bool of_rows = args.output == args.cache;
  const int64_t all =
      args.batch * (of_rows ? args.count : args.length) * (args.bytes / kBytes);
  const unsigned grid = GridSize(DivideUp(all, kThreads));
  return of_rows ? Launch(gpu, grid, kThreads, Write<kBytes, true>, args)
                 : Launch(gpu, grid, kThreads, Write<kBytes, false>, args);
}

}  // namespace

Error UpdateCache(const Gpu& gpu, const UpdateCacheArgs& args) {
  const auto fits = [&](auto bytes) {
    return FitsPacks<decltype(bytes)::value>(args.bytes, args.cache, args.rows,
                                             args.output);
  };
  if (fits(std::integral_constant<int, 16>())) return Enqueue<16>(gpu, args);
  if (fits(std::integral_constant<int, 4>())) return Enqueue<4>(gpu, args);
  return Enqueue<1>(gpu, args);
}

}  // namespace tfo
