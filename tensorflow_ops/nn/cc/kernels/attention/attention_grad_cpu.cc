// Gradients of attention on the CPU: for each band of queries and block of keys
// the weights are computed again. Sums run over bands, and over blocks, in
// order, whoever computes them.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <memory>
#include <new>
#include <optional>
#include <thread>
#include <type_traits>
#include <vector>

#include "tensorflow_ops/nn/cc/kernels/attention/attention_amx.h"
#include "tensorflow_ops/nn/cc/kernels/attention/attention_cpu.h"
#include "tensorflow_ops/nn/cc/kernels/attention/attention_few_cpu.h"

namespace tfo {
namespace {

using attention::Example;
using attention::ExampleOf;
using attention::FromPack;
using attention::KeyHeads;
using attention::NarrowRows;
using attention::Panel;
using attention::SeenKeys;
using attention::Span;

// Queries of a band, whole panels, and keys of a block.
constexpr int64_t kBandQueries = 128;
template <typename P>
constexpr int64_t kKeysOfBlock = std::is_same_v<P, AmxPack<1>>   ? 256
                                 : std::is_same_v<P, AmxPack<3>> ? 128
                                                                 : 224;
// At most: vectors of 16 bytes, of double, have two lanes.
constexpr int64_t kBandPanels = kBandQueries / 4;

// The gradients to a band of queries of a head. Blocks of keys, at least one,
// add to it in order, each in its turn.
template <typename C>
struct QueryBand {
  Span blocks = {0, 1};
  std::atomic<int64_t> turn;
  std::unique_ptr<Buffer<C>> sums;  // [kBandQueries, padded depth]
};

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
          const int64_t sum = attention::FirstSum(args, example, head);
          TFO_DISPATCH(DotRows<T>)
          (args.d_output + at, args.output + at, args.heads * args.value_depth,
           example.queries, args.value_depth, deltas + sum);
          if (args.d_log_sum_exp == nullptr) continue;
          for (int64_t t = sum; t < sum + example.queries; ++t) {
            deltas[t] -= args.d_log_sum_exp[t];
          }
        }
      });
}

// A band of queries of a head and a block of keys, in memory that it keeps, by
// products of packs P.
template <typename T, typename P>
class Backward {
 public:
  using C = Accumulator<T>;
  static constexpr int64_t kBlockKeys = kKeysOfBlock<P>;

  Backward(const AttentionGradArgs<T>& args, const C* deltas)
      : args_(args),
        all_deltas_(deltas),
        columns_(TFO_DISPATCH(PanelColumns<C>)()),
        dropout_(attention::DropoutOf(args)),
        scores_of_(args, kBlockKeys),
        keys_(kBlockKeys, args.depth),
        values_(kBlockKeys, args.value_depth),
        key_columns_(kBlockKeys, args.depth),
        query_panels_(kBandQueries * PackCount<P>(args.depth)),
        d_output_panels_(kBandQueries * PackCount<P>(args.value_depth)),
        queries_(kBandQueries, args.depth),
        d_outputs_(kBandQueries, args.value_depth),
        weights_(kBlockKeys * kGemmStride),
        d_scores_(kBlockKeys * kGemmStride),
        d_score_packs_(kPacks          ? kBlockKeys * kGemmStride
                       : kIsAmxPack<P> ? kBlockKeys * PackCount<P>(kBandQueries)
                                       : 0),
        weight_packs_(kIsAmxPack<P> ? kBlockKeys * PackCount<P>(kBandQueries)
                                    : 0),
        d_score_panel_(kIsAmxPack<P> ? PackCount<P>(kBlockKeys) * kAmxColumns
                                     : 0),
        d_keys_(kBlockKeys * queries_.padded_width()),
        d_values_(kBlockKeys * d_outputs_.padded_width()) {
    if (attention::HasFewQueries(args)) few_products_.emplace(args);
  }

  // Writes the gradients to the keys and values of a block, and adds those to
  // the queries of the heads that share the key head: to bands, [heads, bands].
  // False: another thread has failed.
  bool Keys(const Example& example, int64_t key_head, int64_t block,
            QueryBand<C>* bands, const std::atomic<bool>& has_failed) {
    const int64_t key = block * kBlockKeys;
    const int64_t count = std::min(kBlockKeys, example.keys - key);
    const int64_t group = args_.heads / args_.key_heads;
    std::fill_n(d_keys_.data(), count * padded_depth(), C{0});
    std::fill_n(d_values_.data(), count * d_outputs_.padded_width(), C{0});
    const int64_t num_bands = DivideUp(example.queries, kBandQueries);
    for (int64_t h = 0; h < group; ++h) {
      // Late bands first: many blocks add to them if causal, and those of a
      // window wait for no other.
      for (int64_t i = num_bands - 1; i >= 0; --i) {
        QueryBand<C>* const band = bands + h * num_bands + i;
        if (block < band->blocks.begin || band->blocks.end <= block) continue;
        const int64_t first = i * kBandQueries, head = key_head * group + h;
        const bool attends = Differentiate(example, head, first, key, true);
        if (attends) {
          PackWeights();
          d_outputs_.Add(kIsAmxPack<P>
                             ? weight_packs_.data()
                             : reinterpret_cast<const P*>(weights_.data()),
                         seen_, d_values_.data());
          queries_.Add(kPacks || kIsAmxPack<P>
                           ? d_score_packs_.data()
                           : reinterpret_cast<const P*>(d_scores_.data()),
                       seen_, d_keys_.data());
        }
        while (band->turn.load(std::memory_order_acquire) != block) {
          if (has_failed.load(std::memory_order_relaxed)) return false;
          std::this_thread::yield();
        }
        if (block == band->blocks.begin) {
          const int64_t size = kBandQueries * padded_depth();
          band->sums = std::make_unique<Buffer<C>>(size);
          std::fill_n(band->sums->data(), size, C{0});
        }
        if (attends) AddToQueries(band->sums->data());
        if (block + 1 == band->blocks.end) {
          WriteQueries(example, head, first, band->sums->data());
          band->sums.reset();
        }
        band->turn.store(block + 1, std::memory_order_release);
      }
    }
    const int64_t row = (example.first_key + key) * args_.key_heads + key_head;
    NarrowRows(d_keys_.data(), padded_depth(), count, args_.depth,
               args_.key_heads * args_.depth, args_.d_key + row * args_.depth);
    NarrowRows(d_values_.data(), d_outputs_.padded_width(), count,
               args_.value_depth, args_.key_heads * args_.value_depth,
               args_.d_value + row * args_.value_depth);
    return true;
  }

  // Adds the gradients to the scores of a band and a block to sums [kBlockKeys,
  // kBandQueries].
  void AddScores(const Example& example, int64_t head, int64_t first,
                 int64_t key, C* sums) {
    if (!Differentiate(example, head, first, key, false)) return;
    for (int64_t j = seen_.begin; j < seen_.end; ++j) {
      for (int64_t i = 0; i < band_.count; ++i) {
        sums[j * kBandQueries + i] += d_scores_.data()[j * kGemmStride + i];
      }
    }
  }

 private:
  static constexpr bool kPacks = kPackNumbers<P> == 2;

  int64_t padded_depth() const { return queries_.padded_width(); }

  void WriteQueries(const Example& example, int64_t head, int64_t first,
                    const C* sums) const {
    const int64_t row = (example.first_query + first) * args_.heads + head;
    key_columns_.Write(sums, std::min(kBandQueries, example.queries - first),
                       args_.heads * args_.depth,
                       args_.d_query + row * args_.depth);
  }

  // Rounds weights and d_scores of a band to packs of queries.
  void PackWeights() const {
    const int64_t count = seen_.end - seen_.begin;
    if constexpr (kIsAmxPack<P>) {
      const auto pack = [&](const Buffer<C>& numbers, const Buffer<P>& packs) {
        cpu_avx512::PackAmxRows(numbers.data() + seen_.begin * kGemmStride,
                                kGemmStride, 1, count, band_.count,
                                PackCount<P>(band_.count), packs.data());
      };
      pack(weights_, weight_packs_);
      pack(d_scores_, d_score_packs_);
    } else if constexpr (kPacks) {
      // The lane beyond an odd number of queries: NaN if the key is not finite.
      for (int64_t j = seen_.begin; j < seen_.end && band_.count % 2 != 0;
           ++j) {
        weights_.data()[j * kGemmStride + band_.count] = 0;
        d_scores_.data()[j * kGemmStride + band_.count] = 0;
      }
      for (int64_t i = 0; i < band_.count; i += columns_) {
        const int64_t from = seen_.begin * kGemmStride + i;
        const int64_t to = seen_.begin * kGemmStride + i / 2;
        const auto pack = TFO_DISPATCH(PackColumns);
        pack(weights_.data() + from, count,
             reinterpret_cast<P*>(weights_.data()) + to);
        pack(d_scores_.data() + from, count, d_score_packs_.data() + to);
      }
    }
  }

  void AddToQueries(C* sums) const {
    P* const d_scores = reinterpret_cast<P*>(d_scores_.data());
    if constexpr (kPacks) {
      for (int64_t i = 0; i < band_.count; i += columns_) {
        TFO_DISPATCH(PackRows)
        (d_scores_.data() + seen_.begin * kGemmStride + i,
         seen_.end - seen_.begin, d_scores + seen_.begin / 2 * kGemmStride + i);
      }
    }
    int64_t end;
    for (int64_t i = 0; i < band_.count; i = end) {
      const Span& span = SpanOf(i);
      end = i + columns_;
      // Panels that see the same keys.
      while (!kIsAmxPack<P> && end < band_.count &&
             SpanOf(end).begin == span.begin && SpanOf(end).end == span.end) {
        end += columns_;
      }
      if (span.begin == span.end) continue;
      const P* weights = d_scores + i;
      if constexpr (kIsAmxPack<P>) {
        weights = d_score_panel_.data();
        cpu_avx512::PackAmxPanels(
            d_scores_.data() + span.begin * kGemmStride + i, kGemmStride, 1,
            span.end - span.begin, kAmxColumns, d_score_panel_.data());
      }
      key_columns_.AddTransposed(weights, span, std::min(end, band_.count) - i,
                                 sums + i * padded_depth());
    }
  }

  // The keys that the panel of a band's query sees.
  Span& SpanOf(int64_t i) { return spans_[i / columns_]; }
  const Span& SpanOf(int64_t i) const { return spans_[i / columns_]; }

  // Writes the weights of a band and a block, and the gradients to the scores
  // or, with `to_products`, to the products, for the keys of seen_. False: no
  // pair attends.
  bool Differentiate(const Example& example, int64_t head, int64_t first,
                     int64_t key, bool to_products) {
    const Panel band = {head, first,
                        std::min(kBandQueries, example.queries - first)};
    const int64_t count = std::min(kBlockKeys, example.keys - key);
    seen_ = {count, 0};
    for (int64_t i = 0; i < band.count; i += columns_) {
      const Panel panel = {head, first + i, std::min(columns_, band.count - i)};
      Span span = FromPack<P>(SeenKeys(args_, example, panel, key, count));
      if (span.begin < span.end &&
          scores_of_.Set(example, panel, key + span.begin,
                         span.end - span.begin)) {
        PackKeys(example, head / (args_.heads / args_.key_heads), key, count);
        PackQueries(example, band);
        DifferentiatePanel(example, panel, i, key, span, to_products);
        seen_.begin = std::min(seen_.begin, span.begin);
        seen_.end = std::max(seen_.end, span.end);
      } else {
        span = {0, 0};
      }
      SpanOf(i) = span;
    }
    for (int64_t i = 0; i < band.count; i += columns_) {
      const Span& span = SpanOf(i);
      if (span.begin == span.end) {
        Clear(i, seen_);
      } else {
        Clear(i, {seen_.begin, span.begin});
        Clear(i, {span.end, seen_.end});
      }
    }
    return seen_.begin < seen_.end;
  }

  void Clear(int64_t column, const Span& rows) const {
    for (int64_t j = rows.begin; j < rows.end; ++j) {
      std::fill_n(weights_.data() + j * kGemmStride + column, columns_, C{0});
      std::fill_n(d_scores_.data() + j * kGemmStride + column, columns_, C{0});
    }
  }

  void DifferentiatePanel(const Example& example, const Panel& panel,
                          int64_t column, int64_t key, const Span& span,
                          bool to_products) {
    const int64_t count = span.end - span.begin;
    const int64_t at = span.begin * kGemmStride + column;
    C* const weights = weights_.data() + at;
    C* const d_scores = d_scores_.data() + at;
    if (few_products_) {
      few_products_->Write(example, panel, key + span.begin, count, weights);
    } else {
      keys_.Multiply(span.begin, count,
                     query_panels_.data() + column * PackCount<P>(args_.depth),
                     weights);
    }
    values_.Multiply(
        span.begin, count,
        d_output_panels_.data() + column * PackCount<P>(args_.value_depth),
        d_scores);
    const auto drop = [&](C* values) {
      if (dropout_.threshold == 0) return;
      TFO_DISPATCH(DropWeights<C>)
      (dropout_, example.batch * args_.heads + panel.head, panel.first,
       key + span.begin, count, values);
    };
    drop(d_scores);
    TFO_DISPATCH(DifferentiateScores<C, attention::kRoundsWeights<P>>)
    (scores_of_.options(), to_products, count, lse_ + column, deltas_ + column,
     weights, d_scores);
    drop(weights);
  }

  void PackKeys(const Example& example, int64_t key_head, int64_t key,
                int64_t count) {
    const int64_t row = (example.first_key + key) * args_.key_heads + key_head;
    if (row == key_row_) return;
    key_row_ = row;
    const int64_t stride = args_.key_heads * args_.depth;
    keys_.Pack(args_.key + row * args_.depth, stride, count);
    key_columns_.Pack(args_.key + row * args_.depth, stride, count);
    values_.Pack(args_.value + row * args_.value_depth,
                 args_.key_heads * args_.value_depth, count);
  }

  void PackQueries(const Example& example, const Panel& band) {
    const int64_t row =
        (example.first_query + band.first) * args_.heads + band.head;
    if (row == query_row_) return;
    query_row_ = row;
    band_ = band;
    const T* const queries = args_.query + row * args_.depth;
    const T* const d_outputs = args_.d_output + row * args_.value_depth;
    const int64_t stride = args_.heads * args_.depth;
    const int64_t value_stride = args_.heads * args_.value_depth;
    PackPanelsOf(queries, 1, stride, args_.depth, band.count,
                 query_panels_.data());
    PackPanelsOf(d_outputs, 1, value_stride, args_.value_depth, band.count,
                 d_output_panels_.data());
    queries_.Pack(queries, stride, band.count);
    d_outputs_.Pack(d_outputs, value_stride, band.count);
    const int64_t sum =
        attention::FirstSum(args_, example, band.head) + band.first;
    for (int64_t i = 0; i < band.count; ++i) {
      lse_[i] = args_.log_sum_exp[sum + i];
      deltas_[i] = all_deltas_[sum + i];
    }
  }

  const AttentionGradArgs<T>& args_;
  const C* const all_deltas_;
  const int64_t columns_;
  const AttentionDropout dropout_;
  attention::PanelScores<T> scores_of_;
  int64_t key_row_ = -1, query_row_ = -1;  // what is packed
  Panel band_ = {};
  Span spans_[kBandPanels];  // of panels
  Span seen_ = {};           // of all
  attention::PackedRows<T, P> keys_, values_;
  typename attention::OperandsOf<P>::template TransposedColumns<T> key_columns_;
  const Buffer<P> query_panels_, d_output_panels_;  // transposed
  typename attention::OperandsOf<P>::template Columns<T> queries_, d_outputs_;
  // [kBlockKeys, kGemmStride]; packs of queries, in the end.
  const Buffer<C> weights_, d_scores_;
  const Buffer<P> d_score_packs_, weight_packs_, d_score_panel_;
  const Buffer<C> d_keys_, d_values_;
  std::optional<attention::FewProducts<T>> few_products_;
  C lse_[kBandQueries] = {}, deltas_[kBandQueries] = {};
};

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
      count, pairs * attention::CyclesPerPair<T>(args, 5) / count,
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

// The gradient to the bias. An owner has the part of a band and a block, and
// adds what was broadcast.
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
      owners, pairs * attention::CyclesPerPair<T>(args, 2),
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
            const int64_t first = attention::FirstSum(args, example, head);
            for (int64_t t = first; t < first + example.queries; ++t) {
              sum -= double{attention::Exp(sink - args.log_sum_exp[t])} *
                     deltas[t];
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
  if (to_operands) FillBeyondLengths(args);
  attention::WithPacks<T>(cpu, args, args.d_output, args.d_log_sum_exp,
                          [&](auto pack, const KeyHeads& heads) {
                            using P = decltype(pack);
                            if (to_operands)
                              ToOperands<T, P>(cpu, args, heads, deltas.data());
                            // One bias may sum gradients of several heads, so
                            // it takes tiles only if all heads do.
                            if (args.d_bias != nullptr &&
                                (!kIsAmxPack<P> || heads.are_in.empty())) {
                              ToBias<T, P>(cpu, args, deltas.data());
                            }
                          });
  if (args.d_sinks != nullptr) ToSinks(cpu, args, deltas.data());
  return nullptr;
}

TFO_INSTANTIATE_ALGORITHM(AttentionGrad, Cpu, AttentionGradArgs);

}  // namespace tfo
