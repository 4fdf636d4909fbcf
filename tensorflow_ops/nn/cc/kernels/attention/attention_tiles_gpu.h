// Brings tiles of operands to shared memory, and multiplies them.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_ATTENTION_ATTENTION_TILES_GPU_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_ATTENTION_ATTENTION_TILES_GPU_H_

#include <cstdint>
#include <type_traits>

#include "tensorflow_ops/nn/cc/kernels/attention/attention.h"
#include "tensorflow_ops/nn/cc/kernels/attention/attention_products_gpu.h"

namespace tfo {
namespace attention {

// The rows of an example and head in an operand.
template <typename T>
struct Matrix {
  const T* first;
  int64_t stride;
  int rows, depth;
  bool packs;
};

// Where a search has the keys of an example, as KeyRow.
struct Ancestors {
  const int32_t* beams;  // of each key; null: the example's own
  int keys, own_beam, last_beam;
  int64_t rows_of_beam;
};
template <typename T>
__device__ Ancestors AncestorsOf(const AttentionOperands<T>& args,
                                 const Example& example) {
  if (args.ancestors == nullptr) return {};
  return {args.ancestors + example.batch * args.keys,
          static_cast<int>(example.keys),
          static_cast<int>(example.batch % args.beams),
          static_cast<int>(args.beams) - 1, args.keys};
}

// Starts copying a chunk of kLines rows, from `row` on, to shared memory. What
// the matrix lacks becomes 0. Line n is shift(n) rows farther on.
template <int kLines, typename T, typename Shift>
__device__ void CopyChunk(AsyncCopies* copies, const Matrix<T>& from, int row,
                          int column, const Shift& shift, T* to) {
  constexpr int kPack = kPackSize<T>, kPacks = kChunk<T> / kPack;
  // Between a thread's packs, which are the same in HasNonFinite.
  constexpr int kStep = kThreads / kPacks;
  static_assert(kLines % kStep == 0);
  const int line = threadIdx.x / kPacks, at = threadIdx.x % kPacks * kPack;
  const int rows = from.rows - row, columns = from.depth - column;
  const T* next = from.first + (row + line) * from.stride + column + at;
  const auto place = [&](int n) {
    return next + shift(line + n) * from.stride;
  };
  to += line * kPitch<T> + at;
  if (from.packs && rows >= kLines && columns >= kChunk<T>) {
#pragma unroll
    for (int n = 0; n < kLines; n += kStep, next += kStep * from.stride) {
      copies->Copy<16>(to + n * kPitch<T>, place(n));
    }
  } else if (from.packs) {
#pragma unroll 1
    for (int n = 0; n < kLines; n += kStep, next += kStep * from.stride) {
      const bool exists = line + n < rows && at < columns;
      copies->Copy<16>(to + n * kPitch<T>, exists ? place(n) : from.first,
                       exists ? 16 : 0);
    }
  } else {
#pragma unroll 1
    for (int n = 0; n < kLines; n += kStep, next += kStep * from.stride) {
#pragma unroll 1
      for (int i = 0; i < kPack; ++i) {
        to[n * kPitch<T> + i] =
            line + n < rows && at + i < columns ? place(n)[i] : T{};
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
  chunk += threadIdx.x / kPacks * kPitch<T> + threadIdx.x % kPacks * kPack;
#pragma unroll
  for (int n = 0; n < kLines; n += kThreads / kPacks) {
    cuda_launch_internal::CheckAligned(chunk + n * kPitch<T>, sizeof(uint4));
    const uint4 pack = *reinterpret_cast<const uint4*>(chunk + n * kPitch<T>);
    carries |= (pack.x & kExponents) + kOne;
    carries |= (pack.y & kExponents) + kOne;
    carries |= (pack.z & kExponents) + kOne;
    carries |= (pack.w & kExponents) + kOne;
  }
  return (carries & 0x80008000) != 0;
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

// What the gradients of a query's scores have in common.
template <typename C>
struct alignas(2 * sizeof(C)) Terms {
  C lse, delta;
};

// Brings chunk after chunk to the shared memory of a block of M times kRows
// rows, kAhead steps ahead. kSlots: chunks of rows that stay there, if that is
// all of them. kHasTerms: of gradients, which know no ancestors.
template <typename T, int kColumns, int kSlots, int M = 1, int kAhead = 1,
          bool kHasTerms = true>
class Steps {
  static_assert(kAhead == 1 || (kAhead == 2 && !kHasTerms));

 public:
  struct alignas(16) Buffers {
    T rows[kSlots][M * kRows * kPitch<T>];
    T columns[kAhead + 1][kColumns * kPitch<T>];
    union {
      Terms<Accumulator<T>> terms[2][kColumns];
      int32_t beams[4][kColumns];  // of Ancestors, for tile after tile
    };
    Phase<T> phases[4];
    Ancestors ancestors;
  };

  __device__ explicit Steps(Buffers* buffers) : buffers_(*buffers) {}

  // Starts the phases for the rows from `row` on and each kColumns columns
  // from `begin` up to `end`. All chunks of each are to be used.
  //
  // If not careful, columns are taken to be finite. Others are rare, and leave
  // traces in the sums (AnyNonFinite), which are then added again with care.
  //
  // `terms`: of `columns` columns, or null.
  template <int kPhases>
  __device__ void Begin(const Phase<T> (&phases)[kPhases], int row, int begin,
                        int end, bool careful,
                        const Terms<Accumulator<T>>* terms = nullptr,
                        int columns = 0, const Ancestors& ancestors = {}) {
    static_assert(kPhases <= 4);
    __syncthreads();  // earlier steps, which read the buffers, are done
    int chunks = 0, row_chunks = 0;
#pragma unroll
    for (int i = 0; i < kPhases; ++i) {
      if (threadIdx.x == 0) buffers_.phases[i] = phases[i];
      chunks += phases[i].chunks;
      if (phases[i].has_rows()) row_chunks += phases[i].chunks;
    }
    if constexpr (!kHasTerms) {
      if (threadIdx.x == 0) buffers_.ancestors = ancestors;
      const int column = begin + threadIdx.x;
      if (threadIdx.x < kColumns && ancestors.beams != nullptr) {
        buffers_.beams[0][threadIdx.x] =
            column < ancestors.keys ? ancestors.beams[column] : 0;
      }
    }
    __syncthreads();
    num_phases_ = kPhases;
    keeps_rows_ = row_chunks <= kSlots;
    row_slots_ = keeps_rows_ ? row_chunks : kSlots;
    rows_ = row_slots_ - 1;
    // Not where rows have but two slots, or a tile's beams would come too late.
    two_ahead_ = kAhead == 2 && keeps_rows_ && chunks > 1;
    careful_ = careful;
    is_idle_ = row + WarpRow() >= phases[0].rows.rows;
    row_ = row;
    first_ = begin;
    column_ = begin;
    end_ = chunks > 0 ? end : begin;
    phase_ = chunk_ = 0;
    all_terms_ = terms;
    num_terms_ = columns;
    CopyTerms();
    Start(1);
    if (two_ahead_) Start(2);
  }

  // Waits for the next chunk.
  __device__ void Next() {
    Wait();
    __syncthreads();
    rows_ = SlotAfter(rows_);
    Advance();
  }
  // The same for columns of a SumPhase; may they be multiplied by 0? Float and
  // double are not checked: AddWeighted skips weights of 0 itself.
  //
  // Its barrier must stay: since the last one, lanes have branched, as those
  // whose scores get options and dropout do; the `aligned` instructions of
  // tensor cores, which follow, are undefined unless lanes are together again.
  __device__ bool NextSummands() {
    Wait();
    bool all_finite = !careful_;
    if (kHasTensorCores<T> && careful_) {
      all_finite = !__syncthreads_or(
          HasNonFinite<kColumns>(buffers_.columns[BufferAfter(1)]));
    } else {
      __syncthreads();
    }
    Advance();
    return all_finite;
  }

  __device__ bool careful() const { return careful_; }
  // Has the warp no rows? It copies, and takes part in barriers.
  __device__ bool is_idle() const { return kAhead == 2 && is_idle_; }
  // What Next waited for.
  __device__ const T* rows() const { return buffers_.rows[rows_]; }
  __device__ const T* columns() const { return buffers_.columns[columns_]; }
  // Of the columns of its tile.
  __device__ const Terms<Accumulator<T>>* terms() const {
    return buffers_.terms[terms_];
  }

 private:
  __device__ int SlotAfter(int slot) const {
    return slot + 1 == row_slots_ ? 0 : slot + 1;
  }
  __device__ int BufferAfter(int steps) const {
    const int buffer = columns_ + steps;
    return buffer > kAhead ? buffer - (kAhead + 1) : buffer;
  }
  __device__ void Wait() {
    if (two_ahead_) {
      copies_.template Wait<1>();
    } else {
      copies_.template Wait<0>();
    }
  }
  // The copied chunk is that of this step; all threads are done with the one
  // before, whose buffers the next may overwrite.
  __device__ void Advance() {
    columns_ = BufferAfter(1);
    terms_ = terms_buffer_;
    Start(two_ahead_ ? 2 : 1);
  }
  // Starts copying the chunk of a later step.
  __device__ void Start(int steps) {
    while (column_ < end_ && buffers_.phases[phase_].chunks == 0) NextPhase();
    if (column_ >= end_) {
      copies_.Commit();  // Wait counts groups
      return;
    }
    const Phase<T> phase = buffers_.phases[phase_];
    const int at = chunk_ * kChunk<T>;
    const auto in_place = [](int) { return 0; };
    T* const to = buffers_.columns[BufferAfter(steps)];
    if (!kHasTerms && buffers_.ancestors.beams != nullptr) {
      const Ancestors ancestors = buffers_.ancestors;
      const int32_t* const beams = buffers_.beams[TileSlot(column_)];
      CopyChunk<kColumns>(
          &copies_, phase.columns, column_, phase.first_column + at,
          [&](int line) {
            return (ValidLength(beams[line], ancestors.last_beam) -
                    ancestors.own_beam) *
                   ancestors.rows_of_beam;
          },
          to);
    } else {
      CopyChunk<kColumns>(&copies_, phase.columns, column_,
                          phase.first_column + at, in_place, to);
    }
    if (phase.has_rows()) {
      // Rows are of the first phases.
      const int slot = !keeps_rows_  ? SlotAfter(rows_)
                       : phase_ == 0 ? chunk_
                                     : buffers_.phases[0].chunks + chunk_;
      if (!keeps_rows_ || column_ == first_) {
        CopyChunk<M * kRows>(&copies_, phase.rows, row_, at, in_place,
                             buffers_.rows[slot]);
      }
    }
    copies_.Commit();
    if (++chunk_ == phase.chunks) NextPhase();
  }
  __device__ void NextPhase() {
    chunk_ = 0;
    if (++phase_ < num_phases_) return;
    phase_ = 0;
    column_ += kColumns;
    CopyTerms();
  }
  // Part of the tile's first chunk. The terms of the tile before the last are
  // not read any more: a tile has two chunks or more.
  __device__ void CopyTerms() {
    if constexpr (!kHasTerms) {
      CopyBeams();
      return;
    }
    if (all_terms_ == nullptr || column_ >= end_) return;
    terms_buffer_ ^= 1;
    if (threadIdx.x >= kColumns) return;
    const int column = column_ + threadIdx.x;
    const bool exists = column < num_terms_;
    constexpr int kBytes = sizeof(*all_terms_);
    copies_.template Copy<kBytes>(&buffers_.terms[terms_buffer_][threadIdx.x],
                                  exists ? all_terms_ + column : all_terms_,
                                  exists ? kBytes : 0);
  }
  // The beams of the tile after `column_`'s: they are there when its first
  // chunk is to be copied.
  __device__ void CopyBeams() {
    const Ancestors ancestors = buffers_.ancestors;
    const int tile = column_ + kColumns, column = tile + threadIdx.x;
    if (ancestors.beams == nullptr || tile >= end_ || threadIdx.x >= kColumns) {
      return;
    }
    const bool exists = column < ancestors.keys;
    copies_.template Copy<4>(&buffers_.beams[TileSlot(tile)][threadIdx.x],
                             ancestors.beams + (exists ? column : 0),
                             exists ? 4 : 0);
  }
  __device__ int TileSlot(int column) const {
    return (column - first_) / kColumns % 4;
  }

  Buffers& buffers_;
  AsyncCopies copies_;
  int num_phases_, row_, first_, column_, end_;
  int phase_, chunk_;
  bool keeps_rows_, two_ahead_, careful_, is_idle_;
  const Terms<Accumulator<T>>* all_terms_;
  int num_terms_, terms_buffer_ = 0, terms_ = 0;
  // The buffer and slot of this step.
  int columns_ = 0, rows_, row_slots_;
};

// Adds the products of a DotPhase of this depth.
template <typename T, bool kRowsAreKeys, int M, int N, typename C,
          typename Steps>
__device__ void AddDotPhase(int depth, Steps* steps, C (&products)[M][N][4]) {
  for (int d = 0; d < depth; d += kChunk<T>) {
    steps->Next();
    if (steps->is_idle()) continue;
    const int left =
        depth - d < kChunk<T> ? (depth - d + 15) / 16 * 16 : kChunk<T>;
    if (kHasParts<T> && steps->careful()) {
      AddProducts<kHasTensorCores<T>, kRowsAreKeys>(
          steps->rows(), steps->columns(), left, products);
    } else {
      AddProducts<kTakesFinite<T>, kRowsAreKeys>(
          steps->rows(), steps->columns(), left, products);
    }
  }
}
// Adds the sums of a SumPhase, of at most 8 * kWidth columns.
template <typename T, int M, int N, int kWidth, typename C, typename Steps>
__device__ void AddSumPhase(C (&weights)[M][N][4], int depth, Steps* steps,
                            C (&sums)[M][kWidth][4]) {
#pragma unroll
  for (int n = 0; n < kWidth; n += kChunk<T> / 8) {
    if (n * 8 >= depth) break;
    const bool all_finite = steps->NextSummands();
    if (steps->is_idle()) continue;
    AddWeighted(weights, steps->columns(), all_finite, n, sums);
  }
}

// The rows of an example and head of tensors.
template <typename T>
__device__ Matrix<T> QueryRows(const AttentionOperands<T>& args,
                               const Example& example, int64_t head,
                               const T* tensor, int64_t depth, bool packs) {
  return {tensor + (example.first_query * args.heads + head) * depth,
          args.heads * depth, static_cast<int>(example.queries),
          static_cast<int>(depth), packs};
}
template <typename T>
__device__ Matrix<T> KeyRows(const AttentionOperands<T>& args,
                             const Example& example, int64_t head,
                             const T* tensor, int64_t depth, bool packs) {
  const int64_t key_head = head / (args.heads / args.key_heads);
  return {tensor + (example.first_key * args.key_heads + key_head) * depth,
          args.key_heads * depth, static_cast<int>(example.keys),
          static_cast<int>(depth), packs};
}

}  // namespace attention
}  // namespace tfo

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_ATTENTION_ATTENTION_TILES_GPU_H_
