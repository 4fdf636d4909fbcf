// Attention on the CPU: a band of queries meets block after block of keys. Its
// sums, the keys and the values of a block stay in the L2 cache, the scores of
// a panel in the L1 cache.
#include "tensorflow_ops/nn/cc/kernels/attention/attention_simd.h"

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <vector>

#include "tensorflow_ops/nn/cc/kernels/attention/attention_amx_simd.h"
#include "tensorflow_ops/nn/cc/kernels/attention/attention_few_simd.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {
namespace {

using namespace attention;  // NOLINT: the header of these files

// Keys of a block: a multiple of the rows that products have in registers, or
// tiles in the L1 cache.
template <typename P>
constexpr int64_t kBlockKeys = std::is_same_v<P, AmxPack<1>>   ? 64
                               : std::is_same_v<P, AmxPack<3>> ? 128
                                                               : 112;
// At most: the more, the fewer times keys and values are packed.
template <typename P>
constexpr int64_t kBandQueries = kIsAmxPack<P> ? 512 : 256;

// Panels of the heads that share a key head, and the keys that they see.
struct Band {
  int64_t batch, key_head;
  int64_t first_panel, num_panels;
  Span keys;
  int64_t pairs;
};

// The panels of an example's key head, head by head.
class Panels {
 public:
  Panels(const AttentionSpec& spec, const Example& example, int64_t columns)
      : queries_(example.queries),
        columns_(columns),
        of_head_(DivideUp(queries_, columns)),
        group_(spec.heads / spec.key_heads) {}
  int64_t count() const { return group_ * of_head_; }
  Panel operator()(int64_t key_head, int64_t i) const {
    const int64_t first = i % of_head_ * columns_;
    return {key_head * group_ + i / of_head_, first,
            std::min(columns_, queries_ - first)};
  }

 private:
  const int64_t queries_, columns_, of_head_, group_;
};

template <typename T, typename P>
std::vector<Band> BandsOf(const AttentionArgs<T>& args, const KeyHeads& heads,
                          int num_threads) {
  const int64_t columns = PanelColumns<Accumulator<T>>();
  // Some bands for each thread. Results do not depend on bands.
  int64_t panels_of_all = 0;
  for (int64_t b = 0; b < args.batch; ++b) {
    panels_of_all +=
        Panels(args, ExampleOf(args, b), columns).count() * args.key_heads;
  }
  const int64_t of_band = std::clamp<int64_t>(panels_of_all / (4 * num_threads),
                                              1, kBandQueries<P> / columns);
  std::vector<Band> bands;
  for (int64_t b = 0; b < args.batch; ++b) {
    const Example example = ExampleOf(args, b);
    const Panels panels(args, example, columns);
    for (int64_t h = 0; h < args.key_heads; ++h) {
      if (!heads.Have(b * args.key_heads + h)) continue;
      for (int64_t p = 0; p < panels.count(); p += of_band) {
        Band band = {
            b, h, p, std::min(of_band, panels.count() - p), {example.keys, 0},
            0};
        for (int64_t i = p; i < p + band.num_panels; ++i) {
          const Panel panel = panels(h, i);
          const Span span = SeenKeys(args, example, panel, 0, example.keys);
          if (span.begin == span.end) continue;
          band.keys.begin = std::min(band.keys.begin, span.begin);
          band.keys.end = std::max(band.keys.end, span.end);
          band.pairs += (span.end - span.begin) * columns;
        }
        bands.push_back(band);
      }
    }
  }
  // The longest begin first, so that threads end together.
  std::stable_sort(
      bands.begin(), bands.end(),
      [](const Band& a, const Band& b) { return a.pairs > b.pairs; });
  return bands;
}

// Is the score scale * product, with a scale that keeps the order?
template <typename C>
TFO_INLINE bool IsPlain(const ScoreOptions<C>& options) {
  return options.scale > 0 && options.softcap == 0 && options.slope == 0 &&
         options.added == nullptr && options.begin == nullptr;
}

// Turns products into weights e^(score - high), of the lanes' running maxima
// `high`, and adds them to `total`, [PanelColumns] each. True if sums over
// earlier weights must be multiplied by `corrections` first. kRounded: the
// weights are rounded to bfloat16 next.
template <typename C, bool kRounded>
bool WeighScores(const ScoreOptions<C>& options, int64_t keys, C* scores,
                 C* high, C* total, C* corrections) {
  using Vector = typename Lanes<C>::Vector;
  constexpr int kCount = Lanes<C>::kCount;
  // A weight may be e^kSlack, so that most blocks correct no sums.
  constexpr C kSlack = 8;
  const Vector none = Vector{} - C(INFINITY);
  Vector now[2] = {none, none};
  C scale = 1;
  if (IsPlain(options)) {
    scale = options.scale;
    // Several, which do not wait for each other.
    constexpr int kChains = 4;
    Vector chains[kChains][2];
    for (auto& chain : chains) chain[0] = chain[1] = none;
    const auto take = [&](int64_t j, Vector(&chain)[2]) {
#pragma GCC unroll 2
      for (int x = 0; x < 2; ++x) {
        chain[x] = Max(Load(scores + j * kGemmStride + x * kCount), chain[x]);
      }
    };
    int64_t j = 0;
    for (; j + kChains <= keys; j += kChains) {
#pragma GCC unroll 4
      for (int i = 0; i < kChains; ++i) take(j + i, chains[i]);
    }
    for (; j < keys; ++j) take(j, chains[0]);
#pragma GCC unroll 2
    for (int x = 0; x < 2; ++x) {
      now[x] = Max(Max(chains[0][x], chains[1][x]),
                   Max(chains[2][x], chains[3][x])) *
               scale;
    }
  } else {
    WithScores(options, [&](const auto& scores_of) {
      for (int64_t j = 0; j < keys; ++j) {
#pragma GCC unroll 2
        for (int x = 0; x < 2; ++x) {
          C* const at = scores + j * kGemmStride + x * kCount;
          Vector unused = {};
          const Vector s = scores_of[x].Of(Load(at), j, &unused);
          Store(s, at);
          now[x] = Max(s, now[x]);
        }
      }
    });
  }
  Vector old[2], minus[2], sums[2] = {};
  bool rises = false;
#pragma GCC unroll 2
  for (int x = 0; x < 2; ++x) {
    old[x] = Load(high + x * kCount);
    rises |= AnyLane(now[x] > old[x] + kSlack);
  }
#pragma GCC unroll 2
  for (int x = 0; x < 2; ++x) {
    now[x] = rises ? Max(now[x], old[x]) : old[x];
    minus[x] = now[x] == none ? Vector{} : -now[x];
  }
  for (int64_t j = 0; j < keys; ++j) {
#pragma GCC unroll 2
    for (int x = 0; x < 2; ++x) {
      C* const at = scores + j * kGemmStride + x * kCount;
      // Not fused: the maximum is a rounded product, too, and scores of 1e9
      // are rounded by more than e^x can bear.
      const Vector weight = ExpOfWeight<kRounded>(Load(at) * scale + minus[x]);
      Store(weight, at);
      sums[x] += weight;
    }
  }
#pragma GCC unroll 2
  for (int x = 0; x < 2; ++x) {
    Vector sum = Load(total + x * kCount);
    if (rises) {
      const Vector correction = ExpOfWeight(old[x] + minus[x]);
      Store(correction, corrections + x * kCount);
      Store(now[x], high + x * kCount);
      sum *= correction;
    }
    Store(sum + sums[x], total + x * kCount);
  }
  return rises;
}

// Computes bands, in memory that it keeps, by products of packs P.
template <typename T, typename P>
class Forward {
 public:
  using C = Accumulator<T>;

  explicit Forward(const AttentionArgs<T>& args)
      : args_(args),
        columns_(PanelColumns<C>()),
        dropout_(DropoutOf(args)),
        scores_of_(args, kBlockKeys<P>),
        keys_(kBlockKeys<P>, args.depth),
        values_(kBlockKeys<P>, args.value_depth),
        queries_(kBandQueries<P> * PackCount<P>(args.depth)),
        scores_(kBlockKeys<P> * kGemmStride),
        weights_(kIsAmxPack<P> ? PackCount<P>(kBlockKeys<P>) * kAmxColumns : 0),
        sums_(kBandQueries<P> * values_.padded_width()) {}

  void Run(const Band& band) {
    const Example example = ExampleOf(args_, band.batch);
    const Panels panels(args_, example, columns_);
    for (int64_t p = 0; p < band.num_panels; ++p) {
      Begin(example, panels(band.key_head, band.first_panel + p), p);
    }
    constexpr int64_t kKeys = kBlockKeys<P>;
    for (int64_t key = band.keys.begin / kKeys * kKeys; key < band.keys.end;
         key += kKeys) {
      const int64_t count = std::min(kKeys, example.keys - key);
      bool packed = false;
      for (int64_t p = 0; p < band.num_panels; ++p) {
        const Panel panel = panels(band.key_head, band.first_panel + p);
        Span span = SeenKeys(args_, example, panel, key, count);
        if (span.begin == span.end) continue;
        span = FromPack<P>(span);
        if (!scores_of_.Set(example, panel, key + span.begin,
                            span.end - span.begin)) {
          continue;
        }
        if (!packed) {
          const int64_t row =
              (example.first_key + key) * args_.key_heads + band.key_head;
          keys_.Pack(args_.key + row * args_.depth,
                     args_.key_heads * args_.depth, count);
          values_.Pack(args_.value + row * args_.value_depth,
                       args_.key_heads * args_.value_depth, count);
          packed = true;
        }
        Attend(example, panel, p, key, span);
      }
    }
    for (int64_t p = 0; p < band.num_panels; ++p) {
      End(example, panels(band.key_head, band.first_panel + p), p);
    }
  }

 private:
  C* SumsOf(int64_t p) const {
    return sums_.data() + p * columns_ * values_.padded_width();
  }

  P* QueriesOf(int64_t p) const {
    return queries_.data() + p * columns_ * PackCount<P>(args_.depth);
  }

  void Begin(const Example& example, const Panel& panel, int64_t p) {
    const int64_t row =
        (example.first_query + panel.first) * args_.heads + panel.head;
    PackPanelsOf(args_.query + row * args_.depth, 1, args_.heads * args_.depth,
                 args_.depth, panel.count, QueriesOf(p));
    std::fill_n(SumsOf(p), columns_ * values_.padded_width(), C{0});
    // The sink, or -inf, is as a first score.
    std::fill_n(high_ + p * columns_, columns_,
                args_.sinks != nullptr ? args_.sinks[panel.head]
                                       : -static_cast<C>(INFINITY));
    std::fill_n(total_ + p * columns_, columns_, C{1});
  }

  // Adds the keys of `span` of the block that begins with `key`.
  void Attend(const Example& example, const Panel& panel, int64_t p,
              int64_t key, const Span& span) {
    const int64_t count = span.end - span.begin;
    C* const scores = scores_.data() + span.begin * kGemmStride;
    keys_.Multiply(span.begin, count, QueriesOf(p), scores);
    C corrections[kMaxPanelColumns];
    const bool corrects = WeighScores<C, kRoundsWeights<P>>(
        scores_of_.options(), count, scores, high_ + p * columns_,
        total_ + p * columns_, corrections);
    if (corrects) values_.Scale(corrections, panel.count, SumsOf(p));
    if (dropout_.threshold > 0) {
      DropWeights<C>(dropout_, example.batch * args_.heads + panel.head,
                     panel.first, key + span.begin, count, scores);
    }
    P* weights = reinterpret_cast<P*>(scores_.data());
    if constexpr (kIsAmxPack<P>) {
      weights = weights_.data();
      cpu_avx512::PackAmxPanels(scores, kGemmStride, 1, count, kAmxColumns,
                                weights);
    } else if constexpr (kPackNumbers<P> == 2) {
      PackRows(scores, count, weights + span.begin / 2 * kGemmStride);
    }
    values_.AddTransposed(weights, span, panel.count, SumsOf(p));
  }

  void End(const Example& example, const Panel& panel, int64_t p) {
    C* const high = high_ + p * columns_;
    C* const total = total_ + p * columns_;
    if (args_.log_sum_exp != nullptr) {
      C* const to = args_.log_sum_exp + FirstSum(args_, example, panel.head) +
                    panel.first;
      for (int64_t i = 0; i < panel.count; ++i) {
        to[i] = high[i] + Log(total[i]);
      }
    }
    for (int64_t i = 0; i < panel.count; ++i) {
      total[i] = total[i] == 0 ? C{0} : 1 / total[i];
    }
    values_.Scale(total, panel.count, SumsOf(p));
    values_.Write(
        SumsOf(p), panel.count, args_.heads * args_.value_depth,
        args_.output +
            ((example.first_query + panel.first) * args_.heads + panel.head) *
                args_.value_depth);
  }

  const AttentionArgs<T>& args_;
  const int64_t columns_;
  const AttentionDropout dropout_;
  PanelScores<T> scores_of_;
  PackedRows<T, P> keys_;
  typename OperandsOf<P>::template TransposedColumns<T> values_;
  const Buffer<P> queries_;  // panels
  const Buffer<C> scores_;   // of a panel; then its weights
  const Buffer<P> weights_;  // if they need memory of their own
  const Buffer<C> sums_;     // rows of values_.padded_width()
  // Of each query: the greatest score, about, and the sum of weights.
  C high_[kBandQueries<P>], total_[kBandQueries<P>];
};

// Writes the results of queries beyond `lengths`.
template <typename T>
void FillBeyondLengths(const AttentionArgs<T>& args) {
  using C = Accumulator<T>;
  if (args.lengths == nullptr) return;
  for (int64_t b = 0; b < args.batch; ++b) {
    const Example example = ExampleOf(args, b);
    const int64_t rest = args.queries - example.queries;
    const int64_t row = args.heads * args.value_depth;
    std::fill_n(args.output + (example.first_query + example.queries) * row,
                rest * row, T{});
    if (args.log_sum_exp == nullptr) continue;
    for (int64_t h = 0; h < args.heads; ++h) {
      std::fill_n(
          args.log_sum_exp + FirstSum(args, example, h) + example.queries, rest,
          args.sinks != nullptr ? args.sinks[h] : -static_cast<C>(INFINITY));
    }
  }
}

// Keys or values in the order of ancestors, up to lengths.
template <typename T>
Buffer<T> Reordered(const Cpu& cpu, const AttentionArgs<T>& args, const T* from,
                    int64_t row) {
  Buffer<T> to(args.key_rows * row);
  cpu.ParallelFor(args.batch, args.keys * row * sizeof(T) / 4.0,
                  [&](int64_t begin, int64_t end) {
                    for (int64_t b = begin; b < end; ++b) {
                      const Example example = ExampleOf(args, b);
                      for (int64_t j = 0; j < example.keys; ++j) {
                        std::copy_n(from + KeyRow(args, example, j) * row, row,
                                    to.data() + (example.first_key + j) * row);
                      }
                    }
                  });
  return to;
}

}  // namespace

template <typename T>
Error Attention(const Cpu& cpu, const AttentionArgs<T>& args) {
  FillBeyondLengths(args);
  if (HasFewQueries(args)) {
    AttendFewQueries(cpu, args);
    return nullptr;
  }
  if (args.ancestors != nullptr) {
    const Buffer<T> key =
        Reordered(cpu, args, args.key, args.key_heads * args.depth);
    const Buffer<T> value =
        Reordered(cpu, args, args.value, args.key_heads * args.value_depth);
    AttentionArgs<T> reordered = args;
    reordered.key = key.data();
    reordered.value = value.data();
    reordered.ancestors = nullptr;
    return TFO_CPU_NAMESPACE::Attention(cpu, reordered);
  }
  WithPacks<T>(
      cpu, args, nullptr, nullptr, [&](auto pack, const KeyHeads& heads) {
        using P = decltype(pack);
        const std::vector<Band> bands =
            BandsOf<T, P>(args, heads, cpu.num_threads);
        if (bands.empty()) return;
        double pairs = 0, packed = 0;
        for (const Band& band : bands) {
          pairs += band.pairs;
          packed += std::max<int64_t>(band.keys.end - band.keys.begin, 0);
        }
        const double cycles = (pairs * CyclesPerPair<T>(args, 2) +
                               packed * (args.depth + args.value_depth)) /
                              bands.size();
        cpu.ParallelFor(bands.size(), cycles, [&](int64_t begin, int64_t end) {
          [[maybe_unused]] const ScopeOf<P> scope;
          Forward<T, P> forward(args);
          for (int64_t i = begin; i < end; ++i) forward.Run(bands[i]);
        });
      });
  return nullptr;
}

}  // namespace TFO_CPU_NAMESPACE

TFO_INSTANTIATE_ALGORITHM_PER_LEVEL(Attention, AttentionArgs);

}  // namespace tfo
