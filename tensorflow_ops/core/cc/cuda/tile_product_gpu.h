// Matrix products of a block of threads: C += A B, of operands in shared
// memory. A line is a row of A or a column of B.
#ifndef TENSORFLOW_OPS_CORE_CC_CUDA_TILE_PRODUCT_GPU_H_
#define TENSORFLOW_OPS_CORE_CC_CUDA_TILE_PRODUCT_GPU_H_

#include "tensorflow_ops/core/cc/cuda/mma_gpu.h"
#include "tensorflow_ops/core/cc/cuda/warp_gpu.h"
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
// There are no bank conflicts where consecutive threads store packs that are
// consecutive in kAlong.
// Its size is the same on all GPUs.
template <typename T, Along kAlong, bool kTensorCores = kHasTensorCores<T>>
class alignas(16) Operand {
  static constexpr int kLines = TileSize<T>::kLines;
  static constexpr int kDepth = TileSize<T>::kDepth;
  static constexpr int kPack = kPackSize<T>;

 public:
  // Stores a pack that begins at this place.
  __device__ void Store(int line, int depth, const Pack<T, kPack>& pack) {
    if constexpr (kKeepsPacks) {
      uint4 word;
      memcpy(&word, &pack, sizeof(word));
      cuda_launch_internal::CheckAligned(At(line, depth), sizeof(word));
      *reinterpret_cast<uint4*>(At(line, depth)) = word;
    } else {
#pragma unroll
      for (int i = 0; i < kPack; ++i) Set(line, depth + i, pack.values[i]);
    }
  }

  // Starts storing the pack at `from`, or zeros.
  __device__ void CopyAsync(AsyncCopies* copies, int line, int depth,
                            const T* from, bool zeros = false) {
    if constexpr (kKeepsPacks) {
      copies->Copy<16>(At(line, depth), from, zeros ? 0 : 16);
    } else if constexpr (sizeof(T) == 2) {  // too small to copy
      Store(line, depth, zeros ? Pack<T, kPack>() : LoadPack<kPack>(from));
    } else {
#pragma unroll
      for (int i = 0; i < kPack; ++i) {
        copies->Copy<sizeof(T)>(At(line, depth + i), from + i,
                                zeros ? 0 : sizeof(T));
      }
    }
  }

  __device__ void Set(int line, int depth, T value) {
    *At(line, depth) = value;
  }

  // Loads N lines, from a multiple of N on, at a depth.
  template <int N>
  __device__ void Load(int line, int depth, Accumulator<T> (&to)[N]) const {
    const Pack<T, N> pack = LoadPack<N>(At(line, depth));
#pragma unroll
    for (int i = 0; i < N; ++i) to[i] = Widen(pack.values[i]);
  }

  // Loads a fragment of MultiplyAdd16x8x16: of A, 16 lines by 16 of the depth;
  // of B the same, which is two fragments. They differ in the order of their
  // four matrices: the second is the next 8 lines of A, the next depths of B.
  template <bool kLinesFirst>
  __device__ void LoadFragments(int line, int depth, uint32_t (&to)[4]) const {
    const int lane = threadIdx.x % 32, row = lane % 8;
    const int first = lane / 8 % 2 * 8, second = lane / 16 * 8;
    line += kLinesFirst ? first : second;
    depth += kLinesFirst ? second : first;
    LoadMatrices<4, kByDepth>(
        kByDepth ? At(line, depth + row) : At(line + row, depth), to);
  }

 private:
  // The order in shared memory is [depth][line], or [line][depth] for fragments
  // of packs along the depth.
  static constexpr bool kByDepth = kAlong == Along::kLines || !kTensorCores;
  static constexpr bool kKeepsPacks = (kAlong == Along::kLines) == kByDepth;
  // Keeps columns of packs in different banks.
  static constexpr int kPitch = kLines + kPack;

  __device__ T* At(int line, int depth) {
    return const_cast<T*>(static_cast<const Operand*>(this)->At(line, depth));
  }
  __device__ const T* At(int line, int depth) const {
    if constexpr (kByDepth) return &values_[depth * kPitch + line];
    // A line has two packs. Every second four lines have them in other order,
    // so that eight lines have a column of packs in different banks.
    static_assert(kByDepth || kDepth == 2 * kPack);
    return &values_[line * kDepth + (depth ^ line / 4 % 2 * kPack)];
  }

  T values_[kDepth * kPitch];
};

// The thread's part of C. kTensorCores: for tests.
template <typename T, bool kTensorCores = kHasTensorCores<T>>
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
  __device__ void Add(const Operand<T, kAlongA, kTensorCores>& a,
                      const Operand<T, kAlongB, kTensorCores>& b) {
    if constexpr (kTensorCores) {
#pragma unroll
      for (int depth = 0; depth < TileSize<T>::kDepth; depth += 16) {
        AddFragments(a, b, depth);
      }
    } else {
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
  }

  // Calls f(row, column, values) for all of the thread's sums: equally often in
  // all threads, all of which call this.
  template <typename F>
  __device__ void ForEachPack(const F& f) const {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
#pragma unroll
      for (int j = 0; j < kEach; j += kColumns) {
        C values[kColumns];
        if constexpr (kTensorCores) {
          // Of two fragments, lanes have two columns of each; the next lane has
          // the next two. They swap: an even lane gets four of the first.
          const bool odd = lane % 2 != 0;
#pragma unroll
          for (int n = 0; n < 2; ++n) {
            const C first = sums_[i][j + n], second = sums_[i][j + 2 + n];
            const C other = __shfl_xor_sync(kAllLanes, odd ? first : second, 1);
            values[n] = odd ? other : first;
            values[2 + n] = odd ? second : other;
          }
          f(FragmentRow() + i / 2 * 16 + i % 2 * 8 + lane / 4,
            FragmentColumn() + (j / 2 + lane % 2) * 8 + lane % 4 / 2 * 4,
            values);
        } else {
#pragma unroll
          for (int n = 0; n < kColumns; ++n) values[n] = sums_[i][j + n];
          f(Line(Row(), i), Line(Column(), j), values);
        }
      }
    }
  }

 private:
  // Threads are kAcross x kAcross, and have kEach x kEach sums, whose packs lie
  // kAcross packs apart. A warp has 4 x 8 threads, in an order in which
  // neighbors share a row or a column, so that loads of 16 bytes can merge.
  static constexpr int kAcross = 16;
  static constexpr int kEach = TileSize<T>::kLines / kAcross;
  __device__ static int Row() {
    const int t = threadIdx.x;
    return t / 64 * 4 + t / 8 % 2 * 2 + t / 2 % 2;
  }
  __device__ static int Column() {
    const int t = threadIdx.x;
    return t / 32 % 2 * 8 + t / 16 % 2 * 4 + t / 4 % 2 * 2 + t % 2;
  }
  __device__ static int Line(int thread, int i) {
    return (i / kColumns * kAcross + thread) * kColumns + i % kColumns;
  }

  // With tensor cores, warps are 2 x 4, and have 64 x 32 sums: those of
  // fragment [i][j] are sums_[2 * i to 2 * i + 1][2 * j to 2 * j + 1].
  __device__ static int FragmentRow() { return threadIdx.x / 128 * 64; }
  __device__ static int FragmentColumn() { return threadIdx.x / 32 % 4 * 32; }

  template <typename A, typename B>
  __device__ void AddFragments(const A& a, const B& b, int depth) {
    uint32_t left[4][4], right[2][4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      a.template LoadFragments<true>(FragmentRow() + i * 16, depth, left[i]);
    }
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      b.template LoadFragments<false>(FragmentColumn() + j * 16, depth,
                                      right[j]);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const uint32_t of_b[2] = {right[j / 2][j % 2 * 2],
                                  right[j / 2][j % 2 * 2 + 1]};
        C(&top)[kEach] = sums_[2 * i];
        C(&bottom)[kEach] = sums_[2 * i + 1];
        float sums[4] = {top[2 * j], top[2 * j + 1], bottom[2 * j],
                         bottom[2 * j + 1]};
        MultiplyAdd16x8x16<T>(left[i], of_b, sums);
        top[2 * j] = sums[0];
        top[2 * j + 1] = sums[1];
        bottom[2 * j] = sums[2];
        bottom[2 * j + 1] = sums[3];
      }
    }
  }

  C sums_[kEach][kEach];
};

}  // namespace tfo

#endif  // TENSORFLOW_OPS_CORE_CC_CUDA_TILE_PRODUCT_GPU_H_
