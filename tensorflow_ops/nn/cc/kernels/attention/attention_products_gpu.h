// Products of a warp's rows with a tile, in registers.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_ATTENTION_ATTENTION_PRODUCTS_GPU_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_ATTENTION_ATTENTION_PRODUCTS_GPU_H_

#include <cstdint>
#include <type_traits>

#include "tensorflow_ops/nn/cc/kernels/attention/attention_gpu.h"

namespace tfo {
namespace attention {

// A warp's 16 rows by 8 * N columns: lane l has, of each 8 columns n, the
// values of FragmentRow(i) and FragmentColumn(n, i).
__device__ inline int WarpRow() { return threadIdx.x / 32 * 16; }
__device__ inline int FragmentRow(int i) {
  return WarpRow() + threadIdx.x % 32 / 4 + i / 2 * 8;
}
__device__ inline int FragmentColumn(int n, int i) {
  return n * 8 + threadIdx.x % 4 * 2 + i % 2;
}

// Loops over fragments whose bodies are long are not unrolled: they access
// fragment 0, then make the next one fragment 0.
template <int N, typename C>
__device__ void Rotate(C (&fragments)[N][4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const C first = fragments[0][i];
#pragma unroll
    for (int n = 0; n + 1 < N; ++n) fragments[n][i] = fragments[n + 1][i];
    fragments[N - 1][i] = first;
  }
}

template <int N, typename C>
__device__ void Clear(C (&sums)[N][4]) {
#pragma unroll
  for (int n = 0; n < N; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) sums[n][i] = 0;
  }
}

// Whether kernels take numbers to be finite at first, and compute sums that are
// not finite again, with care.
template <typename T>
inline constexpr bool kTakesFinite = kHasTensorCores<T> || kHasParts<T>;

// products += the dot products of the warp's rows, of M times kRows, and the
// columns, of which chunks lie in shared memory; `depth`: of the chunk, rounded
// up to 16. kSwapped: with the same bits as if rows were columns.
template <bool kFragments, bool kSwapped, typename T, int M, int N, typename C>
__device__ void AddProducts(const T* rows, const T* columns, int depth,
                            C (&products)[M][N][4]) {
  constexpr int kPack = kPackSize<T>;
  if constexpr (kFragments) {
    const auto multiply = [](const uint32_t (&a)[4], const uint32_t (&b)[2],
                             C(&c)[4]) {
      if constexpr (kHasParts<T>) {
        MultiplyAddInParts<kSwapped>(a, b, c);
      } else {
        MultiplyAdd16x8x16<T>(a, b, c);
      }
    };
    const int lane = threadIdx.x % 32, line = lane % 8;
    const int first = lane / 8 % 2, second = lane / 16;
    const T* const row =
        rows + (WarpRow() + first * 8 + line) * kPitch<T> + second * kPack;
    const T* const column =
        columns + (second * 8 + line) * kPitch<T> + first * kPack;
#pragma unroll
    for (int k = 0; k < kChunk<T>; k += 2 * kPack) {
      if (k >= depth) break;
      uint32_t a[M][4];
#pragma unroll
      for (int m = 0; m < M; ++m) {
        LoadMatrices<4, false>(row + m * kRows * kPitch<T> + k, a[m]);
      }
#pragma unroll
      for (int n = 0; n < N; n += 2) {
        uint32_t b[4];
        LoadMatrices<4, false>(column + n * 8 * kPitch<T> + k, b);
        const uint32_t left[2] = {b[0], b[1]}, right[2] = {b[2], b[3]};
#pragma unroll
        for (int m = 0; m < M; ++m) {
          multiply(a[m], left, products[m][n]);
          multiply(a[m], right, products[m][n + 1]);
        }
      }
    }
  } else {
    for (int k = 0; k < depth; k += kPack) {
      Pack<T, kPack> of_row[2 * M];
#pragma unroll
      for (int m = 0; m < 2 * M; ++m) {
        const int r = m / 2 * kRows + FragmentRow(m % 2 * 2);
        of_row[m] = LoadPack<kPack>(rows + r * kPitch<T> + k);
      }
#pragma unroll
      for (int n = 0; n < N; ++n) {
#pragma unroll
        for (int x = 0; x < 2; ++x) {
          const Pack<T, kPack> of_column =
              LoadPack<kPack>(columns + FragmentColumn(n, x) * kPitch<T> + k);
#pragma unroll
          for (int m = 0; m < 2 * M; ++m) {
#pragma unroll
            for (int d = 0; d < kPack; ++d) {
              products[m / 2][n][m % 2 * 2 + x] +=
                  Widen(of_row[m].values[d]) * Widen(of_column.values[d]);
            }
          }
        }
      }
    }
  }
}

template <typename T>
__device__ uint32_t NarrowPair(float a, float b) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  if constexpr (std::is_same_v<T, BFloat16>) {
    uint32_t pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(b), "f"(a));
    return pair;
  }
#endif
  return Narrow<T>(a).bits | uint32_t{Narrow<T>(b).bits} << 16;
}

// sums[0 to kChunk / 8) += weights * lines, of which there are eight, without
// tensor cores.
template <typename T, typename C>
__device__ void AddEightWeighted(const C (&weights)[4], const T* lines,
                                 C (*sums)[4]) {
  const int lane = threadIdx.x % 32;
#pragma unroll 1
  for (int quad = 0; quad < 4; ++quad) {
#pragma unroll
    for (int x = 0; x < 2; ++x) {
      const int from = lane / 4 * 4 + quad;
      const C first = __shfl_sync(kAllLanes, weights[x], from);
      const C second = __shfl_sync(kAllLanes, weights[2 + x], from);
      const T* const line = lines + (quad * 2 + x) * kPitch<T> + lane % 4 * 2;
#pragma unroll
      for (int n = 0; n < kChunk<T> / 8; ++n) {
        const Pack<T, 2> pair = LoadPack<2>(line + n * 8);
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const C value = Widen(pair.values[i]);
          if (first != 0) sums[n][i] += first * value;
          if (second != 0) sums[n][2 + i] += second * value;
        }
      }
    }
  }
}

// Adds to kChunk / 8 sums, from `first` on, weights * lines, of which a chunk
// lies in shared memory. A weight of 0 adds nothing, whatever its line holds,
// unless the lines are said to be all_finite; not read without kTakesFinite.
template <typename T, int M, int N, int kWidth, typename C>
__device__ void AddWeighted(C (&weights)[M][N][4], const T* lines,
                            bool all_finite, int first_sum,
                            C (&sums)[M][kWidth][4]) {
  if constexpr (!kTakesFinite<T>) {
#pragma unroll
    for (int k = 0; k < N; ++k) {
#pragma unroll
      for (int m = 0; m < M; ++m) {
        AddEightWeighted(weights[m][k], lines + k * 8 * kPitch<T>,
                         &sums[m][first_sum]);
      }
    }
  } else if (!all_finite) {
#pragma unroll 1
    for (int k = 0; k < N; ++k) {
#pragma unroll
      for (int m = 0; m < M; ++m) {
        AddEightWeighted(weights[m][0], lines + k * 8 * kPitch<T>,
                         &sums[m][first_sum]);
        Rotate(weights[m]);
      }
    }
  } else if constexpr (kHasParts<T>) {
    // Of eight lines, a lane has weights of two, which are one in each half of
    // a fragment's depth. Their sums are added, not truncated.
    const int lane = threadIdx.x % 32;
    const T* const line = lines + lane % 4 * 2 * kPitch<T> + lane / 4;
    C products[M][kChunk<T> / 8][4];
#pragma unroll
    for (int m = 0; m < M; ++m) Clear(products[m]);
#pragma unroll
    for (int k = 0; k < N; ++k) {
      uint32_t a[M][4];
#pragma unroll
      for (int m = 0; m < M; ++m) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          memcpy(&a[m][i / 2 + i % 2 * 2], &weights[m][k][i], sizeof(C));
        }
      }
#pragma unroll
      for (int n = 0; n < kChunk<T> / 8; ++n) {
        uint32_t b[2];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const T value = line[(k * 8 + i) * kPitch<T> + n * 8];
          memcpy(&b[i], &value, sizeof(value));
        }
#pragma unroll
        for (int m = 0; m < M; ++m) {
          MultiplyAddInParts<false>(a[m], b, products[m][n]);
        }
      }
    }
#pragma unroll
    for (int m = 0; m < M; ++m) {
#pragma unroll
      for (int n = 0; n < kChunk<T> / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          sums[m][first_sum + n][i] += products[m][n][i];
        }
      }
    }
  } else {
    const int lane = threadIdx.x % 32;
    const T* const line =
        lines + (lane % 8 + lane / 8 % 2 * 8) * kPitch<T> + lane / 16 * 8;
#pragma unroll
    for (int k = 0; k < N; k += 2) {
      uint32_t a[M][4];
#pragma unroll
      for (int m = 0; m < M; ++m) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const C* const pair = &weights[m][k + i / 2][i % 2 * 2];
          a[m][i] = NarrowPair<T>(pair[0], pair[1]);
        }
      }
#pragma unroll
      for (int n = 0; n < kChunk<T> / 8; n += 2) {
        uint32_t b[4];
        LoadMatrices<4, true>(line + k * 8 * kPitch<T> + n * 8, b);
        const uint32_t left[2] = {b[0], b[1]}, right[2] = {b[2], b[3]};
#pragma unroll
        for (int m = 0; m < M; ++m) {
          MultiplyAdd16x8x16<T>(a[m], left, sums[m][first_sum + n]);
          MultiplyAdd16x8x16<T>(a[m], right, sums[m][first_sum + n + 1]);
        }
      }
    }
  }
}

// Is any sum of the block infinite or NaN? All threads call this.
template <int N, typename C>
__device__ bool AnyNonFinite(const C (&sums)[N][4]) {
  C zero = 0;
#pragma unroll
  for (int n = 0; n < N; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) zero += sums[n][i] * 0;
  }
  return __syncthreads_or(zero != 0);
}

// Writes the block's rows of sums, each times a factor, as rows `stride` apart
// from `to` on: those below `rows`, and columns below `columns`. pairs: whether
// two columns are written at once.
template <typename T, int N, typename C>
__device__ void WriteRows(const C (&sums)[N][4], const C (&factors)[2],
                          int rows, int columns, bool pairs, int64_t stride,
                          T* to) {
#pragma unroll
  for (int m = 0; m < 2; ++m) {
    const int row = FragmentRow(2 * m);
    if (row >= rows) continue;
#pragma unroll
    for (int n = 0; n < N; ++n) {
      const int column = FragmentColumn(n, 0);
      if (column >= columns) continue;
      T* const place = to + row * stride + column;
      const Pack<T, 2> pair = {Narrow<T>(sums[n][2 * m] * factors[m]),
                               Narrow<T>(sums[n][2 * m + 1] * factors[m])};
      if (pairs) {
        StorePack(pair, place);
      } else {
        place[0] = pair.values[0];
        if (column + 1 < columns) place[1] = pair.values[1];
      }
    }
  }
}

}  // namespace attention
}  // namespace tfo

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_ATTENTION_ATTENTION_PRODUCTS_GPU_H_
