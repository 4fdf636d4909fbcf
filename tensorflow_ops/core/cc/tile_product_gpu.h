// Matrix products of a block of threads: C += A B, of operands in shared
// memory. A line is a row of A or a column of B.
#ifndef TENSORFLOW_OPS_CORE_CC_TILE_PRODUCT_GPU_H_
#define TENSORFLOW_OPS_CORE_CC_TILE_PRODUCT_GPU_H_

#include "tensorflow_ops/core/cc/cuda_launch.h"
#include "tensorflow_ops/core/cc/float16.h"

namespace tfo {

// C has kLines x kLines values; kDepth products are added at a time, so that a
// thread of kThreads has one pack of each operand.
template <typename T>
struct TileSize {
  static constexpr int kThreads = 256;
  static constexpr int kLines = sizeof(T) == sizeof(double) ? 64 : 128;
  static constexpr int kDepth = kThreads * kPackSize<T> / kLines;
};

// How packs lie in global memory: along the sum, or along the lines.
enum class Along { kDepth, kLines };

// kLines lines of a factor. Place it in shared memory, aligned to 16 bytes.
template <typename T, Along kAlong>
class alignas(16) Operand {
 public:
  // Stores a pack that begins at this place.
  __device__ void Store(int line, int depth,
                        const Pack<T, kPackSize<T>>& pack) {
    if constexpr (kAlong == Along::kLines) {
      uint4 word;
      memcpy(&word, &pack, sizeof(word));
      *reinterpret_cast<uint4*>(&values_[depth][line]) = word;
    } else {
#pragma unroll
      for (int i = 0; i < kPackSize<T>; ++i) {
        values_[depth + i][line] = pack.values[i];
      }
    }
  }

  // Loads N lines at a depth.
  template <int N>
  __device__ void Load(int line, int depth, Accumulator<T> (&to)[N]) const {
    const Pack<T, N> pack = LoadPack<N>(&values_[depth][line]);
#pragma unroll
    for (int i = 0; i < N; ++i) to[i] = Widen(pack.values[i]);
  }

 private:
  // The pad separates the banks of packs along the depth.
  T values_[TileSize<T>::kDepth][TileSize<T>::kLines + kPackSize<T>];
};

// The thread's part of C.
template <typename T>
class TileProduct {
  using C = Accumulator<T>;

 public:
  // ForEachPack gives this many neighboring columns of a row at once.
  static constexpr int kColumns = kPackSize<C>;

  __device__ void Clear() {
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
#pragma unroll
      for (int j = 0; j < kEach; ++j) sums_[i][j] = 0;
    }
  }

  template <Along kAlongA, Along kAlongB>
  __device__ void Add(const Operand<T, kAlongA>& a,
                      const Operand<T, kAlongB>& b) {
#pragma unroll
    for (int depth = 0; depth < TileSize<T>::kDepth; ++depth) {
      C left[kEach / kColumns][kColumns], right[kEach / kColumns][kColumns];
#pragma unroll
      for (int i = 0; i < kEach / kColumns; ++i) {
        a.Load(Line(Row(), i * kColumns), depth, left[i]);
        b.Load(Line(Column(), i * kColumns), depth, right[i]);
      }
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
#pragma unroll
        for (int j = 0; j < kEach; ++j) {
          sums_[i][j] += left[i / kColumns][i % kColumns] *
                         right[j / kColumns][j % kColumns];
        }
      }
    }
  }

  // Calls f(row, column, values) for all of the thread's sums: equally often in
  // all threads.
  template <typename F>
  __device__ void ForEachPack(const F& f) const {
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
#pragma unroll
      for (int j = 0; j < kEach; j += kColumns) {
        C values[kColumns];
#pragma unroll
        for (int n = 0; n < kColumns; ++n) values[n] = sums_[i][j + n];
        f(Line(Row(), i), Line(Column(), j), values);
      }
    }
  }

 private:
  // Threads are kAcross x kAcross, and have kEach x kEach sums, whose packs lie
  // kAcross packs apart. A warp has 4 x 8 threads: few words, no bank
  // conflicts.
  static constexpr int kAcross = 16;
  static constexpr int kEach = TileSize<T>::kLines / kAcross;
  __device__ static int Row() {
    return threadIdx.x / 64 * 4 + threadIdx.x % 32 / 8;
  }
  __device__ static int Column() {
    return threadIdx.x / 32 % 2 * 8 + threadIdx.x % 8;
  }
  __device__ static int Line(int thread, int i) {
    return (i / kColumns * kAcross + thread) * kColumns + i % kColumns;
  }

  C sums_[kEach][kEach];
};

}  // namespace tfo

#endif  // TENSORFLOW_OPS_CORE_CC_TILE_PRODUCT_GPU_H_
