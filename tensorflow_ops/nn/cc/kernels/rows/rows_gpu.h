// The loops of row functions (rows.h) as CUDA kernels. For .cu.cc files, which
// instantiate them with TFO_INSTANTIATE_ROW_FUNCTION_ON_GPU(Args).
//
// Memory is read once where a row's values fit in the threads that share it.
// - Tiles: rows of a few classes go through shared memory, so that packs may
//   span rows; one to four threads share a row.
// - Rows: up to 32 threads share a row, or a block does. They reduce it in
// chunks from first to last, and map it in chunks from last to first. The last
// chunk stays in registers, and as many others as fit stay in shared memory.
// - Rows that are few and long are split into parts (partition.h): one launch
//   reduces parts to states, the next joins them in order and maps parts.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_ROWS_ROWS_GPU_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_ROWS_ROWS_GPU_H_

#include "tensorflow_ops/core/cc/int_math.h"
#include "tensorflow_ops/nn/cc/kernels/rows/chunks_gpu.h"
#include "tensorflow_ops/nn/cc/kernels/rows/rows.h"

namespace tfo {
namespace scalar {

template <typename F>
inline constexpr bool kReduces = kReducesRows<typename F::State>;

// The row of a thread, which sees classes from `origin` on.
struct ThreadRow {
  int64_t row, origin;
  bool writes;

  template <typename V>
  __device__ V Load(const V* of_rows) const {
    return of_rows[row];
  }
  template <typename V>
  __device__ void Store(V v, V* of_rows) const {
    of_rows[row] = v;
  }
  template <typename PerRow>
  __device__ auto Gather(const PerRow& per_row) const {
    return per_row(row);
  }
  // Bad rows have no report on a GPU, which must not synchronize.
  __device__ void ReportBad(int64_t, int64_t*) const {}

  struct Label {
    int position;
    __device__ bool IsAt(int at) const { return at == position; }
  };
  template <typename Labels>
  __device__ Label LabelIn(const Labels& labels) const {
    // Unsigned: the difference to a label out of range may overflow.
    const uint64_t position =
        static_cast<uint64_t>(labels[row]) - static_cast<uint64_t>(origin);
    return {position < (1 << 30) ? static_cast<int>(position) : -1};
  }
};

// Adds a chunk to a state.
template <typename F, typename Chunk>
__device__ void Reduce(const F& f, Chunk& chunk, typename F::State& state) {
  using T = typename F::Element;
  using Value = Accumulator<T>;
  using State = typename F::State;
  if constexpr (kIsSoftmaxState<State>) {
    if constexpr (State::kAlsoSums == AlsoSums::kTargets) {
      if (f.HasTargets()) {
        return AddToSoftmax<T>(
            chunk,
            [&](int step, int at) {
              const auto in = [&](int i) { return chunk.Get(i, step, at); };
              return chunk.Has(step, at) ? f.Target(in) : Value(0);
            },
            state);
      }
      SoftmaxState<Value> s{state.max, state.rest, 0, 0};
      AddToSoftmax<T>(chunk, s);
      state = {s.max, s.rest, 0, 0};
    } else {
      AddToSoftmax<T>(chunk, state);
    }
  } else {
    State s;
    ForValues(chunk, [&](int step, int at) {
      f.Add([&](int i) { return chunk.Get(i, step, at); }, s);
    });
    state = State::Merge(state, s);
  }
}

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
  // Blocks of a multiprocessor: enough to hide latency.
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
        Reduce(f, chunk, state);
        state = state.Joined(WarpLanes{lanes});
      }
      if (is_row) {
        const auto constants =
            f.Finish(state, ThreadRow{first + row, 0, lane == 0});
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

// The passes of a launch over its units, which are rows or parts of rows.
enum class RowWork { kAll, kReduce, kMap };

struct RowUnits {
  RowWork work;
  int64_t classes;
  int64_t units, units_per_row;
  int64_t parts, part;  // of a row, and the values in each, a multiple of 16
  int lanes;            // of a unit: a power of two up to 32, or the block
  int kept;             // chunks of a row that lie in shared memory
};

// A part of a row. Parts begin at multiples of 16 bytes, from which all tensors
// have the same distance.
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

// Joins the states of a unit's threads; all get the same bits.
template <typename State, typename Value>
__device__ State JoinUnit(const State& mine, int lanes,
                          Value (&of_warps)[32][kRowState]) {
  const State state = mine.Joined(WarpLanes{lanes < 32 ? lanes : 32});
  if (lanes <= 32) return state;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  __syncthreads();  // the previous states are no longer read
  if (lane == 0) state.Save(of_warps[warp]);
  __syncthreads();
  State other;
  if (lane < lanes / 32) other = State::Read(of_warps[lane]);
  return other.Joined(WarpLanes{32});
}

// Of a block. Functions that read rows twice use all threads, so that few rows
// are in flight and stay in the caches; others, and double, need registers
// more.
template <typename F>
inline constexpr int kMaxThreads = kReduces<F> && F::kOutputs > 0 &&
                                           sizeof(typename F::Element) < 8
                                       ? 1024
                                       : 512;

template <typename F, int N, int kPacks>
__global__ void __launch_bounds__(kMaxThreads<F>)
    Rows(const __grid_constant__ F f, const __grid_constant__ RowUnits units,
         Accumulator<typename F::Element>* states) {
  using State = typename F::State;
  using Chunk = PackChunk<F, N, kPacks>;
  __shared__ typename State::Value of_warps[32][kRowState];
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
                State::Read(states + (row * units.parts + p) * kRowState));
          }
        }
      } else {
        Reduce(f, chunk, state);
        while (number < last) {
          if constexpr (F::kOutputs > 0) {
            if (number < units.kept) chunk.Keep(kept(number), lane, lanes);
          }
          ++number;
          chunk = Chunk(span, number * step, lane, lanes);
          chunk.Load(f, span);
          Reduce(f, chunk, state);
        }
      }
      state = JoinUnit(state, lanes, of_warps);
    }
    if (!is_unit) continue;
    if constexpr (kReduces<F>) {
      if (units.work == RowWork::kReduce) {
        if (lane == 0) state.Save(states + unit * kRowState);
        continue;
      }
    }
    const auto constants =
        f.Finish(state, ThreadRow{row, span.origin, lane == 0 && part == 0});
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

// ---- The choice between them.

inline int PowerOfTwoFrom(int64_t n) {
  int power = 1;
  while (power < n) power *= 2;
  return power;
}

// Returns whether all tensors have the same distance from a multiple of 16
// bytes.
template <typename F>
bool HaveSameAlignment(const F& f) {
  const auto offset = [](const void* pointer) {
    return reinterpret_cast<uintptr_t>(pointer) % 16;
  };
  const auto expected = offset(f.Input(0));
  for (int i = 1; i < F::kInputs; ++i) {
    if (offset(f.Input(i)) != expected) return false;
  }
  for (int i = 0; i < F::kOutputs; ++i) {
    if (f.Output(i) != nullptr && offset(f.Output(i)) != expected) return false;
  }
  return true;
}

template <typename F, int N>
Error RunLongRows(const Gpu& gpu, const F& f, int64_t rows, int64_t classes) {
  // Packs of each input in a chunk: enough to keep memory busy, and no more
  // than registers hold.
  constexpr int kPacks = F::kInputs >= 4 ? 1 : 4 / F::kInputs;
  constexpr bool kTwice = kReduces<F> && F::kOutputs > 0;
  constexpr int kMax = kMaxThreads<F>;
  const auto kernel = Rows<F, N, kPacks>;
  const int64_t packs = DivideUp(classes + N - 1, N);  // at most
  RowUnits units = {};
  units.work = RowWork::kAll;
  units.classes = classes;
  units.parts = GpuParts(rows, classes);
  // Positions, which begin up to 7 before the first class.
  units.part = RoundUp(DivideUp(classes + 7, units.parts), 16);
  units.units_per_row = units.parts;
  units.units = rows * units.parts;

  // Threads of a unit: one chunk each where the row is read twice, else two, so
  // that per-row work stays small.
  const int64_t of_unit = DivideUp(packs, units.parts);
  units.lanes = PowerOfTwoFrom(DivideUp(of_unit, (kTwice ? 1 : 2) * kPacks));
  if (!kTwice && units.lanes > 32) {
    units.lanes =
        std::clamp(PowerOfTwoFrom(DivideUp(of_unit, 4 * kPacks)), 64, 256);
    // Few units: more threads each.
    constexpr int64_t kThreads = 1 << 17;
    while (units.lanes < kMax && units.units * units.lanes < kThreads &&
           of_unit > units.lanes * kPacks) {
      units.lanes *= 2;
    }
  }
  int shared_bytes = 0;
  if (kTwice && units.lanes > 512) {
    // More than one chunk each. Two blocks on a multiprocessor hide each
    // other's latency; one block has more shared memory for its row.
    int room = 0;
    if (const Error error = ReadMaxShared(&room)) return error;
    constexpr int64_t kChunk = 512 * PackChunk<F, N, kPacks>::kBytes;
    const int64_t chunks =
        DivideUp(of_unit, 512 * kPacks) - 1;  // without the last
    units.lanes = 512;
    units.kept = static_cast<int>(std::min(room / 2 / kChunk, chunks));
    if (kMax == 1024 && chunks - units.kept > 1) {
      units.lanes = 1024;
      units.kept = static_cast<int>(
          std::min(room / (2 * kChunk), DivideUp(of_unit, 1024 * kPacks) - 1));
    }
    if (units.parts == 1) {
      shared_bytes =
          static_cast<int>(units.kept * kChunk * (units.lanes / 512));
    } else {
      units.kept = 0;  // shared memory does not survive the launch
    }
  }
  auto* const states =
      static_cast<Accumulator<typename F::Element>*>(gpu.scratch);
  const auto launch = [&](int bytes) {
    const int block = units.lanes <= 32 ? 128 : units.lanes;
    const int64_t per_block = block / units.lanes;
    return LaunchWithShared(gpu, GridSize(DivideUp(units.units, per_block)),
                            block, bytes, kernel, f, units, states);
  };
  if (!kReduces<F> || units.parts == 1) return launch(shared_bytes);
  if (states == nullptr) return "rows of this length need scratch memory";
  units.work = RowWork::kReduce;
  if (const Error error = launch(0)) return error;
  units.work = RowWork::kMap;
  if (F::kOutputs == 0) {
    units.units = rows;
    units.units_per_row = 1;
  }
  return launch(0);
}

template <typename F>
Error RunOnRows(const Gpu& gpu, const F& f, int64_t rows, int64_t classes) {
  using T = typename F::Element;
  if (rows == 0) return nullptr;
  if (classes <= kTileClasses) {
    using Sizes = TileSizes<F>;
    const int lanes = PowerOfTwoFrom(DivideUp(classes, kTileSteps));
    const int at_once = Sizes::kThreads / lanes;
    const int rows_per_tile = static_cast<int>(
        std::min<int64_t>(
            Sizes::kValues / (at_once * std::max<int64_t>(classes, 1)), 8) *
        at_once);
    return Launch(gpu, GridSize(DivideUp(rows, rows_per_tile)), Sizes::kThreads,
                  Tiles<F>, f, rows, static_cast<int>(classes), lanes,
                  rows_per_tile);
  }
  return HaveSameAlignment(f)
             ? RunLongRows<F, kPackSize<T>>(gpu, f, rows, classes)
             : RunLongRows<F, 1>(gpu, f, rows, classes);
}

}  // namespace scalar

template <typename Args>
Error RunRowFunction(const Gpu& gpu, const Args& args) {
  using Function = scalar::RowFunction<Args>;
  static_assert(Function::kOutputs == Args::kOutputs &&
                scalar::kReduces<Function> == Args::kReduces);
  return scalar::RunOnRows(gpu, Function(args), args.rows, args.classes);
}

}  // namespace tfo

#define TFO_INSTANTIATE_ROW_FUNCTION_ON_GPU(...) \
  template Error RunRowFunction(const Gpu&, const __VA_ARGS__&)

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_ROWS_ROWS_GPU_H_
