#include "tensorflow_ops/nn/cc/kernels/attention/attention_simd.h"

#include "tensorflow_ops/core/cc/simd/gemm_simd.h"
#include "tensorflow_ops/core/cc/simd/math_simd.h"
#include "tensorflow_ops/nn/cc/kernels/attention/attention_math_simd.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {
namespace {

typedef uint64_t Bits64 __attribute__((vector_size(kVectorBytes)));

// The products of the low halves.
TFO_INLINE Bits64 MultiplyLow(Bits64 a, Bits64 b) {
#if defined(__AVX512F__)
  return reinterpret_cast<Bits64>(_mm512_mul_epu32(
      reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)));
#elif defined(__AVX2__)
  return reinterpret_cast<Bits64>(_mm256_mul_epu32(
      reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)));
#else
  return (a & 0xFFFFFFFF) * b;
#endif
}

// Splits a * b into the upper and the lower half.
TFO_INLINE void MultiplyWide(Bits32 a, uint32_t b, Bits32* high, Bits32* low) {
  const Bits64 factor = Broadcast<Bits64>(b);
  const Bits64 even = MultiplyLow(reinterpret_cast<Bits64>(a), factor);
  const Bits64 odd = MultiplyLow(reinterpret_cast<Bits64>(a) >> 32, factor);
  constexpr uint64_t kLow = 0xFFFFFFFF;
  *high = reinterpret_cast<Bits32>((even >> 32) | (odd & ~kLow));
  *low = reinterpret_cast<Bits32>((even & kLow) | (odd << 32));
}

// Philox of attention.h, a counter in each lane.
TFO_INLINE void PhiloxOfLanes(const uint32_t seed[2], Bits32 (&counter)[4]) {
  uint32_t key[2] = {seed[0], seed[1]};
  for (int round = 0; round < 10; ++round) {
    Bits32 high[2], low[2];
    MultiplyWide(counter[0], kPhiloxMultipliers[0], &high[0], &low[0]);
    MultiplyWide(counter[2], kPhiloxMultipliers[1], &high[1], &low[1]);
    counter[0] = high[1] ^ counter[1] ^ key[0];
    counter[1] = low[1];
    counter[2] = high[0] ^ counter[3] ^ key[1];
    counter[3] = low[0];
    key[0] += kPhiloxKeys[0];
    key[1] += kPhiloxKeys[1];
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

// Is the score scale * product, with a scale that keeps the order?
template <typename C>
TFO_INLINE bool IsPlain(const ScoreOptions<C>& options) {
  return options.scale > 0 && options.softcap == 0 && options.slope == 0 &&
         options.added == nullptr && options.begin == nullptr;
}

}  // namespace

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

MaskKind KindOfMask(const bool* mask, int64_t query_stride, int64_t key_stride,
                    int64_t queries, int64_t keys) {
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

template <typename C>
void ScaleRows(const C* factors, int64_t count, int64_t columns, int64_t stride,
               C* rows) {
  for (int64_t i = 0; i < count; ++i, rows += stride) {
    ForVectors<C>(columns, [&](auto part, int64_t at) {
      part.Store(part.Load(rows + at, 0) * factors[i], rows + at);
    });
  }
}

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

#define TFO_INSTANTIATE(C, kRounded)                                          \
  template bool WeighScores<C, kRounded>(const ScoreOptions<C>&, int64_t, C*, \
                                         C*, C*, C*);                         \
  template void DifferentiateScores<C, kRounded>(                             \
      const ScoreOptions<C>&, bool, int64_t, const C*, const C*, C*, C*)
TFO_INSTANTIATE(float, false);
TFO_INSTANTIATE(float, true);
TFO_INSTANTIATE(double, false);
#undef TFO_INSTANTIATE
#define TFO_INSTANTIATE(C)                                                \
  template void ExcludePairs<C>(const bool*, int64_t, int64_t, int64_t,   \
                                int64_t, bool, C*);                       \
  template void DropWeights<C>(const AttentionDropout&, int64_t, int64_t, \
                               int64_t, int64_t, C*);                     \
  template void ScaleRows<C>(const C*, int64_t, int64_t, int64_t, C*)
TFO_INSTANTIATE(float);
TFO_INSTANTIATE(double);
#undef TFO_INSTANTIATE
#define TFO_INSTANTIATE(T)                                                \
  template void DotRows<T>(const T*, const T*, int64_t, int64_t, int64_t, \
                           Accumulator<T>*)
TFO_FOR_EACH_FLOAT(TFO_INSTANTIATE);
#undef TFO_INSTANTIATE

}  // namespace TFO_CPU_NAMESPACE
}  // namespace tfo
