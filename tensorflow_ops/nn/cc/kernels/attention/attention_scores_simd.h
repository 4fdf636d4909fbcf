// Scores and weights of a panel of queries and some keys: transposed, a row for
// each key, of kGemmStride numbers, and lanes of the panel (gemm_simd.h).
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_ATTENTION_ATTENTION_SCORES_SIMD_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_ATTENTION_ATTENTION_SCORES_SIMD_H_

#include <algorithm>
#include <cstdint>
#include <iterator>

#include "tensorflow_ops/core/cc/scratch.h"
#include "tensorflow_ops/core/cc/simd/gemm_simd.h"
#include "tensorflow_ops/core/cc/simd/math_simd.h"
#include "tensorflow_ops/core/cc/simd/philox_simd.h"
#include "tensorflow_ops/nn/cc/kernels/attention/attention.h"
#include "tensorflow_ops/nn/cc/kernels/attention/attention_math_simd.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {
namespace attention {

using namespace ::tfo::attention;  // NOLINT: what all devices share

struct Span {
  int64_t begin, end;
};

// Queries of a head: a panel, or a band of them.
struct Panel {
  int64_t head, first, count;
};

// The keys of [key, key + count) that query t sees, relative to `key`.
inline Span SeenKeys(const AttentionSpec& spec, const Example& example,
                     int64_t t, int64_t key, int64_t count) {
  const int64_t i = t + example.offset, keys = example.keys;
  const int64_t begin = std::clamp<int64_t>(i - spec.left, 0, keys);
  const int64_t end = std::clamp<int64_t>(i + spec.right + 1, begin, keys);
  const int64_t from = std::clamp<int64_t>(begin - key, 0, count);
  return {from, std::clamp<int64_t>(end - key, from, count)};
}
// Those that any query of the panel sees. Spans of later queries begin and end
// later.
inline Span SeenKeys(const AttentionSpec& spec, const Example& example,
                     const Panel& panel, int64_t key, int64_t count) {
  const int64_t last = panel.first + panel.count - 1;
  return {SeenKeys(spec, example, panel.first, key, count).begin,
          SeenKeys(spec, example, last, key, count).end};
}
// The same from the begin of a pack on.
template <typename P>
Span FromPack(const Span& span) {
  return {span.begin / kPackNumbers<P> * kPackNumbers<P>, span.end};
}

inline constexpr int64_t kMaxPanelColumns = 32;

// How products become the scores of a panel and of some keys.
template <typename C>
struct ScoreOptions {
  C scale;
  C softcap;   // 0: none
  C slope;     // of ALiBi
  C distance;  // the position of lane 0, less that of key 0
  // [keys][PanelColumns], or null: the bias; -inf excludes the pair.
  const C* added;
  // [PanelColumns], or null: each lane sees the keys [begin, end).
  const C *begin, *end;
};

enum class MaskKind { kNone, kSome, kAll };

// Is a mask of [queries, keys] all true, all false, or neither?
inline MaskKind KindOfMask(const bool* mask, int64_t query_stride,
                           int64_t key_stride, int64_t queries, int64_t keys) {
  typedef uint8_t Bytes __attribute__((vector_size(kVectorBytes)));
  uint8_t all = 1, any = 0;
  if (key_stride == 1 && keys >= kVectorBytes) {
    Bytes ones = Broadcast<Bytes>(1), some = {};
    for (int64_t i = 0; i < queries; ++i) {
      for (int64_t j = 0; j < keys; j += kVectorBytes) {
        const int64_t last = keys - kVectorBytes;
        Bytes bytes;
        memcpy(&bytes, mask + i * query_stride + (j < last ? j : last),
               sizeof(bytes));
        ones &= bytes;
        some |= bytes;
      }
    }
    for (int i = 0; i < kVectorBytes; ++i) {
      all &= ones[i];
      any |= some[i];
    }
  } else {
    for (int64_t i = 0; i < queries; ++i) {
      for (int64_t j = 0; j < keys; ++j) {
        const bool is_set = mask[i * query_stride + j * key_stride];
        all &= static_cast<uint8_t>(is_set);
        any |= static_cast<uint8_t>(is_set);
      }
    }
  }
  return all ? MaskKind::kAll : any ? MaskKind::kSome : MaskKind::kNone;
}

// Sets `added` to -inf where the mask is false, and elsewhere to 0 unless it
// has a bias.
template <typename C>
void ExcludePairs(const bool* mask, int64_t query_stride, int64_t key_stride,
                  int64_t queries, int64_t keys, bool has_bias, C* added) {
  using Vector = typename Lanes<C>::Vector;
  using Index = typename Lanes<C>::Index;
  constexpr int kCount = Lanes<C>::kCount;
  constexpr int kBlock = 16;  // keys, and queries, that are transposed at once
  typedef uint8_t Bytes __attribute__((vector_size(kBlock)));
  typedef uint8_t OfLanes __attribute__((vector_size(kCount)));
  const Vector none = Vector{} - C(INFINITY);
  // The mask of keys from `first` on. Nobody reads the scores of lanes beyond
  // the panel.
  alignas(kBlock) uint8_t block[kBlock][kMaxPanelColumns] = {};
  for (int64_t j = 0; j < keys; j += kBlock) {
    const int64_t count = keys < kBlock ? keys : kBlock;
    // The last block again has keys of the one before.
    const int64_t first = j < keys - count ? j : keys - count;
    const bool* const from = mask + first * key_stride;
    if (key_stride == 1 && count == kBlock) {
      for (int64_t i = 0; i < queries; i += kBlock) {
        Bytes v[kBlock];
#pragma GCC unroll 16
        for (int m = 0; m < kBlock; ++m) {
          const int64_t query = i + m < queries ? i + m : queries - 1;
          memcpy(&v[m], from + query * query_stride, sizeof(v[m]));
        }
        Transpose(v);
#pragma GCC unroll 16
        for (int m = 0; m < kBlock; ++m) {
          memcpy(block[m] + i, &v[m], sizeof(v[m]));
        }
      }
    } else if (key_stride != 0 || j == 0) {
      for (int64_t m = 0; m < count; ++m) {
        for (int64_t i = 0; i < queries; ++i) {
          block[m][i] = from[i * query_stride + m * key_stride];
        }
      }
    }
    for (int64_t m = 0; m < count; ++m) {
#pragma GCC unroll 2
      for (int x = 0; x < 2 * kCount; x += kCount) {
        OfLanes bytes;
        memcpy(&bytes, block[m] + x, sizeof(bytes));
        const Index excluded = __builtin_convertvector(bytes == 0, Index);
        C* const at = added + (first + m) * 2 * kCount + x;
        Store(has_bias ? (excluded ? none : Load(at))
                       : reinterpret_cast<Vector>(
                             excluded & reinterpret_cast<Index>(none)),
              at);
      }
    }
  }
}

// Scores of vector x of the lanes, from products of key j. kCurved: there may
// be a softcap or ALiBi.
template <typename C, bool kCurved>
class Scores {
 public:
  using Vector = typename Lanes<C>::Vector;
  static constexpr int kCount = Lanes<C>::kCount;

  TFO_INLINE Scores(const ScoreOptions<C>& options, int x)
      : options_(options),
        x_(x * kCount),
        curve_(options.scale, options.softcap) {
    for (int i = 0; i < kCount; ++i) lane_[i] = C(x_ + i);
    if (options.begin != nullptr) {
      begin_ = Load(options.begin + x_);
      end_ = Load(options.end + x_);
    }
  }

  // Also multiplies `slope` by the score's derivative along the product.
  TFO_INLINE Vector Of(Vector product, int64_t j, Vector* slope) const {
    Vector s = curve_.Of(product, slope);
    if (kCurved && options_.slope != 0) {
      const Vector distance = lane_ + (options_.distance - C(j));
      s -= options_.slope * Max(distance, -distance);
    }
    const Vector none = Vector{} - C(INFINITY);
    if (options_.added != nullptr) {
      const Vector added = Load(options_.added + j * 2 * kCount + x_);
      s = added == none ? none : s + added;
    }
    if (options_.begin != nullptr) {
      const Vector key = Broadcast<Vector>(C(j));
      s = (key >= begin_) & (key < end_) ? s : none;
    }
    return s;
  }

 private:
  const ScoreOptions<C> options_;  // a copy, which no store to scores changes
  const int x_;
  const Curve<C, kCurved> curve_;
  Vector lane_, begin_, end_;
};

// Calls run(scores), with Scores of both vectors.
template <typename C, typename Run>
TFO_INLINE void WithScores(const ScoreOptions<C>& options, const Run& run) {
  if (options.softcap == 0 && options.slope == 0) {
    const Scores<C, false> scores[2] = {{options, 0}, {options, 1}};
    run(scores);
  } else {
    const Scores<C, true> scores[2] = {{options, 0}, {options, 1}};
    run(scores);
  }
}

// Drops weights of the keys from `key` on and of the queries from `query` on,
// and scales the others.
template <typename C>
void DropWeights(const AttentionDropout& dropout, int64_t row, int64_t query,
                 int64_t key, int64_t keys, C* weights) {
  using Vector = typename Lanes<C>::Vector;
  constexpr int kCount = Lanes<C>::kCount;
  const C factor = C(KeptFactor(dropout));
  const auto threshold =
      static_cast<typename Lanes<C>::Integer>(dropout.threshold);
  Bits32 lane;
  for (int i = 0; i < kFloats; ++i) lane[i] = i;
  for (int64_t first = key / kDropoutKeys * kDropoutKeys; first < key + keys;
       first += kDropoutKeys) {
    for (int column = 0; column < 2 * kCount; column += kFloats) {
      Bits32 words[4] = {
          Broadcast<Bits32>(static_cast<uint32_t>(first / kDropoutKeys)),
          lane + static_cast<uint32_t>(query + column),
          Broadcast<Bits32>(static_cast<uint32_t>(row)),
          {}};
      PhiloxOfLanes(dropout.seed, words);
      for (int i = 0; i < kDropoutKeys; ++i) {
        const int64_t j = first + i - key;
        if (j < 0 || j >= keys) continue;
        const Bits32 word = words[i / 2] >> (i % 2 * 16) & 0xFFFF;
        int32_t values[kFloats];
        StoreIndex(reinterpret_cast<IntVector>(word), values);
        for (int x = 0; x < kFloats; x += kCount) {
          C* const at = weights + j * kGemmStride + column + x;
          const auto is_kept = LoadIndex<C>(values + x) >= threshold;
          Store(is_kept ? Load(at) * factor : Vector{}, at);
        }
      }
    }
  }
}

// What products of keys become: ScoreOptions and their memory.
template <typename T>
class PanelScores {
 public:
  using C = Accumulator<T>;

  // For at most `max_keys` keys at a time.
  PanelScores(const AttentionOperands<T>& args, int64_t max_keys)
      : args_(args),
        columns_(PanelColumns<C>()),
        added_(args.mask != nullptr || args.bias != nullptr
                   ? max_keys * columns_
                   : 0) {}

  // For `count` keys from `key` on. False: each pair is excluded.
  bool Set(const Example& example, const Panel& panel, int64_t key,
           int64_t count) {
    options_ = {static_cast<C>(args_.scale),
                static_cast<C>(args_.softcap),
                0,
                static_cast<C>(panel.first + example.offset - key),
                nullptr,
                nullptr,
                nullptr};
    if (args_.alibi_slopes != nullptr) {
      options_.slope =
          args_.alibi_slopes[example.batch * args_.alibi_batch_stride +
                             panel.head];
    }
    if (!Add(example, panel, key, count)) return false;
    const auto seen_by = [&](int64_t i) {
      return SeenKeys(args_, example, panel.first + i, key, count);
    };
    if (seen_by(panel.count - 1).begin == 0 && seen_by(0).end == count) {
      return true;
    }
    for (int64_t i = 0; i < panel.count; ++i) {
      const Span seen = seen_by(i);
      begin_[i] = static_cast<C>(seen.begin);
      end_[i] = static_cast<C>(seen.end);
    }
    // All lanes decide when sums are corrected: those beyond the panel see no
    // keys, or results would depend on the panel before, and so on the number
    // of threads.
    std::fill(begin_ + panel.count, std::end(begin_), C{0});
    std::fill(end_ + panel.count, std::end(end_), C{0});
    options_.begin = begin_;
    options_.end = end_;
    return true;
  }
  const ScoreOptions<C>& options() const { return options_; }

 private:
  // Sets `added`. False if the mask excludes all pairs.
  bool Add(const Example& example, const Panel& panel, int64_t key,
           int64_t count) {
    C* const added = added_.data();
    const auto first_of = [&](const AttentionStrides& strides) {
      return example.batch * strides.batch + panel.head * strides.head +
             panel.first * strides.query + key * strides.key;
    };
    if (args_.bias != nullptr) {
      const AttentionStrides& strides = args_.bias_strides;
      PackPanels<T>(args_.bias + first_of(strides), strides.key, strides.query,
                    count, panel.count, added);
      options_.added = added;
    }
    if (args_.mask == nullptr) return true;
    const AttentionStrides& strides = args_.mask_strides;
    const bool* const mask = args_.mask + first_of(strides);
    const MaskKind kind = KindOfMask(mask, strides.query, strides.key,
                                     strides.query != 0 ? panel.count : 1,
                                     strides.key != 0 ? count : 1);
    if (kind != MaskKind::kSome) return kind == MaskKind::kAll;
    ExcludePairs<C>(mask, strides.query, strides.key, panel.count, count,
                    args_.bias != nullptr, added);
    options_.added = added;
    return true;
  }

  const AttentionOperands<T>& args_;
  const int64_t columns_;
  const Buffer<C> added_;
  C begin_[kMaxPanelColumns], end_[kMaxPanelColumns];
  ScoreOptions<C> options_;
};

}  // namespace attention
}  // namespace TFO_CPU_NAMESPACE
}  // namespace tfo

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_ATTENTION_ATTENTION_SCORES_SIMD_H_
