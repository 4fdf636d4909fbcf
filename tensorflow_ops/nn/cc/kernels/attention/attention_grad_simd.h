// The gradients of a band of queries and a block of keys, on the CPU.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_ATTENTION_ATTENTION_GRAD_SIMD_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_ATTENTION_ATTENTION_GRAD_SIMD_H_

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <thread>
#include <type_traits>

#include "tensorflow_ops/nn/cc/kernels/attention/attention_amx_simd.h"
#include "tensorflow_ops/nn/cc/kernels/attention/attention_few_simd.h"
#include "tensorflow_ops/nn/cc/kernels/attention/attention_simd.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {
namespace attention {

// Queries of a band, whole panels, and keys of a block.
constexpr int64_t kBandQueries = 128;
template <typename P>
constexpr int64_t kKeysOfBlock = std::is_same_v<P, AmxPack<1>>   ? 256
                                 : std::is_same_v<P, AmxPack<3>> ? 128
                                                                 : 224;
// At most: vectors of 16 bytes, of double, have two lanes.
constexpr int64_t kBandPanels = kBandQueries / 4;

// Turns products into weights e^(score - lse), and `d_weights` into the
// gradients weight * (d_weight - delta) of the scores, or, with `to_products`,
// of the products. lse and delta have PanelColumns.
template <typename C, bool kRounded>
void DifferentiateScores(const ScoreOptions<C>& options, bool to_products,
                         int64_t keys, const C* lse, const C* delta, C* scores,
                         C* d_weights) {
  using Vector = typename Lanes<C>::Vector;
  constexpr int kCount = Lanes<C>::kCount;
  const C factor = to_products ? options.scale : 1;
  const Vector none = Vector{} - C(INFINITY);
  WithScores(options, [&](const auto& scores_of) {
#pragma GCC unroll 2
    for (int x = 0; x < 2; ++x) {
      const Vector shift = Load(lse + x * kCount);
      const Vector less = Load(delta + x * kCount);
      for (int64_t j = 0; j < keys; ++j) {
        C* const at = scores + j * kGemmStride + x * kCount;
        C* const d_at = d_weights + j * kGemmStride + x * kCount;
        Vector slope = Broadcast<Vector>(factor), unused = {};
        const Vector s =
            scores_of[x].Of(Load(at), j, to_products ? &slope : &unused);
        const Vector e = ExpOfWeight<kRounded>(s - shift);
        // Also where lse is NaN.
        const Vector weight = s == none ? Vector{} : e;
        Store(weight, at);
        const Vector d = weight * (Load(d_at) - less) * slope;
        Store(weight == Vector{} ? Vector{} : d, d_at);
      }
    }
  });
}

// The gradients to a band of queries of a head. Blocks of keys, at least one,
// add to it in order, each in its turn.
template <typename C>
struct QueryBand {
  Span blocks = {0, 1};
  std::atomic<int64_t> turn;
  std::unique_ptr<Buffer<C>> sums;  // [kBandQueries, padded depth]
};

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
        columns_(PanelColumns<C>()),
        dropout_(DropoutOf(args)),
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
    if (HasFewQueries(args)) few_products_.emplace(args);
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
        PackColumns(weights_.data() + from, count,
                    reinterpret_cast<P*>(weights_.data()) + to);
        PackColumns(d_scores_.data() + from, count, d_score_packs_.data() + to);
      }
    }
  }

  void AddToQueries(C* sums) const {
    P* const d_scores = reinterpret_cast<P*>(d_scores_.data());
    if constexpr (kPacks) {
      for (int64_t i = 0; i < band_.count; i += columns_) {
        PackRows(d_scores_.data() + seen_.begin * kGemmStride + i,
                 seen_.end - seen_.begin,
                 d_scores + seen_.begin / 2 * kGemmStride + i);
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
      DropWeights<C>(dropout_, example.batch * args_.heads + panel.head,
                     panel.first, key + span.begin, count, values);
    };
    drop(d_scores);
    DifferentiateScores<C, kRoundsWeights<P>>(
        scores_of_.options(), to_products, count, lse_ + column,
        deltas_ + column, weights, d_scores);
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
    const int64_t sum = FirstSum(args_, example, band.head) + band.first;
    for (int64_t i = 0; i < band.count; ++i) {
      lse_[i] = args_.log_sum_exp[sum + i];
      deltas_[i] = all_deltas_[sum + i];
    }
  }

  const AttentionGradArgs<T>& args_;
  const C* const all_deltas_;
  const int64_t columns_;
  const AttentionDropout dropout_;
  PanelScores<T> scores_of_;
  int64_t key_row_ = -1, query_row_ = -1;  // what is packed
  Panel band_ = {};
  Span spans_[kBandPanels];  // of panels
  Span seen_ = {};           // of all
  PackedRows<T, P> keys_, values_;
  typename OperandsOf<P>::template TransposedColumns<T> key_columns_;
  const Buffer<P> query_panels_, d_output_panels_;  // transposed
  typename OperandsOf<P>::template Columns<T> queries_, d_outputs_;
  // [kBlockKeys, kGemmStride]; packs of queries, in the end.
  const Buffer<C> weights_, d_scores_;
  const Buffer<P> d_score_packs_, weight_packs_, d_score_panel_;
  const Buffer<C> d_keys_, d_values_;
  std::optional<FewProducts<T>> few_products_;
  C lse_[kBandQueries] = {}, deltas_[kBandQueries] = {};
};

// Writes the gradient to the bias. `deltas`: as Backward's.
template <typename T>
void BiasGrad(const Cpu& cpu, const AttentionGradArgs<T>& args,
              const Accumulator<T>* deltas);

}  // namespace attention
}  // namespace TFO_CPU_NAMESPACE
}  // namespace tfo

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_ATTENTION_ATTENTION_GRAD_SIMD_H_
