// Products of few rows, which take the time to read the weights.
#include "tensorflow_ops/core/cc/cuda/warp_gpu.h"
#include "tensorflow_ops/nn/cc/kernels/quantized_matmul/quantized_weights_gpu.h"

namespace tfo {
namespace quantized_matmul {
namespace {

constexpr int kWarps = kThreads / kWarp;
// Inputs of a row that shared memory holds.
constexpr int kChunk = 1024;
// Weights along memory that a warp reads at once.
constexpr int kOfWarp = kWarp * kEach;

// Four blocks on each multiprocessor of a large GPU. A constant, so that
// results do not depend on the GPU.
constexpr int64_t kEnoughBlocks = 528;

// Rows that share a read of the weights.
template <bool kOneRow>
constexpr int kRows = kOneRow ? 1 : 4;

template <typename Sum, typename T>
__device__ Sum InputAt(const Task<T>& p, int64_t m, int64_t k) {
  if (m >= p.rows || k >= p.sum) return Sum{0};
  if (p.integers != nullptr) {
    return static_cast<Sum>(p.integers[m * p.pitch + k]);
  }
  return static_cast<Sum>(Widen(p.inputs[m * p.sum + k]));
}

// Threads have kEach neighboring lines, warps an eighth of a block's sums,
// which they join at the end.
template <bool kNibbles, bool kOneRow, typename Sum, typename T>
__global__ void __launch_bounds__(kThreads)
    SumOuter(const __grid_constant__ Stored<Accumulator<T>> w,
             const __grid_constant__ Task<T> p, Sum* parts) {
  using C = Accumulator<T>;
  constexpr bool kExact = std::is_same_v<Sum, uint32_t>;
  constexpr int R = kRows<kOneRow>, kAhead = 8;
  __shared__ Pack<Sum, R> inputs[kChunk];
  __shared__ Sum joined[R][kOfWarp];
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const int64_t tiles = (p.lines + kOfWarp - 1) / kOfWarp;
  const int64_t blocks = tiles * p.parts * ((p.rows + R - 1) / R);
  for (int64_t block = blockIdx.x; block < blocks; block += gridDim.x) {
    const int64_t part = block / tiles % p.parts;
    const int64_t row = block / tiles / p.parts * R;
    const int64_t first_line = block % tiles * kOfWarp;
    const int64_t inner = first_line + lane * kEach;
    const int64_t begin = part * p.part_size;
    const int64_t end =
        begin + p.part_size < p.sum ? begin + p.part_size : p.sum;
    Sum sums[R][kEach] = {};
    [[maybe_unused]] Scales<C, kEach> scales;
    scales.Clear();
    int group = kNoGroup;
    int64_t until = -1;
    if (w.transposed && inner < w.inner) {
      group = GroupOfRun<kEach>(w, inner, &until);
    }
    for (int64_t chunk = begin; chunk < end; chunk += kChunk) {
      const int count =
          static_cast<int>(end - chunk < kChunk ? end - chunk : kChunk);
      // Of a warp, in whole loads ahead.
      const int each =
          (count + kWarps * kAhead - 1) / (kWarps * kAhead) * kAhead;
      __syncthreads();  // the last inputs are read
      for (int k = threadIdx.x; k < each * kWarps; k += kThreads) {
        Pack<Sum, R> pack;
#pragma unroll
        for (int m = 0; m < R; ++m) {
          pack.values[m] =
              k < count ? InputAt<Sum>(p, row + m, chunk + k) : Sum{0};
        }
        inputs[k] = pack;
      }
      __syncthreads();
      for (int i = warp * each; i < (warp + 1) * each; i += kAhead) {
        Numbers read[kAhead];
        if (w.has_packs) {
#pragma unroll
          for (int u = 0; u < kAhead; ++u) {
            read[u] = Read<kEach, kNibbles, true>(w, chunk + i + u, inner);
          }
        } else {
#pragma unroll
          for (int u = 0; u < kAhead; ++u) {
            read[u] = Read<kEach, kNibbles, false>(w, chunk + i + u, inner);
          }
        }
#pragma unroll
        for (int u = 0; u < kAhead; ++u) {
          const int64_t outer = chunk + i + u;
          const Pack<Sum, R> x = inputs[i + u];
          const Numbers numbers = Biased<kNibbles>(w, outer, read[u]);
          Sum weights[kEach];
          if constexpr (kExact) {
#pragma unroll
            for (int n = 0; n < kEach; ++n) {
              weights[n] = IntegerOf<kNibbles>(numbers, n);
            }
          } else {
            if (w.transposed || outer >= until) {
              if (!w.transposed) {
                if (outer >= w.outer) break;
                group = GroupOfRun<1>(w, outer, &until);
              }
              scales.template Load<kNibbles>(w, outer, inner, group);
            }
            Dequantize<kNibbles>(w, numbers, scales, weights);
          }
#pragma unroll
          for (int m = 0; m < R; ++m) {
#pragma unroll
            for (int n = 0; n < kEach; ++n) {
              sums[m][n] += weights[n] * x.values[m];
            }
          }
        }
      }
    }
    for (int turn = 0; turn < kWarps; ++turn) {
      if (warp == turn) {
#pragma unroll
        for (int m = 0; m < R; ++m) {
#pragma unroll
          for (int n = 0; n < kEach; ++n) {
            Sum& to = joined[m][n * kWarp + lane];
            to = turn == 0 ? sums[m][n] : to + sums[m][n];
          }
        }
      }
      __syncthreads();
    }
    const int64_t line = first_line + threadIdx.x;
    for (int m = 0; m < R; ++m) {
      if (row + m >= p.rows || line >= p.lines) break;
      parts[(part * p.rows + row + m) * p.lines + line] =
          joined[m][threadIdx.x % kEach * kWarp + threadIdx.x / kEach];
    }
    __syncthreads();
  }
}

// Warps have kLines lines, lanes kEach of each kOfWarp neighboring weights.
template <bool kNibbles, bool kOneRow, typename Sum, typename T>
__global__ void __launch_bounds__(kThreads, 2)
    SumInner(const __grid_constant__ Stored<Accumulator<T>> w,
             const __grid_constant__ Task<T> p, Sum* parts) {
  using C = Accumulator<T>;
  constexpr bool kExact = std::is_same_v<Sum, uint32_t>;
  constexpr int R = kRows<kOneRow>, kLines = 4, kHalf = kEach / 2;
  constexpr int kPasses = kChunk / kOfWarp;
  // In the order in which lanes read packs: halves of kEach apart.
  __shared__ Pack<Sum, kHalf> inputs[R][kPasses][2][kWarp];
  __shared__ int groups[kChunk / kEach];
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  constexpr int kOfBlock = kWarps * kLines;
  const int64_t tiles = (p.lines + kOfBlock - 1) / kOfBlock;
  const int64_t blocks = tiles * p.parts * ((p.rows + R - 1) / R);
  for (int64_t block = blockIdx.x; block < blocks; block += gridDim.x) {
    const int64_t part = block / tiles % p.parts;
    const int64_t row = block / tiles / p.parts * R;
    const int64_t outer = block % tiles * kOfBlock + warp * kLines;
    const int64_t begin = part * p.part_size;
    const int64_t end =
        begin + p.part_size < p.sum ? begin + p.part_size : p.sum;
    Sum sums[kLines][R] = {};
    int of_line[kLines];
    int64_t until;
#pragma unroll
    for (int l = 0; l < kLines; ++l) {
      of_line[l] = !kExact && !w.transposed && outer + l < w.outer
                       ? GroupAt(w, outer + l)
                       : kNoGroup;
    }
    for (int64_t chunk = begin; chunk < end; chunk += kChunk) {
      Numbers read[kPasses][kLines];
      const auto read_all = [&](auto has_packs) {
#pragma unroll
        for (int pass = 0; pass < kPasses; ++pass) {
          const int64_t inner = chunk + pass * kOfWarp + lane * kEach;
#pragma unroll
          for (int l = 0; l < kLines; ++l) {
            read[pass][l] = Read<kEach, kNibbles, has_packs>(
                w, inner < end ? outer + l : w.outer, inner);
          }
        }
      };
      if (w.has_packs) {
        read_all(std::true_type());
      } else {
        read_all(std::false_type());
      }
      __syncthreads();  // the last inputs are read
#pragma unroll
      for (int m = 0; m < R; ++m) {
        for (int k = threadIdx.x; k < kChunk; k += kThreads) {
          inputs[m][k / kOfWarp][k / kHalf % 2][k % kOfWarp / kEach]
              .values[k % kHalf] =
              chunk + k < end ? InputAt<Sum>(p, row + m, chunk + k) : Sum{0};
        }
      }
      if (!kExact && w.transposed && threadIdx.x < kChunk / kEach) {
        const int64_t k = chunk + threadIdx.x * kEach;
        groups[threadIdx.x] =
            k < end ? GroupOfRun<kEach>(w, k, &until) : kNoGroup;
      }
      __syncthreads();
#pragma unroll
      for (int pass = 0; pass < kPasses; ++pass) {
        const int64_t inner = chunk + pass * kOfWarp + lane * kEach;
        if (chunk + pass * kOfWarp >= end) break;
        Pack<Sum, kHalf> x[R][2];
#pragma unroll
        for (int m = 0; m < R; ++m) {
          x[m][0] = inputs[m][pass][0][lane];
          x[m][1] = inputs[m][pass][1][lane];
        }
        const auto add = [&](int l, const Sum(&weights)[kEach]) {
#pragma unroll
          for (int m = 0; m < R; ++m) {
#pragma unroll
            for (int n = 0; n < kEach; ++n) {
              sums[l][m] += weights[n] * x[m][n / kHalf].values[n % kHalf];
            }
          }
        };
        if constexpr (kExact) {
#pragma unroll
          for (int l = 0; l < kLines; ++l) {
            const Numbers numbers =
                Biased<kNibbles>(w, outer + l, read[pass][l]);
            Sum weights[kEach];
#pragma unroll
            for (int n = 0; n < kEach; ++n) {
              weights[n] = IntegerOf<kNibbles>(numbers, n);
            }
            add(l, weights);
          }
        } else {
          Scales<C, kEach> scales;
          int last = kMixed;
#pragma unroll
          for (int l = 0; l < kLines; ++l) {
            const int group =
                w.transposed ? groups[pass * kWarp + lane] : of_line[l];
            if (w.transposed || group != last) {
              scales.template Load<kNibbles>(w, outer + l, inner, group);
              last = group;
            }
            const Numbers numbers =
                Biased<kNibbles>(w, outer + l, read[pass][l]);
            C weights[kEach];
            Dequantize<kNibbles>(w, numbers, scales, weights);
            add(l, weights);
          }
        }
      }
    }
#pragma unroll
    for (int l = 0; l < kLines; ++l) {
#pragma unroll
      for (int m = 0; m < R; ++m) {
        const Sum sum = SumOfLanes(sums[l][m]);
        if (lane == 0 && row + m < p.rows && outer + l < p.lines) {
          parts[(part * p.rows + row + m) * p.lines + outer + l] = sum;
        }
      }
    }
  }
}

}  // namespace

template <typename T>
void SplitFewRows(bool sums_inner, Task<T>* p) {
  const int64_t lines = sums_inner ? kWarps * 4 : kOfWarp;
  const int64_t tiles =
      DivideUp(p->lines, lines) * DivideUp(p->rows, p->rows == 1 ? 1 : 4);
  Split(tiles, kEnoughBlocks, sums_inner ? kOfWarp : kWarps * kEach, p);
}

template <typename Sum, typename T>
Error EnqueueFewRows(const Gpu& gpu, const Stored<Accumulator<T>>& w,
                     const Task<T>& p, bool sums_inner, Sum* parts) {
  const auto run = [&](auto nibbles, auto one_row) {
    constexpr int R = kRows<one_row>;
    const int64_t lines = sums_inner ? kWarps * 4 : kOfWarp;
    const int64_t blocks =
        DivideUp(p.lines, lines) * p.parts * DivideUp(p.rows, R);
    return Launch(gpu, GridSize(blocks), kThreads,
                  sums_inner ? SumInner<nibbles, one_row, Sum, T>
                             : SumOuter<nibbles, one_row, Sum, T>,
                  w, p, parts);
  };
  const auto run_rows = [&](auto nibbles) {
    return p.rows == 1 ? run(nibbles, std::true_type())
                       : run(nibbles, std::false_type());
  };
  return w.HasPairs() ? run_rows(std::true_type())
                      : run_rows(std::false_type());
}

#define TFO_INSTANTIATE(T)                                                \
  template void SplitFewRows<T>(bool, Task<T>*);                       \
  template Error EnqueueFewRows<Accumulator<T>, T>(                       \
      const Gpu&, const Stored<Accumulator<T>>&, const Task<T>&, bool, \
      Accumulator<T>*);                                                   \
  template Error EnqueueFewRows<uint32_t, T>(                             \
      const Gpu&, const Stored<Accumulator<T>>&, const Task<T>&, bool, \
      uint32_t*)
TFO_FOR_EACH_FLOAT(TFO_INSTANTIATE);
#undef TFO_INSTANTIATE

}  // namespace quantized_matmul
}  // namespace tfo
