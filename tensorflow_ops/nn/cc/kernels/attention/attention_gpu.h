// Shared by the CUDA kernels of attention.h, which tile as FlashAttention-2
// (Dao, arXiv:2307.08691) does.
//
// A block of threads owns rows, queries or keys of a head, and loops over
// tiles of columns, the keys or queries that these rows meet. The products with
// a tile, and the sums, are fragments in its registers. Operands pass through
// shared memory in chunks of 128 bytes of their depth, so any depth fits; the
// next, one or two, are copied while the warps multiply the last.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_ATTENTION_ATTENTION_GPU_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_ATTENTION_ATTENTION_GPU_H_

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "tensorflow_ops/core/cc/cuda/mma_gpu.h"
#include "tensorflow_ops/core/cc/cuda/warp_gpu.h"
#include "tensorflow_ops/core/cc/int_math.h"
#include "tensorflow_ops/nn/cc/kernels/attention/attention.h"

namespace tfo {
namespace attention {

constexpr int kThreads = 128;
// A warp has 16 of these rows. Blocks have them once, or twice: row 16 * w + r
// of either kRows is of warp w.
constexpr int kRows = kThreads / 32 * 16;

template <typename T>
inline constexpr int kChunk = 128 / sizeof(T);
// A line of a chunk in shared memory. A pack more: loads of the same pack of
// eight lines meet different banks.
template <typename T>
inline constexpr int kPitch = kChunk<T> + kPackSize<T>;

// Of sums in registers; more columns are computed by other blocks.
template <typename T>
inline constexpr int kMaxWidth = sizeof(T) == 2 ? 128 : 64;

// What the host decides for a launch.
struct Options {
  uint32_t threshold;  // of the dropout; 0: none
  // Can rows of this depth be accessed in packs? In pairs of values?
  bool depth_packs, value_depth_packs;
  bool depth_pairs, value_depth_pairs;
  // Is a query a head, as GroupHeads makes it?
  bool heads_are_rows;
};

// Blocks of a multiprocessor that registers must suffice for.
template <typename T, int kWidth>
inline constexpr int kMinBlocks = sizeof(T) < 8 && kWidth <= 64 ? 3 : 2;

// Weights are powers of two.
inline constexpr double kLog2OfE = 1.4426950408889634;
__device__ inline double Exp2(double x) { return std::exp2(x); }
// Within 2 ulp, and 0 instead of subnormals.
__device__ inline float Exp2(float x) {
#ifdef __CUDA_ARCH__
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
  return power;
#else
  return std::exp2(x);
#endif
}

// Blocks of threads: for each example, head, tile of rows, split of the columns
// that these rows meet, and part of the columns of the sums.
struct Grid {
  int64_t heads, tiles, splits, parts, blocks;
  // The last tiles have the most pairs if causal.
  bool last_tile_first;
};
struct Place {
  int64_t batch, head;
  int first_row, split, first_column;
};
// `width`: of a part.
__device__ inline Place PlaceOf(const Grid& grid, int64_t block, int width,
                                int rows = kRows) {
  const int64_t split = block / grid.parts, i = split / grid.splits;
  const int64_t head = i / grid.tiles;
  const int64_t tile =
      grid.last_tile_first ? grid.tiles - 1 - i % grid.tiles : i % grid.tiles;
  return {head / grid.heads, head % grid.heads, static_cast<int>(tile) * rows,
          static_cast<int>(split % grid.splits),
          static_cast<int>(block % grid.parts) * width};
}

inline constexpr Error kTooLarge =
    "attention on GPUs: more than 2^30 queries, keys or values of a head";
inline bool FitsInts(const AttentionSpec& spec) {
  constexpr int64_t kMax = 1 << 30;  // leaves room for a tile
  return spec.queries <= kMax && spec.keys <= kMax && spec.depth <= kMax &&
         spec.value_depth <= kMax;
}

// Calls run(width), an integral_constant, with the least width of sums for this
// depth, or the greatest.
template <typename T, typename Run>
Error WithWidth(int64_t depth, const Run& run) {
  if constexpr (kMaxWidth<T> > 64) {
    if (depth > 64) return run(std::integral_constant<int, kMaxWidth<T>>());
  }
  return run(std::integral_constant<int, 64>());
}

// At least 1: a block may have more to write than sums.
inline int64_t PartsOf(int64_t depth, int width) {
  return depth <= width ? 1 : DivideUp(depth, width);
}
inline Grid GridOf(int64_t batch, int64_t heads, int64_t rows, int64_t parts,
                   bool last_tile_first, int64_t splits = 1,
                   int64_t rows_of_tile = kRows) {
  const int64_t tiles = DivideUp(rows, rows_of_tile);
  return {heads,
          tiles,
          splits,
          parts,
          batch * heads * tiles * splits * parts,
          last_tile_first};
}

// Of log_sum_exp.
template <typename T>
int64_t SumsOf(const AttentionOperands<T>& args) {
  return args.heads * (args.query_splits != nullptr
                           ? args.query_rows
                           : args.batch * args.queries);
}
template <typename T>
Options OptionsOf(const AttentionOperands<T>& args) {
  return {static_cast<uint32_t>(std::lround(65536 * args.dropout)),
          FitsPacks<kPackSize<T>>(args.depth, args.query, args.key),
          FitsPacks<kPackSize<T>>(args.value_depth, args.value),
          false,
          false,
          false};
}

}  // namespace attention
}  // namespace tfo

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_ATTENTION_ATTENTION_GPU_H_
