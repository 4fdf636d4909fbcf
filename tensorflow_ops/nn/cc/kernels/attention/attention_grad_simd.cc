// Gradients of attention on the CPU: for each band of queries and block of keys
// the weights are computed again. Sums run over bands, and over blocks, in
// order, whoever computes them.
#include "tensorflow_ops/nn/cc/kernels/attention/attention_grad_simd.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <new>
#include <vector>

namespace tfo {
namespace TFO_CPU_NAMESPACE {
namespace {

using namespace attention;  // NOLINT: the header of these files

// Writes a . b for each row; in a and b, rows are `stride` apart.
template <typename T>
void DotRows(const T* a, const T* b, int64_t stride, int64_t count,
             int64_t columns, Accumulator<T>* dots) {
  for (int64_t i = 0; i < count; ++i, a += stride, b += stride) {
    typename Lanes<T>::Vector sum = {};
    ForVectors<T>(columns, [&](auto part, int64_t at) {
      sum = MulAdd(part.Load(a + at, 0), part.Load(b + at, 0), sum);
    });
    dots[i] = SumLanes(sum);
  }
}

// Writes d_output . output - d_log_sum_exp for each query, which the gradients
// of its scores have in common, in the order of log_sum_exp.
template <typename T>
void FindDeltas(const Cpu& cpu, const AttentionGradArgs<T>& args,
                Accumulator<T>* deltas) {
  cpu.ParallelFor(
      args.batch * args.heads, 1.0 * args.queries * (args.value_depth / 8 + 9),
      [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const Example example = ExampleOf(args, i / args.heads);
          const int64_t head = i % args.heads;
          const int64_t at =
              (example.first_query * args.heads + head) * args.value_depth;
          const int64_t sum = FirstSum(args, example, head);
          DotRows<T>(args.d_output + at, args.output + at,
                     args.heads * args.value_depth, example.queries,
                     args.value_depth, deltas + sum);
          if (args.d_log_sum_exp == nullptr) continue;
          for (int64_t t = sum; t < sum + example.queries; ++t) {
            deltas[t] -= args.d_log_sum_exp[t];
          }
        }
      });
}

// The gradients to queries, keys and values, of five products. Threads share a
// head by blocks of keys.
template <typename T, typename P>
void ToOperands(const Cpu& cpu, const AttentionGradArgs<T>& args,
                const KeyHeads& heads, const Accumulator<T>* deltas) {
  using C = Accumulator<T>;
  constexpr int64_t kBlockKeys = kKeysOfBlock<P>;
  const int64_t group = args.heads / args.key_heads;
  struct Owner {  // of a key head
    Example example;
    int64_t key_head, blocks, first_band;
  };
  std::vector<Owner> owners;
  double pairs = 0;
  int64_t num_bands = 0;
  for (int64_t b = 0; b < args.batch; ++b) {
    const Example example = ExampleOf(args, b);
    for (int64_t k = 0; k < args.key_heads; ++k) {
      if (!heads.Have(b * args.key_heads + k)) continue;
      pairs += 1.0 * example.queries * example.keys * group;
      // A block without keys writes the queries' zeros.
      owners.push_back(
          {example, k, std::max<int64_t>(DivideUp(example.keys, kBlockKeys), 1),
           num_bands});
      num_bands += group * DivideUp(example.queries, kBandQueries);
    }
  }
  std::vector<QueryBand<C>> bands(num_bands);
  for (const Owner& owner : owners) {
    const int64_t count = DivideUp(owner.example.queries, kBandQueries);
    for (int64_t i = 0; i < group * count; ++i) {
      const int64_t first = i % count * kBandQueries;
      const Panel panel = {
          0, first, std::min(kBandQueries, owner.example.queries - first)};
      const Span keys =
          SeenKeys(args, owner.example, panel, 0, owner.example.keys);
      QueryBand<C>& band = bands[owner.first_band + i];
      if (keys.begin < keys.end) {
        band.blocks = {keys.begin / kBlockKeys, DivideUp(keys.end, kBlockKeys)};
      }
      band.turn = band.blocks.begin;
    }
  }
  // First a block of as many heads as there are threads, then the next.
  struct Step {
    const Owner* owner;
    int64_t block;
  };
  std::vector<Step> steps;
  const int64_t num_owners = owners.size();
  for (int64_t o = 0; o < num_owners; o += cpu.num_threads) {
    const int64_t end = std::min<int64_t>(o + cpu.num_threads, num_owners);
    int64_t added = 1;
    for (int64_t block = 0; added > 0; ++block) {
      added = 0;
      for (int64_t i = o; i < end; ++i) {
        if (block >= owners[i].blocks) continue;
        steps.push_back({&owners[i], block});
        ++added;
      }
    }
  }
  // Threads take steps in order, so that a step waits only for steps that
  // threads have begun.
  std::atomic<int64_t> next{0};
  std::atomic<bool> has_failed{false};
  const int64_t count = steps.size();
  cpu.ParallelFor(
      count, pairs * CyclesPerPair<T>(args, 5) / count,
      [&](int64_t begin, int64_t end) {
        [[maybe_unused]] const ScopeOf<P> scope;
        Backward<T, P> backward(args, deltas);
        for (int64_t i = begin; i < end; ++i) {
          const Step& step = steps[next.fetch_add(1)];
          const Owner& owner = *step.owner;
          try {
            if (!backward.Keys(owner.example, owner.key_head, step.block,
                               bands.data() + owner.first_band, has_failed)) {
              return;
            }
          } catch (const std::bad_alloc&) {
            has_failed = true;
            throw;
          }
        }
      });
}

// Writes the gradients beyond the lengths.
template <typename T>
void FillBeyondLengths(const AttentionGradArgs<T>& args) {
  for (int64_t b = 0; b < args.batch; ++b) {
    const Example example = ExampleOf(args, b);
    const auto fill = [&](int64_t count, int64_t length, int64_t row, T* to) {
      std::fill_n(to + (b * count + length) * row, (count - length) * row, T{});
    };
    if (args.lengths != nullptr) {
      fill(args.queries, example.queries, args.heads * args.depth,
           args.d_query);
    }
    if (args.key_lengths != nullptr) {
      fill(args.keys, example.keys, args.key_heads * args.depth, args.d_key);
      fill(args.keys, example.keys, args.key_heads * args.value_depth,
           args.d_value);
    }
  }
}

template <typename T>
void ToSinks(const Cpu& cpu, const AttentionGradArgs<T>& args,
             const Accumulator<T>* deltas) {
  using C = Accumulator<T>;
  cpu.ParallelFor(
      args.heads, 50.0 * args.batch * args.queries,
      [&](int64_t begin, int64_t end) {
        for (int64_t head = begin; head < end; ++head) {
          const C sink = args.sinks[head];
          double sum = 0;
          for (int64_t b = 0; b < args.batch; ++b) {
            const Example example = ExampleOf(args, b);
            const int64_t first = FirstSum(args, example, head);
            for (int64_t t = first; t < first + example.queries; ++t) {
              sum -= double{Exp(sink - args.log_sum_exp[t])} * deltas[t];
            }
          }
          args.d_sinks[head] =
              sink == -static_cast<C>(INFINITY) ? C{0} : static_cast<C>(sum);
        }
      });
}

}  // namespace

template <typename T>
Error AttentionGrad(const Cpu& cpu, const AttentionGradArgs<T>& args) {
  const Buffer<Accumulator<T>> deltas(args.query_rows * args.heads);
  FindDeltas(cpu, args, deltas.data());
  // Those that are empty may be null, too.
  const bool to_operands = args.d_query != nullptr || args.d_key != nullptr ||
                           args.d_value != nullptr;
  if (to_operands) {
    FillBeyondLengths(args);
    WithPacks<T>(cpu, args, args.d_output, args.d_log_sum_exp,
                 [&](auto pack, const KeyHeads& heads) {
                   ToOperands<T, decltype(pack)>(cpu, args, heads,
                                                 deltas.data());
                 });
  }
  if (args.d_bias != nullptr) BiasGrad(cpu, args, deltas.data());
  if (args.d_sinks != nullptr) ToSinks(cpu, args, deltas.data());
  return nullptr;
}

}  // namespace TFO_CPU_NAMESPACE

TFO_INSTANTIATE_ALGORITHM_PER_LEVEL(AttentionGrad, AttentionGradArgs);

}  // namespace tfo
