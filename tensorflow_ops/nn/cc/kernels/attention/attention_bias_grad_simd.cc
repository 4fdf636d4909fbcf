// The gradient to attention's bias. An owner has the part of a band and a
// block, and adds what was broadcast.
#include <algorithm>

#include "tensorflow_ops/nn/cc/kernels/attention/attention_grad_simd.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {
namespace attention {
namespace {

template <typename T, typename P>
void ToBias(const Cpu& cpu, const AttentionGradArgs<T>& args,
            const Accumulator<T>* deltas) {
  using C = Accumulator<T>;
  constexpr int64_t kBlockKeys = kKeysOfBlock<P>;
  const AttentionStrides& strides = args.bias_strides;
  const int64_t batch = strides.batch != 0 ? args.batch : 1;
  const int64_t heads = strides.head != 0 ? args.heads : 1;
  const int64_t queries = strides.query != 0 ? args.queries : 1;
  const int64_t keys = strides.key != 0 ? args.keys : 1;
  const int64_t bands = DivideUp(queries, kBandQueries);
  const int64_t blocks = DivideUp(keys, kBlockKeys);
  const int64_t owners = batch * heads * bands * blocks;
  if (owners == 0) return;
  const double pairs =
      1.0 * args.batch * args.heads * args.queries * args.keys / owners;
  cpu.ParallelFor(
      owners, pairs * CyclesPerPair<T>(args, 2),
      [&](int64_t begin, int64_t end) {
        [[maybe_unused]] const ScopeOf<P> scope;
        Backward<T, P> backward(args, deltas);
        const Buffer<C> buffer(kBlockKeys * kBandQueries);
        C* const sums = buffer.data();
        for (int64_t i = begin; i < end; ++i) {
          // The places of dim `i` that an owner with place `own` adds.
          const auto span = [](int64_t stride, int64_t own, int64_t step,
                               int64_t count) {
            return stride != 0 ? Span{own, std::min(own + step, count)}
                               : Span{0, count};
          };
          const int64_t key = i % blocks * kBlockKeys;
          const int64_t query = i / blocks % bands * kBandQueries;
          const int64_t head = i / blocks / bands % heads;
          const int64_t b = i / blocks / bands / heads;
          std::fill_n(sums, kBlockKeys * kBandQueries, C{0});
          const Span of_batch = span(strides.batch, b, 1, args.batch);
          for (int64_t x = of_batch.begin; x < of_batch.end; ++x) {
            const Example example = ExampleOf(args, x);
            const Span of_heads = span(strides.head, head, 1, args.heads);
            const Span of_queries =
                span(strides.query, query, kBandQueries, example.queries);
            const Span of_keys =
                span(strides.key, key, kBlockKeys, example.keys);
            for (int64_t h = of_heads.begin; h < of_heads.end; ++h) {
              for (int64_t t = of_queries.begin; t < of_queries.end;
                   t += kBandQueries) {
                for (int64_t j = of_keys.begin; j < of_keys.end;
                     j += kBlockKeys) {
                  backward.AddScores(example, h, t, j, sums);
                }
              }
            }
          }
          if (strides.query == 0) {
            for (int64_t j = 0; j < kBlockKeys; ++j) {
              C* const row = sums + j * kBandQueries;
              for (int64_t t = 1; t < kBandQueries; ++t) row[0] += row[t];
            }
          }
          if (strides.key == 0) {
            for (int64_t j = 1; j < kBlockKeys; ++j) {
              for (int64_t t = 0; t < kBandQueries; ++t) {
                sums[t] += sums[j * kBandQueries + t];
              }
            }
          }
          T* const to = args.d_bias + b * strides.batch + head * strides.head +
                        query * strides.query + key * strides.key;
          for (int64_t t = 0; t < std::min(kBandQueries, queries - query);
               ++t) {
            for (int64_t j = 0; j < std::min(kBlockKeys, keys - key); ++j) {
              to[t * strides.query + j * strides.key] =
                  Narrow<T>(sums[j * kBandQueries + t]);
            }
          }
        }
      });
}

}  // namespace

template <typename T>
void BiasGrad(const Cpu& cpu, const AttentionGradArgs<T>& args,
              const Accumulator<T>* deltas) {
  WithPacks<T>(cpu, args, args.d_output, args.d_log_sum_exp,
               [&](auto pack, const KeyHeads& heads) {
                 using P = decltype(pack);
                 // One bias may sum gradients of several heads, so it takes
                 // tiles only if all heads do.
                 if (kIsAmxPack<P> && !heads.are_in.empty()) return;
                 ToBias<T, P>(cpu, args, deltas);
               });
}

#define TFO_INSTANTIATE(T)                                        \
  template void BiasGrad(const Cpu&, const AttentionGradArgs<T>&, \
                         const Accumulator<T>*)
TFO_FOR_EACH_FLOAT(TFO_INSTANTIATE);
#undef TFO_INSTANTIATE

}  // namespace attention
}  // namespace TFO_CPU_NAMESPACE
}  // namespace tfo
