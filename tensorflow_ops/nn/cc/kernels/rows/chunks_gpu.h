// How the CUDA threads of a row read and write it: in chunks (reductions_gpu.h)
// of 16-byte packs, whatever the row's alignment, or of single values of rows
// in shared memory. For .cu.cc files.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_ROWS_CHUNKS_GPU_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_ROWS_CHUNKS_GPU_H_

#include "tensorflow_ops/nn/cc/kernels/rows/reductions_gpu.h"

namespace tfo {
namespace scalar {

// The value of input i where a row has no class: -inf for logits, else zero.
template <typename F>
__device__ typename F::Element Neutral(int i) {
  using Value = Accumulator<typename F::Element>;
  const bool is_logit = kIsSoftmaxState<typename F::State> && i == 0;
  return Narrow<typename F::Element>(is_logit ? -static_cast<Value>(INFINITY)
                                              : Value(0));
}

// Rounds to the nearest T.
template <typename T, int N>
__device__ void NarrowTo(const Accumulator<T> (&values)[N], T* to) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  constexpr bool kPairs = std::is_same_v<T, BFloat16> && N % 2 == 0;
#else
  constexpr bool kPairs = false;
#endif
#pragma unroll
  for (int i = 0; i < N; i += kPairs ? 2 : 1) {
    if constexpr (kPairs) {
      uint32_t pair = 0;
#ifdef __CUDA_ARCH__
      asm("cvt.rn.bf16x2.f32 %0, %1, %2;"
          : "=r"(pair)
          : "f"(values[i + 1]), "f"(values[i]));
#endif
      memcpy(&to[i], &pair, sizeof(pair));
    } else {
      to[i] = Narrow<T>(values[i]);
    }
  }
}

// Loads values [first, last) of a pack, and `fill` for the others.
template <int N, typename T>
__device__ Pack<T, N> LoadPart(const T* from, int first, int last, T fill) {
  if (first <= 0 && last >= N) return LoadPack<N>(from);
  Pack<T, N> pack;
#pragma unroll
  for (int i = 0; i < N; ++i) {
    pack.values[i] = fill;
    if (first <= i && i < last) pack.values[i] = from[i];
  }
  return pack;
}
template <int N, typename T>
__device__ void StorePart(const Pack<T, N>& pack, T* to, int first, int last) {
  if (first <= 0 && last >= N) {
    StorePack(pack, to);
    return;
  }
#pragma unroll
  for (int i = 0; i < N; ++i) {
    if (first <= i && i < last) to[i] = pack.values[i];
  }
}

// A row or a part of it: values [begin, end) after an aligned position, which
// is `offset` elements after a tensor's first one and would be class `origin`.
struct RowSpan {
  int begin = 0, end = 0;
  int64_t offset = 0, origin = 0;
};

// The kSteps packs of N of each input that a thread loads together: every
// `lanes`-th, starting at position `from` of a span.
template <typename F, int N, int kPacks>
struct PackChunk {
  using T = typename F::Element;
  using Value = Accumulator<T>;
  static constexpr int kIn = F::kInputs, kOut = F::kOutputs;
  static constexpr int kSteps = kPacks, kWidth = N;
  Pack<T, N> packs[kIn][kPacks];
  int steps, at, stride, begin, end;

  // Does not load.
  __device__ PackChunk(const RowSpan& span, int from, int lane, int lanes)
      : at(from + lane * N),
        stride(lanes * N),
        begin(span.begin),
        end(span.end) {
    steps = (end - from + stride - 1) / stride;  // the same for all lanes
  }
  __device__ void Load(const F& f, const RowSpan& span) {
#pragma unroll
    for (int step = 0; step < kPacks; ++step) {
      const int here = at + step * stride;
#pragma unroll
      for (int i = 0; i < kIn; ++i) {
        packs[i][step] = LoadPart<N>(f.Input(i) + (span.offset + here),
                                     begin - here, end - here, Neutral<F>(i));
      }
    }
  }
  __device__ Value Get(int input, int step, int i) const {
    return Widen(packs[input][step].values[i]);
  }
  // Between passes over the values: makes the compiler widen them and compute
  // their positions again, instead of keeping both in registers.
  __device__ void Forget() {
#ifdef __CUDA_ARCH__
    asm volatile("" : "+r"(at), "+r"(stride));
    if constexpr (sizeof(T) == 2) {
#pragma unroll
      for (int i = 0; i < kIn * kPacks; ++i) {
        uint32_t words[N * sizeof(T) / 4 + 1];
        Pack<T, N>& pack = packs[i / kPacks][i % kPacks];
        memcpy(words, &pack, sizeof(pack));
#pragma unroll
        for (int w = 0; w < N / 2; ++w) asm volatile("" : "+r"(words[w]));
        memcpy(&pack, words, sizeof(pack));
      }
    }
#endif
  }
  __device__ bool Has(int step, int i) const {
    const int here = at + step * stride + i;
    return begin <= here && here < end;
  }
  template <typename Constants>
  __device__ void Map(const F& f, const Constants& row,
                      const RowSpan& span) const {
    // Values per pass: four take fewer registers where inputs are few.
    constexpr int M = N > 4 && kIn < 4 ? 4 : N;
#pragma unroll
    for (int step = 0; step < kPacks; ++step) {
      if (step >= steps) continue;
      const int here = at + step * stride;
      Pack<T, N> results[kOut];
#pragma unroll
      for (int from = 0; from < N; from += M) {
        Value out[kOut][M];
#pragma unroll
        for (int m = 0; m < M; ++m) {
          Value result[kOut];
          f.Map(
              row, [&](int i) { return Get(i, step, from + m); },
              here + from + m, result);
#pragma unroll
          for (int i = 0; i < kOut; ++i) out[i][m] = result[i];
        }
#pragma unroll
        for (int i = 0; i < kOut; ++i) {
          if (i > 0 && f.Output(i) == nullptr) continue;
          NarrowTo(out[i], &results[i].values[from]);
        }
      }
#pragma unroll
      for (int i = 0; i < kOut; ++i) {
        if (i > 0 && f.Output(i) == nullptr) continue;
        StorePart(results[i], f.Output(i) + (span.offset + here), begin - here,
                  end - here);
      }
    }
  }
};

// ---- Rows in shared memory.

// Whole rows, one after another, widened. A gap after every 128 bytes spreads
// rows over the banks.
template <typename Value, int kCount>
struct RowTile {
  static constexpr int kRun = 128 / sizeof(Value);
  Value values[kCount + kCount / kRun];

  __device__ Value& operator[](int i) { return values[i + i / kRun]; }
};

// `count` values from or to memory, in packs where it is aligned, by a block of
// kThreads.
template <int kThreads, int kCount, typename T, typename Value>
__device__ void ReadTile(const T* from, int count,
                         RowTile<Value, kCount>& tile) {
  constexpr int N = kPackSize<T>, kPacks = kCount / (N * kThreads);
  static_assert(kCount % (N * kThreads) == 0);
  const int thread = threadIdx.x;
  int done = 0;
  if (reinterpret_cast<uintptr_t>(from) % 16 == 0) {
    done = count / N * N;
    Pack<T, N> packs[kPacks];  // all loads before the first use
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      const int at = (thread + i * kThreads) * N;
      if (at < done) packs[i] = LoadPack<N>(from + at);
    }
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      const int at = (thread + i * kThreads) * N;
      if (at >= done) continue;
#pragma unroll
      for (int n = 0; n < N; ++n) tile[at + n] = Widen(packs[i].values[n]);
    }
  }
  for (int at = done + thread; at < count; at += kThreads) {
    tile[at] = Widen(from[at]);
  }
}
template <int kThreads, int kCount, typename T, typename Value>
__device__ void WriteTile(RowTile<Value, kCount>& tile, int count, T* to) {
  constexpr int N = kPackSize<T>;
  const int thread = threadIdx.x;
  int done = 0;
  if (reinterpret_cast<uintptr_t>(to) % 16 == 0) {
    done = count / N * N;
    for (int at = thread * N; at < done; at += kThreads * N) {
      Value values[N];
#pragma unroll
      for (int n = 0; n < N; ++n) values[n] = tile[at + n];
      Pack<T, N> pack;
      NarrowTo(values, pack.values);
      StorePack(pack, to + at);
    }
  }
  for (int at = done + thread; at < count; at += kThreads) {
    to[at] = Narrow<T>(tile[at]);
  }
}

// Every `lanes`-th value of a row of a tile, starting at the lane's own: at
// most kMaxSteps, in registers where a function reads them more than once.
template <typename F, typename Tile, int kMaxSteps, bool kHolds>
struct TileChunk {
  using Value = Accumulator<typename F::Element>;
  static constexpr int kIn = F::kInputs, kOut = F::kOutputs;
  static constexpr int kSteps = kMaxSteps, kWidth = 1;
  const F& f;
  Tile* tiles;
  int at, lanes, steps, end;
  Value held[kHolds ? kIn : 1][kHolds ? kMaxSteps : 1];

  // Empty if there is no row.
  __device__ TileChunk(const F& f, Tile* tiles, bool is_row, int row_begin,
                       int lane, int lanes, int classes)
      : f(f),
        tiles(tiles),
        at(row_begin + lane),
        lanes(lanes),
        steps((classes + lanes - 1) / lanes),
        end(is_row ? row_begin + classes : 0) {
    if constexpr (kHolds) {
#pragma unroll
      for (int step = 0; step < kMaxSteps; ++step) {
        if (step >= steps) break;
#pragma unroll
        for (int i = 0; i < kIn; ++i) held[i][step] = Read(i, step);
      }
    }
  }
  __device__ Value Get(int input, int step, int) const {
    if constexpr (kHolds) return held[input][step];
    return Read(input, step);
  }
  __device__ void Forget() {}
  __device__ bool Has(int step, int) const { return at + step * lanes < end; }
  // Overwrites the inputs with the results.
  template <typename Constants>
  __device__ void Map(const Constants& row, int lane) const {
#pragma unroll
    for (int step = 0; step < kMaxSteps; ++step) {
      if (step >= steps || !Has(step, 0)) break;
      Value out[kOut];
      f.Map(
          row, [&](int i) { return Get(i, step, 0); }, lane + step * lanes,
          out);
#pragma unroll
      for (int i = 0; i < kOut; ++i) {
        if (i == 0 || f.Output(i) != nullptr) {
          tiles[i][at + step * lanes] = out[i];
        }
      }
    }
  }

 private:
  __device__ Value Read(int input, int step) const {
    return Has(step, 0) ? tiles[input][at + step * lanes]
                        : Widen(Neutral<F>(input));
  }
};

}  // namespace scalar
}  // namespace tfo

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_ROWS_CHUNKS_GPU_H_
