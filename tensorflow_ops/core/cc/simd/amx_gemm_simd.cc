#include "tensorflow_ops/core/cc/simd/amx_gemm_simd.h"

#ifdef __AVX512F__
#include "tensorflow_ops/core/cc/simd/amx_tiles_simd.h"
#include "tensorflow_ops/core/cc/simd/bfloat16_simd.h"

namespace tfo {
namespace cpu_avx512 {
namespace {

// Numbers of a term in a tile of a, or in half of a panel's step.
constexpr int64_t kTileNumbers = 512;

// The numbers' terms, as floats whose lower halves are 0.
template <int kTerms>
TFO_INLINE void SplitTerms(FloatVector x, FloatVector (&terms)[kTerms]) {
  constexpr uint32_t kHigh = 0xFFFF0000;
  // The last one has the 8 bits that are left, of subnormal numbers more.
#pragma GCC unroll 3
  for (int p = 0; p < kTerms; ++p) {
    terms[p] =
        reinterpret_cast<FloatVector>(reinterpret_cast<Bits32>(x) & kHigh);
    x -= terms[p];
  }
}

// Loads min(n, kFloats) numbers; other lanes are 0.
template <typename T>
TFO_INLINE FloatVector LoadSome(const T* from, int64_t n) {
  if (n >= kFloats) return Load(from);
  return n > 0 ? First<T>{n}.Load(from, 0) : FloatVector{};
}

// The first n numbers in order, or 32.
template <typename T, int kTerms>
TFO_INLINE void LoadAlong(const T* from, int64_t n, Words (&packed)[kTerms]) {
  const FloatVector low = LoadSome(from, n);
  const FloatVector high = LoadSome(from + kFloats, n - kFloats);
  if constexpr (kTerms == 1) {
    packed[0] = NarrowBoth(low, high);
  } else {
    FloatVector a[kTerms], b[kTerms];
    SplitTerms(low, a);
    SplitTerms(high, b);
#pragma GCC unroll 3
    for (int p = 0; p < kTerms; ++p) {
      packed[p] = OddLanes(reinterpret_cast<Words>(a[p]),
                           reinterpret_cast<Words>(b[p]));
    }
  }
}

// Pairs of numbers.
template <int kTerms>
TFO_INLINE void PackPairs(FloatVector first, FloatVector second,
                          Words (&packed)[kTerms]) {
  if constexpr (kTerms == 1) {
    packed[0] = InterleaveHalves(NarrowBoth(first, second));
  } else {
    FloatVector a[kTerms], b[kTerms];
    SplitTerms(first, a);
    SplitTerms(second, b);
#pragma GCC unroll 3
    for (int p = 0; p < kTerms; ++p) {
      packed[p] = reinterpret_cast<Words>(PackOf(a[p], b[p]));
    }
  }
}

// Writes a matrix of pairs, transposed, for each term: rows that are `stride`
// numbers apart.
template <int kTerms>
TFO_INLINE void StoreTransposed(FloatVector (&pairs)[kTerms][kFloats],
                                int64_t term, int64_t stride, BFloat16* to) {
  for (int p = 0; p < kTerms; ++p, to += term) {
    Transpose(pairs[p]);
    for (int i = 0; i < kFloats; ++i) {
      memcpy(to + i * stride, &pairs[p][i], sizeof(pairs[p][i]));
    }
  }
}

// c [kRows, 32] in tiles 0 to 3. In 4 and 5 is a, in 6 and 7 b.
template <int kTerms, int kRows>
TFO_INLINE void MultiplyRows(const BFloat16* a, int64_t group,
                             const BFloat16* b, int64_t term, int64_t depth,
                             bool add, float* c, int64_t c_stride) {
  constexpr bool kTwo = kRows == 32;
  const int64_t bytes = c_stride * sizeof(float);
  float* const below = c + 16 * c_stride;
  if (add) {
    LoadTile<0>(c, bytes);
    LoadTile<1>(c + 16, bytes);
    if constexpr (kTwo) LoadTile<2>(below, bytes);
    if constexpr (kTwo) LoadTile<3>(below + 16, bytes);
  } else {
    ZeroTile<0>();
    ZeroTile<1>();
    if constexpr (kTwo) ZeroTile<2>();
    if constexpr (kTwo) ZeroTile<3>();
  }
  const auto load_a = [&](int of_term) __attribute__((always_inline)) {
    LoadTile<4>(a + of_term * kTileNumbers, 64);
    if constexpr (kTwo) LoadTile<5>(a + group + of_term * kTileNumbers, 64);
  };
  const auto load_b = [&](int of_term) __attribute__((always_inline)) {
    LoadTile<6>(b + of_term * term, 128);
    LoadTile<7>(b + of_term * term + 32, 128);
  };
  const auto multiply = [&]() __attribute__((always_inline)) {
    MultiplyTiles<0, 4, 6>();
    MultiplyTiles<1, 4, 7>();
    if constexpr (kTwo) MultiplyTiles<2, 5, 6>();
    if constexpr (kTwo) MultiplyTiles<3, 5, 7>();
  };
  for (int64_t k = 0; k < depth; ++k) {
    load_a(kTerms - 1);
    load_b(0);
    multiply();
    if constexpr (kTerms == 3) {
      // Drops products below 2^-24 of the whole. In this order, each step
      // reloads one operand only.
      load_a(1);
      multiply();
      load_b(1);
      multiply();
      load_a(0);
      multiply();
      load_b(2);
      multiply();
      load_b(0);
      multiply();
    }
    a += kTerms * kTileNumbers;
    b += 2 * kTileNumbers;
  }
  StoreTile<0>(c, bytes);
  StoreTile<1>(c + 16, bytes);
  if constexpr (kTwo) StoreTile<2>(below, bytes);
  if constexpr (kTwo) StoreTile<3>(below + 16, bytes);
}

// c [rows, 32] of one term and two packs: all of b stays in tiles.
TFO_INLINE void MultiplyTwoPacks(const BFloat16* a, int64_t group, int64_t rows,
                                 const BFloat16* b, float* c,
                                 int64_t c_stride) {
  const int64_t bytes = c_stride * sizeof(float);
  LoadTile<4>(b, 128);
  LoadTile<5>(b + 32, 128);
  LoadTile<6>(b + 2 * kTileNumbers, 128);
  LoadTile<7>(b + 2 * kTileNumbers + 32, 128);
  for (int64_t m = 0; m < rows; m += kAmxRows) {
    ZeroTile<0>();
    ZeroTile<1>();
    LoadTile<2>(a, 64);
    LoadTile<3>(a + kTileNumbers, 64);
    MultiplyTiles<0, 2, 4>();
    MultiplyTiles<1, 2, 5>();
    MultiplyTiles<0, 3, 6>();
    MultiplyTiles<1, 3, 7>();
    StoreTile<0>(c, bytes);
    StoreTile<1>(c + 16, bytes);
    a += group;
    c += kAmxRows * c_stride;
  }
}

}  // namespace

template <typename T, int kTerms>
void PackAmxRows(const T* a, int64_t row_stride, int64_t column_stride,
                 int64_t rows, int64_t depth, int64_t row_packs,
                 AmxPack<kTerms>* packs) {
  for (int64_t m = 0; m < rows; m += kAmxRows) {
    BFloat16* const group = packs[m * row_packs].numbers;
    if (column_stride != 1) {
      for (int64_t k = 0; k < depth; k += 32) {
        FloatVector terms[kTerms][kFloats];
        for (int64_t i = 0; i < kFloats; ++i) {
          const auto load = [&](int64_t at) __attribute__((always_inline)) {
            return LoadSome(a + m + at * column_stride,
                            at < depth ? rows - m : 0);
          };
          Words pairs[kTerms];
          PackPairs(load(k + 2 * i), load(k + 2 * i + 1), pairs);
#pragma GCC unroll 3
          for (int p = 0; p < kTerms; ++p) {
            terms[p][i] = reinterpret_cast<FloatVector>(pairs[p]);
          }
        }
        StoreTransposed(terms, kTileNumbers, 32, group + k * kTerms * kAmxRows);
      }
      continue;
    }
    for (int64_t i = 0; i < kAmxRows; ++i) {
      const T* const from = a + (m + i) * row_stride;
      BFloat16* to = group + 32 * i;
      for (int64_t k = 0; k < depth; k += 32, to += kTerms * kTileNumbers) {
        Words row[kTerms] = {};
        if (m + i < rows) LoadAlong(from + k, depth - k, row);
#pragma GCC unroll 3
        for (int p = 0; p < kTerms; ++p) {
          memcpy(to + p * kTileNumbers, &row[p], sizeof(row[p]));
        }
      }
    }
  }
}

template <typename T, int kTerms>
void PackAmxPanels(const T* b, int64_t row_stride, int64_t column_stride,
                   int64_t rows, int64_t columns, AmxPack<kTerms>* panels) {
  const int64_t depth = (rows + 31) / 32 * 32, term = depth * kAmxColumns;
  BFloat16* panel = panels->numbers;
  for (int64_t j = 0; j < columns; j += kAmxColumns, panel += kTerms * term) {
    for (int64_t i = 0; i < depth && column_stride != 1; i += 32) {
      for (int64_t x = 0; x < kAmxColumns; x += kFloats) {
        FloatVector terms[kTerms][kFloats];
        for (int64_t m = 0; m < kFloats; ++m) {
          const int64_t column = j + x + m;
          Words along[kTerms] = {};
          if (column < columns) {
            LoadAlong(b + column * column_stride + i, rows - i, along);
          }
#pragma GCC unroll 3
          for (int p = 0; p < kTerms; ++p) {
            terms[p][m] = reinterpret_cast<FloatVector>(along[p]);
          }
        }
        StoreTransposed(terms, term, 2 * kAmxColumns,
                        panel + i * kAmxColumns + 2 * x);
      }
    }
    for (int64_t i = 0; i < depth && column_stride == 1; i += 2) {
#pragma GCC unroll 2
      for (int64_t x = 0; x < kAmxColumns; x += kFloats) {
        const auto load = [&](int64_t row) __attribute__((always_inline)) {
          return LoadSome(b + row * row_stride + j + x,
                          row < rows ? columns - j - x : 0);
        };
        Words pairs[kTerms];
        PackPairs(load(i), load(i + 1), pairs);
#pragma GCC unroll 3
        for (int p = 0; p < kTerms; ++p) {
          memcpy(panel + p * term + i * kAmxColumns + 2 * x, &pairs[p],
                 sizeof(pairs[p]));
        }
      }
    }
  }
}

template <int kTerms>
void MultiplyAmx(const AmxPack<kTerms>* a, int64_t row_packs, int64_t rows,
                 int64_t depth, const AmxPack<kTerms>* panels, int64_t columns,
                 bool add, float* c, int64_t c_stride) {
  const int64_t group = row_packs * kTerms * kTileNumbers;
  const int64_t term = depth * 2 * kTileNumbers;
  // A panel stays in the L1 cache while all rows pass.
  for (int64_t j = 0; j < columns; j += kAmxColumns) {
    const BFloat16* const b = panels[j * depth].numbers;
    if (kTerms == 1 && depth == 2 && !add) {
      MultiplyTwoPacks(a->numbers, group, rows, b, c + j, c_stride);
      continue;
    }
    for (int64_t m = 0; m < rows; m += 2 * kAmxRows) {
      const BFloat16* const at = a[m * row_packs].numbers;
      float* const to = c + m * c_stride + j;
      if (m + kAmxRows < rows) {
        MultiplyRows<kTerms, 32>(at, group, b, term, depth, add, to, c_stride);
      } else {
        MultiplyRows<kTerms, 16>(at, group, b, term, depth, add, to, c_stride);
      }
    }
  }
}

void ScaleAmxColumns(const float* factors, int64_t rows, float* numbers) {
  const FloatVector low = Load(factors), high = Load(factors + kFloats);
  const FloatVector zero = {};
  for (int64_t i = 0; i < rows; ++i, numbers += kAmxColumns) {
    Store(low == 0 ? zero : Load(numbers) * low, numbers);
    Store(high == 0 ? zero : Load(numbers + kFloats) * high, numbers + kFloats);
  }
}

#define TFO_INSTANTIATE(T, kTerms)                                            \
  template void PackAmxRows<T, kTerms>(const T*, int64_t, int64_t, int64_t,   \
                                       int64_t, int64_t, AmxPack<kTerms>*);   \
  template void PackAmxPanels<T, kTerms>(const T*, int64_t, int64_t, int64_t, \
                                         int64_t, AmxPack<kTerms>*)
TFO_INSTANTIATE(float, 1);
TFO_INSTANTIATE(float, 3);
TFO_INSTANTIATE(Half, 3);
TFO_INSTANTIATE(BFloat16, 1);
#undef TFO_INSTANTIATE
#define TFO_INSTANTIATE(kTerms)                                               \
  template void MultiplyAmx<kTerms>(const AmxPack<kTerms>*, int64_t, int64_t, \
                                    int64_t, const AmxPack<kTerms>*, int64_t, \
                                    bool, float*, int64_t)
TFO_INSTANTIATE(1);
TFO_INSTANTIATE(3);
#undef TFO_INSTANTIATE

}  // namespace cpu_avx512
}  // namespace tfo
#endif  // __AVX512F__
