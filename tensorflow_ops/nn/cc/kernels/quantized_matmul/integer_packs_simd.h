// Packs of integers in vectors, and their products: shared by the loops of
// integer_product_simd.h.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_QUANTIZED_MATMUL_INTEGER_PACKS_SIMD_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_QUANTIZED_MATMUL_INTEGER_PACKS_SIMD_H_

#include "tensorflow_ops/core/cc/simd/simd.h"
#include "tensorflow_ops/nn/cc/kernels/quantized_matmul/integer_product_simd.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {

// Half a vector: of bytes as many as a panel has columns.
constexpr int kHalf = kVectorBytes / 2;
typedef int8_t Bytes __attribute__((vector_size(kHalf)));
typedef int16_t Shorts __attribute__((vector_size(kVectorBytes)));
typedef uint16_t ShortSums __attribute__((vector_size(kVectorBytes)));
typedef int8_t WideBytes __attribute__((vector_size(kVectorBytes)));

template <typename V, typename T>
TFO_INLINE V LoadAs(const T* from) {
  V v;
  memcpy(&v, from, sizeof(v));
  return v;
}
template <typename V, typename T>
TFO_INLINE void StoreAs(V v, T* to) {
  memcpy(to, &v, sizeof(v));
}

TFO_INLINE Shorts Widen16(Bytes bytes) {
#if defined(__AVX512F__)
  return reinterpret_cast<Shorts>(
      _mm512_cvtepi8_epi16(reinterpret_cast<__m256i>(bytes)));
#elif defined(__AVX2__)
  return reinterpret_cast<Shorts>(
      _mm256_cvtepi8_epi16(reinterpret_cast<__m128i>(bytes)));
#else
  return __builtin_convertvector(bytes, Shorts);
#endif
}

// The loop for packs of weights with 8 bits.
template <int kNumbers>
constexpr IntegerLoop LoopOf =
    kNumbers == 2 ? IntegerLoop::kPairs : IntegerLoop::kBytes;

// x86 multiplies unsigned bytes with signed ones: panels have weights + 128.
template <IntegerLoop kLoop>
#ifdef __aarch64__
constexpr int kPanelBias = 0;
#else
constexpr int kPanelBias = kLoop == IntegerLoop::kBytes ? 128 : 0;
#endif

template <IntegerLoop kLoop, typename V>
TFO_INLINE V Biased(V bytes) {
  return bytes ^ static_cast<int8_t>(kPanelBias<kLoop>);
}

#if !defined(__AVX2__) && !defined(__aarch64__)
// The products of parts of 128 bits.
template <typename Product>
TFO_INLINE Bits32 MultiplyParts(IntVector x, IntVector w, Product product) {
  constexpr int kParts = kVectorBytes / 16;
  __m128i a[kParts], b[kParts];
  memcpy(a, &x, sizeof(a));
  memcpy(b, &w, sizeof(b));
  for (int i = 0; i < kParts; ++i) a[i] = product(a[i], b[i]);
  return LoadAs<Bits32>(a);
}
#endif

// Sums of products of neighbors in packs of x and of weights within 0 and 15,
// in 16 bits, which hold four products, and c + the sums of packs. Unsigned,
// since columns beyond the last have any weights.
#if defined(__AVX512F__)
TFO_INLINE ShortSums MultiplyNibbles(IntVector x, IntVector w) {
  return reinterpret_cast<ShortSums>(_mm512_maddubs_epi16(
      reinterpret_cast<__m512i>(w), reinterpret_cast<__m512i>(x)));
}
TFO_INLINE Bits32 AddNeighbors(ShortSums sums, Bits32 c) {
  return c + reinterpret_cast<Bits32>(_mm512_madd_epi16(
                 reinterpret_cast<__m512i>(sums), _mm512_set1_epi16(1)));
}
#elif defined(__AVX2__)
TFO_INLINE ShortSums MultiplyNibbles(IntVector x, IntVector w) {
  return reinterpret_cast<ShortSums>(_mm256_maddubs_epi16(
      reinterpret_cast<__m256i>(w), reinterpret_cast<__m256i>(x)));
}
TFO_INLINE Bits32 AddNeighbors(ShortSums sums, Bits32 c) {
  return c + reinterpret_cast<Bits32>(_mm256_madd_epi16(
                 reinterpret_cast<__m256i>(sums), _mm256_set1_epi16(1)));
}
#elif defined(__aarch64__)
struct TwoShorts {
  TwoShorts operator+(const TwoShorts& b) const {
    return {vaddq_s16(low, b.low), vaddq_s16(high, b.high)};
  }
  int16x8_t low, high;
};
TFO_INLINE TwoShorts MultiplyNibbles(IntVector x, IntVector w) {
  const auto a = reinterpret_cast<int8x16_t>(x);
  const auto b = reinterpret_cast<int8x16_t>(w);
  return {vmull_s8(vget_low_s8(a), vget_low_s8(b)), vmull_high_s8(a, b)};
}
TFO_INLINE Bits32 AddNeighbors(const TwoShorts& sums, Bits32 c) {
  return c + reinterpret_cast<Bits32>(
                 vpaddq_s32(vpaddlq_s16(sums.low), vpaddlq_s16(sums.high)));
}
#else
TFO_INLINE Bits32 MultiplyNibbles(IntVector x, IntVector w) {
  return MultiplyParts(x, w, [](__m128i a, __m128i b) {
    // Even bytes, then odd ones.
    const __m128i even = _mm_madd_epi16(_mm_srai_epi16(_mm_slli_epi16(a, 8), 8),
                                        _mm_and_si128(b, _mm_set1_epi16(255)));
    return _mm_add_epi32(
        even, _mm_madd_epi16(_mm_srai_epi16(a, 8), _mm_srli_epi16(b, 8)));
  });
}
TFO_INLINE Bits32 AddNeighbors(Bits32 sums, Bits32 c) { return c + sums; }
#endif
TFO_INLINE Bits32 MulAddNibbles(IntVector x0, IntVector w0, IntVector x1,
                                IntVector w1, Bits32 c) {
  return AddNeighbors(MultiplyNibbles(x0, w0) + MultiplyNibbles(x1, w1), c);
}

// c + the sums of the products of packs of x and of a panel.
template <IntegerLoop kLoop>
TFO_INLINE Bits32 MulAddPacks(IntVector x, IntVector w, Bits32 c) {
  if constexpr (kLoop == IntegerLoop::kPairs) {
#if defined(__AVX512F__)
    return c + reinterpret_cast<Bits32>(_mm512_madd_epi16(
                   reinterpret_cast<__m512i>(x), reinterpret_cast<__m512i>(w)));
#elif defined(__AVX2__)
    return c + reinterpret_cast<Bits32>(_mm256_madd_epi16(
                   reinterpret_cast<__m256i>(x), reinterpret_cast<__m256i>(w)));
#elif defined(__aarch64__)
    const auto a = reinterpret_cast<int16x8_t>(x);
    const auto b = reinterpret_cast<int16x8_t>(w);
    return c + reinterpret_cast<Bits32>(
                   vpaddq_s32(vmull_s16(vget_low_s16(a), vget_low_s16(b)),
                              vmull_high_s16(a, b)));
#else
    return c + MultiplyParts(x, w, [](__m128i a, __m128i b) {
             return _mm_madd_epi16(a, b);
           });
#endif
  } else {
    // In assembly, since not every processor of these levels has them.
#if defined(__AVX512F__)
    asm("vpdpbusd %2, %1, %0" : "+v"(c) : "v"(w), "v"(x));
    return c;
#elif defined(__aarch64__)
    asm(".arch armv8.2-a+dotprod\n\tsdot %0.4s, %1.16b, %2.16b"
        : "+w"(c)
        : "w"(w), "w"(x));
    return c;
#else
#pragma GCC unroll 4
    for (int shift = 0; shift < 32; shift += 8) {
      const auto number = reinterpret_cast<Bits32>(x) << (24 - shift);
      c += (reinterpret_cast<Bits32>(w) >> shift & 255u) *
           reinterpret_cast<Bits32>(reinterpret_cast<IntVector>(number) >> 24);
    }
    return c;
#endif
  }
}

// A panel's columns of one pack: bytes of stored rows.
template <IntegerLoop kLoop>
TFO_INLINE void PacksAcross(const int8_t* from, int64_t stride,
                            IntVector (&packs)[2]) {
  const auto load = [&](int i) { return LoadAs<Bytes>(from + i * stride); };
  if constexpr (kLoop == IntegerLoop::kPairs) {
    packs[0] =
        reinterpret_cast<IntVector>(Widen16(InterleaveLow(load(0), load(1))));
    packs[1] =
        reinterpret_cast<IntVector>(Widen16(InterleaveHigh(load(0), load(1))));
  } else {
    const auto pairs = [&](int i) {
      return reinterpret_cast<Shorts>(Shuffle<kVectorBytes>(
          load(i), load(i + 1),
          [](int lane) { return lane / 2 + lane % 2 * kHalf; }));
    };
    const Shorts low = pairs(0), high = pairs(2);
    packs[0] = reinterpret_cast<IntVector>(
        Biased<kLoop>(reinterpret_cast<WideBytes>(InterleaveLow(low, high))));
    packs[1] = reinterpret_cast<IntVector>(
        Biased<kLoop>(reinterpret_cast<WideBytes>(InterleaveHigh(low, high))));
  }
}

// Packs of a stored row.
template <IntegerLoop kLoop>
TFO_INLINE IntVector PacksAlong(const int8_t* from) {
  if constexpr (kLoop == IntegerLoop::kPairs) {
    return reinterpret_cast<IntVector>(Widen16(LoadAs<Bytes>(from)));
  } else {
    return reinterpret_cast<IntVector>(Biased<kLoop>(LoadAs<WideBytes>(from)));
  }
}

template <typename P>
TFO_INLINE IntVector BroadcastPack(const P* pack) {
  int32_t bits;
  memcpy(&bits, pack, sizeof(bits));
  return Broadcast<IntVector>(bits);
}

// InterleaveLow and InterleaveHigh in each 16 bytes, which is cheaper.
template <typename V, int kUpper = 0>
TFO_INLINE V Zip(V a, V b) {
  return Shuffle(a, b, [](int i) {
    constexpr int kCount = sizeof(V) / sizeof(V{}[0]);
    constexpr int kPart = 16 / sizeof(V{}[0]);
    return i / kPart * kPart + i % kPart / 2 + kUpper * kPart / 2 +
           i % 2 * kCount;
  });
}
template <typename V>
TFO_INLINE V ZipHigh(V a, V b) {
  return Zip<V, 1>(a, b);
}

TFO_INLINE Bits32 LowNibbles(Bits32 v) { return v & 0x0F0F0F0Fu; }
TFO_INLINE Bits32 HighNibbles(Bits32 v) { return LowNibbles(v >> 4); }

// How far ahead loops prefetch: stored rows, and bytes of each.
constexpr int kRowsAhead = 8, kBytesAhead = 128;

// Prefetches kRows stored rows, kRowsAhead after those at `from`, which is in
// column j. Rows may be pages apart, where processors do not prefetch.
template <int kRows>
TFO_INLINE void PrefetchRows(const int8_t* from, int64_t stride, int64_t j) {
  if (j % 64 != 0) return;
#pragma GCC unroll 4
  for (int i = 0; i < kRows; ++i) {
    __builtin_prefetch(from + (kRowsAhead + i) * stride);
  }
}

// kCount rows of c += dot products of packs with columns. load(n, k, packs)
// loads those of column n, from pack k on.
template <IntegerLoop kLoop, int kCount, typename Load>
TFO_INLINE void DotRows(const PackOf<kLoop>* a, int64_t a_stride, int64_t depth,
                        int64_t columns, const Load& load, int32_t* c,
                        int64_t c_stride) {
  constexpr bool kNibbles = kLoop == IntegerLoop::kNibbles;
  constexpr int kColumns = kCount <= 2 ? 4 : 2, kVectors = kNibbles ? 2 : 1;
  for (int64_t j = 0; j < columns; j += kColumns) {
    Bits32 sums[kCount][kColumns] = {};
    for (int64_t k = 0; k < depth; k += kVectors * kFloats) {
      IntVector w[kColumns][kVectors];
#pragma GCC unroll 4
      for (int n = 0; n < kColumns; ++n) {
        // Columns beyond the last repeat it.
        load(j + n < columns ? j + n : columns - 1, k, w[n]);
      }
#pragma GCC unroll 4
      for (int i = 0; i < kCount; ++i) {
        const PackOf<kLoop>* const from = a + i * a_stride + k;
        const auto x = LoadAs<IntVector>(from);
        if constexpr (kNibbles) {
          const auto next = LoadAs<IntVector>(from + kFloats);
#pragma GCC unroll 4
          for (int n = 0; n < kColumns; ++n) {
            sums[i][n] = MulAddNibbles(x, w[n][0], next, w[n][1], sums[i][n]);
          }
        } else {
#pragma GCC unroll 4
          for (int n = 0; n < kColumns; ++n) {
            sums[i][n] = MulAddPacks<kLoop>(x, w[n][0], sums[i][n]);
          }
        }
      }
    }
    for (int i = 0; i < kCount; ++i) {
      int32_t* const to = c + i * c_stride + j;
      for (int n = 0; n < kColumns && j + n < columns; ++n) {
        to[n] = static_cast<int32_t>(static_cast<uint32_t>(to[n]) +
                                     SumLanes(sums[i][n]));
      }
    }
  }
}

// Calls run(Constant<count>, first) for parts of few rows.
template <typename Run>
TFO_INLINE void ForFewRows(int64_t rows, const Run& run) {
  int64_t m = 0;
  for (; m + 4 <= rows; m += 4) run(Constant<4>(), m);
  for (; m + 2 <= rows; m += 2) run(Constant<2>(), m);
  for (; m < rows; ++m) run(Constant<1>(), m);
}

}  // namespace TFO_CPU_NAMESPACE
}  // namespace tfo

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_QUANTIZED_MATMUL_INTEGER_PACKS_SIMD_H_
