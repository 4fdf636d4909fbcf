#include "tensorflow_ops/nn/cc/kernels/quantized_matmul/integer_product_simd.h"

#include "tensorflow_ops/core/cc/gemm_simd.h"
#include "tensorflow_ops/nn/cc/kernels/quantized_matmul/integer_packs_simd.h"
#ifdef __AVX512F__
#include "tensorflow_ops/core/cc/amx_tiles_simd.h"
#endif

namespace tfo {
namespace TFO_CPU_NAMESPACE {
namespace {

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

// kCount rows of c += packs * four stored rows. Lanes of vectors have a byte of
// each, in Zip's order; with kAlong, sums of low numbers come before those of
// high ones.
template <StoredPairs kPairs, int kCount>
TFO_INLINE void MultiplyNibbleRows(const IntegerPack<4>* a, int64_t a_stride,
                                   const int8_t* weights, int64_t stride,
                                   uint8_t flip, int64_t columns, int32_t* c,
                                   int64_t c_stride) {
  constexpr bool kAlong = kPairs == StoredPairs::kAlong;
  constexpr int kColumns = kVectorBytes * (kAlong ? 2 : 1);
  constexpr int kPacks = kAlong ? 1 : 2;
  IntVector x[kCount][kPacks];
  for (int m = 0; m < kCount; ++m) {
    for (int p = 0; p < kPacks; ++p) {
      x[m][p] = BroadcastPack(a + m * a_stride + p);
    }
  }
  for (int64_t j = 0; j < columns; j += kColumns, weights += kVectorBytes) {
    PrefetchRows<4>(weights, stride, j / (kColumns / kVectorBytes));
    Shorts pairs[2][2];
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) {
      const auto load = [&](int row) {
        return LoadAs<WideBytes>(weights + row * stride) ^
               static_cast<int8_t>(flip);
      };
      const WideBytes first = load(2 * i), second = load(2 * i + 1);
      pairs[0][i] = reinterpret_cast<Shorts>(Zip(first, second));
      pairs[1][i] = reinterpret_cast<Shorts>(ZipHigh(first, second));
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const Shorts* const p = pairs[i / 2];
      const auto bytes = reinterpret_cast<Bits32>(
          i % 2 == 0 ? Zip(p[0], p[1]) : ZipHigh(p[0], p[1]));
      const auto low = reinterpret_cast<IntVector>(LowNibbles(bytes));
      const auto high = reinterpret_cast<IntVector>(HighNibbles(bytes));
#pragma GCC unroll 4
      for (int m = 0; m < kCount; ++m) {
        int32_t* const to = c + m * c_stride + j + i * (kColumns / 4);
        const auto sum = LoadAs<Bits32>(to);
        if constexpr (kAlong) {
          StoreAs(AddNeighbors(MultiplyNibbles(x[m][0], low), sum), to);
          StoreAs(AddNeighbors(MultiplyNibbles(x[m][0], high),
                               LoadAs<Bits32>(to + kFloats)),
                  to + kFloats);
        } else {
          StoreAs(MulAddNibbles(x[m][0], low, x[m][1], high, sum), to);
        }
      }
    }
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
void PackIntegerPanels(const int8_t* weights, int64_t stride, bool along,
                       int64_t depth, int64_t columns, PackOf<kLoop>* panels) {
  constexpr int kNumbers = kNumbersOf<kLoop>;
  constexpr int kColumns = 2 * kFloats;
  const int64_t packs = (depth + kNumbers - 1) / kNumbers;
  for (int64_t k = 0; k < packs && !along; ++k) {
    for (int64_t j = 0; j < columns; j += kColumns) {
      const int8_t* const from = weights + k * kNumbers * stride + j;
      PrefetchRows<kNumbers>(from, stride, j);
      IntVector v[2];
      PacksAcross<kLoop>(from, stride, v);
      StoreAs(v[0], panels + j * packs + k * kColumns);
      StoreAs(v[1], panels + j * packs + k * kColumns + kFloats);
    }
  }
  for (int64_t j = 0; j < columns && along; j += kFloats) {
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

void MultiplyFewNibbles(const IntegerPack<4>* a, int64_t a_stride, int64_t rows,
                        int64_t depth, const int8_t* weights, int64_t stride,
                        uint8_t flip, StoredPairs pairs, int64_t columns,
                        int32_t* c, int64_t c_stride) {
  const auto multiply = [&](auto of_pairs) {
    constexpr auto kPairs =
        static_cast<StoredPairs>(decltype(of_pairs)::kValue);
    constexpr int kPacks = kPairs == StoredPairs::kAlong ? 1 : 2;
    for (int64_t k = 0; k < depth; k += kPacks, weights += 4 * stride) {
      ForFewRows(rows, [&](auto count, int64_t m) {
        MultiplyNibbleRows<kPairs, decltype(count)::kValue>(
            a + m * a_stride + k, a_stride, weights, stride, flip, columns,
            c + m * c_stride, c_stride);
      });
    }
  };
  if (pairs == StoredPairs::kAlong) {
    multiply(Constant<static_cast<int>(StoredPairs::kAlong)>());
  } else {
    multiply(Constant<static_cast<int>(StoredPairs::kAcross)>());
  }
}

void OrderIntegers(const int32_t* c, int64_t n, StoredPairs pairs,
                   int32_t* to) {
  typedef int32_t Quad __attribute__((vector_size(16)));
  const bool along = pairs == StoredPairs::kAlong;
  constexpr int kParts = kVectorBytes / 16;
  const int columns = kVectorBytes * (along ? 2 : 1);
  for (int64_t j = 0; j < n; j += columns, c += columns, to += columns) {
    for (int i = 0; i < 4; ++i) {
      for (int part = 0; part < kParts; ++part) {
        const int32_t* const from = c + i * (columns / 4) + 4 * part;
        int32_t* const at = to + (4 * part + i) * (along ? 8 : 4);
        const auto low = LoadAs<Quad>(from);
        if (along) {
          const auto high = LoadAs<Quad>(from + kFloats);
          StoreAs(InterleaveLow(low, high), at);
          StoreAs(InterleaveHigh(low, high), at + 4);
        } else {
          StoreAs(low, at);
        }
      }
    }
  }
}

void DotNibbles(const IntegerPack<4>* a, int64_t a_stride, int64_t rows,
                int64_t depth, const int8_t* weights, int64_t stride,
                uint8_t flip, int64_t columns, int32_t* c, int64_t c_stride) {
  const auto load = [&](int64_t n, int64_t k, IntVector* to) {
    const int8_t* const from = weights + n * stride + 2 * k;
    __builtin_prefetch(from + kBytesAhead);
    const auto v = reinterpret_cast<Bits32>(LoadAs<WideBytes>(from) ^
                                            static_cast<int8_t>(flip));
    const auto low = reinterpret_cast<WideBytes>(LowNibbles(v));
    const auto high = reinterpret_cast<WideBytes>(HighNibbles(v));
    to[0] = reinterpret_cast<IntVector>(InterleaveLow(low, high));
    to[1] = reinterpret_cast<IntVector>(InterleaveHigh(low, high));
  };
  ForFewRows(rows, [&](auto count, int64_t m) {
    DotRows<IntegerLoop::kNibbles, decltype(count)::kValue>(
        a + m * a_stride, a_stride, depth, columns, load, c + m * c_stride,
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
