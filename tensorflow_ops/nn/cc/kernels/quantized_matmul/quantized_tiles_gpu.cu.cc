// Products of many rows: tiles of weights are unpacked in shared memory, and
// multiplied by tensor cores where there are some.
#include "tensorflow_ops/core/cc/cuda/tile_product_gpu.h"
#include "tensorflow_ops/nn/cc/kernels/quantized_matmul/quantized_weights_gpu.h"

namespace tfo {
namespace quantized_matmul {
namespace {

// Two blocks on each multiprocessor of a large GPU. A constant, so that
// results do not depend on the GPU.
constexpr int64_t kEnoughBlocks = 264;

// A tile of results, of a part of the sum. Consecutive blocks have the same
// weights.
struct Tile {
  int64_t part, row, line, begin, end;
};
template <typename T>
__device__ Tile TileOf(const Task<T>& p, int64_t block, int size) {
  const int64_t rows = (p.rows + size - 1) / size;
  const int64_t part = block / rows % p.parts, begin = part * p.part_size;
  return {part, block % rows * size, block / rows / p.parts * size, begin,
          begin + p.part_size < p.sum ? begin + p.part_size : p.sum};
}

// Adds steps of a tile, each while the next one is loaded, in two buffers.
template <int kSize, typename Load, typename Store, typename Add>
__device__ void ForSteps(const Tile& tile, const Load& load, const Store& store,
                         const Add& add) {
  __syncthreads();  // the last tile's buffers are read
  load(tile.begin);
  for (int64_t depth = tile.begin + kSize;; depth += kSize) {
    // Threads may still read the other buffer.
    const int buffer = (depth - tile.begin) / kSize % 2;
    store(buffer);
    __syncthreads();
    if (depth < tile.end) load(depth);
    add(buffer);
    if (depth >= tile.end) break;
  }
}

template <typename T, typename Sum>
__device__ void StoreSum(const Stored<Accumulator<T>>& w, const Task<T>& p,
                         const Tile& tile, int64_t m, int64_t n, Sum sum,
                         Sum* parts) {
  if (m >= p.rows || n >= p.lines) return;
  if (parts != nullptr) {
    parts[(tile.part * p.rows + m) * p.lines + n] = sum;
  } else {
    p.outputs[m * p.lines + n] = Finish(w, p, sum, m, n);
  }
}

// N inputs of a row; integers as T, which has all of them.
template <int N, typename T>
__device__ Pack<T, N> LoadInputs(const Task<T>& p, int64_t m, int64_t k) {
  Pack<T, N> pack = {};
  if (m >= p.rows || k >= p.sum) return pack;
  if (p.integers != nullptr) {
    const Pack<int8_t, N> integers = LoadPack<N>(p.integers + m * p.pitch + k);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      pack.values[i] =
          Narrow<T>(static_cast<Accumulator<T>>(integers.values[i]));
    }
  } else if (p.has_packs) {
    pack = LoadPack<N>(p.inputs + m * p.sum + k);
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      if (k + i < p.sum) pack.values[i] = p.inputs[m * p.sum + k + i];
    }
  }
  return pack;
}

template <bool kSumsInner, bool kNibbles, typename T>
__global__ void __launch_bounds__(kThreads, 2)
    MultiplyTiles(const __grid_constant__ Stored<Accumulator<T>> w,
                  const __grid_constant__ Task<T> p, Accumulator<T>* parts) {
  using C = Accumulator<T>;
  constexpr int kLines = TileSize<T>::kLines, kDepth = TileSize<T>::kDepth;
  constexpr int N = kPackSize<T>;
  __shared__ Operand<T, Along::kDepth> a[2];
  __shared__ Operand<T, kSumsInner ? Along::kDepth : Along::kLines> b[2];
  // The thread's pack of inputs, and of weights.
  const int row = threadIdx.x / (kDepth / N);
  const int depth_of_row = threadIdx.x % (kDepth / N) * N;
  const int line = kSumsInner ? row : threadIdx.x % (kLines / N) * N;
  const int depth_of_line =
      kSumsInner ? depth_of_row : threadIdx.x / (kLines / N);
  const int64_t blocks = (p.rows + kLines - 1) / kLines * p.parts *
                         ((p.lines + kLines - 1) / kLines);
  for (int64_t block = blockIdx.x; block < blocks; block += gridDim.x) {
    const Tile tile = TileOf(p, block, kLines);
    Pack<T, N> x;
    Numbers numbers;
    Scales<kNibbles, C, N> scales;
    int group = kNoGroup;
    int64_t until = -1;
    // Starts reading a step's inputs and weights.
    const auto load = [&](int64_t depth) {
      x = LoadInputs<N>(p, tile.row + row, depth + depth_of_row);
      const int64_t k = depth + depth_of_line, n = tile.line + line;
      const int64_t outer = kSumsInner ? n : k, inner = kSumsInner ? k : n;
      numbers = Biased<kNibbles>(w, outer, Read<N, kNibbles>(w, outer, inner));
      if (outer >= w.outer || inner >= w.inner) return scales.Set(0, 0);
      const int64_t of_group = w.transposed ? inner : outer;
      const bool is_other = of_group >= until;
      if (is_other) {
        group = w.transposed ? GroupOfRun<N>(w, of_group, &until)
                             : GroupOfRun<1>(w, of_group, &until);
      }
      // In gradients, groups are along the lines, and scales along the sum.
      if (is_other || w.transposed != kSumsInner) {
        // Inline, so that loads need not arrive at once.
        if (w.transposed ? group != kMixed : w.has_scale_packs) {
          scales.Load(w, outer, inner, group);
        } else {
          scales = LoadScales<kNibbles, N>(w, outer, inner, group);
        }
      }
    };
    const auto store = [&](int buffer) {
      a[buffer].Store(row, depth_of_row, x);
      C weights[N];
      Dequantize<kNibbles>(w, numbers, scales, weights);
      Pack<T, N> pack;
#pragma unroll
      for (int i = 0; i < N; ++i) pack.values[i] = Narrow<T>(weights[i]);
      b[buffer].Store(line, depth_of_line, pack);
    };

    TileProduct<T> product;
    product.Clear();
    ForSteps<kDepth>(tile, load, store,
                     [&](int buffer) { product.Add(a[buffer], b[buffer]); });
    product.ForEachPack([&](int i, int j, const auto& sums) {
#pragma unroll
      for (int n = 0; n < TileProduct<T>::kColumns; ++n) {
        StoreSum(w, p, tile, tile.row + i, tile.line + j + n, sums[n], parts);
      }
    });
  }
}

// Tiles of bytes, [lines][depth].
constexpr int kTile = 128, kStep = 32;
// Keeps columns of 16 bytes in different banks.
constexpr int kPitch = kStep + 16;
struct alignas(16) Bytes {
  uint8_t values[kTile * kPitch];
};

// Four nibbles as bytes.
__device__ inline uint32_t Spread(uint32_t nibbles) {
  nibbles &= 0xFFFF;
  nibbles = (nibbles | nibbles << 8) & 0x00FF00FF;
  return (nibbles | nibbles << 4) & 0x0F0F0F0F;
}

// Sums of a warp, 64 rows x 32 lines, as fragments lie: [16 rows][8 lines].
using Sums = int32_t[4][4][4];

__device__ inline void AddStep(const Bytes& a, const Bytes& b, int row,
                               int line, Sums& sums) {
  const int lane = threadIdx.x % 32;
  if constexpr (kHasIntegerTensorCores) {
    // Of the four matrices of a load, the second is the next 8 lines of a, the
    // next 16 bytes of b.
    const int first = lane / 8 % 2, second = lane / 16;
    uint32_t left[4][4], right[2][4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int m = row + i * 16 + first * 8 + lane % 8;
      LoadMatrices<4, false>(&a.values[m * kPitch + second * 16], left[i]);
    }
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const int n = line + j * 16 + second * 8 + lane % 8;
      LoadMatrices<4, false>(&b.values[n * kPitch + first * 16], right[j]);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const uint32_t of_b[2] = {right[j / 2][j % 2 * 2],
                                  right[j / 2][j % 2 * 2 + 1]};
        MultiplyAdd16x8x32(left[i], of_b, sums[i][j]);
      }
    }
  } else {
    for (int k = 0; k < kStep; ++k) {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const int m = row + i * 8 + lane / 4;
        const int x = static_cast<int8_t>(a.values[m * kPitch + k]);
#pragma unroll
        for (int j = 0; j < 8; ++j) {
          const int n = line + j / 2 * 8 + lane % 4 * 2 + j % 2;
          // As unsigned: sums wrap around.
          int32_t& sum = sums[i / 2][j / 2][i % 2 * 2 + j % 2];
          sum = static_cast<int32_t>(
              static_cast<uint32_t>(sum) +
              static_cast<uint32_t>(
                  x * static_cast<int8_t>(b.values[n * kPitch + k])));
        }
      }
    }
  }
}

template <bool kSumsInner, bool kNibbles, typename T>
__global__ void __launch_bounds__(kThreads, 2)
    MultiplyIntegers(const __grid_constant__ Stored<Accumulator<T>> w,
                     const __grid_constant__ Task<T> p, uint32_t* parts) {
  __shared__ Bytes a[2], b[2];
  const int row = threadIdx.x / 2, half = threadIdx.x % 2 * 16;
  // Where lines are contiguous: four of them, at four depths.
  const int quad = threadIdx.x % 8 * 4, lines = threadIdx.x / 8 * 4;
  const int64_t blocks =
      (p.rows + kTile - 1) / kTile * p.parts * ((p.lines + kTile - 1) / kTile);
  for (int64_t block = blockIdx.x; block < blocks; block += gridDim.x) {
    const Tile tile = TileOf(p, block, kTile);
    Pack<int8_t, 16> x;
    Numbers numbers[kSumsInner ? 2 : 4];
    const auto load = [&](int64_t depth) {
      const int64_t m = tile.row + row, k = depth + half;
      x = {};
      if (m < p.rows && k < p.pitch) {
        x = LoadPack<16>(p.integers + m * p.pitch + k);
      }
#pragma unroll
      for (int i = 0; i < (kSumsInner ? 2 : 4); ++i) {
        const int64_t outer = kSumsInner ? tile.line + row : depth + quad + i;
        const int64_t inner = kSumsInner ? k + i * 8 : tile.line + lines;
        numbers[i] = Biased<kNibbles>(
            w, outer, Read<kSumsInner ? 8 : 4, kNibbles>(w, outer, inner));
      }
    };
    const auto bytes = [](const Numbers& of, int i) {
      return kNibbles ? Spread(of.words[0] >> (16 * i)) : of.words[i];
    };
    const auto store = [&](int buffer) {
      memcpy(&a[buffer].values[row * kPitch + half], &x, sizeof(x));
      if constexpr (kSumsInner) {
        uint4 word = {bytes(numbers[0], 0), bytes(numbers[0], 1),
                      bytes(numbers[1], 0), bytes(numbers[1], 1)};
        *reinterpret_cast<uint4*>(&b[buffer].values[row * kPitch + half]) =
            word;
      } else {
#pragma unroll
        for (int n = 0; n < 4; ++n) {
          uint32_t word = 0;
#pragma unroll
          for (int k = 0; k < 4; ++k) {
            word |= (bytes(numbers[k], 0) >> (8 * n) & 255) << (8 * k);
          }
          *reinterpret_cast<uint32_t*>(
              &b[buffer].values[(lines + n) * kPitch + quad]) = word;
        }
      }
    };

    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int of_row = warp / 4 * 64, of_line = warp % 4 * 32;
    Sums sums = {};
    ForSteps<kStep>(tile, load, store, [&](int buffer) {
      AddStep(a[buffer], b[buffer], of_row, of_line, sums);
    });
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
#pragma unroll
        for (int n = 0; n < 4; ++n) {
          StoreSum(w, p, tile,
                   tile.row + of_row + i * 16 + n / 2 * 8 + lane / 4,
                   tile.line + of_line + j * 8 + lane % 4 * 2 + n % 2,
                   static_cast<uint32_t>(sums[i][j][n]), parts);
        }
      }
    }
  }
}

template <typename T>
constexpr int LinesOf(bool exact) {
  return exact ? kTile : TileSize<T>::kLines;
}

}  // namespace

template <typename T>
void SplitTiles(bool exact, Task<T>* p) {
  constexpr int kMinSteps = 8;
  const int lines = LinesOf<T>(exact);
  Split(DivideUp(p->rows, lines) * DivideUp(p->lines, lines), kEnoughBlocks,
        kMinSteps * (exact ? kStep : TileSize<T>::kDepth), p);
}

template <typename Sum, typename T>
Error EnqueueTiles(const Gpu& gpu, const Stored<Accumulator<T>>& w,
                   const Task<T>& p, bool sums_inner, Sum* parts) {
  constexpr bool kExact = std::is_same_v<Sum, uint32_t>;
  const auto run = [&](auto inner, auto nibbles) {
    const int lines = LinesOf<T>(kExact);
    const unsigned grid =
        GridSize(DivideUp(p.rows, lines) * DivideUp(p.lines, lines) * p.parts);
    if constexpr (kExact) {
      return Launch(gpu, grid, kThreads, MultiplyIntegers<inner, nibbles, T>, w,
                    p, parts);
    } else {
      return Launch(gpu, grid, kThreads, MultiplyTiles<inner, nibbles, T>, w, p,
                    parts);
    }
  };
  const auto run_order = [&](auto inner) {
    return w.HasPairs() ? run(inner, std::true_type())
                        : run(inner, std::false_type());
  };
  return sums_inner ? run_order(std::true_type())
                    : run_order(std::false_type());
}

#define TFO_INSTANTIATE(T)                                                \
  template void SplitTiles<T>(bool, Task<T>*);                            \
  template Error EnqueueTiles<Accumulator<T>, T>(                         \
      const Gpu&, const Stored<Accumulator<T>>&, const Task<T>&, bool,    \
      Accumulator<T>*);                                                   \
  template Error EnqueueTiles<uint32_t, T>(const Gpu&,                    \
                                           const Stored<Accumulator<T>>&, \
                                           const Task<T>&, bool, uint32_t*)
TFO_FOR_EACH_FLOAT(TFO_INSTANTIATE);
#undef TFO_INSTANTIATE

}  // namespace quantized_matmul
}  // namespace tfo
