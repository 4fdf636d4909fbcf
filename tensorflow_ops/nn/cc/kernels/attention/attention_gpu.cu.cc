#include "tensorflow_ops/nn/cc/kernels/attention/attention_gpu.h"

#include <algorithm>

#include "tensorflow_ops/core/cc/scratch.h"
#include "tensorflow_ops/nn/cc/kernels/attention/attention_scores_gpu.h"
#include "tensorflow_ops/nn/cc/kernels/attention/attention_tiles_gpu.h"

namespace tfo {
namespace {

using namespace attention;  // NOLINT: the kernels' own header

// A block's rows are M times kRows, its sums kWidth columns. kSlots: chunks of
// rows in shared memory.
template <typename T, int kWidth, int M>
inline constexpr int kColumns =
    sizeof(T) == sizeof(double) || M * kWidth > 128 ? 32 : 64;
template <int kWidth, int M>
inline constexpr int kSlots = M == 2 && kWidth == 64 ? 1 : 2;
// With few rows, memory decides the time. Shared memory has space for no more.
template <int M>
inline constexpr int kAhead = M == 1 ? 2 : 1;

template <int kValue>
using Constant = std::integral_constant<int, kValue>;

// Calls run(Constant<kWidth>(), Constant<M>()). With two rows of fragments, a
// warp loads columns half as often. They know no heads_are_rows.
template <typename T, typename Run>
Error WithTile(const AttentionSpec& spec, bool heads_are_rows, const Run& run) {
  if constexpr (sizeof(T) == 2) {
    if (spec.queries <= kRows || heads_are_rows) {
      return run(Constant<128>(), Constant<1>());
    }
    if (spec.value_depth <= 64 && spec.depth <= kChunk<T>) {
      return run(Constant<64>(), Constant<2>());
    }
    return run(Constant<128>(), Constant<2>());
  } else {
    return run(Constant<64>(), Constant<1>());
  }
}

// The greatest score of a query so far, and the sum of weights relative to it,
// of which each of four lanes has a part; of the thread's two rows.
template <typename C>
struct RowState {
  C high[2], total[2];
};

// Replaces scores, in units of `unit`, by weights. Sets what earlier sums are
// to be multiplied by.
template <typename C, int N>
__device__ void WeighScores(C unit, C (&scores)[N][4], RowState<C>* state,
                            C (&corrections)[2]) {
  constexpr C kLog2 = static_cast<C>(kLog2OfE);
  // Exponents are score * factor - shift, fused. The shift is rounded, which
  // sums forgive, but greater ones would overflow.
  constexpr C kMaxShift = 1024;
  const C factor = unit * kLog2;
  C shifts[2], before[2];
  bool fits = true;
#pragma unroll
  for (int m = 0; m < 2; ++m) {
    C now = state->high[m];
#pragma unroll
    for (int n = 0; n < N; ++n) {
      now = std::fmax(now, std::fmax(scores[n][2 * m], scores[n][2 * m + 1]));
    }
    now = GreatestOfLanes<4>(now);
    shifts[m] = now == kNoScore<C> ? C(0) : Product(now, factor);
    fits &= std::fabs(shifts[m]) <= kMaxShift;
    before[m] = state->high[m];
    state->high[m] = now;
    corrections[m] = Product(before[m], factor) - shifts[m];
  }
  C multiplier = factor;
  if (__any_sync(kAllLanes, !fits)) {
    // Rounds scores before the subtraction, which is then exact.
    multiplier = 1;
#pragma unroll
    for (int m = 0; m < 2; ++m) {
      const C high =
          state->high[m] == kNoScore<C> ? C(0) : Product(state->high[m], unit);
      corrections[m] = (Product(before[m], unit) - high) * kLog2;
#pragma unroll
      for (int n = 0; n < N; ++n) {
#pragma unroll
        for (int i = 2 * m; i < 2 * m + 2; ++i) {
          scores[n][i] = (Product(scores[n][i], unit) - high) * kLog2;
        }
      }
      shifts[m] = 0;
    }
  }
#pragma unroll
  for (int m = 0; m < 2; ++m) {
    // Equal ones may be infinite.
    corrections[m] = before[m] == state->high[m] ? C(1) : Exp2(corrections[m]);
    C sum = 0;
#pragma unroll
    for (int n = 0; n < N; ++n) {
#pragma unroll
      for (int i = 2 * m; i < 2 * m + 2; ++i) {
        scores[n][i] = Exp2(std::fma(scores[n][i], multiplier, -shifts[m]));
        sum += scores[n][i];
      }
    }
    state->total[m] = state->total[m] * corrections[m] + sum;
  }
}

// Replaces the products of queries from t and keys from j on by scores.
template <typename T, typename C, int N>
__device__ void SetScores(const Pairs<T>& pairs, int t, int j,
                          uint64_t key_bits, C (&products)[N][4]) {
  if (pairs.ArePlain(t + WarpRow(), 16, j, 8 * N, key_bits)) {
    if (pairs.PlainAreProducts()) return;
#pragma unroll
    for (int n = 0; n < N; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) products[n][i] = pairs.Plain(products[n][i]);
    }
    return;
  }
  if (!pairs.has_softcap()) {
    pairs.template SetScores<false>(t, j, key_bits, products);
    return;
  }
#pragma unroll 1
  for (int n = 0; n < N; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      C unused;
      products[0][i] = pairs.Score(products[0][i], t + FragmentRow(i),
                                   j + FragmentColumn(n, i), &unused);
    }
    Rotate(products);
  }
}

template <typename T, typename C, int N>
__device__ void DropWeights(const Pairs<T>& pairs, int t, int j,
                            C (&weights)[N][4]) {
#pragma unroll 1
  for (int n = 0; n < N; ++n) {
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
      const int key = j + FragmentColumn(n, i);  // even
      const uint32_t word = pairs.DropoutWord(t + FragmentRow(i), key);
      weights[0][i] = pairs.Drop(word, key, weights[0][i]);
      weights[0][i + 1] = pairs.Drop(word, key + 1, weights[0][i + 1]);
    }
    Rotate(weights);
  }
}

// What the blocks of a split of the keys write: their outputs and log_sum_exp,
// in the order of log_sum_exp. JoinSplits sums them.
template <typename C>
struct Splits {
  int64_t count;
  int64_t sums;    // of log_sum_exp
  C* log_sum_exp;  // [count, sums]
  C* outputs;      // [count, sums, value_depth]
};
constexpr int kMaxSplits = 32;  // a lane of JoinSplits has one

// kWidth columns of the outputs of M times kRows queries.
template <typename T, int kWidth, int M, typename C = Accumulator<T>>
__global__ void __launch_bounds__(kThreads, (kMinBlocks<T, M * kWidth>))
    Attend(const __grid_constant__ AttentionArgs<T> args,
           const __grid_constant__ Options options,
           const __grid_constant__ Grid grid, const Splits<C> splits) {
  constexpr int kKeys = kColumns<T, kWidth, M>, N = kKeys / 8;
  using Steps =
      attention::Steps<T, kKeys, kSlots<kWidth, M>, M, kAhead<M>, false>;
  __shared__ typename Steps::Buffers buffers;
  __shared__ Pairs<T> pairs;
  Steps steps(&buffers);
  for (int64_t block = blockIdx.x; block < grid.blocks; block += gridDim.x) {
    const Place place = PlaceOf(grid, block, kWidth, M * kRows);
    const Example example = ExampleOf(args, place.batch);
    const int first = place.first_row;
    const int64_t rows =
        args.query_splits != nullptr ? example.queries : args.queries;
    if (first >= rows) continue;
    pairs.Set(args, options.threshold, example, place.head, true);
    const C unit = pairs.unit();
    Matrix<T> queries = QueryRows(args, example, place.head, args.query,
                                  args.depth, options.depth_packs);
    const bool heads_are_rows = M == 1 && options.heads_are_rows;
    if (heads_are_rows) {
      queries.first =
          args.query + FirstSum(args, example, place.head) * args.depth;
      queries.stride = args.depth;
    }
    const Phase<T> phases[] = {
        DotPhase(queries, KeyRows(args, example, place.head, args.key,
                                  args.depth, options.depth_packs)),
        SumPhase(KeyRows(args, example, place.head, args.value,
                         args.value_depth, options.value_depth_packs),
                 place.first_column, kWidth)};
    Range keys = pairs.Unmasked(pairs.SeenKeys(first, M * kRows));
    keys.begin = keys.begin / kKeys * kKeys;
    if (splits.count > 1) {
      const int tiles = (keys.end - keys.begin + kKeys - 1) / kKeys;
      const int count = static_cast<int>(splits.count);
      const int size = (tiles + count - 1) / count * kKeys;
      keys.begin += place.split * size;
      if (keys.end > keys.begin + size) keys.end = keys.begin + size;
    }
    const bool has_sink = args.sinks != nullptr && place.split == 0;
    const auto sink_of = [&](int row) {
      if (!heads_are_rows) return args.sinks[place.head];
      if (row >= queries.rows) row = queries.rows - 1;
      return args.sinks[place.head * queries.rows + row];
    };
    const int width = static_cast<int>(args.value_depth) - place.first_column;

    C sums[M][kWidth / 8][4];
    RowState<C> states[M];
#pragma unroll 1
    for (bool careful = false;; careful = true) {
      steps.Begin(phases, first, keys.begin, keys.end, careful, nullptr, 0,
                  AncestorsOf(args, example));
#pragma unroll
      for (int m = 0; m < M; ++m) {
        Clear(sums[m]);
        // The sink, or -inf, is as a first score; the first lane counts it.
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          states[m].high[i] =
              has_sink ? sink_of(first + m * kRows + FragmentRow(2 * i))
                       : kNoScore<C>;
          states[m].total[i] = threadIdx.x % 4 == 0 ? C(1) : C(0);
        }
      }
      for (int key = keys.begin; key < keys.end; key += kKeys) {
        const uint64_t key_bits = pairs.template KeyBits<kKeys>(key);
        C scores[M][N][4];
#pragma unroll
        for (int m = 0; m < M; ++m) Clear(scores[m]);
        AddDotPhase<T, false>(static_cast<int>(args.depth), &steps, scores);
#pragma unroll
        for (int m = 0; m < M; ++m) {
          if (steps.is_idle()) break;
          const int t = first + m * kRows;
          SetScores(pairs, t, key, key_bits, scores[m]);
          C corrections[2];
          WeighScores(unit, scores[m], &states[m], corrections);
          // A correction of 0 makes 0 also of infinity.
          if ((careful || !kTakesFinite<T>) &&
              (corrections[0] == 0 || corrections[1] == 0)) {
#pragma unroll
            for (int n = 0; n < kWidth / 8; ++n) {
#pragma unroll
              for (int i = 0; i < 4; ++i) {
                if (corrections[i / 2] == 0) sums[m][n][i] = 0;
              }
            }
          }
#pragma unroll
          for (int n = 0; n < kWidth / 8; ++n) {
#pragma unroll
            for (int i = 0; i < 4; ++i) sums[m][n][i] *= corrections[i / 2];
          }
          if (pairs.has_dropout()) DropWeights(pairs, t, key, scores[m]);
        }
        AddSumPhase<T>(scores, width, &steps, sums);
      }
      if (!kTakesFinite<T> || careful) break;
      bool again = false;
#pragma unroll
      for (int m = 0; m < M; ++m) again |= AnyNonFinite(sums[m]);
      if (!again) break;
    }

    const int64_t first_sum = FirstSum(args, example, place.head) + first;
    const int64_t of_split = place.split * splits.sums + first_sum;
    C* const log_sum_exp = splits.count > 1 ? splits.log_sum_exp + of_split
                           : args.log_sum_exp != nullptr
                               ? args.log_sum_exp + first_sum
                               : nullptr;
#pragma unroll
    for (int m = 0; m < M; ++m) {
      C factors[2];
      const int left = static_cast<int>(rows) - first - m * kRows;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const C total = SumOfLanes<4>(states[m].total[i]);
        factors[i] = total == 0 ? C(0) : 1 / total;
        const int row = FragmentRow(2 * i);
        if (log_sum_exp != nullptr && place.first_column == 0 &&
            threadIdx.x % 4 == 0 && row < left) {
          log_sum_exp[m * kRows + row] =
              Product(states[m].high[i], unit) + std::log(total);
        }
      }
      if (splits.count > 1) {
        WriteRows(sums[m], factors, left, width, false, args.value_depth,
                  splits.outputs + (of_split + m * kRows) * args.value_depth +
                      place.first_column);
      } else {
        const int64_t row = example.first_query + first + m * kRows;
        const int64_t at = heads_are_rows ? first_sum + m * kRows
                                          : row * args.heads + place.head;
        WriteRows(sums[m], factors, left, width, options.value_depth_pairs,
                  (heads_are_rows ? 1 : args.heads) * args.value_depth,
                  args.output + at * args.value_depth + place.first_column);
      }
    }
  }
}

// Writes the outputs and log_sum_exp of all keys. A warp has a query, a lane
// four columns; packs: they are one, in `splits` and in the outputs.
template <typename T, typename C = Accumulator<T>>
__global__ void __launch_bounds__(kThreads)
    JoinSplits(const __grid_constant__ AttentionArgs<T> args,
               const Splits<C> splits, bool packs, bool heads_are_rows) {
  constexpr int kColumns = 4, kTogether = 8;
  static_assert(kMaxSplits % kTogether == 0);
  const int lane = threadIdx.x % 32;
  for (int64_t i = int64_t{blockIdx.x} * (kThreads / 32) + threadIdx.x / 32;
       i < splits.sums; i += int64_t{gridDim.x} * (kThreads / 32)) {
    const C mine = lane < splits.count
                       ? splits.log_sum_exp[lane * splits.sums + i]
                       : kNoScore<C>;
    C high = GreatestOfLanes(mine);
    if (high == kNoScore<C>) high = 0;
    const C weight = std::exp(mine - high);
    const C total = SumOfLanes(weight);
    if (lane == 0 && args.log_sum_exp != nullptr) {
      args.log_sum_exp[i] = high + std::log(total);
    }
    const C factor = lane >= splits.count || total == 0 ? C(0) : weight / total;
    // Its row of queries and head.
    int64_t row = i;
    if (!heads_are_rows) {
      const int64_t n =
          args.query_splits != nullptr ? args.query_rows : args.queries;
      const int64_t head = i / n % args.heads;
      row = (i / n / args.heads * args.queries + i % n) * args.heads + head;
    }
    for (int64_t first = 0; first < args.value_depth; first += 32 * kColumns) {
      const int64_t column = first + lane * kColumns;
      const C* from = splits.outputs + i * args.value_depth + column;
      C sums[kColumns] = {};
#pragma unroll 1
      for (int split = 0; split < splits.count; split += kTogether) {
        // All loads are on their way before the first sum.
        C factors[kTogether];
        Pack<C, kColumns> outputs[kTogether];
#pragma unroll
        for (int n = 0; n < kTogether; ++n) {
          factors[n] = __shfl_sync(kAllLanes, factor, split + n);
          outputs[n] = {};
          if (factors[n] != 0) {  // others may be infinite, or of no split
            if (packs && column < args.value_depth) {
              outputs[n] = LoadPack<kColumns>(from);
            } else {
#pragma unroll
              for (int c = 0; c < kColumns; ++c) {
                if (column + c < args.value_depth) {
                  outputs[n].values[c] = from[c];
                }
              }
            }
          }
          from += splits.sums * args.value_depth;
        }
#pragma unroll
        for (int n = 0; n < kTogether; ++n) {
#pragma unroll
          for (int c = 0; c < kColumns; ++c) {
            sums[c] += factors[n] * outputs[n].values[c];
          }
        }
      }
      T* const to = args.output + row * args.value_depth + column;
      Pack<T, kColumns> joined;
#pragma unroll
      for (int c = 0; c < kColumns; ++c) joined.values[c] = Narrow<T>(sums[c]);
      if (packs) {
        if (column < args.value_depth) StorePack(joined, to);
        continue;
      }
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        if (column + c < args.value_depth) to[c] = joined.values[c];
      }
    }
  }
}

// The scratch of Attention.
template <typename T>
struct Scratch {
  Splits<Accumulator<T>> splits;
  int64_t bytes;

  Scratch(const AttentionOperands<T>& args,
          const Splits<Accumulator<T>>& without, void* base)
      : splits(without) {
    const int64_t sums = splits.count > 1 ? splits.count * splits.sums : 0;
    ScratchLayout layout(base);
    layout.Reserve(&splits.log_sum_exp, sums);
    layout.Reserve(&splits.outputs, sums * args.value_depth);
    bytes = layout.bytes();
  }
};

// Makes one query in each head the queries of key heads, so that a tile has all
// that read the same keys. Returns false if they are not to be, since scores
// depend on the head or the position otherwise than through bias and mask. The
// order of log_sum_exp is then also that of the rows of queries.
template <typename T>
bool GroupHeads(AttentionOperands<T>* args) {
  AttentionOperands<T> grouped = *args;
  const int64_t group = args->heads / args->key_heads;
  const bool sees_all_keys = args->query_offset == nullptr &&
                             args->left >= args->keys && args->right >= 0;
  if (args->queries != 1 || group == 1 || !sees_all_keys ||
      args->query_splits != nullptr || args->lengths != nullptr ||
      args->alibi_slopes != nullptr || args->dropout > 0) {
    return false;
  }
  grouped.queries = group;
  grouped.heads = args->key_heads;
  grouped.query_rows *= group;
  grouped.left = grouped.right = kUnboundedWindow;
  for (AttentionStrides* strides :
       {&grouped.mask_strides, &grouped.bias_strides}) {
    strides->query = strides->head;
    strides->head *= group;
  }
  if (!FitsInts(grouped)) return false;
  *args = grouped;
  return true;
}

// Splits of the keys: more than 1 where there are few blocks without.
template <typename T>
Splits<Accumulator<T>> SplitsOf(const AttentionOperands<T>& args, int width,
                                int64_t rows_of_tile) {
  constexpr int64_t kMinKeys = 256;
  const int64_t blocks = args.batch * args.heads *
                         DivideUp(args.queries, rows_of_tile) *
                         PartsOf(args.value_depth, width);
  const int64_t count = std::min(
      {SplitsThatFit(blocks), args.keys / kMinKeys, int64_t{kMaxSplits}});
  return {std::max<int64_t>(count, 1), SumsOf(args), nullptr, nullptr};
}

}  // namespace

template <typename T>
int64_t AttentionScratchBytes(const AttentionOperands<T>& given) {
  AttentionOperands<T> args = given;
  const bool heads_are_rows = GroupHeads(&args);
  int64_t bytes = 0;
  WithTile<T>(args, heads_are_rows, [&](auto width, auto m) -> Error {
    bytes = Scratch<T>(args, SplitsOf(args, width, m * kRows), nullptr).bytes;
    return nullptr;
  });
  return bytes;
}

template <typename T>
Error Attention(const Gpu& gpu, const AttentionArgs<T>& given) {
  AttentionArgs<T> args = given;
  if (!FitsInts(args)) return kTooLarge;
  const bool heads_are_rows = GroupHeads<T>(&args);
  return WithTile<T>(args, heads_are_rows, [&](auto width, auto m) -> Error {
    const Scratch<T> scratch(args, SplitsOf(args, width, m * kRows),
                             gpu.scratch);
    const auto& splits = scratch.splits;
    Options options = OptionsOf(args);
    options.value_depth_pairs = FitsPacks<2>(args.value_depth, args.output);
    options.heads_are_rows = heads_are_rows;
    const Grid grid =
        GridOf(args.batch, args.heads, args.queries,
               PartsOf(args.value_depth, width), true, splits.count, m * kRows);
    const Error error =
        Launch(gpu, GridSize(grid.blocks), kThreads, Attend<T, width, m>, args,
               options, grid, splits);
    if (error != nullptr || splits.count == 1) return error;
    return Launch(gpu, GridSize(DivideUp(splits.sums, kThreads / 32)), kThreads,
                  JoinSplits<T>, args, splits,
                  FitsPacks<4>(args.value_depth, args.output), heads_are_rows);
  });
}

#define TFO_INSTANTIATE(T) \
  template int64_t AttentionScratchBytes<T>(const AttentionOperands<T>&)
TFO_FOR_EACH_FLOAT(TFO_INSTANTIATE);
#undef TFO_INSTANTIATE
TFO_INSTANTIATE_ALGORITHM(Attention, Gpu, AttentionArgs);

}  // namespace tfo
