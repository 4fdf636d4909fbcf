// Attention of few queries on the CPU, such as a decoder's step: panels, most
// of whose lanes would be empty, and packing of keys and values cost more than
// they gain.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_ATTENTION_ATTENTION_FEW_SIMD_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_ATTENTION_ATTENTION_FEW_SIMD_H_

#include <algorithm>
#include <cstdint>

#include "tensorflow_ops/nn/cc/kernels/attention/attention_simd.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {
namespace attention {

// Whether Attention is AttendFewQueries.
template <typename T>
bool HasFewQueries(const AttentionOperands<T>& args) {
  return args.queries < 16 && args.dropout == 0;
}

// Does not write beyond lengths.
template <typename T>
void AttendFewQueries(const Cpu& cpu, const AttentionArgs<T>& args);

// Keys of a span: the length of a row of scores.
inline constexpr int64_t kSpanKeys = 256;
// Rows of queries and of sums are padded to a multiple of this, the lanes of
// the widest level.
inline constexpr int64_t kRowPadding = 16;
// Rows of keys or values that are widened at once.
inline constexpr int64_t kWidenedRows = 16;

// Keys or values of some heads, `columns` numbers each: of head h, row j is at
// data + j * stride + h * columns, and with ancestors, ancestors[j] times
// `beam_stride` further. `rows` query rows meet each head.
template <typename T>
struct HeadRows {
  const T* data;
  int64_t stride, count, columns;
  int64_t heads, rows;
  const int32_t* ancestors;  // or null
  int64_t beam_stride;
};

// Widens `count` rows, `stride` apart, and pads them with zeros to `to_stride`,
// which is `columns` rounded up to kRowPadding.
template <typename T>
void WidenRows(const T* from, int64_t stride, int64_t count, int64_t columns,
               Accumulator<T>* to, int64_t to_stride) {
  for (int64_t i = 0; i < count; ++i, from += stride, to += to_stride) {
    for (int64_t d = columns / Lanes<T>::kCount * Lanes<T>::kCount;
         d < to_stride; d += Lanes<T>::kCount) {
      Store(typename Lanes<T>::Vector{}, to + d);
    }
    ForVectors<T>(columns, [&](auto part, int64_t at) {
      Store(part.Load(from + at, 0), to + at);
    });
  }
}

// Keys whose products are summed at once: enough sums that do not wait for each
// other.
template <typename T>
constexpr int kDotKeys = Lanes<T>::kCount > 8 ? Lanes<T>::kCount : 8;

// Adds the halves of groups of 2 kHalf lanes: those of a, then those of b.
template <int kHalf, typename V>
TFO_INLINE V AddHalves(V a, V b) {
  constexpr int kCount = sizeof(V) / sizeof(V{}[0]);
  const auto low = [](int i) { return i & kHalf ? kCount + i - kHalf : i; };
  const auto high = [](int i) { return i & kHalf ? kCount + i : i + kHalf; };
  return Shuffle(a, b, low) + Shuffle(a, b, high);
}
// Adds neighbors: in groups of 4 lanes, those of a, then those of b.
template <typename V>
TFO_INLINE V AddNeighbors(V a, V b) {
  constexpr int kCount = sizeof(V) / sizeof(V{}[0]);
  const auto even = [](int i) {
    return (i & ~3) + i % 2 * 2 + (i & 2 ? kCount : 0);
  };
  const auto odd = [](int i) {
    return (i & ~3) + i % 2 * 2 + 1 + (i & 2 ? kCount : 0);
  };
  return Shuffle(a, b, even) + Shuffle(a, b, odd);
}

template <int kHalf, typename V>
TFO_INLINE V SumEachFrom(V* v) {
  constexpr int kCount = sizeof(V) / sizeof(V{}[0]);
  if constexpr (kHalf == kCount) {
    return v[0];
  } else {
#pragma GCC unroll 16
    for (int i = 0; i < kCount / kHalf / 2; ++i) {
      v[i] = AddHalves<kHalf>(v[2 * i], v[2 * i + 1]);
    }
    return SumEachFrom<2 * kHalf>(v);
  }
}
// Lane i is the sum of v[i]'s lanes. Instructions that stay within 128 bits,
// which are faster, come first.
template <typename V>
TFO_INLINE V SumEach(V* v) {
  constexpr int kCount = sizeof(V) / sizeof(V{}[0]);
  if constexpr (sizeof(v[0][0]) == 8) {
    return SumEachFrom<1>(v);
  } else {
#pragma GCC unroll 16
    for (int i = 0; i < kCount / 2; ++i) {
      v[i] = AddHalves<2>(v[2 * i], v[2 * i + 1]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < kCount / 4; ++i) {
      v[i] = AddNeighbors(v[2 * i], v[2 * i + 1]);
    }
    return SumEachFrom<4>(v);
  }
}

// The products of a query and kDotKeys keys; of fewer, the last is repeated.
template <typename T>
TFO_INLINE void DotKeys(const Accumulator<T>* query, const T* keys,
                        int64_t stride, int64_t count, int64_t depth,
                        Accumulator<T>* products) {
  using Vector = typename Lanes<T>::Vector;
  constexpr int kKeys = kDotKeys<T>, kCount = Lanes<T>::kCount;
  const T* rows[kKeys];
#pragma GCC unroll 16
  for (int i = 0; i < kKeys; ++i) {
    rows[i] = keys + (i < count ? i : count - 1) * stride;
  }
  Vector sums[kKeys] = {};
  ForVectors<T>(depth, [&](auto part, int64_t at) {
    const Vector q = Load(query + at);
#pragma GCC unroll 16
    for (int i = 0; i < kKeys; ++i) {
      sums[i] = MulAdd(part.Load(rows[i] + at, 0), q, sums[i]);
    }
  });
#pragma GCC unroll 4
  for (int i = 0; i < kKeys; i += kCount) {
    Store(SumEach(sums + i), products + i);
  }
}

// Row j of a head.
template <typename T>
TFO_INLINE const T* RowOf(const HeadRows<T>& of, int64_t head, int64_t j) {
  const T* const row = of.data + j * of.stride + head * of.columns;
  return of.ancestors == nullptr ? row : row + of.ancestors[j] * of.beam_stride;
}

// Calls run(head, rows, stride) for `count` rows from `first` on of each head.
// For several queries, rows are first widened, or copied: those of a stride
// that is a power of 2 share a set of the L1 cache. The next rows arrive
// meanwhile.
template <typename T, typename Run>
TFO_INLINE void ForHeads(const HeadRows<T>& of, int64_t first, int64_t count,
                         Accumulator<T>* widened, const Run& run) {
  const int64_t padded = RoundUp(of.columns, kRowPadding);
  const bool widens =
      of.ancestors != nullptr || of.rows > (sizeof(T) == 2 ? 1 : 4);
  for (int64_t h = 0; h < of.heads; ++h) {
    if (!widens) {
      run(h, RowOf(of, h, first), of.stride);
      continue;
    }
    for (int64_t j = 0; j < count; ++j) {
      WidenRows(RowOf(of, h, first + j), 0, 1, of.columns, widened + j * padded,
                padded);
    }
    for (int64_t j = first + count; j < first + 2 * count && j < of.count;
         ++j) {
      const T* const next = RowOf(of, h, j);
      for (int64_t d = 0; d < of.columns; d += 64 / sizeof(T)) {
        __builtin_prefetch(next + d);  // into the L1 cache
      }
    }
    run(h, const_cast<const Accumulator<T>*>(widened), padded);
  }
}

// Writes the products of each query and each key: queries [heads][rows] of
// padded rows, products [heads][rows][kSpanKeys]. Writes whole vectors, beyond
// the last key, too. `widened` has kWidenedRows padded rows.
template <typename T>
void MultiplyKeys(const Accumulator<T>* queries, const HeadRows<T>& keys,
                  Accumulator<T>* widened, Accumulator<T>* products) {
  const int64_t padded = RoundUp(keys.columns, kRowPadding);
  for (int64_t j = 0; j < keys.count; j += kDotKeys<T>) {
    const int64_t count = std::min<int64_t>(kDotKeys<T>, keys.count - j);
    ForHeads(keys, j, count, widened,
             [&](int64_t h, auto* from, int64_t stride) {
               for (int64_t r = h * keys.rows; r < (h + 1) * keys.rows; ++r) {
                 DotKeys(queries + r * padded, from, stride, count,
                         keys.columns, products + r * kSpanKeys + j);
               }
             });
  }
}

// How the products of a query become scores. Keys count from the first product.
template <typename T>
struct QueryOptions {
  using C = Accumulator<T>;
  C scale;
  C softcap;            // 0: none
  C slope;              // of ALiBi
  C distance;           // the position of the query, less that of key 0
  int64_t begin, end;   // the query sees these keys
  const bool* mask;     // of the keys, or null
  const T* bias;        // of the keys, or null
  int64_t bias_stride;  // 1, or 0: one bias for all keys
};

// The score of a query and kCount keys from j on. kCurved: there may be a
// softcap or ALiBi.
template <typename T, bool kCurved>
class RowScores {
 public:
  using C = Accumulator<T>;
  using Vector = typename Lanes<T>::Vector;
  static constexpr int kCount = Lanes<T>::kCount;

  TFO_INLINE RowScores(const QueryOptions<T>& options, int64_t keys)
      : options_(options), keys_(keys), curve_(options.scale, options.softcap) {
    for (int i = 0; i < kCount; ++i) lane_[i] = C(i);
  }

  TFO_INLINE Vector Of(Vector product, int64_t j) const {
    const Vector none = Vector{} - C(INFINITY);
    Vector unused = {};
    Vector s = curve_.Of(product, &unused);
    const Vector key = lane_ + C(j);
    if (kCurved && options_.slope != 0) {
      const Vector distance = options_.distance - key;
      s -= options_.slope * Max(distance, -distance);
    }
    if (options_.bias != nullptr) {
      const Vector bias = BiasAt(j);
      s = bias == none ? none : s + bias;
    }
    if (options_.mask != nullptr) s = MaskAt(j) ? s : none;
    return (key >= C(options_.begin)) & (key < C(options_.end)) ? s : none;
  }

 private:
  TFO_INLINE Vector BiasAt(int64_t j) const {
    if (options_.bias_stride == 0) {
      return Broadcast<Vector>(LoadOne(options_.bias));
    }
    return j + kCount <= keys_ ? Load(options_.bias + j)
                               : LoadFirst(options_.bias + j, keys_ - j);
  }
  TFO_INLINE typename Lanes<T>::Index MaskAt(int64_t j) const {
    typedef uint8_t Bytes __attribute__((vector_size(kCount)));
    Bytes bytes;
    if (j + kCount <= keys_) {
      memcpy(&bytes, options_.mask + j, sizeof(bytes));
    } else {
      uint8_t first[kCount] = {};
      for (int64_t i = 0; i < keys_ - j; ++i) first[i] = options_.mask[j + i];
      memcpy(&bytes, first, sizeof(bytes));
    }
    return __builtin_convertvector(bytes != 0, typename Lanes<T>::Index);
  }

  const QueryOptions<T> options_;  // a copy, which no store to scores changes
  const int64_t keys_;
  const Curve<C, kCurved> curve_;
  Vector lane_;
};

// Turns a row of products into weights e^(score - high), of the greatest score
// `high`, and sums them.
template <typename T>
void WeighKeys(const QueryOptions<T>& options, int64_t keys,
               Accumulator<T>* scores, Accumulator<T>* high,
               Accumulator<T>* total) {
  using C = Accumulator<T>;
  using Vector = typename Lanes<T>::Vector;
  constexpr int kCount = Lanes<T>::kCount;
  Vector now = Vector{} - C(INFINITY);
  const auto score = [&](const auto& scores_of) {
    for (int64_t j = 0; j < keys; j += kCount) {
      const Vector s = scores_of.Of(Load(scores + j), j);
      Store(s, scores + j);
      now = Max(s, now);
    }
  };
  if (options.softcap == 0 && options.slope == 0) {
    score(RowScores<T, false>(options, keys));
  } else {
    score(RowScores<T, true>(options, keys));
  }
  C most = now[0];
  for (int i = 1; i < kCount; ++i) most = now[i] > most ? now[i] : most;
  const C minus = most == -C(INFINITY) ? C(0) : -most;
  Vector sum = {};
  for (int64_t j = 0; j < keys; j += kCount) {
    const Vector weight = ExpOfWeight(Load(scores + j) + minus);
    Store(weight, scores + j);
    sum += weight;
  }
  *high = most;
  *total = SumLanes(sum);
}

// The products of few queries, with the bits that they have in
// AttendFewQueries: scores of 1e9 are rounded by more than e^x can bear, so
// gradients must see the same.
template <typename T>
class FewProducts {
 public:
  using C = Accumulator<T>;

  explicit FewProducts(const AttentionOperands<T>& args)
      : args_(args),
        depth_(RoundUp(args.depth, kRowPadding)),
        queries_(kMaxPanelColumns * depth_),
        products_(kMaxPanelColumns * kSpanKeys),
        widened_(kWidenedRows * depth_) {}

  // Writes those of a panel and `count` keys from `key` on to rows of
  // kGemmStride, with zeros in lanes beyond the panel.
  void Write(const Example& example, const Panel& panel, int64_t key,
             int64_t count, C* to) const {
    const int64_t query_row =
        (example.first_query + panel.first) * args_.heads + panel.head;
    const int64_t key_row = (example.first_key + key) * args_.key_heads +
                            panel.head / (args_.heads / args_.key_heads);
    WidenRows<T>(args_.query + query_row * args_.depth,
                 args_.heads * args_.depth, panel.count, args_.depth,
                 queries_.data(), depth_);
    MultiplyKeys<T>(
        queries_.data(),
        {args_.key + key_row * args_.depth, args_.key_heads * args_.depth,
         count, args_.depth, 1, panel.count, nullptr, 0},
        widened_.data(), products_.data());
    const int64_t columns = PanelColumns<C>();
    for (int64_t j = 0; j < count; ++j, to += kGemmStride) {
      std::fill_n(to + panel.count, columns - panel.count, C{0});
      for (int64_t i = 0; i < panel.count; ++i) {
        to[i] = products_.data()[i * kSpanKeys + j];
      }
    }
  }

 private:
  const AttentionOperands<T>& args_;
  const int64_t depth_;  // padded
  const Buffer<C> queries_, products_, widened_;
};

}  // namespace attention
}  // namespace TFO_CPU_NAMESPACE
}  // namespace tfo

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_ATTENTION_ATTENTION_FEW_SIMD_H_
