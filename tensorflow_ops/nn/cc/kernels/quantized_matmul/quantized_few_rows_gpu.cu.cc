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

// Blocks of a multiprocessor, for which threads have few enough registers.
TFO_HOST_DEVICE constexpr int Resident(bool sums_inner, bool one_row) {
  return !sums_inner && one_row ? 3 : 2;
}

// Rows that share a read of the weights.
template <bool kOneRow>
constexpr int kRows = kOneRow ? 1 : 4;

template <typename Sum>
__device__ Sum InputAt(const FewRows& p, int64_t m, int64_t k) {
  if (m >= p.rows || k >= p.sum) return Sum{0};
  const int64_t at = m * p.pitch + k;
  switch (p.kind) {
    case InputKind::kIntegers:
      return static_cast<Sum>(static_cast<const int8_t*>(p.inputs)[at]);
    case InputKind::kHalf:
      return static_cast<Sum>(Widen(static_cast<const Half*>(p.inputs)[at]));
    case InputKind::kBFloat16:
      return static_cast<Sum>(
          Widen(static_cast<const BFloat16*>(p.inputs)[at]));
    default:
      return static_cast<const Sum*>(p.inputs)[at];
  }
}

// What a block computes.
struct Share {
  int64_t part, row, tile, begin, end;
};
__device__ inline Share ShareOf(const FewRows& p, int64_t block, int64_t tiles,
                                int rows) {
  const int64_t part = block / tiles % p.parts, begin = part * p.part_size;
  return {part, block / tiles / p.parts * rows, block % tiles, begin,
          begin + p.part_size < p.sum ? begin + p.part_size : p.sum};
}

// Threads have kEach neighboring lines, warps an eighth of a block's sums,
// which they join at the end. kForward: groups are along the sum, so weights
// are not transposed; else along the lines.
template <bool kForward, bool kNibbles, bool kOneRow, typename Sum, typename C>
__global__ void __launch_bounds__(kThreads, Resident(false, kOneRow))
    SumOuter(const __grid_constant__ Stored<C> w,
             const __grid_constant__ FewRows p, Sum* parts) {
  constexpr bool kExact = std::is_same_v<Sum, uint32_t>;
  constexpr int R = kRows<kOneRow>, kAhead = 8;
  __shared__ Pack<Sum, R> inputs[kChunk];
  __shared__ Sum joined[R][kOfWarp];
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const int64_t tiles = (p.lines + kOfWarp - 1) / kOfWarp;
  const int64_t blocks = tiles * p.parts * ((p.rows + R - 1) / R);
  for (int64_t block = blockIdx.x; block < blocks; block += gridDim.x) {
    const Share share = ShareOf(p, block, tiles, R);
    const int64_t inner = share.tile * kOfWarp + lane * kEach;
    Sum sums[R][kEach] = {};
    [[maybe_unused]] Scales<kNibbles, C, kEach> scales;
    scales.Set(0, 0);
    int group = kNoGroup;
    int64_t until = -1;
    if (!kForward && inner < w.inner) {
      group = GroupOfRun<kEach>(w, inner, &until);
    }
    const auto add = [&](int outer, const Numbers& read,
                         const Pack<Sum, R>& x) {
      const Numbers numbers = Biased<kNibbles>(w, outer, read);
      Sum weights[kEach];
      if constexpr (kExact) {
#pragma unroll
        for (int n = 0; n < kEach; ++n) {
          weights[n] = IntegerOf<kNibbles>(numbers, n);
        }
      } else {
        Dequantize<kNibbles>(w, numbers, scales, weights);
      }
#pragma unroll
      for (int m = 0; m < R; ++m) {
#pragma unroll
        for (int n = 0; n < kEach; ++n) {
          sums[m][n] += weights[n] * x.values[m];
        }
      }
    };
    for (int64_t chunk = share.begin; chunk < share.end; chunk += kChunk) {
      const int count = static_cast<int>(
          share.end - chunk < kChunk ? share.end - chunk : kChunk);
      // Of a warp, in whole loads ahead.
      const int each =
          (count + kWarps * kAhead - 1) / (kWarps * kAhead) * kAhead;
      __syncthreads();  // the last inputs are read
      for (int k = threadIdx.x; k < each * kWarps; k += kThreads) {
#pragma unroll
        for (int m = 0; m < R; ++m) {
          inputs[k].values[m] =
              k < count ? InputAt<Sum>(p, share.row + m, chunk + k) : Sum{0};
        }
      }
      __syncthreads();
      for (int i = warp * each; i < (warp + 1) * each; i += kAhead) {
        const int64_t outer = chunk + i;
        if (kForward && !kExact && outer < w.outer && outer >= until) {
          group = GroupOfRun<1>(w, outer, &until);
          scales = LoadScales<kNibbles, kEach>(w, outer, inner, group);
        }
        const bool has_one_group =
            kExact || (kForward ? outer + kAhead <= until || until >= w.outer
                                : group != kMixed);
        if (w.has_packs && has_one_group && outer + kAhead <= w.outer) {
          // Threads without lines read some others'.
          const uint8_t* const from =
              PlaceOf<kNibbles>(w, outer, inner < w.inner ? inner : 0);
          Numbers read[kAhead];
          [[maybe_unused]] C scale[kAhead] = {}, shift[kAhead] = {};
#pragma unroll
          for (int u = 0; u < kAhead; ++u) {
            read[u] = ReadPack<kEach, kNibbles>(
                from + (w.pairs_outer ? u / 2 : u) * w.pitch);
            if (!kForward && group != kNoGroup) {
              LoadScale(w, (outer + u) * w.groups + group, &scale[u],
                        &shift[u]);
            }
          }
#pragma unroll
          for (int u = 0; u < kAhead; ++u) {
            if constexpr (!kForward) scales.Set(scale[u], shift[u]);
            add(u, read[u], inputs[i + u]);
          }
        } else {
#pragma unroll 1
          for (int u = 0; u < kAhead && outer + u < w.outer; ++u) {
            if (!kExact && (!kForward || outer + u >= until)) {
              if (kForward) group = GroupOfRun<1>(w, outer + u, &until);
              scales = LoadScales<kNibbles, kEach>(w, outer + u, inner, group);
            }
            add(u, Read<kEach, kNibbles>(w, outer + u, inner), inputs[i + u]);
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
    const int64_t line = share.tile * kOfWarp + threadIdx.x;
    for (int m = 0; m < R; ++m) {
      if (share.row + m >= p.rows || line >= p.lines) break;
      parts[(share.part * p.rows + share.row + m) * p.lines + line] =
          joined[m][threadIdx.x % kEach * kWarp + threadIdx.x / kEach];
    }
    __syncthreads();
  }
}

// Lines of a warp.
TFO_HOST_DEVICE constexpr int LinesOfWarp(bool one_row) {
  return one_row ? 8 : 4;
}

// Lanes have kEach of each kOfWarp neighboring weights. kForward: weights are
// transposed.
template <bool kForward, bool kNibbles, bool kOneRow, typename Sum, typename C>
__global__ void __launch_bounds__(kThreads, Resident(true, kOneRow))
    SumInner(const __grid_constant__ Stored<C> w,
             const __grid_constant__ FewRows p, Sum* parts) {
  constexpr bool kExact = std::is_same_v<Sum, uint32_t>;
  constexpr int R = kRows<kOneRow>, kHalf = kEach / 2;
  constexpr int kLines = LinesOfWarp(kOneRow);
  // In the order in which lanes read packs.
  __shared__ Pack<Sum, kHalf> inputs[R][kChunk / kOfWarp][2][kWarp];
  __shared__ int groups[kChunk / kEach];
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const int64_t tiles = (p.lines + kWarps * kLines - 1) / (kWarps * kLines);
  const int64_t blocks = tiles * p.parts * ((p.rows + R - 1) / R);
  for (int64_t block = blockIdx.x; block < blocks; block += gridDim.x) {
    const Share share = ShareOf(p, block, tiles, R);
    const int64_t outer = (share.tile * kWarps + warp) * kLines;
    Sum sums[kLines][R] = {};
    // Of the next pass.
    Numbers next[kLines];
    const auto read = [&](int64_t inner) {
      if (w.has_packs && outer + kLines <= w.outer) {
        // Lanes behind the end read some others'.
        const uint8_t* const from =
            PlaceOf<kNibbles>(w, outer, inner < share.end ? inner : 0);
#pragma unroll
        for (int l = 0; l < kLines; ++l) {
          next[l] = ReadPack<kEach, kNibbles>(
              from + (w.pairs_outer ? l / 2 : l) * w.pitch);
        }
      } else {
#pragma unroll
        for (int l = 0; l < kLines; ++l) {
          next[l] = Read<kEach, kNibbles>(
              w, inner < share.end ? outer + l : w.outer, inner);
        }
      }
    };
    read(share.begin + lane * kEach);
    for (int64_t chunk = share.begin; chunk < share.end; chunk += kChunk) {
      __syncthreads();  // the last inputs are read
#pragma unroll
      for (int m = 0; m < R; ++m) {
        for (int k = threadIdx.x; k < kChunk; k += kThreads) {
          inputs[m][k / kOfWarp][k / kHalf % 2][k % kOfWarp / kEach]
              .values[k % kHalf] =
              chunk + k < share.end ? InputAt<Sum>(p, share.row + m, chunk + k)
                                    : Sum{0};
        }
      }
      if (kForward && !kExact && threadIdx.x < kChunk / kEach) {
        const int64_t k = chunk + threadIdx.x * kEach;
        int64_t until;
        groups[threadIdx.x] =
            k < share.end ? GroupOfRun<kEach>(w, k, &until) : kNoGroup;
      }
      __syncthreads();
#pragma unroll 1
      for (int pass = 0; pass < kChunk / kOfWarp; ++pass) {
        const int64_t inner = chunk + pass * kOfWarp + lane * kEach;
        if (chunk + pass * kOfWarp >= share.end) break;
        Numbers numbers[kLines];
#pragma unroll
        for (int l = 0; l < kLines; ++l) {
          numbers[l] = Biased<kNibbles>(w, l, next[l]);
        }
        read(inner + kOfWarp);
        Pack<Sum, kHalf> x[R][2];
#pragma unroll
        for (int m = 0; m < R; ++m) {
          x[m][0] = inputs[m][pass][0][lane];
          x[m][1] = inputs[m][pass][1][lane];
        }
        const auto add = [&](const Sum(&weights)[kEach], Sum(&to)[R]) {
#pragma unroll
          for (int m = 0; m < R; ++m) {
#pragma unroll
            for (int n = 0; n < kEach; ++n) {
              to[m] += weights[n] * x[m][n / kHalf].values[n % kHalf];
            }
          }
        };
        if constexpr (kExact) {
#pragma unroll
          for (int l = 0; l < kLines; ++l) {
            Sum weights[kEach];
#pragma unroll
            for (int n = 0; n < kEach; ++n) {
              weights[n] = IntegerOf<kNibbles>(numbers[l], n);
            }
            add(weights, sums[l]);
          }
        } else {
          Scales<kNibbles, C, kEach> scales;
          const int of_lane = kForward ? groups[pass * kWarp + lane] : kMixed;
          if (kForward && of_lane != kMixed) {
            // Scales multiply sums of numbers, which inputs divide by Unit.
            const bool counts = of_lane != kNoGroup;
            const int64_t at = outer * w.groups + (counts ? of_lane : 0);
            C scale[kLines], shift[kLines], of_inputs[R];
#pragma unroll
            for (int l = 0; l < kLines; ++l) {
              scale[l] = shift[l] = 0;
              if (counts && outer + l < w.outer) {
                LoadScale(w, at + l * w.groups, &scale[l], &shift[l]);
              }
            }
#pragma unroll
            for (int m = 0; m < R; ++m) {
              of_inputs[m] = 0;
#pragma unroll
              for (int n = 0; n < kEach; ++n) {
                C& value = x[m][n / kHalf].values[n % kHalf];
                of_inputs[m] += value;
                value *= C{1 / Unit<kNibbles>(n)};
              }
            }
#pragma unroll
            for (int l = 0; l < kLines; ++l) {
              C weights[kEach];
#pragma unroll
              for (int n = 0; n < kEach; ++n) {
                weights[n] = NumberTimesUnit<kNibbles>(
                    numbers[l], n, static_cast<float>(w.bias));
              }
              C of_line[R] = {};
              add(weights, of_line);
#pragma unroll
              for (int m = 0; m < R; ++m) {
                sums[l][m] += of_line[m] * scale[l] + of_inputs[m] * shift[l];
              }
            }
          } else {
            int last = kMixed;
#pragma unroll
            for (int l = 0; l < kLines; ++l) {
              const int group = kForward              ? kMixed
                                : outer + l < w.outer ? GroupAt(w, outer + l)
                                                      : kNoGroup;
              if (kForward || group != last) {
                scales =
                    LoadScales<kNibbles, kEach>(w, outer + l, inner, group);
                last = group;
              }
              C weights[kEach];
              Dequantize<kNibbles>(w, numbers[l], scales, weights);
              add(weights, sums[l]);
            }
          }
        }
      }
    }
#pragma unroll
    for (int l = 0; l < kLines; ++l) {
#pragma unroll
      for (int m = 0; m < R; ++m) {
        const Sum sum = SumOfLanes(sums[l][m]);
        if (lane == 0 && share.row + m < p.rows && outer + l < p.lines) {
          parts[(share.part * p.rows + share.row + m) * p.lines + outer + l] =
              sum;
        }
      }
    }
  }
}

int64_t BlocksOfPart(bool sums_inner, int64_t rows, int64_t lines) {
  return DivideUp(lines,
                  sums_inner ? kWarps * LinesOfWarp(rows == 1) : kOfWarp) *
         (rows == 1 ? 1 : DivideUp(rows, kRows<false>));
}

}  // namespace

template <typename T>
void SplitFewRows(bool sums_inner, Task<T>* task) {
  // As many as a large GPU runs at once. A constant, so that results do not
  // depend on the GPU.
  const int64_t enough = 132 * Resident(sums_inner, task->rows == 1);
  Split(BlocksOfPart(sums_inner, task->rows, task->lines), enough,
        sums_inner ? kOfWarp : kWarps * kEach, task);
}

template <typename Sum, typename C>
Error EnqueueFewRows(const Gpu& gpu, const Stored<C>& w, const FewRows& p,
                     bool sums_inner, Sum* parts) {
  const int64_t blocks = BlocksOfPart(sums_inner, p.rows, p.lines) * p.parts;
  const auto run = [&](auto forward, auto nibbles, auto one_row) {
    return Launch(gpu, GridSize(blocks), kThreads,
                  sums_inner ? SumInner<forward, nibbles, one_row, Sum, C>
                             : SumOuter<forward, nibbles, one_row, Sum, C>,
                  w, p, parts);
  };
  const std::true_type yes;
  const std::false_type no;
  const auto run_forward = [&](auto forward) {
    return w.HasPairs()
               ? (p.rows == 1 ? run(forward, yes, yes) : run(forward, yes, no))
               : (p.rows == 1 ? run(forward, no, yes) : run(forward, no, no));
  };
  if constexpr (std::is_same_v<Sum, C>) {
    if (w.transposed != sums_inner) return run_forward(no);
  }
  return run_forward(yes);
}

#define TFO_INSTANTIATE(T) template void SplitFewRows<T>(bool, Task<T>*)
TFO_FOR_EACH_FLOAT(TFO_INSTANTIATE);
#undef TFO_INSTANTIATE
#define TFO_INSTANTIATE(Sum, C)                                               \
  template Error EnqueueFewRows(const Gpu&, const Stored<C>&, const FewRows&, \
                                bool, Sum*)
TFO_INSTANTIATE(float, float);
TFO_INSTANTIATE(uint32_t, float);
TFO_INSTANTIATE(double, double);
TFO_INSTANTIATE(uint32_t, double);
#undef TFO_INSTANTIATE

}  // namespace quantized_matmul
}  // namespace tfo
