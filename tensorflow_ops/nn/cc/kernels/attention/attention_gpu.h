// Shared by the CUDA kernels of attention.h, which tile as FlashAttention-2
// (Dao, arXiv:2307.08691) does.
//
// A block of threads owns kRows rows, queries or keys of a head, and loops over
// tiles of columns, the keys or queries that these rows meet. A warp has 16 of
// the rows: the products with a tile, and the sums, are fragments in its
// registers. Operands pass through shared memory in chunks of 128 bytes of
// their depth, so any depth fits; the next chunk is copied while the warps
// multiply the last.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_ATTENTION_ATTENTION_GPU_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_ATTENTION_ATTENTION_GPU_H_

#include <cmath>
#include <cstdint>
#include <limits>

#include "tensorflow_ops/core/cc/cuda_launch.h"
#include "tensorflow_ops/core/cc/int_math.h"
#include "tensorflow_ops/core/cc/mma_gpu.h"
#include "tensorflow_ops/nn/cc/kernels/attention/attention.h"
#include "tensorflow_ops/nn/cc/kernels/attention/attention_dropout.h"
#include "tensorflow_ops/nn/cc/kernels/attention/attention_example.h"

namespace tfo {
namespace attention {

constexpr int kThreads = 128;
constexpr int kRows = kThreads / 32 * 16;  // 16 for each warp
constexpr unsigned kAllLanes = 0xFFFFFFFF;

template <typename T>
inline constexpr int kChunk = 128 / sizeof(T);
// A line of a chunk in shared memory. A pack more: loads of the same pack of
// eight lines meet different banks.
template <typename T>
inline constexpr int kPitch = kChunk<T> + kPackSize<T>;

// Of sums in registers; more columns are computed by other blocks.
template <typename T>
inline constexpr int kMaxWidth = sizeof(T) == 2 ? 128 : 64;

template <typename C>
inline constexpr C kNoScore = -std::numeric_limits<C>::infinity();

// What the host decides for a launch.
struct Options {
  uint32_t threshold;  // of the dropout; 0: none
  // Can rows of this depth be accessed in packs? In pairs of values?
  bool depth_packs, value_depth_packs;
  bool depth_pairs, value_depth_pairs;
};

// Blocks of a multiprocessor that registers must suffice for.
template <typename T, int kWidth>
inline constexpr int kMinBlocks = sizeof(T) < 8 && kWidth <= 64 ? 3 : 2;

// Blocks of threads: for each example, head, tile of rows and part of the
// columns.
struct Grid {
  int64_t heads, tiles, parts, blocks;
  // The last tiles have the most pairs if causal.
  bool last_tile_first;
};
struct Place {
  int64_t batch, head;
  int first_row, first_column;
};
// `width`: of a part.
__device__ inline Place PlaceOf(const Grid& grid, int64_t block, int width) {
  const int64_t i = block / grid.parts, head = i / grid.tiles;
  const int64_t tile =
      grid.last_tile_first ? grid.tiles - 1 - i % grid.tiles : i % grid.tiles;
  return {head / grid.heads, head % grid.heads, static_cast<int>(tile) * kRows,
          static_cast<int>(block % grid.parts) * width};
}

inline constexpr Error kTooLarge =
    "attention on GPUs: more than 2^30 queries, keys or values of a head";
inline bool FitsInts(const AttentionSpec& spec) {
  constexpr int64_t kMax = 1 << 30;  // leaves room for a tile
  return spec.queries <= kMax && spec.keys <= kMax && spec.depth <= kMax &&
         spec.value_depth <= kMax;
}

struct Range {
  int begin, end;
};

// The pairs of an example and head: which attend, their scores, the dropout. In
// shared memory, since the options would take many registers.
template <typename T>
class Pairs {
 public:
  using C = Accumulator<T>;

  // All threads of the block call this.
  __device__ void Set(const AttentionOperands<T>& args, uint32_t threshold,
                      const Example& example, int64_t head) {
    __syncthreads();
    if (threadIdx.x == 0) SetAlone(args, threshold, example, head);
    __syncthreads();
  }

  // The keys that any of `count` queries from t on sees, from an even key on
  // (two keys share a word of the dropout); the queries that see any of `count`
  // keys from j on.
  __device__ Range KeysOf(int t, int count) const {
    const int last = Min(int64_t{t} + count, queries_) - 1;
    if (last < t) return {0, 0};
    const Range keys = Clip(int64_t{t} + low_, int64_t{last} + high_, keys_);
    return {keys.begin / 2 * 2, keys.end};
  }
  __device__ Range QueriesOf(int j, int count) const {
    const int last = Min(int64_t{j} + count, keys_) - 1;
    return last < j ? Range{0, 0}
                    : Clip(int64_t{j} - high_, int64_t{last} - low_, queries_);
  }

  // Are the scores of all pairs of a tile scale * product, and none dropped?
  __device__ bool ArePlain(int t, int queries, int j, int keys) const {
    return threshold_ == 0 && softcap_ == 0 && slope_ == 0 &&
           mask_ == nullptr && bias_ == nullptr && t + queries <= queries_ &&
           j + keys <= keys_ && j - (t + queries - 1) >= low_ &&
           j + keys - 1 - t <= high_;
  }
  __device__ C Plain(C product) const { return product * scale_; }

  // The score of query t and key j, -inf if the pair is excluded. Also sets
  // `slope`, the score's derivative along scale * product, if the score is
  // finite.
  __device__ C Score(C product, int t, int j, C* slope) const {
    *slope = 1;
    const int distance = j - t;
    if (t >= queries_ || j >= keys_ || distance < low_ || distance > high_) {
      return kNoScore<C>;
    }
    if (mask_ != nullptr && !mask_[t * mask_query_ + j * mask_key_]) {
      return kNoScore<C>;
    }
    C score = product * scale_;
    if (softcap_ != 0) {
      const C tanh = std::tanh(score / softcap_);
      score = tanh * softcap_;
      *slope = 1 - tanh * tanh;
    }
    if (slope_ != 0) {
      score -= slope_ * std::fabs(static_cast<C>(offset_ - distance));
    }
    if (bias_ != nullptr) {
      const C bias = Widen(bias_[t * bias_query_ + j * bias_key_]);
      score = bias == kNoScore<C> ? bias : score + bias;
    }
    return score;
  }

  __device__ bool has_dropout() const { return threshold_ > 0; }
  // A weight or its gradient, after the dropout; `word` is the pair's.
  __device__ C Drop(uint32_t word, int j, C value) const {
    return (word >> (j % 2 * 16) & 0xFFFF) >= threshold_ ? value * kept_factor_
                                                         : C(0);
  }
  // The random bits of keys j and j ^ 1.
  __device__ uint32_t DropoutWord(int t, int j) const {
    uint32_t words[4] = {static_cast<uint32_t>(j / kDropoutKeys),
                         static_cast<uint32_t>(t), row_, 0};
    Philox(seed_, words);
    const int i = j / 2 % 4;
    return i < 2 ? (i == 0 ? words[0] : words[1])
                 : (i == 2 ? words[2] : words[3]);
  }

 private:
  __device__ void SetAlone(const AttentionOperands<T>& args, uint32_t threshold,
                           const Example& example, int64_t head) {
    const auto first_of = [&](const AttentionStrides& strides) {
      return example.batch * strides.batch + head * strides.head;
    };
    queries_ = static_cast<int>(example.queries);
    keys_ = static_cast<int>(example.keys);
    low_ = Saturate(example.offset - args.left);
    high_ = Saturate(example.offset + args.right);
    offset_ = example.offset;
    scale_ = static_cast<C>(args.scale);
    softcap_ = static_cast<C>(args.softcap);
    slope_ =
        args.alibi_slopes == nullptr
            ? C(0)
            : args.alibi_slopes[example.batch * args.alibi_batch_stride + head];
    mask_ = args.mask == nullptr ? nullptr
                                 : args.mask + first_of(args.mask_strides);
    mask_query_ = args.mask_strides.query;
    mask_key_ = args.mask_strides.key;
    bias_ = args.bias == nullptr ? nullptr
                                 : args.bias + first_of(args.bias_strides);
    bias_query_ = args.bias_strides.query;
    bias_key_ = args.bias_strides.key;
    threshold_ = threshold;
    row_ = static_cast<uint32_t>(example.batch * args.heads + head);
    if (threshold == 0) return;
    seed_[0] = args.seed[0];
    seed_[1] = args.seed[1];
    kept_factor_ = static_cast<C>(KeptFactor({{}, threshold}));
  }
  __device__ static int Saturate(int64_t n) {
    constexpr int64_t kMax = 0x7FFFFFFF;
    return static_cast<int>(n < -kMax ? -kMax : n > kMax ? kMax : n);
  }
  __device__ static int Min(int64_t a, int64_t b) {
    return static_cast<int>(a < b ? a : b);
  }
  // The part of [begin, last] in [0, count).
  __device__ static Range Clip(int64_t begin, int64_t last, int count) {
    if (begin < 0) begin = 0;
    if (last >= count) last = count - 1;
    if (last < begin) return {0, 0};
    return {static_cast<int>(begin), static_cast<int>(last) + 1};
  }

  int queries_, keys_;
  int low_, high_;  // of j - t
  int64_t offset_;
  C scale_, softcap_, slope_;
  const bool* mask_;
  const T* bias_;
  int64_t mask_query_, mask_key_, bias_query_, bias_key_;
  uint32_t threshold_, row_, seed_[2];
  C kept_factor_;
};

// The rows of an example and head in an operand.
template <typename T>
struct Matrix {
  const T* first;
  int64_t stride;
  int rows, depth;
  bool packs;
};

// Starts copying a chunk of kLines rows, from `row` on, to shared memory. What
// the matrix lacks becomes 0.
template <int kLines, typename T>
__device__ void CopyChunk(AsyncCopies* copies, const Matrix<T>& from, int row,
                          int column, T* to) {
  const int rows = from.rows - row, columns = from.depth - column;
  const T* const first = from.first + row * from.stride + column;
  constexpr int kPack = kPackSize<T>, kPacks = kChunk<T> / kPack;
  // A thread has the same packs in HasNonFinite.
  if (from.packs) {
#pragma unroll
    for (int i = threadIdx.x; i < kLines * kPacks; i += kThreads) {
      const int line = i / kPacks, at = i % kPacks * kPack;
      const bool exists = line < rows && at < columns;
      copies->Copy<16>(to + line * kPitch<T> + at,
                       exists ? first + line * from.stride + at : from.first,
                       exists ? 16 : 0);
    }
  } else {
#pragma unroll 1
    for (int i = threadIdx.x; i < kLines * kPacks; i += kThreads) {
      const int line = i / kPacks, at = i % kPacks * kPack;
#pragma unroll 1
      for (int n = at; n < at + kPack; ++n) {
        to[line * kPitch<T> + n] =
            line < rows && n < columns ? first[line * from.stride + n] : T{};
      }
    }
  }
}

// Is any 16-bit number of this thread's packs of a chunk not finite?
template <int kLines, typename T>
__device__ bool HasNonFinite(const T* chunk) {
  constexpr int kPack = kPackSize<T>, kPacks = kChunk<T> / kPack;
  constexpr bool kIsHalf = std::is_same_v<T, Half>;
  constexpr uint32_t kExponents = kIsHalf ? 0x7C007C00 : 0x7F807F80;
  constexpr uint32_t kOne = kIsHalf ? 0x04000400 : 0x00800080;
  uint32_t carries = 0;
#pragma unroll
  for (int i = threadIdx.x; i < kLines * kPacks; i += kThreads) {
    const uint4 pack = *reinterpret_cast<const uint4*>(
        chunk + i / kPacks * kPitch<T> + i % kPacks * kPack);
    carries |= (pack.x & kExponents) + kOne;
    carries |= (pack.y & kExponents) + kOne;
    carries |= (pack.z & kExponents) + kOne;
    carries |= (pack.w & kExponents) + kOne;
  }
  return (carries & 0x80008000) != 0;
}

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

// products += the dot products of the warp's rows and the columns, of which
// chunks lie in shared memory; `depth`: of the chunk, rounded up to 16.
template <typename T, int N, typename C>
__device__ void AddProducts(const T* rows, const T* columns, int depth,
                            C (&products)[N][4]) {
  if constexpr (kHasTensorCores<T>) {
    const int lane = threadIdx.x % 32, line = lane % 8;
    const int first = lane / 8 % 2 * 8, second = lane / 16 * 8;
    const T* const row = rows + (WarpRow() + first + line) * kPitch<T> + second;
    const T* const column = columns + (second + line) * kPitch<T> + first;
#pragma unroll
    for (int k = 0; k < kChunk<T>; k += 16) {
      if (k >= depth) break;
      uint32_t a[4];
      LoadMatrices<4, false>(row + k, a);
#pragma unroll
      for (int n = 0; n < N; n += 2) {
        uint32_t b[4];
        LoadMatrices<4, false>(column + n * 8 * kPitch<T> + k, b);
        const uint32_t left[2] = {b[0], b[1]}, right[2] = {b[2], b[3]};
        MultiplyAdd16x8x16<T>(a, left, products[n]);
        MultiplyAdd16x8x16<T>(a, right, products[n + 1]);
      }
    }
  } else {
    constexpr int kPack = kPackSize<T>;
    for (int k = 0; k < depth; k += kPack) {
      Pack<T, kPack> of_row[2];
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        of_row[m] = LoadPack<kPack>(rows + FragmentRow(2 * m) * kPitch<T> + k);
      }
#pragma unroll
      for (int n = 0; n < N; ++n) {
#pragma unroll
        for (int x = 0; x < 2; ++x) {
          const Pack<T, kPack> of_column =
              LoadPack<kPack>(columns + FragmentColumn(n, x) * kPitch<T> + k);
#pragma unroll
          for (int m = 0; m < 2; ++m) {
#pragma unroll
            for (int d = 0; d < kPack; ++d) {
              products[n][2 * m + x] +=
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

// sums[0 to kChunk / 8) += weights * lines, of which a chunk lies in shared
// memory. A weight of 0 adds nothing, whatever its line holds. all_finite:
// whether the lines are; not read without tensor cores.
template <typename T, int N, typename C>
__device__ void AddWeighted(C (&weights)[N][4], const T* lines, bool all_finite,
                            C (*sums)[4]) {
  if constexpr (!kHasTensorCores<T>) {
#pragma unroll
    for (int k = 0; k < N; ++k) {
      AddEightWeighted(weights[k], lines + k * 8 * kPitch<T>, sums);
    }
  } else if (!all_finite) {
#pragma unroll 1
    for (int k = 0; k < N; ++k) {
      AddEightWeighted(weights[0], lines + k * 8 * kPitch<T>, sums);
      Rotate(weights);
    }
  } else {
    const int lane = threadIdx.x % 32;
    const T* const line =
        lines + (lane % 8 + lane / 8 % 2 * 8) * kPitch<T> + lane / 16 * 8;
#pragma unroll
    for (int k = 0; k < N; k += 2) {
      const C(&low)[4] = weights[k];
      const C(&high)[4] = weights[k + 1];
      const uint32_t a[4] = {
          NarrowPair<T>(low[0], low[1]), NarrowPair<T>(low[2], low[3]),
          NarrowPair<T>(high[0], high[1]), NarrowPair<T>(high[2], high[3])};
#pragma unroll
      for (int n = 0; n < kChunk<T> / 8; n += 2) {
        uint32_t b[4];
        LoadMatrices<4, true>(line + k * 8 * kPitch<T> + n * 8, b);
        const uint32_t left[2] = {b[0], b[1]}, right[2] = {b[2], b[3]};
        MultiplyAdd16x8x16<T>(a, left, sums[n]);
        MultiplyAdd16x8x16<T>(a, right, sums[n + 1]);
      }
    }
  }
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

// A pass over all chunks of a matrix of columns, with those of a matrix of rows
// beside them, unless `rows` has none. In the loop over tiles, phases follow
// one another.
template <typename T>
struct Phase {
  Matrix<T> rows, columns;
  int first_column, chunks;  // of the columns' depth

  __device__ bool has_rows() const { return rows.first != nullptr; }
};
template <typename T>
__device__ int ChunksOf(int depth) {
  return (depth + kChunk<T> - 1) / kChunk<T>;
}
// Dot products of rows and columns.
template <typename T>
__device__ Phase<T> DotPhase(const Matrix<T>& rows, const Matrix<T>& columns) {
  return {rows, columns, 0, ChunksOf<T>(rows.depth)};
}
// Sums of columns, from `first_column` of their depth on, at most `width`.
template <typename T>
__device__ Phase<T> SumPhase(const Matrix<T>& columns, int first_column,
                             int width) {
  int depth = columns.depth - first_column;
  if (depth > width) depth = width;
  return {{}, columns, first_column, depth > 0 ? ChunksOf<T>(depth) : 0};
}

// The shared memory of a block. kSlots: chunks of rows that it keeps.
template <typename T, int kColumns, int kSlots>
struct alignas(16) Buffers {
  T rows[kSlots][kRows * kPitch<T>];
  T columns[2][kColumns * kPitch<T>];
  Phase<T> phases[4];
};

// Brings chunk after chunk to shared memory, a step ahead. Rows stay there if
// they fit.
template <typename T, int kColumns, int kSlots>
class Steps {
 public:
  __device__ explicit Steps(Buffers<T, kColumns, kSlots>* buffers)
      : buffers_(*buffers) {}

  // Starts the phases for kRows rows from `row` on and each kColumns columns
  // from `begin` up to `end`. All chunks of each are to be used.
  template <int kPhases>
  __device__ void Begin(const Phase<T> (&phases)[kPhases], int row, int begin,
                        int end) {
    static_assert(kPhases <= 4);
    __syncthreads();  // earlier steps, which read the buffers, are done
    int chunks = 0, row_chunks = 0;
#pragma unroll
    for (int i = 0; i < kPhases; ++i) {
      if (threadIdx.x == 0) buffers_.phases[i] = phases[i];
      chunks += phases[i].chunks;
      if (phases[i].has_rows()) row_chunks += phases[i].chunks;
    }
    __syncthreads();
    num_phases_ = kPhases;
    keeps_rows_ = row_chunks <= kSlots;
    row_ = row;
    first_ = begin;
    column_ = begin;
    end_ = chunks > 0 ? end : begin;
    phase_ = chunk_ = row_chunk_ = 0;
    Start();
  }

  // Waits for the next chunk.
  __device__ void Next() {
    copies_.template Wait<0>();
    __syncthreads();
    Advance();
  }
  // The same for columns of a SumPhase; are they finite? Float and double are
  // not checked: AddWeighted skips weights of 0 itself.
  __device__ bool NextSummands() {
    copies_.template Wait<0>();
    bool all_finite = true;
    if constexpr (kHasTensorCores<T>) {
      all_finite = !__syncthreads_or(HasNonFinite<kColumns>(columns_copied_));
    } else {
      __syncthreads();
    }
    Advance();
    return all_finite;
  }

  // What Next waited for.
  __device__ const T* rows() const { return rows_; }
  __device__ const T* columns() const { return columns_; }

 private:
  // The copied chunk is that of this step; all threads are done with the one
  // before, whose buffers the next may overwrite.
  __device__ void Advance() {
    rows_ = rows_copied_;
    columns_ = columns_copied_;
    Start();
  }
  __device__ void Start() {
    if (column_ >= end_) return;
    while (buffers_.phases[phase_].chunks == 0) NextPhase();
    if (column_ >= end_) return;
    const Phase<T>& phase = buffers_.phases[phase_];
    buffer_ ^= 1;
    columns_copied_ = buffers_.columns[buffer_];
    const int at = chunk_ * kChunk<T>;
    CopyChunk<kColumns>(&copies_, phase.columns, column_,
                        phase.first_column + at, columns_copied_);
    if (phase.has_rows()) {
      rows_copied_ = buffers_.rows[keeps_rows_ ? row_chunk_ : buffer_];
      if (!keeps_rows_ || column_ == first_) {
        CopyChunk<kRows>(&copies_, phase.rows, row_, at, rows_copied_);
      }
      ++row_chunk_;
    }
    copies_.Commit();
    if (++chunk_ == phase.chunks) NextPhase();
  }
  __device__ void NextPhase() {
    chunk_ = 0;
    if (++phase_ < num_phases_) return;
    phase_ = row_chunk_ = 0;
    column_ += kColumns;
  }

  Buffers<T, kColumns, kSlots>& buffers_;
  AsyncCopies copies_;
  int num_phases_, row_, first_, column_, end_;
  int phase_, chunk_, row_chunk_, buffer_ = 0;
  bool keeps_rows_;
  T *rows_, *columns_, *rows_copied_, *columns_copied_;
};

// Adds the products of a DotPhase of this depth.
template <typename T, int N, typename C, typename Steps>
__device__ void AddDotPhase(int depth, Steps* steps, C (&products)[N][4]) {
  for (int d = 0; d < depth; d += kChunk<T>) {
    steps->Next();
    const int left = depth - d;
    AddProducts(steps->rows(), steps->columns(),
                left < kChunk<T> ? (left + 15) / 16 * 16 : kChunk<T>, products);
  }
}
// Adds the sums of a SumPhase, of at most 8 * kWidth columns.
template <typename T, int N, int kWidth, typename C, typename Steps>
__device__ void AddSumPhase(C (&weights)[N][4], int depth, Steps* steps,
                            C (&sums)[kWidth][4]) {
#pragma unroll
  for (int n = 0; n < kWidth; n += kChunk<T> / 8) {
    if (n * 8 >= depth) break;
    const bool all_finite = steps->NextSummands();
    AddWeighted(weights, steps->columns(), all_finite, &sums[n]);
  }
}

// The rows of an example and head of tensors.
template <typename T>
__device__ Matrix<T> QueriesOf(const AttentionOperands<T>& args,
                               const Example& example, int64_t head,
                               const T* tensor, int64_t depth, bool packs) {
  return {tensor + (example.first_query * args.heads + head) * depth,
          args.heads * depth, static_cast<int>(example.queries),
          static_cast<int>(depth), packs};
}
template <typename T>
__device__ Matrix<T> KeysOf(const AttentionOperands<T>& args,
                            const Example& example, int64_t head,
                            const T* tensor, int64_t depth, bool packs) {
  const int64_t key_head = head / (args.heads / args.key_heads);
  return {tensor + (example.first_key * args.key_heads + key_head) * depth,
          args.key_heads * depth, static_cast<int>(example.keys),
          static_cast<int>(depth), packs};
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
                   bool last_tile_first) {
  const int64_t tiles = DivideUp(rows, kRows);
  return {heads, tiles, parts, batch * heads * tiles * parts, last_tile_first};
}

template <typename T>
Options OptionsOf(const AttentionOperands<T>& args) {
  return {static_cast<uint32_t>(std::lround(65536 * args.dropout)),
          FitsPacks<kPackSize<T>>(args.depth, args.query, args.key),
          FitsPacks<kPackSize<T>>(args.value_depth, args.value), false, false};
}

}  // namespace attention
}  // namespace tfo

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_ATTENTION_ATTENTION_GPU_H_
