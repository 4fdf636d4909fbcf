#include "tensorflow_ops/nn/cc/kernels/quantized_matmul/integer_product_simd.h"

#include "tensorflow_ops/core/cc/gemm_simd.h"
#include "tensorflow_ops/core/cc/simd.h"
#ifdef __AVX512F__
#include "tensorflow_ops/core/cc/amx_tiles_simd.h"
#endif

namespace tfo {
namespace TFO_CPU_NAMESPACE {
namespace {

constexpr int kRowsAhead = 8;

// Half a vector: of bytes as many as a panel has columns.
constexpr int kHalf = kVectorBytes / 2;
typedef int8_t Bytes __attribute__((vector_size(kHalf)));
typedef uint8_t UnsignedBytes __attribute__((vector_size(kHalf)));
typedef int16_t Shorts __attribute__((vector_size(kVectorBytes)));
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

// x86 multiplies unsigned bytes with signed ones: panels have weights + 128.
#ifdef __aarch64__
template <int kNumbers>
constexpr int kPanelBias = 0;
#else
template <int kNumbers>
constexpr int kPanelBias = kNumbers == 4 ? 128 : 0;
#endif

template <int kNumbers, typename V>
TFO_INLINE V Biased(V bytes) {
  return bytes ^ static_cast<int8_t>(kPanelBias<kNumbers>);
}

// c + the sums of the products of packs of x and of a panel.
template <int kNumbers>
TFO_INLINE Bits32 MulAddPacks(IntVector x, IntVector w, Bits32 c) {
  if constexpr (kNumbers == 2) {
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
    constexpr int kParts = kVectorBytes / 16;
    __m128i a[kParts], b[kParts];
    memcpy(a, &x, sizeof(a));
    memcpy(b, &w, sizeof(b));
    for (int i = 0; i < kParts; ++i) a[i] = _mm_madd_epi16(a[i], b[i]);
    return c + LoadAs<Bits32>(a);
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

// A panel's columns of one pack: bytes of kNumbers stored rows.
template <int kNumbers>
TFO_INLINE void PacksAcross(const int8_t* from, int64_t stride,
                            IntVector (&packs)[2]) {
  const auto load = [&](int i) { return LoadAs<Bytes>(from + i * stride); };
  if constexpr (kNumbers == 2) {
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
    packs[0] = reinterpret_cast<IntVector>(Biased<kNumbers>(
        reinterpret_cast<WideBytes>(InterleaveLow(low, high))));
    packs[1] = reinterpret_cast<IntVector>(Biased<kNumbers>(
        reinterpret_cast<WideBytes>(InterleaveHigh(low, high))));
  }
}

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

// Packs of a stored row.
template <int kNumbers>
TFO_INLINE IntVector PacksAlong(const int8_t* from) {
  if constexpr (kNumbers == 2) {
    return reinterpret_cast<IntVector>(Widen16(LoadAs<Bytes>(from)));
  } else {
    return reinterpret_cast<IntVector>(
        Biased<kNumbers>(LoadAs<WideBytes>(from)));
  }
}

template <typename P>
TFO_INLINE IntVector BroadcastPack(const P* pack) {
  int32_t bits;
  memcpy(&bits, pack, sizeof(bits));
  return Broadcast<IntVector>(bits);
}

// kCount rows of c, two vectors wide.
template <int kCount, int kNumbers>
TFO_INLINE void MultiplyRows(const IntegerPack<kNumbers>* a, int64_t depth,
                             const IntegerPack<kNumbers>* panel, int32_t* c,
                             int64_t c_stride) {
  Bits32 sums[kCount][2];
#pragma GCC unroll 16
  for (int m = 0; m < kCount; ++m) {
    sums[m][0] = LoadAs<Bits32>(c + m * c_stride);
    sums[m][1] = LoadAs<Bits32>(c + m * c_stride + kFloats);
  }
  for (int64_t k = 0; k < depth; ++k) {
    const auto b0 = LoadAs<IntVector>(panel);
    const auto b1 = LoadAs<IntVector>(panel + kFloats);
#pragma GCC unroll 16
    for (int m = 0; m < kCount; ++m) {
      const IntVector x = BroadcastPack(a + m * kGemmStride);
      sums[m][0] = MulAddPacks<kNumbers>(x, b0, sums[m][0]);
      sums[m][1] = MulAddPacks<kNumbers>(x, b1, sums[m][1]);
    }
    panel += 2 * kFloats;
    ++a;
  }
#pragma GCC unroll 16
  for (int m = 0; m < kCount; ++m) {
    StoreAs(sums[m][0], c + m * c_stride);
    StoreAs(sums[m][1], c + m * c_stride + kFloats);
  }
}

// Subtracts the panels' bias from what sums will be.
template <int kNumbers>
TFO_INLINE void SubtractBias(const IntegerPack<kNumbers>* a, int64_t a_stride,
                             int64_t rows, int64_t depth, int64_t columns,
                             int32_t* c, int64_t c_stride) {
  if constexpr (kPanelBias<kNumbers> != 0) {
    for (int64_t m = 0; m < rows; ++m, a += a_stride, c += c_stride) {
      int32_t sum = 0;
      for (int64_t k = 0; k < depth; ++k) {
        for (int i = 0; i < kNumbers; ++i) sum += a[k].numbers[i];
      }
      const auto bias =
          Broadcast<Bits32>(static_cast<uint32_t>(sum * kPanelBias<kNumbers>));
      for (int64_t j = 0; j < columns; j += kFloats) {
        StoreAs(LoadAs<Bits32>(c + j) - bias, c + j);
      }
    }
  }
}

}  // namespace

void UnpackIntegers(const StoredBytes& bytes, int64_t row, int64_t first,
                    int64_t count, int8_t* to) {
  const bool along = bytes.pairs == StoredPairs::kAlong;
  const bool across = bytes.pairs == StoredPairs::kAcross;
  const uint8_t* from = bytes.data + (across ? row / 2 : row) * bytes.stride +
                        (along ? first / 2 : first);
  const int64_t n = along ? (count + 1) / 2 : count;
  const auto load = [&](int64_t i) {
    if (bytes.end - (from + i) >= kHalf) {
      return LoadAs<UnsignedBytes>(from + i);
    }
    UnsignedBytes v = {};
    memcpy(&v, from + i, bytes.end - (from + i));
    return v;
  };
  if (bytes.pairs == StoredPairs::kNone) {
    const uint8_t flip = bytes.is_signed ? 0 : 128;
    for (int64_t i = 0; i < n; i += kHalf) StoreAs(load(i) ^ flip, to + i);
    return;
  }
  // Extends the sign of 4 bits.
  const uint8_t sign = bytes.is_signed ? 8 : 0;
  for (int64_t i = 0; i < n; i += kHalf) {
    const UnsignedBytes v = load(i);
    const UnsignedBytes low = ((v & 15) ^ sign) - sign;
    const UnsignedBytes high = ((v >> 4) ^ sign) - sign;
    if (along) {
      StoreAs(InterleaveLow(low, high), to + 2 * i);
      StoreAs(InterleaveHigh(low, high), to + 2 * i + kHalf);
    } else {
      StoreAs(row % 2 == 1 ? high : low, to + i);
    }
  }
}

template <int kNumbers>
void PackIntegers(const int8_t* x, int64_t depth, int64_t count,
                  IntegerPack<kNumbers>* packs) {
  for (int64_t k = 0; k < count * kNumbers; k += kNumbers, ++packs) {
    for (int i = 0; i < kNumbers; ++i) {
      packs->numbers[i] = k + i < depth ? x[k + i] : 0;
    }
  }
}

template <int kNumbers>
void PackIntegerPanels(const int8_t* weights, int64_t stride, bool along,
                       int64_t depth, int64_t columns,
                       IntegerPack<kNumbers>* panels) {
  constexpr int kColumns = 2 * kFloats;
  const int64_t packs = (depth + kNumbers - 1) / kNumbers;
  for (int64_t k = 0; k < packs && !along; ++k) {
    for (int64_t j = 0; j < columns; j += kColumns) {
      const int8_t* const from = weights + k * kNumbers * stride + j;
      PrefetchRows<kNumbers>(from, stride, j);
      IntVector v[2];
      PacksAcross<kNumbers>(from, stride, v);
      StoreAs(v[0], panels + j * packs + k * kColumns);
      StoreAs(v[1], panels + j * packs + k * kColumns + kFloats);
    }
  }
  for (int64_t j = 0; j < columns && along; j += kFloats) {
    IntegerPack<kNumbers>* const panel =
        panels + j / kColumns * kColumns * packs + j % kColumns;
    for (int64_t k = 0; k < packs; k += kFloats) {
      IntVector v[kFloats];
#pragma GCC unroll 16
      for (int i = 0; i < kFloats; ++i) {
        // Columns beyond the last repeat it.
        const int64_t column = j + i < columns ? j + i : columns - 1;
        v[i] = PacksAlong<kNumbers>(weights + column * stride + k * kNumbers);
      }
      Transpose(v);
      const int64_t n = packs - k < kFloats ? packs - k : kFloats;
      for (int64_t i = 0; i < n; ++i) {
        StoreAs(v[i], panel + (k + i) * kColumns);
      }
    }
  }
}

template <int kNumbers>
void MultiplyFewIntegers(const IntegerPack<kNumbers>* a, int64_t a_stride,
                         int64_t rows, int64_t depth, const int8_t* weights,
                         int64_t stride, int64_t columns, int32_t* c,
                         int64_t c_stride) {
  SubtractBias(a, a_stride, rows, depth, columns, c, c_stride);
  // Four stored rows at a time: more would leave the cache where rows are a
  // power of two apart.
  constexpr int kPacks = 4 / kNumbers;
  for (int64_t k = 0; k < depth; k += kPacks, weights += 4 * stride) {
    const auto run = [&](auto count, auto packs, int64_t m) {
      constexpr int kCount = decltype(count)::kValue;
      constexpr int kHere = decltype(packs)::kValue;
      IntVector x[kCount][kHere];
      for (int i = 0; i < kCount; ++i) {
        for (int p = 0; p < kHere; ++p) {
          x[i][p] = BroadcastPack(a + (m + i) * a_stride + k + p);
        }
      }
      for (int64_t j = 0; j < columns; j += 2 * kFloats) {
        PrefetchRows<4>(weights + j, stride, j);
        IntVector w[kHere][2];
#pragma GCC unroll 2
        for (int p = 0; p < kHere; ++p) {
          PacksAcross<kNumbers>(weights + p * kNumbers * stride + j, stride,
                                w[p]);
        }
#pragma GCC unroll 4
        for (int i = 0; i < kCount; ++i) {
          int32_t* const to = c + (m + i) * c_stride + j;
#pragma GCC unroll 2
          for (int half = 0; half < 2; ++half) {
            auto sum = LoadAs<Bits32>(to + half * kFloats);
#pragma GCC unroll 2
            for (int p = 0; p < kHere; ++p) {
              sum = MulAddPacks<kNumbers>(x[i][p], w[p][half], sum);
            }
            StoreAs(sum, to + half * kFloats);
          }
        }
      }
    };
    const auto with_rows = [&](auto packs) {
      int64_t m = 0;
      for (; m + 4 <= rows; m += 4) run(Constant<4>(), packs, m);
      for (; m + 2 <= rows; m += 2) run(Constant<2>(), packs, m);
      for (; m < rows; ++m) run(Constant<1>(), packs, m);
    };
    if (k + kPacks <= depth) {
      with_rows(Constant<kPacks>());
    } else {
      with_rows(Constant<1>());
    }
  }
}

template <int kNumbers>
void DotIntegers(const IntegerPack<kNumbers>* a, int64_t a_stride, int64_t rows,
                 int64_t depth, const int8_t* weights, int64_t stride,
                 int64_t columns, int32_t* c, int64_t c_stride) {
  SubtractBias(a, a_stride, rows, depth, columns, c, c_stride);
  const auto run = [&](auto count, int64_t m) {
    constexpr int kCount = decltype(count)::kValue;
    constexpr int kColumns = kCount <= 2 ? 4 : 2;
    for (int64_t j = 0; j < columns; j += kColumns) {
      const int8_t* from[kColumns];
      for (int n = 0; n < kColumns; ++n) {
        // Columns beyond the last repeat it.
        from[n] = weights + (j + n < columns ? j + n : columns - 1) * stride;
      }
      Bits32 sums[kCount][kColumns] = {};
      for (int64_t k = 0; k < depth; k += kFloats) {
        IntVector w[kColumns];
#pragma GCC unroll 4
        for (int n = 0; n < kColumns; ++n) {
          w[n] = PacksAlong<kNumbers>(from[n] + k * kNumbers);
        }
#pragma GCC unroll 4
        for (int i = 0; i < kCount; ++i) {
          const auto x = LoadAs<IntVector>(a + (m + i) * a_stride + k);
#pragma GCC unroll 4
          for (int n = 0; n < kColumns; ++n) {
            sums[i][n] = MulAddPacks<kNumbers>(x, w[n], sums[i][n]);
          }
        }
      }
      for (int i = 0; i < kCount; ++i) {
        int32_t* const to = c + (m + i) * c_stride + j;
        for (int n = 0; n < kColumns && j + n < columns; ++n) {
          to[n] = static_cast<int32_t>(static_cast<uint32_t>(to[n]) +
                                       SumLanes(sums[i][n]));
        }
      }
    }
  };
  int64_t m = 0;
  for (; m + 4 <= rows; m += 4) run(Constant<4>(), m);
  for (; m + 2 <= rows; m += 2) run(Constant<2>(), m);
  for (; m < rows; ++m) run(Constant<1>(), m);
}

template <int kNumbers>
void MultiplyIntegers(const IntegerPack<kNumbers>* a, int64_t rows,
                      int64_t depth, const IntegerPack<kNumbers>* panels,
                      int64_t columns, int32_t* c, int64_t c_stride) {
  // With two vectors each, two of a panel, one of x and a product, they fit the
  // registers.
  constexpr int kRows = kVectorBytes == 32 ? 6 : 14;
  SubtractBias(a, kGemmStride, rows, depth, columns, c, c_stride);
  // A panel stays in the L1 cache while all rows pass.
  for (int64_t j = 0; j < columns; j += 2 * kFloats) {
    const auto run = [&](auto count, int64_t m) {
      MultiplyRows<decltype(count)::kValue>(a + m * kGemmStride, depth,
                                            panels + j * depth,
                                            c + m * c_stride + j, c_stride);
    };
    int64_t m = 0;
    for (; m + kRows <= rows; m += kRows) run(Constant<kRows>(), m);
    for (; m + 4 <= rows; m += 4) run(Constant<4>(), m);
    for (; m + 2 <= rows; m += 2) run(Constant<2>(), m);
    for (; m < rows; ++m) run(Constant<1>(), m);
  }
}

template <typename C>
void AddScaledIntegers(const int32_t* integers, const int32_t* zero,
                       int32_t x_sum, const C* scale, int64_t n, C* sums) {
  typedef uint32_t Bits __attribute__((vector_size(4 * Lanes<C>::kCount)));
  typedef int32_t Integers __attribute__((vector_size(4 * Lanes<C>::kCount)));
  // Unsigned, so that overflow is defined.
  const auto x = static_cast<uint32_t>(x_sum);
  ForVectors<C>(n, [&](auto part, int64_t at) {
    Bits sum, of_zero;
    memcpy(&sum, integers + at, sizeof(sum));
    memcpy(&of_zero, zero + at, sizeof(of_zero));
    const auto value =
        __builtin_convertvector(reinterpret_cast<Integers>(sum - of_zero * x),
                                typename Lanes<C>::Vector);
    part.Store(part.Load(sums + at, 0) + value * part.Load(scale + at, 0),
               sums + at);
  });
}

#ifdef __AVX512F__
void MultiplyIntegerTiles(const IntegerPack<4>* a, int64_t rows, int64_t depth,
                          const IntegerPack<4>* panels, int64_t columns,
                          int32_t* c, int64_t c_stride) {
  constexpr int kColumns = 2 * kFloats;
  constexpr int64_t kRow = kGemmStride * sizeof(*a);
  SubtractBias(a, kGemmStride, rows, depth, columns, c, c_stride);
  const int64_t c_bytes = c_stride * sizeof(*c);
  for (int64_t j = 0; j < columns; j += kColumns, panels += depth * kColumns) {
    for (int64_t m = 0; m < rows; m += 2 * kIntegerTile) {
      const bool two = m + kIntegerTile < rows;
      const IntegerPack<4>* const at = a + m * kGemmStride;
      const IntegerPack<4>* const below = at + kIntegerTile * kGemmStride;
      int32_t* const to = c + m * c_stride + j;
      int32_t* const to_below = to + kIntegerTile * c_stride;
      LoadTile<0>(to, c_bytes);
      LoadTile<1>(to + kFloats, c_bytes);
      if (two) LoadTile<2>(to_below, c_bytes);
      if (two) LoadTile<3>(to_below + kFloats, c_bytes);
      for (int64_t k = 0; k < depth; k += kIntegerTile) {
        LoadTile<4>(at + k, kRow);
        LoadTile<6>(panels + k * kColumns, kColumns * sizeof(*a));
        LoadTile<7>(panels + k * kColumns + kFloats, kColumns * sizeof(*a));
        MultiplyByteTiles<0, 4, 6>();
        MultiplyByteTiles<1, 4, 7>();
        if (!two) continue;
        LoadTile<5>(below + k, kRow);
        MultiplyByteTiles<2, 5, 6>();
        MultiplyByteTiles<3, 5, 7>();
      }
      StoreTile<0>(to, c_bytes);
      StoreTile<1>(to + kFloats, c_bytes);
      if (two) StoreTile<2>(to_below, c_bytes);
      if (two) StoreTile<3>(to_below + kFloats, c_bytes);
    }
  }
}
#endif

#define TFO_INSTANTIATE(kNumbers)                                              \
  template void PackIntegers<kNumbers>(const int8_t*, int64_t, int64_t,        \
                                       IntegerPack<kNumbers>*);                \
  template void PackIntegerPanels<kNumbers>(                                   \
      const int8_t*, int64_t, bool, int64_t, int64_t, IntegerPack<kNumbers>*); \
  template void MultiplyIntegers<kNumbers>(                                    \
      const IntegerPack<kNumbers>*, int64_t, int64_t,                          \
      const IntegerPack<kNumbers>*, int64_t, int32_t*, int64_t);               \
  template void MultiplyFewIntegers<kNumbers>(                                 \
      const IntegerPack<kNumbers>*, int64_t, int64_t, int64_t, const int8_t*,  \
      int64_t, int64_t, int32_t*, int64_t);                                    \
  template void DotIntegers<kNumbers>(const IntegerPack<kNumbers>*, int64_t,   \
                                      int64_t, int64_t, const int8_t*,         \
                                      int64_t, int64_t, int32_t*, int64_t)
TFO_INSTANTIATE(2);
TFO_INSTANTIATE(4);
#undef TFO_INSTANTIATE
#define TFO_INSTANTIATE(C)                                                    \
  template void AddScaledIntegers<C>(const int32_t*, const int32_t*, int32_t, \
                                     const C*, int64_t, C*)
TFO_INSTANTIATE(float);
TFO_INSTANTIATE(double);
#undef TFO_INSTANTIATE

}  // namespace TFO_CPU_NAMESPACE
}  // namespace tfo
