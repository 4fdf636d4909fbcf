// Functions of rows [rows, classes] that reduce a row, as softmax and its kin
// do, as CUDA kernels: what rows.h and rows_simd.h are on the processor. For
// .cu.cc files. A function is a struct F with
//   using Element = T;                 of all tensors of the rows' shape
//   using State = ...;                 (row_states_gpu.h); NoState: needs none
//   static constexpr int kInputs, kOutputs;      as many of those tensors
//   const T* Input(int) const; T* Output(int) const;   (null from the second
//                                           output on: not asked for)
//   T Fill(int) const;                 of an input, where there is no class
//   void Reduce(chunk, State&) const;  adds to a state
//   auto Finish(const State&, int64_t row, int64_t origin, bool write) const;
//                  of joined states: writes what a row has one of, if asked to;
//                  returns constants, where a place `at` is class origin + at
//   void Map(constants, const Value (&in)[kInputs][N], int at,
//            Value (&out)[kOutputs][N]) const;   of N classes from `at` on
//
// Memory is read once where a row's values fit in the threads that share it.
// - Tiles: rows of a few classes go through shared memory, so that packs do not
//   care for their ends; one to four threads share a row.
// - Rows: up to 32 threads share a row, or a block does. They go through it in
//   chunks, from the first to the last to reduce them and back to map them. The
//   last stays in registers, others in shared memory as far as it goes.
// - Rows that are few and long are cut into parts (row_parts.h): one launch
//   reduces parts to states, the next joins them in their order and maps parts.
#ifndef TENSORFLOW_OPS_CORE_CC_ROWS_GPU_H_
#define TENSORFLOW_OPS_CORE_CC_ROWS_GPU_H_

#include "tensorflow_ops/core/cc/row_chunks_gpu.h"

namespace tfo {
namespace rows_gpu_internal {

template <typename State>
inline constexpr bool kIsState = true;
template <typename V>
inline constexpr bool kIsState<NoState<V>> = false;
template <typename F>
inline constexpr bool kReduces = kIsState<typename F::State>;

// ---- Short rows.

inline constexpr int kTileSteps = 16;  // of a thread
inline constexpr int kTileLanes = 4;   // of a row, at most
inline constexpr int kTileClasses = kTileSteps * kTileLanes;

template <typename F>
struct TileSizes {
  using Value = Accumulator<typename F::Element>;
  static constexpr int kTiles =
      F::kInputs > F::kOutputs ? F::kInputs : F::kOutputs;
  static constexpr int kThreads = kTiles * sizeof(Value) > 16 ? 64 : 128;
  // 32 kB of shared memory, or half as much, and gaps.
  static constexpr int kBytes = kTiles * sizeof(Value) > 4 ? 1 << 15 : 1 << 14;
  static constexpr int kValues = kBytes / (kTiles * sizeof(Value));
  static_assert(kValues >= kThreads * kTileSteps);
  // Of a multiprocessor: so many that it has enough to wait for.
  static constexpr int kBlocks = sizeof(Value) == 8 ? 3 : 5;
  using Tile = RowTile<Value, kValues>;
};

template <typename F>
__global__ void __launch_bounds__(TileSizes<F>::kThreads, TileSizes<F>::kBlocks)
    Tiles(const __grid_constant__ F f, int64_t rows, int classes, int lanes,
          int rows_per_tile) {
  using Sizes = TileSizes<F>;
  constexpr int kThreads = Sizes::kThreads;
  constexpr bool kHolds = kReduces<F> && F::kInputs == 1;
  using Chunk = TileChunk<F, typename Sizes::Tile, kTileSteps, kHolds>;
  __shared__ typename Sizes::Tile tiles[Sizes::kTiles];
  const int lane = threadIdx.x % lanes;
  const int rows_at_once = kThreads / lanes;
  for (int64_t first = int64_t{blockIdx.x} * rows_per_tile; first < rows;
       first += int64_t{gridDim.x} * rows_per_tile) {
    const int64_t left = rows - first;
    const int of_tile =
        left < rows_per_tile ? static_cast<int>(left) : rows_per_tile;
#pragma unroll
    for (int i = 0; i < F::kInputs; ++i) {
      ReadTile<kThreads>(f.Input(i) + first * classes, of_tile * classes,
                         tiles[i]);
    }
    __syncthreads();
    for (int from = 0; from < rows_per_tile; from += rows_at_once) {
      const int row = from + threadIdx.x / lanes;
      const bool is_row = row < of_tile;
      Chunk chunk(f, tiles, is_row, row * classes, lane, lanes, classes);
      typename F::State state;
      if constexpr (kReduces<F>) {
        f.Reduce(chunk, state);
        state = state.Joined(lanes);
      }
      if (is_row) {
        const auto constants =
            f.Finish(state, first + row, 0, /*write=*/lane == 0);
        if constexpr (F::kOutputs > 0) chunk.Map(constants, lane);
      }
    }
    __syncthreads();
    if constexpr (F::kOutputs > 0) {
#pragma unroll
      for (int i = 0; i < F::kOutputs; ++i) {
        if (i > 0 && f.Output(i) == nullptr) continue;
        WriteTile<kThreads>(tiles[i], of_tile * classes,
                            f.Output(i) + first * classes);
      }
      __syncthreads();
    }
  }
}

// ---- Other rows.

// What a launch does to its units, which are rows or parts of rows.
enum class RowWork { kAll, kReduce, kMap };

struct RowUnits {
  RowWork work;
  int64_t classes;
  int64_t units, units_per_row;
  int64_t parts, part;  // of a row, and the values in each, a multiple of 16
  int lanes;            // of a unit: a power of two up to 32, or the block
  int kept;             // chunks of a row that lie in shared memory
};

// Where tensors lie that are all as far from a multiple of 16 bytes: unit
// `unit` of a row that is cut at such multiples.
template <int N, typename T>
__device__ RowSpan SpanOf(const RowUnits& units, const T* tensor, int64_t row,
                          int64_t part) {
  const int64_t begin = row * units.classes;
  int before = 0;
  if constexpr (N > 1) {
    before = reinterpret_cast<uintptr_t>(tensor + begin) % 16 / sizeof(T);
  }
  const int64_t at = part * units.part;
  const int64_t end = units.classes + before - at;
  RowSpan span;
  span.begin = part == 0 ? before : 0;
  span.end =
      static_cast<int>(end < units.part ? (end > 0 ? end : 0) : units.part);
  span.offset = begin - before + at;
  span.origin = at - before;
  return span;
}

// Of the states of a unit's threads; all of them get the same bits.
template <typename State, typename Value>
__device__ State JoinUnit(const State& mine, int lanes,
                          Value (&of_warps)[32][kPartState]) {
  const State state = mine.Joined(lanes < 32 ? lanes : 32);
  if (lanes <= 32) return state;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  __syncthreads();  // the states before are no longer read
  if (lane == 0) state.Save(of_warps[warp]);
  __syncthreads();
  State other;
  if (lane < lanes / 32) other = State::Read(of_warps[lane]);
  return other.Joined(32);
}

// At most, of a block. What reads a row twice has all the threads there are, so
// that few rows are in work at a time; the rest, and double's functions, rather
// have registers.
template <typename F>
inline constexpr int kMostThreads = kReduces<F> && F::kOutputs > 0 &&
                                            sizeof(typename F::Element) < 8
                                        ? 1024
                                        : 512;

template <typename F, int N, int kPacks>
__global__ void __launch_bounds__(kMostThreads<F>)
    Rows(const __grid_constant__ F f, const __grid_constant__ RowUnits units,
         Accumulator<typename F::Element>* scratch) {
  using State = typename F::State;
  using Chunk = PackChunk<F, N, kPacks>;
  __shared__ typename State::Value of_warps[32][kPartState];
  const int lanes = units.lanes;
  const int lane = threadIdx.x % lanes;
  const int units_per_block = blockDim.x / lanes;
  const int step = lanes * N * kPacks;
  const bool is_map = !kReduces<F> || units.work == RowWork::kMap;
  for (int64_t first = int64_t{blockIdx.x} * units_per_block;
       first < units.units; first += int64_t{gridDim.x} * units_per_block) {
    const int64_t unit = first + threadIdx.x / lanes;
    const bool is_unit = unit < units.units;
    const int64_t row =
        units.units_per_row == 1 ? unit : unit / units.units_per_row;
    const int64_t part = unit - row * units.units_per_row;
    RowSpan span;
    if (is_unit) span = SpanOf<N>(units, f.Input(0), row, part);
    const int last = span.end > 0 ? (span.end - 1) / step : 0;
    const auto kept = [&](int chunk) {
      return static_cast<char*>(DynamicShared()) +
             chunk * (lanes * Chunk::kBytes);
    };

    State state;
    int number = is_map ? last : 0;
    Chunk chunk(span, number * step, lane, lanes);
    if (!is_map || F::kOutputs > 0) chunk.Load(f, span);
    if constexpr (kReduces<F>) {
      if (is_map) {
        if (is_unit) {
          for (int64_t p = lane; p < units.parts; p += lanes) {
            state = State::Merge(
                state,
                State::Read(scratch + (row * units.parts + p) * kPartState));
          }
        }
      } else {
        f.Reduce(chunk, state);
        while (number < last) {
          if constexpr (F::kOutputs > 0) {
            if (number < units.kept) chunk.Keep(kept(number), lane, lanes);
          }
          ++number;
          chunk = Chunk(span, number * step, lane, lanes);
          chunk.Load(f, span);
          f.Reduce(chunk, state);
        }
      }
      state = JoinUnit(state, lanes, of_warps);
    }
    if (!is_unit) continue;
    if constexpr (kReduces<F>) {
      if (units.work == RowWork::kReduce) {
        if (lane == 0) state.Save(scratch + unit * kPartState);
        continue;
      }
    }
    const auto constants =
        f.Finish(state, row, span.origin, lane == 0 && part == 0);
    if constexpr (F::kOutputs > 0) {
      chunk.Forget();
      chunk.Map(f, constants, span);
      while (number > 0) {
        --number;
        chunk = Chunk(span, number * step, lane, lanes);
        if (kReduces<F> && number < units.kept) {
          chunk.Recall(kept(number), lane, lanes);
        } else {
          chunk.Load(f, span);
        }
        chunk.Map(f, constants, span);
      }
    }
  }
}

// ---- Which of them.

inline int64_t CeilOf(int64_t a, int64_t b) { return (a + b - 1) / b; }
inline int PowerOfTwoFrom(int64_t n) {
  int power = 1;
  while (power < n) power *= 2;
  return power;
}

// Are all tensors as far from a multiple of 16 bytes?
template <typename F>
bool HaveSamePlace(const F& f) {
  const auto place = [](const void* pointer) {
    return reinterpret_cast<uintptr_t>(pointer) % 16;
  };
  const auto expected = place(f.Input(0));
  for (int i = 1; i < F::kInputs; ++i) {
    if (place(f.Input(i)) != expected) return false;
  }
  for (int i = 0; i < F::kOutputs; ++i) {
    if (f.Output(i) != nullptr && place(f.Output(i)) != expected) return false;
  }
  return true;
}

template <typename F, int N>
Error RunRows(const Gpu& gpu, const F& f, int64_t rows, int64_t classes,
              Accumulator<typename F::Element>* scratch) {
  // Packs of each input in a chunk: so many that memory has enough to do, and
  // no more than there are registers for.
  constexpr int kPacks = F::kInputs >= 4 ? 1 : 4 / F::kInputs;
  constexpr bool kTwice = kReduces<F> && F::kOutputs > 0;
  constexpr int kMost = kMostThreads<F>;
  const auto kernel = Rows<F, N, kPacks>;
  const int64_t packs = CeilOf(classes + N - 1, N);  // at most
  RowUnits units = {};
  units.work = RowWork::kAll;
  units.classes = classes;
  units.parts = RowParts(rows, classes);
  // Positions, which begin up to 7 before the class.
  units.part = CeilOf(CeilOf(classes + 7, units.parts), 16) * 16;
  units.units_per_row = units.parts;
  units.units = rows * units.parts;

  // Threads of a unit. One chunk each where the row is read twice, else two, or
  // the row's constants and the joining of states would cost more than they.
  const int64_t of_unit = CeilOf(packs, units.parts);
  units.lanes = PowerOfTwoFrom(CeilOf(of_unit, (kTwice ? 1 : 2) * kPacks));
  if (!kTwice && units.lanes > 32) {
    units.lanes =
        std::clamp(PowerOfTwoFrom(CeilOf(of_unit, 4 * kPacks)), 64, 256);
    // Few units have many threads.
    constexpr int64_t kThreads = 1 << 17;
    while (units.lanes < kMost && units.units * units.lanes < kThreads &&
           of_unit > units.lanes * kPacks) {
      units.lanes *= 2;
    }
  }
  int shared_bytes = 0;
  if (kTwice && units.lanes > 512) {
    // More than one chunk each. Two blocks on a multiprocessor do not wait at
    // the same time; but rather one if two have too little room for their rows.
    int room = 0;
    if (const Error error = ReadMostShared(&room)) return error;
    room -= 2048;  // other variables, and what the system takes of each block
    constexpr int64_t kChunk = 512 * PackChunk<F, N, kPacks>::kBytes;
    const int64_t chunks = CeilOf(of_unit, 512 * kPacks) - 1;  // but the last
    units.lanes = 512;
    units.kept = static_cast<int>(std::min(room / 2 / kChunk, chunks));
    if (kMost == 1024 && chunks - units.kept > 1) {
      units.lanes = 1024;
      units.kept = static_cast<int>(
          std::min(room / (2 * kChunk), CeilOf(of_unit, 1024 * kPacks) - 1));
    }
    if (units.parts == 1) {
      shared_bytes =
          static_cast<int>(units.kept * kChunk * (units.lanes / 512));
    } else {
      units.kept = 0;  // another launch would not find them
    }
  }
  const auto launch = [&](int bytes) {
    const int block = units.lanes <= 32 ? 128 : units.lanes;
    const int64_t per_block = block / units.lanes;
    return LaunchWithShared(gpu, GridSize(CeilOf(units.units, per_block)),
                            block, bytes, kernel, f, units, scratch);
  };
  if (!kReduces<F> || units.parts == 1) return launch(shared_bytes);
  if (scratch == nullptr) return "rows of this length need scratch memory";
  units.work = RowWork::kReduce;
  if (const Error error = launch(0)) return error;
  units.work = RowWork::kMap;
  if (F::kOutputs == 0) {
    units.units = rows;
    units.units_per_row = 1;
  }
  return launch(0);
}

}  // namespace rows_gpu_internal

// Enqueues a function. `scratch` has RowScratch(rows, classes) values if the
// function reduces rows; else it may be null.
template <typename F>
Error RunRowFunction(const Gpu& gpu, const F& f, int64_t rows, int64_t classes,
                     Accumulator<typename F::Element>* scratch) {
  using namespace rows_gpu_internal;
  if (rows == 0) return nullptr;
  if (classes <= kTileClasses) {
    using Sizes = TileSizes<F>;
    const int lanes = PowerOfTwoFrom(CeilOf(classes, kTileSteps));
    const int at_once = Sizes::kThreads / lanes;
    const int rows_per_tile = static_cast<int>(
        std::min<int64_t>(
            Sizes::kValues / (at_once * std::max<int64_t>(classes, 1)), 8) *
        at_once);
    return Launch(gpu, GridSize(CeilOf(rows, rows_per_tile)), Sizes::kThreads,
                  Tiles<F>, f, rows, static_cast<int>(classes), lanes,
                  rows_per_tile);
  }
  using T = typename F::Element;
  return HaveSamePlace(f)
             ? RunRows<F, kPackSize<T>>(gpu, f, rows, classes, scratch)
             : RunRows<F, 1>(gpu, f, rows, classes, scratch);
}

}  // namespace tfo

#endif  // TENSORFLOW_OPS_CORE_CC_ROWS_GPU_H_
