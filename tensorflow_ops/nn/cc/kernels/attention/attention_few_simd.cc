#include "tensorflow_ops/nn/cc/kernels/attention/attention_few_simd.h"

#include "tensorflow_ops/core/cc/simd/math_simd.h"
#include "tensorflow_ops/nn/cc/kernels/attention/attention_math_simd.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {
namespace {

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

// sums += weights values, of `count` rows of values.
template <typename T>
TFO_INLINE void AddRows(const Accumulator<T>* weights, const T* values,
                        int64_t stride, int64_t count, int64_t columns,
                        Accumulator<T>* sums) {
  using Vector = typename Lanes<T>::Vector;
  constexpr int kCount = Lanes<T>::kCount;
  ForVectorGroups<8, kCount>(
      columns, 0,
      [&](auto vectors, int64_t at) {
        constexpr int kVectors = decltype(vectors)::kValue;
        Vector v[kVectors];
#pragma GCC unroll 8
        for (int i = 0; i < kVectors; ++i) v[i] = Load(sums + at + i * kCount);
        for (int64_t j = 0; j < count; ++j) {
          const Vector weight = Broadcast<Vector>(weights[j]);
#pragma GCC unroll 8
          for (int i = 0; i < kVectors; ++i) {
            v[i] = MulAdd(Load(values + j * stride + at + i * kCount), weight,
                          v[i]);
          }
        }
#pragma GCC unroll 8
        for (int i = 0; i < kVectors; ++i) Store(v[i], sums + at + i * kCount);
      },
      [&](int64_t at, int64_t n) {
        Vector v = Load(sums + at);
        for (int64_t j = 0; j < count; ++j) {
          v = MulAdd(LoadFirst(values + j * stride + at, n),
                     Broadcast<Vector>(weights[j]), v);
        }
        Store(v, sums + at);
      });
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
  const int64_t padded =
      (of.columns + kRowPadding - 1) / kRowPadding * kRowPadding;
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

}  // namespace

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

template <typename T>
void MultiplyKeys(const Accumulator<T>* queries, const HeadRows<T>& keys,
                  Accumulator<T>* widened, Accumulator<T>* products) {
  const int64_t padded =
      (keys.columns + kRowPadding - 1) / kRowPadding * kRowPadding;
  for (int64_t j = 0; j < keys.count; j += kDotKeys<T>) {
    const int64_t count =
        keys.count - j < kDotKeys<T> ? keys.count - j : kDotKeys<T>;
    ForHeads(keys, j, count, widened,
             [&](int64_t h, auto* from, int64_t stride) {
               for (int64_t r = h * keys.rows; r < (h + 1) * keys.rows; ++r) {
                 DotKeys(queries + r * padded, from, stride, count,
                         keys.columns, products + r * kSpanKeys + j);
               }
             });
  }
}

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

template <typename T>
void AddValues(const Accumulator<T>* weights, const HeadRows<T>& values,
               Accumulator<T>* widened, int64_t sums_stride,
               Accumulator<T>* sums) {
  for (int64_t j = 0; j < values.count; j += kWidenedRows) {
    const int64_t count =
        values.count - j < kWidenedRows ? values.count - j : kWidenedRows;
    ForHeads(
        values, j, count, widened, [&](int64_t h, auto* from, int64_t stride) {
          for (int64_t r = h * values.rows; r < (h + 1) * values.rows; ++r) {
            AddRows(weights + r * kSpanKeys + j, from, stride, count,
                    values.columns, sums + r * sums_stride);
          }
        });
  }
}

template <typename T>
void MergeParts(const Accumulator<T>* parts, int64_t count, int64_t stride,
                int64_t columns, int64_t stats, Accumulator<T> sink,
                Accumulator<T>* sums, T* output, Accumulator<T>* high,
                Accumulator<T>* total) {
  using C = Accumulator<T>;
  using Vector = typename Lanes<T>::Vector;
  constexpr int kCount = Lanes<T>::kCount;
  C most = sink;  // NaN stays
  for (int64_t i = 0; i < count; ++i) {
    const C one = parts[i * stride + stats];
    most = one > most ? one : most;
  }
  const auto factor_of = [&](C one) {
    return one == most ? C(1) : ExpOfWeight(Broadcast<Vector>(one - most))[0];
  };
  C sum = factor_of(sink);
  for (int64_t d = 0; d < columns; d += kCount) Store(Vector{}, sums + d);
  for (int64_t i = 0; i < count; ++i) {
    const C* const part = parts + i * stride;
    const C factor = factor_of(part[stats]);
    const C more = factor * part[stats + 1];
    if (more == 0) continue;  // whatever its values are
    sum += more;
    const Vector factors = Broadcast<Vector>(factor);
    for (int64_t d = 0; d < columns; d += kCount) {
      Store(MulAdd(Load(part + d), factors, Load(sums + d)), sums + d);
    }
  }
  const C scale = 1 / sum;
  ForVectors<T>(columns, [&](auto part, int64_t d) {
    part.Store(Load(sums + d) * scale, output + d);
  });
  *high = most;
  *total = sum;
}

#define TFO_INSTANTIATE(T)                                                     \
  template void WidenRows<T>(const T*, int64_t, int64_t, int64_t,              \
                             Accumulator<T>*, int64_t);                        \
  template void MultiplyKeys<T>(const Accumulator<T>*, const HeadRows<T>&,     \
                                Accumulator<T>*, Accumulator<T>*);             \
  template void WeighKeys<T>(const QueryOptions<T>&, int64_t, Accumulator<T>*, \
                             Accumulator<T>*, Accumulator<T>*);                \
  template void AddValues<T>(const Accumulator<T>*, const HeadRows<T>&,        \
                             Accumulator<T>*, int64_t, Accumulator<T>*);       \
  template void MergeParts<T>(                                                 \
      const Accumulator<T>*, int64_t, int64_t, int64_t, int64_t,               \
      Accumulator<T>, Accumulator<T>*, T*, Accumulator<T>*, Accumulator<T>*)
TFO_FOR_EACH_FLOAT(TFO_INSTANTIATE);
#undef TFO_INSTANTIATE

}  // namespace TFO_CPU_NAMESPACE
}  // namespace tfo
