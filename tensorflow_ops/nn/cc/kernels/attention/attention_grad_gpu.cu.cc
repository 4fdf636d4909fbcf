// Gradients of attention: kernels that own keys or queries compute the weights
// again. With tensor cores those that own keys also add to the gradients to
// queries, in any order, unless gpu.deterministic: five products of each tile
// instead of seven.
#include "tensorflow_ops/nn/cc/kernels/attention/attention_grad_gpu.h"

#include <algorithm>

#include "tensorflow_ops/core/cc/scratch.h"

namespace tfo {
namespace {

using namespace attention;  // NOLINT: the kernels' own header

// Writes the terms of each query in the order of log_sum_exp; delta is d_output
// . output - d_log_sum_exp. A warp has a query.
template <typename T, typename C = Accumulator<T>>
__global__ void __launch_bounds__(kThreads)
    FindTerms(const __grid_constant__ AttentionGradArgs<T> args,
              Terms<C>* terms) {
  const int64_t count = args.batch * args.heads * args.queries;
  const int lane = threadIdx.x % 32;
  for (int64_t i = int64_t{blockIdx.x} * (kThreads / 32) + threadIdx.x / 32;
       i < count; i += int64_t{gridDim.x} * (kThreads / 32)) {
    const int64_t t = i % args.queries, head = i / args.queries % args.heads;
    const Example example = ExampleOf(args, i / args.queries / args.heads);
    if (t >= example.queries) continue;  // the whole warp
    const int64_t row = (example.first_query + t) * args.heads + head;
    C sum = 0;
    for (int64_t c = lane; c < args.value_depth; c += 32) {
      sum += Widen(args.d_output[row * args.value_depth + c]) *
             Widen(args.output[row * args.value_depth + c]);
    }
    sum = SumOfLanes(sum);
    if (lane != 0) continue;
    const int64_t at = FirstSum(args, example, head) + t;
    if (args.d_log_sum_exp != nullptr) sum -= args.d_log_sum_exp[at];
    terms[at] = {args.log_sum_exp[at], sum};
  }
}

// What the blocks of a split of the query heads of each key head write: their
// part of the gradients. SumSplits adds them.
template <typename C>
struct HeadSplits {
  int64_t count;
  C *d_key, *d_value;  // [count, rows, key_heads, depth or value_depth]
};
constexpr int64_t kMaxHeadSplits = 8;

template <typename T>
HeadSplits<Accumulator<T>> HeadSplitsOf(const AttentionGradArgs<T>& args,
                                        int64_t blocks) {
  int64_t count = 1;
  if (args.d_key != nullptr) {
    count = std::min(
        {args.heads / args.key_heads, SplitsThatFit(blocks), kMaxHeadSplits});
  }
  return {count, nullptr, nullptr};
}

// Sums of the gradients to queries, which ToKeys adds to, as fragments of 16
// rows and 8 columns: [heads, tiles, kRows / 16, fragments, kFragment].
template <typename C>
struct QuerySums {
  static constexpr int kFragment = 16 * 8;
  C* first;
  int64_t tiles;  // of kRows queries of an example; 0: ToQueries computes all
  int fragments;  // of a row

  int64_t size(int64_t heads) const {
    return heads * tiles * (kRows / 16) * fragments * kFragment;
  }
  // The fragments of the rows from t on. The tiles of examples are apart, and
  // an example that begins within a tile of rows takes one more.
  __device__ C* Of(const Example& example, int64_t head, int t) const {
    const int64_t tile =
        head * tiles + example.first_query / kRows + example.batch;
    return first + (tile * (kRows / 16) + t / 16) * fragments * kFragment;
  }
};

// Where a fragment has value i of a lane. A warp's additions meet whole lines.
__device__ inline int PlaceInFragment(int i) {
  const int lane = threadIdx.x % 32;
#if TFO_GPU_ARCH >= 900  // AddAtomically adds all four at once
  return lane * 4 + i;
#else
  return i * 32 + lane;
#endif
}
template <typename C>
__device__ void AddFragment(const C (&values)[4], C* to) {
#if TFO_GPU_ARCH >= 900
  AddAtomically(values, to + PlaceInFragment(0));
#else
#pragma unroll
  for (int i = 0; i < 4; ++i) atomicAdd(to + PlaceInFragment(i), values[i]);
#endif
}

// A block's gradients to scores, of keys by queries, as T: a fragment's columns
// lie behind a slot of rows, in what sets the lines' banks apart.
template <typename T, int N, typename C>
__device__ void KeepScores(const C (&d_scores)[N][4], T* rows) {
  static_assert(N <= kSlots && kPackSize<T> == 8);  // as in kPitch
#pragma unroll
  for (int n = 0; n < N; ++n) {
#pragma unroll
    for (int m = 0; m < 2; ++m) {
      T* const line = rows + (n * kRows + FragmentRow(2 * m)) * kPitch<T>;
      *reinterpret_cast<uint32_t*>(line + kChunk<T> + FragmentColumn(0, 0)) =
          NarrowPair<T>(d_scores[n][2 * m], d_scores[n][2 * m + 1]);
    }
  }
}
// Adds what KeepScores kept, times the keys in the first slots of rows, to the
// sums of 32 queries. A warp has 16 queries, and 32 columns of each chunk.
template <typename T, typename C>
__device__ void AddToQueries(const T* rows, int fragments, C* sums) {
  constexpr int kFragment = QuerySums<C>::kFragment, kEach = 4;
  const int lane = threadIdx.x % 32, half = threadIdx.x / 32 % 2;
  const int first = threadIdx.x / 64 * kEach;
  const int line = lane % 8, second = lane / 8 % 2, third = lane / 16;
  const T* const score =
      rows + kChunk<T> +
      ((half * 2 + second) * kRows + third * 8 + line) * kPitch<T>;
  const T* key = rows + (second * 8 + line) * kPitch<T> + (first + third) * 8;
  sums += half * fragments * kFragment;
#pragma unroll 1
  for (int f = first; f < fragments; f += kChunk<T> / 8) {
    C products[kEach][4];
    Clear(products);
#pragma unroll
    for (int k = 0; k < kRows; k += 16) {
      uint32_t a[4];
      LoadMatrices<4, true>(score + k * kPitch<T>, a);
#pragma unroll
      for (int n = 0; n < kEach; n += 2) {
        uint32_t b[4];
        LoadMatrices<4, true>(key + k * kPitch<T> + n * 8, b);
        const uint32_t left[2] = {b[0], b[1]}, right[2] = {b[2], b[3]};
        MultiplyAdd16x8x16<T>(a, left, products[n]);
        MultiplyAdd16x8x16<T>(a, right, products[n + 1]);
      }
    }
#pragma unroll
    for (int n = 0; n < kEach; ++n) {
      if (f + n < fragments)
        AddFragment(products[n], sums + (f + n) * kFragment);
    }
    key += kRows * kPitch<T>;
  }
}

// kWidth columns of the gradients to kRows keys and to their values. With sums
// of gradients to queries, all rows stay in shared memory.
template <typename T, int kWidth, typename C = Accumulator<T>>
__global__ void __launch_bounds__(kThreads, 2)
    ToKeys(const __grid_constant__ AttentionGradArgs<T> args,
           const __grid_constant__ Options options,
           const __grid_constant__ Grid grid, const Terms<C>* terms,
           const HeadSplits<C> splits, const QuerySums<C> query_sums) {
  __shared__ GradBuffers<T> buffers;
  __shared__ Pairs<T> pairs;
  GradSteps<T> steps(&buffers);
  const int64_t group = args.heads / args.key_heads;
  const int64_t of_split = (group + splits.count - 1) / splits.count;
  const int depth = static_cast<int>(args.depth);
  const int value_depth = static_cast<int>(args.value_depth);
  for (int64_t block = blockIdx.x; block < grid.blocks; block += gridDim.x) {
    const Place place = PlaceOf(grid, block, kWidth);
    const Example example = ExampleOf(args, place.batch);
    const int first = place.first_row, column = place.first_column;
    const int64_t rows = args.key_splits != nullptr ? example.keys : args.keys;
    if (first >= rows) continue;
    const int64_t first_head = place.head * group + place.split * of_split;
    int64_t end_head = (place.head + 1) * group;
    if (first_head + of_split < end_head) end_head = first_head + of_split;
    C d_keys[1][kWidth / 8][4], d_values[1][kWidth / 8][4];
#pragma unroll 1
    for (bool careful = false;; careful = true) {
      Clear(d_keys[0]);
      Clear(d_values[0]);
      for (int64_t head = first_head; head < end_head; ++head) {
        pairs.Set(args, options.threshold, example, head, false);
        const Inputs<T> inputs(args, options, example, head, terms);
        const Phase<T> phases[] = {DotPhase(inputs.keys, inputs.queries),
                                   DotPhase(inputs.values, inputs.d_outputs),
                                   SumPhase(inputs.d_outputs, column, kWidth),
                                   SumPhase(inputs.queries, column, kWidth)};
        const uint64_t key_bits = pairs.template KeyBits<kRows>(first);
        Range queries =
            key_bits == 0 ? Range{0, 0} : pairs.QueriesThatSee(first, kRows);
        queries.begin = queries.begin / kColumns<T> * kColumns<T>;
        steps.Begin(phases, first, queries.begin, queries.end, careful,
                    inputs.terms, inputs.queries.rows);
        for (int t = queries.begin; t < queries.end; t += kColumns<T>) {
          C weights[1][kFragments<T>][4], d_scores[1][kFragments<T>][4];
          Clear(weights[0]);
          Clear(d_scores[0]);
          AddDotPhase<T, true>(depth, &steps, weights);
          AddDotPhase<T, true>(value_depth, &steps, d_scores);
          Differentiate<true>(pairs, steps.terms(), first, t, key_bits, true,
                              weights[0], d_scores[0]);
          // Sums that are not finite are computed again by ToQueries.
          const bool adds_to_queries =
              kHasTensorCores<T> && query_sums.tiles > 0 && !careful;
          if constexpr (kHasTensorCores<T>) {
            if (adds_to_queries) KeepScores(d_scores[0], buffers.rows[0]);
          }
          AddSumPhase<T>(weights, value_depth - column, &steps, d_values);
          AddSumPhase<T>(d_scores, depth - column, &steps, d_keys);
          // After the barriers of the phase, and before those of the next tile.
          if constexpr (kHasTensorCores<T>) {
            if (adds_to_queries) {
              AddToQueries(buffers.rows[0], query_sums.fragments,
                           query_sums.Of(example, head, t));
            }
          }
        }
      }
      if (!kTakesFinite<T> || careful) break;
      const bool again = AnyNonFinite(d_keys[0]);
      if (!AnyNonFinite(d_values[0]) && !again) break;
    }
    const int64_t row =
        (example.first_key + first) * args.key_heads + place.head;
    const C scale = static_cast<C>(args.scale);
    const int count = static_cast<int>(rows) - first;
    if (splits.count > 1) {
      const int64_t split_row =
          place.split * args.key_rows * args.key_heads + row;
      WriteRows(d_keys[0], {scale, scale}, count, depth - column, false,
                args.key_heads * args.depth,
                splits.d_key + split_row * args.depth + column);
      WriteRows(d_values[0], {C(1), C(1)}, count, value_depth - column, false,
                args.key_heads * args.value_depth,
                splits.d_value + split_row * args.value_depth + column);
      continue;
    }
    WriteRows(d_keys[0], {scale, scale}, count, depth - column,
              options.depth_pairs, args.key_heads * args.depth,
              args.d_key + row * args.depth + column);
    WriteRows(d_values[0], {C(1), C(1)}, count, value_depth - column,
              options.value_depth_pairs, args.key_heads * args.value_depth,
              args.d_value + row * args.value_depth + column);
  }
}

template <typename T, typename C = Accumulator<T>>
__global__ void __launch_bounds__(kThreads)
    SumSplits(int64_t splits, int64_t size, const C* from, T* to) {
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < size;
       i += int64_t{gridDim.x} * kThreads) {
    C sum = from[i];
    for (int64_t n = 1; n < splits; ++n) sum += from[n * size + i];
    to[i] = Narrow<T>(sum);
  }
}

// Loads what ToKeys has added for kRows queries. False if it did not, or if a
// sum is not finite: a key that is not, times 0, spoils it. All threads call
// this.
template <typename T, int N, typename C>
__device__ bool FindSums(const QuerySums<C>& query_sums, const Example& example,
                         int64_t head, int first, C (&sums)[N][4]) {
  if (!kHasTensorCores<T> || query_sums.tiles == 0) return false;
  constexpr int kFragment = QuerySums<C>::kFragment;
  const C* const from = query_sums.Of(example, head, first + WarpRow());
#pragma unroll
  for (int n = 0; n < N; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      sums[n][i] = n < query_sums.fragments
                       ? from[n * kFragment + PlaceInFragment(i)]
                       : C(0);
    }
  }
  return !AnyNonFinite(sums);
}

// kWidth columns of the gradients to kRows queries: the sums of ToKeys, if
// there are any and they are finite.
template <typename T, int kWidth, typename C = Accumulator<T>>
__global__ void __launch_bounds__(kThreads, (kMinBlocks<T, kWidth>))
    ToQueries(const __grid_constant__ AttentionGradArgs<T> args,
              const __grid_constant__ Options options,
              const __grid_constant__ Grid grid, const Terms<C>* terms,
              const QuerySums<C> query_sums) {
  __shared__ GradBuffers<T> buffers;
  __shared__ Pairs<T> pairs;
  GradSteps<T> steps(&buffers);
  const int depth = static_cast<int>(args.depth);
  for (int64_t block = blockIdx.x; block < grid.blocks; block += gridDim.x) {
    const Place place = PlaceOf(grid, block, kWidth);
    const Example example = ExampleOf(args, place.batch);
    const int first = place.first_row, column = place.first_column;
    const int64_t rows =
        args.query_splits != nullptr ? example.queries : args.queries;
    if (first >= rows) continue;
    C sums[1][kWidth / 8][4];
    if (!FindSums<T>(query_sums, example, place.head, first, sums[0])) {
      pairs.Set(args, options.threshold, example, place.head, false);
      const Inputs<T> inputs(args, options, example, place.head, terms);
      const Phase<T> phases[] = {DotPhase(inputs.queries, inputs.keys),
                                 DotPhase(inputs.d_outputs, inputs.values),
                                 SumPhase(inputs.keys, column, kWidth)};
      const Range keys = pairs.Unmasked(pairs.SeenKeys(first, kRows));
      Terms<C> of_rows[2];
      inputs.LoadTerms(first, of_rows);
#pragma unroll 1
      for (bool careful = false;; careful = true) {
        steps.Begin(phases, first, keys.begin, keys.end, careful);
        Clear(sums[0]);
        for (int key = keys.begin; key < keys.end; key += kColumns<T>) {
          const uint64_t key_bits = pairs.template KeyBits<kColumns<T>>(key);
          C weights[1][kFragments<T>][4], d_scores[1][kFragments<T>][4];
          Clear(weights[0]);
          Clear(d_scores[0]);
          AddDotPhase<T, false>(depth, &steps, weights);
          AddDotPhase<T, false>(static_cast<int>(args.value_depth), &steps,
                                d_scores);
          Differentiate<false>(pairs, of_rows, first, key, key_bits, true,
                               weights[0], d_scores[0]);
          AddSumPhase<T>(d_scores, depth - column, &steps, sums);
        }
        if (!kTakesFinite<T> || careful || !AnyNonFinite(sums[0])) break;
      }
    }
    const C scale = static_cast<C>(args.scale);
    WriteRows(sums[0], {scale, scale}, static_cast<int>(rows) - first,
              depth - column, options.depth_pairs, args.heads * args.depth,
              args.d_query +
                  ((example.first_query + first) * args.heads + place.head) *
                      args.depth +
                  column);
  }
}

// The gradient to a sink. A block has a head.
template <typename T, typename C = Accumulator<T>>
__global__ void __launch_bounds__(kThreads)
    ToSinks(const __grid_constant__ AttentionGradArgs<T> args,
            const Terms<C>* terms) {
  __shared__ double sums[kThreads];
  for (int64_t head = blockIdx.x; head < args.heads; head += gridDim.x) {
    const C sink = args.sinks[head];
    double sum = 0;
    for (int64_t b = 0; b < args.batch; ++b) {
      const Example example = ExampleOf(args, b);
      const int64_t first = FirstSum(args, example, head);
      for (int64_t t = threadIdx.x; t < example.queries; t += kThreads) {
        sum -= std::exp(double{sink} - args.log_sum_exp[first + t]) *
               terms[first + t].delta;
      }
    }
    sums[threadIdx.x] = sum;
    __syncthreads();
    for (unsigned n = kThreads / 2; n > 0; n /= 2) {
      if (threadIdx.x < n) sums[threadIdx.x] += sums[threadIdx.x + n];
      __syncthreads();
    }
    if (threadIdx.x == 0) {
      args.d_sinks[head] = sink == kNoScore<C> ? C(0) : static_cast<C>(sums[0]);
    }
    __syncthreads();
  }
}

// Reserves the terms of each query, which come first in scratch memory.
template <typename T>
Terms<Accumulator<T>>* ReserveTerms(const AttentionOperands<T>& args,
                                    ScratchLayout* layout) {
  Terms<Accumulator<T>>* terms;
  layout->Reserve(&terms, SumsOf(args));
  return terms;
}

// Calls run(width, grid, splits, query_sums) for ToKeys, after reserving the
// arrays of the last two.
template <typename T, typename Run>
Error WithToKeys(const AttentionGradArgs<T>& args, bool deterministic,
                 ScratchLayout* layout, const Run& run) {
  const int64_t wider =
      args.depth > args.value_depth ? args.depth : args.value_depth;
  return WithWidth<T>(wider, [&](auto width) {
    const auto grid_of = [&](int64_t splits) {
      return GridOf(args.batch, args.key_heads, args.keys,
                    PartsOf(wider, width), false, splits);
    };
    auto splits = HeadSplitsOf(args, grid_of(1).blocks);
    const Grid grid = grid_of(splits.count);
    QuerySums<Accumulator<T>> query_sums = {};
    // A product more by the blocks of keys, or three by those of queries, which
    // may be many more.
    const int64_t query_blocks =
        args.batch * args.heads * DivideUp(args.queries, kRows);
    if (sizeof(T) == 2 && !deterministic && args.d_query != nullptr &&
        args.depth > 0 && grid.parts == 1 &&
        std::min(query_blocks, kEnoughBlocks) <
            3 * std::min(grid.blocks, kEnoughBlocks)) {
      query_sums.tiles = args.query_rows / kRows + args.batch;
      query_sums.fragments = static_cast<int>(DivideUp(args.depth, 8));
    }
    layout->Reserve(&query_sums.first, query_sums.size(args.heads));
    if (splits.count > 1) {
      const int64_t rows = splits.count * args.key_rows * args.key_heads;
      layout->Reserve(&splits.d_key, rows * args.depth);
      layout->Reserve(&splits.d_value, rows * args.value_depth);
    }
    return run(width, grid, splits, query_sums);
  });
}

template <typename T>
Error EnqueueToOperands(const Gpu& gpu, const AttentionGradArgs<T>& args,
                        const Options& options,
                        const Terms<Accumulator<T>>* terms,
                        ScratchLayout* layout) {
  using C = Accumulator<T>;
  QuerySums<C> to_queries = {};
  const Error error = WithToKeys(
      args, gpu.deterministic, layout,
      [&](auto width, const Grid& grid, auto splits, auto query_sums) {
        const int64_t d_keys = args.key_rows * args.key_heads * args.depth;
        const int64_t d_values =
            args.key_rows * args.key_heads * args.value_depth;
        to_queries = query_sums;
        Error error = EnqueueZeros(gpu, query_sums.first,
                                   query_sums.size(args.heads) * sizeof(C));
        if (error != nullptr) return error;
        error = Launch(gpu, GridSize(grid.blocks), kThreads, ToKeys<T, width>,
                       args, options, grid, terms, splits, query_sums);
        if (error != nullptr || splits.count == 1) return error;
        const C *const from_key = splits.d_key, *const from_value =
                                                    splits.d_value;
        error =
            Launch(gpu, GridSize(DivideUp(d_keys, kThreads)), kThreads,
                   SumSplits<T>, splits.count, d_keys, from_key, args.d_key);
        if (error != nullptr) return error;
        return Launch(gpu, GridSize(DivideUp(d_values, kThreads)), kThreads,
                      SumSplits<T>, splits.count, d_values, from_value,
                      args.d_value);
      });
  if (error != nullptr) return error;
  return WithWidth<T>(args.depth, [&](auto width) {
    const Grid grid = GridOf(args.batch, args.heads, args.queries,
                             PartsOf(args.depth, width), true);
    return Launch(gpu, GridSize(grid.blocks), kThreads, ToQueries<T, width>,
                  args, options, grid, terms, to_queries);
  });
}

}  // namespace

template <typename T>
int64_t AttentionGradScratchBytes(const AttentionGradArgs<T>& args,
                                  bool deterministic) {
  ScratchLayout layout(nullptr);
  ReserveTerms(args, &layout);
  WithToKeys(args, deterministic, &layout,
             [](auto, const Grid&, const auto&, const auto&) -> Error {
               return nullptr;
             });
  return layout.bytes();
}

template <typename T>
Error AttentionGrad(const Gpu& gpu, const AttentionGradArgs<T>& args) {
  using C = Accumulator<T>;
  if (!FitsInts(args)) return kTooLarge;
  ScratchLayout layout(gpu.scratch);
  Terms<C>* const terms = ReserveTerms(args, &layout);
  Options options = OptionsOf(args);
  options.value_depth_packs &=
      FitsPacks<kPackSize<T>>(args.value_depth, args.d_output);
  options.depth_pairs = FitsPacks<2>(args.depth, args.d_query, args.d_key);
  options.value_depth_pairs = FitsPacks<2>(args.value_depth, args.d_value);
  Error error = Launch(
      gpu,
      GridSize(DivideUp(args.batch * args.heads * args.queries, kThreads / 32)),
      kThreads, FindTerms<T>, args, terms);
  const Terms<C>* const found = terms;
  if (error == nullptr && (args.d_query != nullptr || args.d_key != nullptr ||
                           args.d_value != nullptr)) {
    error = EnqueueToOperands(gpu, args, options, found, &layout);
  }
  if (error == nullptr && args.d_bias != nullptr) {
    error = EnqueueBiasGrad(gpu, args, options, found);
  }
  if (error == nullptr && args.d_sinks != nullptr) {
    error =
        Launch(gpu, GridSize(args.heads), kThreads, ToSinks<T>, args, found);
  }
  return error;
}

#define TFO_INSTANTIATE(T)                                                   \
  template int64_t AttentionGradScratchBytes<T>(const AttentionGradArgs<T>&, \
                                                bool)
TFO_FOR_EACH_FLOAT(TFO_INSTANTIATE);
#undef TFO_INSTANTIATE
TFO_INSTANTIATE_ALGORITHM(AttentionGrad, Gpu, AttentionGradArgs);

}  // namespace tfo
