// Products with the recurrent kernel on a GPU. Each step is a launch, so that
// all blocks share its products, and reads a weight once for several examples.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_RECURRENT_RECURRENT_GPU_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_RECURRENT_RECURRENT_GPU_H_

#include <algorithm>
#include <cstdint>

#include "tensorflow_ops/core/cc/cuda/warp_gpu.h"
#include "tensorflow_ops/core/cc/int_math.h"
#include "tensorflow_ops/nn/cc/kernels/recurrent/recurrent.h"

namespace tfo {

inline constexpr int kThreads = 256, kWarps = kThreads / kWarp;

// Whether a step of the example before t is not masked. All lanes of the warp
// must call.
__device__ inline bool HasBegun(const RecurrentSpec& s, int64_t example,
                                int64_t t) {
  if (s.mask == nullptr || t <= 0) return t > 0;
  const bool* const kept = s.mask + example * s.steps;
  bool has_begun = kept[0];
  for (int64_t end = t; end > 0 && !has_begun; end -= kWarp) {
    const int64_t step = end - 1 - threadIdx.x % kWarp;
    has_begun = __any_sync(kAllLanes, step >= 0 && kept[step]);
  }
  return has_begun;
}

// Adjacent examples and units, whose products a block or a warp computes.
template <int kExamples, int kUnits>
struct RecurrentTile {
  static TFO_HOST_DEVICE int64_t Count(const RecurrentSpec& s) {
    return DivideUp(s.batch, kExamples) * DivideUp(s.units, kUnits);
  }

  // Those beyond the end are repetitions of the last.
  __device__ RecurrentTile(const RecurrentSpec& s, int64_t tile)
      : s(s),
        example(tile / DivideUp(s.units, kUnits) * kExamples),
        unit(tile % DivideUp(s.units, kUnits) * kUnits) {}
  __device__ int64_t Example(int e) const {
    return example + e < s.batch ? example + e : s.batch - 1;
  }
  __device__ int64_t Unit(int u) const {
    return unit + u < s.units ? unit + u : s.units - 1;
  }
  __device__ bool Has(int e, int u) const {
    return example + e < s.batch && unit + u < s.units;
  }
  const RecurrentSpec& s;
  int64_t example, unit;
};

// A block's: a warp has every kWarps-th row of the recurrent kernel, and a lane
// a unit.
template <typename T>
using ColumnsTile = RecurrentTile<32 / sizeof(T), kWarp>;

// Calls finish(example, unit, has_begun, sums) for all, where sums[g] is the
// product of row_of(example, has_begun), [depth], and column g * units + unit
// of `kernel`, whose rows are `width` apart. has_begun is that before step t.
template <int kGates, typename T, typename RowOf, typename Finish>
__device__ void MultiplyColumns(const RecurrentSpec& s, int64_t t,
                                const T* kernel, int64_t width, int64_t depth,
                                const RowOf& row_of, const Finish& finish) {
  constexpr int kExamples = 32 / sizeof(T);
  __shared__ T parts[kWarps][kExamples][kGates][kWarp];
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  for (int64_t i = blockIdx.x; i < ColumnsTile<T>::Count(s); i += gridDim.x) {
    const ColumnsTile<T> tile(s, i);
    const T* rows[kExamples];
    uint32_t begun = 0;
#pragma unroll
    for (int e = 0; e < kExamples; ++e) {
      const bool has_begun = HasBegun(s, tile.Example(e), t);
      rows[e] = row_of(tile.Example(e), has_begun);
      begun |= uint32_t{has_begun} << e;
    }
    T sums[kExamples][kGates] = {};
#pragma unroll 4
    for (int64_t k = warp; k < depth; k += kWarps) {
      const T* const from = kernel + k * width + tile.Unit(lane);
      T weights[kGates];
#pragma unroll
      for (int g = 0; g < kGates; ++g) weights[g] = from[g * s.units];
#pragma unroll
      for (int e = 0; e < kExamples; ++e) {
        const T x = rows[e][k];
#pragma unroll
        for (int g = 0; g < kGates; ++g) sums[e][g] += x * weights[g];
      }
    }
    __syncthreads();  // the last tile's parts were read
#pragma unroll
    for (int e = 0; e < kExamples; ++e) {
#pragma unroll
      for (int g = 0; g < kGates; ++g) parts[warp][e][g][lane] = sums[e][g];
    }
    __syncthreads();
    if (warp >= kExamples || !tile.Has(warp, lane)) continue;
    T totals[kGates] = {};
    for (int w = 0; w < kWarps; ++w) {
#pragma unroll
      for (int g = 0; g < kGates; ++g) totals[g] += parts[w][warp][g][lane];
    }
    finish(tile.Example(warp), tile.Unit(lane), begun >> warp & 1, totals);
  }
}

// Returns to lane i the sum of all lanes' values[i], and overwrites values.
// Adds lanes N apart; templates, since nvcc does not unroll a loop over N.
template <int N = kWarp / 2, typename T>
__device__ T SumToLane(T (&values)[kWarp]) {
  const bool upper = threadIdx.x & N;
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const T other = upper ? values[i] : values[i + N];
    values[i] = (upper ? values[i + N] : values[i]) +
                __shfl_xor_sync(kAllLanes, other, N);
  }
  if constexpr (N == 1) return values[0];
  if constexpr (N > 1) return SumToLane<N / 2>(values);
}

// A warp's, which has its lanes along a row of the recurrent kernel.
using RowsTile = RecurrentTile<8, kWarp / 8>;

// Calls finish(example, unit, has_begun, sum) for all, where `sum` is the
// product of row_of(example) and the unit's row of `kernel`, [depth]. Rows of
// the kernel are `width` apart.
template <typename T, typename RowOf, typename Finish>
__device__ void MultiplyRows(const RecurrentSpec& s, int64_t t, const T* kernel,
                             int64_t width, int64_t depth, const RowOf& row_of,
                             const Finish& finish) {
  constexpr int kExamples = 8, kUnits = kWarp / kExamples;
  const int lane = threadIdx.x % kWarp;
  for (int64_t i = int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp;
       i < RowsTile::Count(s); i += int64_t{gridDim.x} * kWarps) {
    const RowsTile tile(s, i);
    const T *rows[kExamples], *weights[kUnits];
    uint32_t begun = 0;
#pragma unroll
    for (int e = 0; e < kExamples; ++e) {
      rows[e] = row_of(tile.Example(e));
      begun |= uint32_t{HasBegun(s, tile.Example(e), t)} << e;
    }
#pragma unroll
    for (int u = 0; u < kUnits; ++u) weights[u] = kernel + tile.Unit(u) * width;
    T sums[kWarp] = {};
#pragma unroll 4
    for (int64_t k = lane; k < depth; k += kWarp) {
      T w[kUnits];
#pragma unroll
      for (int u = 0; u < kUnits; ++u) w[u] = weights[u][k];
#pragma unroll
      for (int e = 0; e < kExamples; ++e) {
        const T x = rows[e][k];
#pragma unroll
        for (int u = 0; u < kUnits; ++u) sums[e * kUnits + u] += x * w[u];
      }
    }
    const T sum = SumToLane(sums);
    const int e = lane / kUnits, u = lane % kUnits;
    if (tile.Has(e, u)) {
      finish(tile.Example(e), tile.Unit(u), begun >> e & 1, sum);
    }
  }
}

// Blocks of kernels that call MultiplyColumns or MultiplyRows.
template <typename T>
unsigned BlocksForColumns(const RecurrentSpec& s) {
  return GridSize(ColumnsTile<T>::Count(s));
}
inline unsigned BlocksForRows(const RecurrentSpec& s) {
  return GridSize(DivideUp(RowsTile::Count(s), kWarps));
}

}  // namespace tfo

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_RECURRENT_RECURRENT_GPU_H_
