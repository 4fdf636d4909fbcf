#include "tensorflow_ops/nn/cc/kernels/quantized_matmul/integer_product_simd.h"

#include "tensorflow_ops/core/cc/simd/gemm_simd.h"
#include "tensorflow_ops/nn/cc/kernels/quantized_matmul/integer_packs_simd.h"
#ifdef __AVX512F__
#include "tensorflow_ops/core/cc/simd/amx_tiles_simd.h"
#endif

namespace tfo {
namespace TFO_CPU_NAMESPACE {
namespace {

// kCount rows of c, two vectors wide.
template <int kCount, IntegerLoop kLoop>
TFO_INLINE void MultiplyRows(const PackOf<kLoop>* a, int64_t depth,
                             const PackOf<kLoop>* panel, int32_t* c,
                             int64_t c_stride) {
  Bits32 sums[kCount][2];
#pragma GCC unroll 16
  for (int m = 0; m < kCount; ++m) {
    sums[m][0] = LoadAs<Bits32>(c + m * c_stride);
    sums[m][1] = LoadAs<Bits32>(c + m * c_stride + kFloats);
  }
  constexpr int kPacks = kLoop == IntegerLoop::kNibbles ? 2 : 1;
  for (int64_t k = 0; k < depth; k += kPacks) {
    const auto b0 = LoadAs<IntVector>(panel);
    const auto b1 = LoadAs<IntVector>(panel + kFloats);
    if constexpr (kPacks == 2) {
      const auto b2 = LoadAs<IntVector>(panel + 2 * kFloats);
      const auto b3 = LoadAs<IntVector>(panel + 3 * kFloats);
#pragma GCC unroll 16
      for (int m = 0; m < kCount; ++m) {
        const IntVector x0 = BroadcastPack(a + m * kGemmStride);
        const IntVector x1 = BroadcastPack(a + m * kGemmStride + 1);
        sums[m][0] = MulAddNibbles(x0, b0, x1, b2, sums[m][0]);
        sums[m][1] = MulAddNibbles(x0, b1, x1, b3, sums[m][1]);
      }
    } else {
#pragma GCC unroll 16
      for (int m = 0; m < kCount; ++m) {
        const IntVector x = BroadcastPack(a + m * kGemmStride);
        sums[m][0] = MulAddPacks<kLoop>(x, b0, sums[m][0]);
        sums[m][1] = MulAddPacks<kLoop>(x, b1, sums[m][1]);
      }
    }
    panel += kPacks * 2 * kFloats;
    a += kPacks;
  }
#pragma GCC unroll 16
  for (int m = 0; m < kCount; ++m) {
    StoreAs(sums[m][0], c + m * c_stride);
    StoreAs(sums[m][1], c + m * c_stride + kFloats);
  }
}

// Subtracts the panels' bias from what sums will be.
template <IntegerLoop kLoop>
TFO_INLINE void SubtractBias(const PackOf<kLoop>* a, int64_t a_stride,
                             int64_t rows, int64_t depth, int64_t columns,
                             int32_t* c, int64_t c_stride) {
  if constexpr (kPanelBias<kLoop> != 0) {
    for (int64_t m = 0; m < rows; ++m, a += a_stride, c += c_stride) {
      int32_t sum = 0;
      for (int64_t k = 0; k < depth; ++k) {
        for (const int8_t number : a[k].numbers) sum += number;
      }
      const auto bias =
          Broadcast<Bits32>(static_cast<uint32_t>(sum * kPanelBias<kLoop>));
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
  const bool is_pair = along || across;
  const uint8_t flip = !is_pair ? (bytes.is_signed ? 0 : 128) : FlipOf(bytes);
  for (int64_t i = 0; i < n; i += kVectorBytes) {
    const int64_t left = bytes.end - (from + i);
    WideBytes v = {};
    if (left < kVectorBytes) {
      memcpy(&v, from + i, left);
    } else {
      v = LoadAs<WideBytes>(from + i);
    }
    v ^= static_cast<int8_t>(flip);
    const auto low =
        reinterpret_cast<WideBytes>(LowNibbles(reinterpret_cast<Bits32>(v)));
    const auto high =
        reinterpret_cast<WideBytes>(HighNibbles(reinterpret_cast<Bits32>(v)));
    if (along) {
      StoreAs(InterleaveLow(low, high), to + 2 * i);
      StoreAs(InterleaveHigh(low, high), to + 2 * i + kVectorBytes);
    } else {
      StoreAs(!is_pair ? v : row % 2 == 1 ? high : low, to + i);
    }
  }
}

template <int kNumbers>
void PackIntegers(const int8_t* x, int64_t depth, int64_t count, bool halves,
                  IntegerPack<kNumbers>* packs) {
  for (int64_t p = 0; p < count; ++p, ++packs) {
    const int64_t begin = halves ? p / 2 * 8 + p % 2 : p * kNumbers;
    for (int i = 0; i < kNumbers; ++i) {
      const int64_t k = begin + (halves ? 2 * i : i);
      packs->numbers[i] = k < depth ? x[k] : 0;
    }
  }
}

template <IntegerLoop kLoop>
void PackIntegerPanels(const int8_t* weights, int64_t stride, bool transposed,
                       int64_t depth, int64_t columns, PackOf<kLoop>* panels) {
  constexpr int kNumbers = kNumbersOf<kLoop>;
  constexpr int kColumns = 2 * kFloats;
  const int64_t packs = (depth + kNumbers - 1) / kNumbers;
  for (int64_t k = 0; k < packs && !transposed; ++k) {
    for (int64_t j = 0; j < columns; j += kColumns) {
      const int8_t* const from = weights + k * kNumbers * stride + j;
      PrefetchRows<kNumbers>(from, stride, j);
      IntVector v[2];
      PacksAcross<kLoop>(from, stride, v);
      StoreAs(v[0], panels + j * packs + k * kColumns);
      StoreAs(v[1], panels + j * packs + k * kColumns + kFloats);
    }
  }
  for (int64_t j = 0; j < columns && transposed; j += kFloats) {
    PackOf<kLoop>* const panel =
        panels + j / kColumns * kColumns * packs + j % kColumns;
    for (int64_t k = 0; k < packs; k += kFloats) {
      IntVector v[kFloats];
#pragma GCC unroll 16
      for (int i = 0; i < kFloats; ++i) {
        // Columns beyond the last repeat it.
        const int64_t column = j + i < columns ? j + i : columns - 1;
        v[i] = PacksAlong<kLoop>(weights + column * stride + k * kNumbers);
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
  constexpr IntegerLoop kLoop = LoopOf<kNumbers>;
  SubtractBias<kLoop>(a, a_stride, rows, depth, columns, c, c_stride);
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
          PacksAcross<kLoop>(weights + p * kNumbers * stride + j, stride, w[p]);
        }
#pragma GCC unroll 4
        for (int i = 0; i < kCount; ++i) {
          int32_t* const to = c + (m + i) * c_stride + j;
#pragma GCC unroll 2
          for (int half = 0; half < 2; ++half) {
            auto sum = LoadAs<Bits32>(to + half * kFloats);
#pragma GCC unroll 2
            for (int p = 0; p < kHere; ++p) {
              sum = MulAddPacks<kLoop>(x[i][p], w[p][half], sum);
            }
            StoreAs(sum, to + half * kFloats);
          }
        }
      }
    };
    const auto with_rows = [&](auto packs) {
      ForFewRows(rows, [&](auto count, int64_t m) { run(count, packs, m); });
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
  constexpr IntegerLoop kLoop = LoopOf<kNumbers>;
  SubtractBias<kLoop>(a, a_stride, rows, depth, columns, c, c_stride);
  const auto load = [&](int64_t n, int64_t k, IntVector* to) {
    *to = PacksAlong<kLoop>(weights + n * stride + k * kNumbers);
  };
  ForFewRows(rows, [&](auto count, int64_t m) {
    DotRows<kLoop, decltype(count)::kValue>(a + m * a_stride, a_stride, depth,
                                            columns, load, c + m * c_stride,
                                            c_stride);
  });
}

template <IntegerLoop kLoop>
void MultiplyIntegers(const PackOf<kLoop>* a, int64_t rows, int64_t depth,
                      const PackOf<kLoop>* panels, int64_t columns, int32_t* c,
                      int64_t c_stride) {
  // With two vectors each, those of a panel, of x and a product, they fit the
  // registers.
  constexpr int kRows =
      kVectorBytes == 32 ? (kLoop == IntegerLoop::kNibbles ? 4 : 6) : 14;
  SubtractBias<kLoop>(a, kGemmStride, rows, depth, columns, c, c_stride);
  // A panel stays in the L1 cache while all rows pass.
  for (int64_t j = 0; j < columns; j += 2 * kFloats) {
    const auto run = [&](auto count, int64_t m) {
      MultiplyRows<decltype(count)::kValue, kLoop>(
          a + m * kGemmStride, depth, panels + j * depth, c + m * c_stride + j,
          c_stride);
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
                       const C* float_zero, int32_t x_sum, const C* scale,
                       int64_t n, C* sums) {
  typedef uint32_t Bits __attribute__((vector_size(4 * Lanes<C>::kCount)));
  typedef int32_t Integers __attribute__((vector_size(4 * Lanes<C>::kCount)));
  // Unsigned, so that overflow is defined.
  const auto x = static_cast<uint32_t>(x_sum);
  const auto minus_x =
      Broadcast<typename Lanes<C>::Vector>(-static_cast<C>(x_sum));
  ForVectors<C>(n, [&](auto part, int64_t at) {
    Bits sum, of_zero;
    memcpy(&sum, integers + at, sizeof(sum));
    memcpy(&of_zero, zero + at, sizeof(of_zero));
    auto value =
        __builtin_convertvector(reinterpret_cast<Integers>(sum - of_zero * x),
                                typename Lanes<C>::Vector);
    if (float_zero != nullptr) {
      value = MulAdd(part.Load(float_zero + at, 0), minus_x, value);
    }
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
  SubtractBias<IntegerLoop::kBytes>(a, kGemmStride, rows, depth, columns, c,
                                    c_stride);
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

#define TFO_INSTANTIATE(kNumbers)                                             \
  template void PackIntegers<kNumbers>(const int8_t*, int64_t, int64_t, bool, \
                                       IntegerPack<kNumbers>*);               \
  template void MultiplyFewIntegers<kNumbers>(                                \
      const IntegerPack<kNumbers>*, int64_t, int64_t, int64_t, const int8_t*, \
      int64_t, int64_t, int32_t*, int64_t);                                   \
  template void DotIntegers<kNumbers>(const IntegerPack<kNumbers>*, int64_t,  \
                                      int64_t, int64_t, const int8_t*,        \
                                      int64_t, int64_t, int32_t*, int64_t)
TFO_INSTANTIATE(2);
TFO_INSTANTIATE(4);
#undef TFO_INSTANTIATE
#define TFO_INSTANTIATE(kLoop)                                              \
  template void PackIntegerPanels<kLoop>(const int8_t*, int64_t, bool,      \
                                         int64_t, int64_t, PackOf<kLoop>*); \
  template void MultiplyIntegers<kLoop>(const PackOf<kLoop>*, int64_t,      \
                                        int64_t, const PackOf<kLoop>*,      \
                                        int64_t, int32_t*, int64_t)
TFO_INSTANTIATE(IntegerLoop::kPairs);
TFO_INSTANTIATE(IntegerLoop::kBytes);
TFO_INSTANTIATE(IntegerLoop::kNibbles);
#undef TFO_INSTANTIATE
#define TFO_INSTANTIATE(C)                                                     \
  template void AddScaledIntegers<C>(const int32_t*, const int32_t*, const C*, \
                                     int32_t, const C*, int64_t, C*)
TFO_INSTANTIATE(float);
TFO_INSTANTIATE(double);
#undef TFO_INSTANTIATE

}  // namespace TFO_CPU_NAMESPACE
}  // namespace tfo
