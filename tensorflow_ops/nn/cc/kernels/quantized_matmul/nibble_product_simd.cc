// Products of few rows with pairs of numbers of 4 bits, where they lie.
#include "tensorflow_ops/nn/cc/kernels/quantized_matmul/integer_packs_simd.h"
#include "tensorflow_ops/nn/cc/kernels/quantized_matmul/integer_product_simd.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {
namespace {

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

}  // namespace

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

}  // namespace TFO_CPU_NAMESPACE
}  // namespace tfo
