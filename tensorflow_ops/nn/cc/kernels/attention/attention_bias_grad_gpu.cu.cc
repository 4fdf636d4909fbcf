// The gradient to attention's bias. A block owns a tile of it.
#include "tensorflow_ops/nn/cc/kernels/attention/attention_grad_gpu.h"

namespace tfo {
namespace attention {
namespace {

// A tile of the gradient to the bias, which adds what was broadcast. Its dims
// are those of the bias, which are 1 or the operands'.
struct BiasTiles {
  int64_t batch, heads, queries, keys;

  explicit BiasTiles(const AttentionSpec& spec, const AttentionStrides& strides,
                     int columns)
      : batch(strides.batch != 0 ? spec.batch : 1),
        heads(strides.head != 0 ? spec.heads : 1),
        queries(strides.query != 0 ? DivideUp(spec.queries, kRows) : 1),
        keys(strides.key != 0 ? DivideUp(spec.keys, columns) : 1) {}
  __host__ __device__ int64_t count() const {
    return batch * heads * queries * keys;
  }
};

// The places of a dim that the owner of [own, own + size) adds.
__device__ inline Range AddedTo(int64_t stride, int own, int size,
                                int64_t count) {
  const int n = static_cast<int>(count);
  if (stride == 0) return {0, n};
  return {own, own + size < n ? own + size : n};
}

// Writes sums of a tile as the gradient to a bias without dims of queries or
// keys, or both; `shared` has space for kRows values, and for a row of columns
// of each warp.
template <int N, typename T, typename C>
__device__ void WriteBroadcastBias(C (&sums)[N][4], C* shared,
                                   const AttentionStrides& strides,
                                   int64_t queries, int64_t keys, T* to) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  if (strides.key == 0) {
#pragma unroll
    for (int m = 0; m < 2; ++m) {
      C sum = 0;
#pragma unroll
      for (int n = 0; n < N; ++n) sum += sums[n][2 * m] + sums[n][2 * m + 1];
      sum = SumOfLanes<4>(sum);
      if (lane % 4 == 0) shared[FragmentRow(2 * m)] = sum;
    }
    __syncthreads();
    if (strides.query != 0) {
      if (threadIdx.x < kRows && threadIdx.x < queries) {
        to[threadIdx.x * strides.query] = Narrow<T>(shared[threadIdx.x]);
      }
    } else if (threadIdx.x == 0) {
      C sum = 0;
      for (int row = 0; row < kRows; ++row) sum += shared[row];
      *to = Narrow<T>(sum);
    }
  } else {
#pragma unroll
    for (int n = 0; n < N; ++n) {
#pragma unroll
      for (int x = 0; x < 2; ++x) {
        const C sum = SumOfLanes<8, 4>(sums[n][x] + sums[n][2 + x]);
        if (lane < 4) shared[warp * 8 * N + FragmentColumn(n, x)] = sum;
      }
    }
    __syncthreads();
    if (threadIdx.x < 8 * N && threadIdx.x < keys) {
      C sum = 0;
#pragma unroll
      for (int w = 0; w < kThreads / 32; ++w) {
        sum += shared[w * 8 * N + threadIdx.x];
      }
      to[threadIdx.x * strides.key] = Narrow<T>(sum);
    }
  }
  __syncthreads();
}

template <typename T, typename C = Accumulator<T>>
__global__ void __launch_bounds__(kThreads)
    ToBias(const __grid_constant__ AttentionGradArgs<T> args,
           const __grid_constant__ Options options,
           const __grid_constant__ BiasTiles tiles, const Terms<C>* terms) {
  constexpr int N = kFragments<T>;
  __shared__ GradBuffers<T> buffers;
  __shared__ C shared[kThreads / 32 * kColumns<T>];
  static_assert(kThreads / 32 * kColumns<T> >= kRows);
  __shared__ Pairs<T> pairs;
  GradSteps<T> steps(&buffers);
  const AttentionStrides& strides = args.bias_strides;
  const int64_t count = tiles.count();
  for (int64_t i = blockIdx.x; i < count; i += gridDim.x) {
    const int own_key = static_cast<int>(i % tiles.keys) * kColumns<T>;
    const int own_query =
        static_cast<int>(i / tiles.keys % tiles.queries) * kRows;
    const int64_t own_head = i / tiles.keys / tiles.queries % tiles.heads;
    const int64_t own_batch = i / tiles.keys / tiles.queries / tiles.heads;
    C sums[N][4];
    const Range batch =
        AddedTo(strides.batch, static_cast<int>(own_batch), 1, args.batch);
    const Range heads =
        AddedTo(strides.head, static_cast<int>(own_head), 1, args.heads);
#pragma unroll 1
    for (bool careful = false;; careful = true) {
      Clear(sums);
      for (int b = batch.begin; b < batch.end; ++b) {
        const Example example = ExampleOf(args, b);
        const Range queries =
            AddedTo(strides.query, own_query, kRows, example.queries);
        for (int head = heads.begin; head < heads.end; ++head) {
          pairs.Set(args, options.threshold, example, head, false);
          const Inputs<T> inputs(args, options, example, head, terms);
          const Phase<T> phases[] = {DotPhase(inputs.queries, inputs.keys),
                                     DotPhase(inputs.d_outputs, inputs.values)};
          for (int t = queries.begin; t < queries.end; t += kRows) {
            Range keys = pairs.Unmasked(pairs.SeenKeys(t, kRows));
            if (strides.key != 0) {
              if (keys.end <= own_key || keys.begin >= own_key + kColumns<T>) {
                continue;
              }
              keys = {own_key, own_key + 1};
            }
            steps.Begin(phases, t, keys.begin, keys.end, careful);
            Terms<C> of_rows[2];
            inputs.LoadTerms(t, of_rows);
            for (int key = keys.begin; key < keys.end; key += kColumns<T>) {
              const uint64_t key_bits =
                  pairs.template KeyBits<kColumns<T>>(key);
              C weights[1][N][4], d_scores[1][N][4];
              Clear(weights[0]);
              Clear(d_scores[0]);
              AddDotPhase<T, false>(static_cast<int>(args.depth), &steps,
                                    weights);
              AddDotPhase<T, false>(static_cast<int>(args.value_depth), &steps,
                                    d_scores);
              Differentiate<false>(pairs, of_rows, t, key, key_bits, false,
                                   weights[0], d_scores[0]);
#pragma unroll
              for (int n = 0; n < N; ++n) {
#pragma unroll
                for (int x = 0; x < 4; ++x) sums[n][x] += d_scores[0][n][x];
              }
            }
          }
        }
      }
      if (!kHasParts<T> || careful || !AnyNonFinite(sums)) break;
    }
    T* const to = args.d_bias + own_batch * strides.batch +
                  own_head * strides.head + own_query * strides.query +
                  own_key * strides.key;
    const int64_t queries = args.queries - own_query;
    const int64_t keys = args.keys - own_key;
    if (strides.query == 0 || strides.key == 0) {
      WriteBroadcastBias(sums, shared, strides, queries, keys, to);
    } else {
      WriteRows(sums, {C(1), C(1)}, static_cast<int>(queries),
                static_cast<int>(keys), false, strides.query, to);
    }
  }
}

}  // namespace

template <typename T>
Error EnqueueBiasGrad(const Gpu& gpu, const AttentionGradArgs<T>& args,
                      const Options& options,
                      const Terms<Accumulator<T>>* terms) {
  const BiasTiles tiles(args, args.bias_strides, kColumns<T>);
  return Launch(gpu, GridSize(tiles.count()), kThreads, ToBias<T>, args,
                options, tiles, terms);
}

#define TFO_INSTANTIATE(T)                                                   \
  template Error EnqueueBiasGrad<T>(const Gpu&, const AttentionGradArgs<T>&, \
                                    const Options&,                          \
                                    const Terms<Accumulator<T>>*)
TFO_FOR_EACH_FLOAT(TFO_INSTANTIATE);
#undef TFO_INSTANTIATE

}  // namespace attention
}  // namespace tfo
