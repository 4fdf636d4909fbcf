#include "tensorflow_ops/nn/cc/kernels/quantized_matmul/direct_product_simd.h"

#include "tensorflow_ops/core/cc/simd/simd.h"
#include "tensorflow_ops/nn/cc/kernels/quantized_matmul/stored_bytes_simd.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {
namespace {

// Rows of bytes that are multiplied at a time, along all columns: more would
// leave the cache where rows are a power of two apart.
constexpr int kByteRows = 4;

// kRows rows of products += x * the bytes of up to kByteRows rows; with kPart,
// only `valid` bytes of a row may be read.
template <bool kSigned, int kRows, int kLoads, bool kPart>
TFO_INLINE void MultiplyBytes(const uint8_t* from, int64_t stride,
                              int64_t valid, const float* x, int64_t x_stride,
                              int64_t depth, float* products,
                              int64_t products_stride) {
  FloatVector sums[kRows][kLoads];
#pragma GCC unroll 4
  for (int m = 0; m < kRows; ++m) {
#pragma GCC unroll 8
    for (int i = 0; i < kLoads; ++i) {
      sums[m][i] = Load(products + m * products_stride + i * kFloats);
    }
  }
  for (int64_t k = 0; k < depth; ++k, from += stride) {
    if constexpr (!kPart) __builtin_prefetch(from + kByteRows * stride, 0, 2);
    FloatVector value[kRows];
#pragma GCC unroll 4
    for (int m = 0; m < kRows; ++m) {
      value[m] = Broadcast<FloatVector>(x[m * x_stride + k]);
    }
#pragma GCC unroll 8
    for (int i = 0; i < kLoads; ++i) {
      const FloatVector v =
          ToFloat(kPart ? WidenedFirst<kSigned>(from, valid)
                        : Widened<kSigned>(from + i * kFloats));
#pragma GCC unroll 4
      for (int m = 0; m < kRows; ++m) {
        sums[m][i] = MulAdd(value[m], v, sums[m][i]);
      }
    }
  }
#pragma GCC unroll 4
  for (int m = 0; m < kRows; ++m) {
#pragma GCC unroll 8
    for (int i = 0; i < kLoads; ++i) {
      Store(sums[m][i], products + m * products_stride + i * kFloats);
    }
  }
}

// The same with words, for the vectors of sums from kFirst on that fit the
// registers. Sums are in the order of the words, times 16^(i % 4).
template <bool kSigned, StoredPairs kPairs, int kRows, int kFirst, bool kPart>
TFO_INLINE void MultiplyWords(const uint8_t* from, int64_t stride,
                              int64_t valid, const float* x, int64_t x_stride,
                              int64_t depth, float* products,
                              int64_t products_stride) {
  constexpr bool kAlong = kPairs == StoredPairs::kAlong;
  constexpr int kFit = 8 / (kRows == 3 ? 4 : kRows);
  constexpr int kCount =
      kFit < kWordVectors<kPairs> ? kFit : kWordVectors<kPairs>;
  FloatVector sums[kRows][kCount];
#pragma GCC unroll 4
  for (int m = 0; m < kRows; ++m) {
#pragma GCC unroll 8
    for (int i = 0; i < kCount; ++i) {
      sums[m][i] =
          Load(products + m * products_stride + (kFirst + i) * kFloats);
    }
  }
  const auto load = [&] {
    return kPart ? LoadFirstWords<kSigned>(from, valid)
                 : LoadWords<kSigned>(from);
  };
  for (int64_t k = 0; k < depth; k += kAlong ? 1 : 2, from += stride) {
    if constexpr (!kPart && kFirst == 0) {
      __builtin_prefetch(from + kByteRows * stride, 0, 2);
    }
    const Bits32 words = load();
    FloatVector value[kRows], second[kRows];
#pragma GCC unroll 4
    for (int m = 0; m < kRows; ++m) {
      const float* const at = x + m * x_stride + k;
      value[m] = Broadcast<FloatVector>(at[0]);
      if constexpr (!kAlong) {
        // The number after is 16 times as large.
        second[m] =
            Broadcast<FloatVector>(k + 1 < depth ? at[1] * 0.0625f : 0.0f);
      }
    }
    ForConstants<0, kCount>([&](auto index) {
      constexpr int kI = decltype(index)::kValue;
      constexpr int kNumber = (kFirst + kI) * (kAlong ? 1 : 2);
      const FloatVector v = NumberOf<kNumber>(words);
#pragma GCC unroll 4
      for (int m = 0; m < kRows; ++m) {
        sums[m][kI] = MulAdd(value[m], v, sums[m][kI]);
      }
      if constexpr (!kAlong) {
        const FloatVector next = NumberOf<kNumber + 1>(words);
#pragma GCC unroll 4
        for (int m = 0; m < kRows; ++m) {
          sums[m][kI] = MulAdd(second[m], next, sums[m][kI]);
        }
      }
    });
  }
#pragma GCC unroll 4
  for (int m = 0; m < kRows; ++m) {
#pragma GCC unroll 8
    for (int i = 0; i < kCount; ++i) {
      Store(sums[m][i],
            products + m * products_stride + (kFirst + i) * kFloats);
    }
  }
  if constexpr (kFirst + kCount < kWordVectors<kPairs>) {
    from -= (depth + (kAlong ? 0 : 1)) / (kAlong ? 1 : 2) * stride;
    MultiplyWords<kSigned, kPairs, kRows, kFirst + kCount, kPart>(
        from, stride, valid, x, x_stride, depth, products, products_stride);
  }
}

template <bool kSigned, StoredPairs kPairs, int kRows>
TFO_INLINE void MultiplyStrips(const uint8_t* from, int64_t stride,
                               const float* x, int64_t x_stride, int64_t depth,
                               int64_t columns, float* products,
                               int64_t products_stride) {
  constexpr bool kBytes = kPairs == StoredPairs::kNone;
  constexpr int kDepth =
      kPairs == StoredPairs::kAcross ? 2 * kByteRows : kByteRows;
  constexpr int kPerByte = kPairs == StoredPairs::kAlong ? 2 : 1;
  constexpr int kLoads = 8 / (kRows == 3 ? 4 : kRows);
  // Columns of a vector of bytes or words.
  constexpr int kOne = kBytes ? kFloats : kWordBytes * kPerByte;
  const int64_t padded = (columns + kOne - 1) / kOne * kOne;
  for (int m = 0; m < kRows; ++m) {
    memset(products + m * products_stride, 0, padded * sizeof(float));
  }
  for (int64_t k = 0; k < depth; k += kDepth) {
    const int64_t count = depth - k < kDepth ? depth - k : kDepth;
    const auto run = [&](auto loads, auto part, int64_t at) {
      constexpr bool kPart = decltype(part)::kValue;
      const uint8_t* const bytes = from + at / kPerByte;
      const int64_t valid = (columns - at + kPerByte - 1) / kPerByte;
      if constexpr (kBytes) {
        MultiplyBytes<kSigned, kRows, decltype(loads)::kValue, kPart>(
            bytes, stride, valid, x + k, x_stride, count, products + at,
            products_stride);
      } else {
        MultiplyWords<kSigned, kPairs, kRows, 0, kPart>(
            bytes, stride, valid, x + k, x_stride, count, products + at,
            products_stride);
      }
    };
    int64_t at = 0;
    if constexpr (kBytes) {
      for (; at + kLoads * kOne <= columns; at += kLoads * kOne) {
        run(Constant<kLoads>(), Constant<0>(), at);
      }
    }
    for (; at + kOne <= columns; at += kOne) {
      run(Constant<1>(), Constant<0>(), at);
    }
    if (at < columns) run(Constant<1>(), Constant<1>(), at);
    from += kByteRows * stride;
  }
  if constexpr (!kBytes) {
    for (int m = 0; m < kRows; ++m) {
      OrderSums<kPairs>(columns, products + m * products_stride);
    }
  }
}

// Columns whose sums fit the registers and hide the latency of multiply-adds.
template <StoredPairs kPairs, int kRows>
constexpr int DotColumns() {
  if (kPairs == StoredPairs::kAlong) return kRows <= 2 ? 4 : 2;
  if (kPairs == StoredPairs::kAcross) return kRows == 1 ? 4 : 2;
  return 8 / (kRows == 3 ? 4 : kRows);
}

// Sums of kRows rows of x with kColumns columns of W.
template <bool kSigned, StoredPairs kPairs, int kRows>
TFO_INLINE void DotTile(const StoredBytes& bytes, int64_t column,
                        int64_t columns, const float* x, int64_t x_stride,
                        const DepthBlock* blocks, int64_t num_blocks,
                        const float* scale, int64_t groups, float* to,
                        int64_t to_stride) {
  constexpr bool kBytes = kPairs == StoredPairs::kNone;
  constexpr int kColumns = DotColumns<kPairs, kRows>();
  constexpr bool kAcross = kPairs == StoredPairs::kAcross;
  constexpr int kPerByte = kPairs == StoredPairs::kAlong ? 2 : 1;
  // Bytes of a step.
  constexpr int kStep = kBytes ? kFloats : kWordBytes;
  constexpr int kRowsOfBytes = kAcross ? kColumns / 2 : kColumns;
  const uint8_t* rows[kRowsOfBytes];
  const float* scales[kColumns];
  for (int i = 0; i < kColumns; ++i) {
    // Columns beyond the last repeat it.
    const int64_t of = column + (i < columns ? i : columns - 1);
    if constexpr (kAcross) {
      rows[i / 2] = bytes.data + of / 2 * bytes.stride;
    } else {
      rows[i] = bytes.data + of * bytes.stride;
    }
    scales[i] = scale + of * groups;
  }
  FloatVector totals[kRows][kColumns] = {};
  for (int64_t b = 0; b < num_blocks; ++b, x += kBlockDepth) {
    FloatVector sums[kRows][kColumns] = {};
    const int64_t offset = blocks[b].begin / kPerByte;
    const int64_t depth = (blocks[b].depth + kPerByte - 1) / kPerByte;
    const auto step = [&](int64_t k,
                          const auto& load) __attribute__((always_inline)) {
#pragma GCC unroll 8
      for (int i = 0; i < kRowsOfBytes; ++i) {
        const auto v = load(rows[i] + offset + k);
        if constexpr (kBytes) {
          const FloatVector w = ToFloat(v);
#pragma GCC unroll 4
          for (int m = 0; m < kRows; ++m) {
            sums[m][i] = MulAdd(Load(x + m * x_stride + k), w, sums[m][i]);
          }
        } else {
          // Loads x again for each row: compilers would spill it.
          const float* values = x + k * kPerByte;
          asm("" : "+r"(values));
          ForConstants<0, 8>([&](auto index) {
            constexpr int kI = decltype(index)::kValue;
            const FloatVector w = NumberOf<kI>(v);
#pragma GCC unroll 4
            for (int m = 0; m < kRows; ++m) {
              const float* const at = values + m * x_stride;
              const FloatVector value =
                  Load(at + (kAcross ? kI / 2 : kI) * kFloats);
              const int n = kAcross ? 2 * i + kI % 2 : i;
              sums[m][n] = MulAdd(value, w, sums[m][n]);
            }
          });
        }
      }
    };
    const auto whole = [](const uint8_t* from) {
      if constexpr (kBytes) {
        return Widened<kSigned>(from);
      } else {
        return LoadWords<kSigned>(from);
      }
    };
    int64_t k = 0;
    for (; k + kStep <= depth; k += kStep) step(k, whole);
    if (k < depth) {
      // x is zero beyond the block, where bytes may be another block's or
      // row's.
      step(k, [&](const uint8_t* from) {
        const int64_t left = bytes.end - from;
        if (left >= kStep) return whole(from);
        if constexpr (kBytes) {
          return WidenedFirst<kSigned>(from, left);
        } else {
          return LoadFirstWords<kSigned>(from, left);
        }
      });
    }
#pragma GCC unroll 4
    for (int m = 0; m < kRows; ++m) {
#pragma GCC unroll 8
      for (int i = 0; i < kColumns; ++i) {
        // x is for the low numbers of bytes; the high are 16 times as large.
        if (kAcross && i % 2 == 1) {
          sums[m][i] *= Broadcast<FloatVector>(0.0625f);
        }
        if (scale != nullptr) {
          totals[m][i] = MulAdd(
              sums[m][i], Broadcast<FloatVector>(scales[i][blocks[b].group]),
              totals[m][i]);
        } else {
          totals[m][i] += sums[m][i];
        }
      }
    }
  }
  for (int m = 0; m < kRows; ++m) {
    for (int i = 0; i < kColumns && i < columns; ++i) {
      to[m * to_stride + i] = SumLanes(totals[m][i]);
    }
  }
}

}  // namespace

void MultiplyStoredRows(const StoredBytes& bytes, int64_t row, int64_t column,
                        const float* x, int64_t x_stride, int64_t rows,
                        int64_t depth, int64_t columns, float* products,
                        int64_t products_stride) {
  ForFormat(bytes, [&](auto is_signed, auto pairs) {
    constexpr bool kSigned = decltype(is_signed)::kValue;
    constexpr auto kPairs = static_cast<StoredPairs>(decltype(pairs)::kValue);
    const uint8_t* const from =
        bytes.data +
        (kPairs == StoredPairs::kAcross ? row / 2 : row) * bytes.stride +
        (kPairs == StoredPairs::kAlong ? column / 2 : column);
    const auto run = [&](auto count) {
      MultiplyStrips<kSigned, kPairs, decltype(count)::kValue>(
          from, bytes.stride, x, x_stride, depth, columns, products,
          products_stride);
    };
    if (rows == 1) run(Constant<1>());
    if (rows == 2) run(Constant<2>());
    if (rows == 3) run(Constant<3>());
    if (rows == 4) run(Constant<4>());
  });
}

void DotStoredRows(const StoredBytes& bytes, int64_t column, const float* x,
                   int64_t x_stride, int64_t rows, int64_t columns,
                   const DepthBlock* blocks, int64_t num_blocks,
                   const float* scale, int64_t groups, float* sums,
                   int64_t sums_stride) {
  ForFormat(bytes, [&](auto is_signed, auto pairs) {
    constexpr bool kSigned = decltype(is_signed)::kValue;
    constexpr auto kPairs = static_cast<StoredPairs>(decltype(pairs)::kValue);
    const auto run = [&](auto count) {
      constexpr int kRows = decltype(count)::kValue;
      constexpr int kColumns = DotColumns<kPairs, kRows>();
      for (int64_t at = 0; at < columns; at += kColumns) {
        DotTile<kSigned, kPairs, kRows>(bytes, column + at, columns - at, x,
                                        x_stride, blocks, num_blocks, scale,
                                        groups, sums + at, sums_stride);
      }
    };
    if (rows == 1) run(Constant<1>());
    if (rows == 2) run(Constant<2>());
    if (rows == 3) run(Constant<3>());
    if (rows == 4) run(Constant<4>());
  });
}

}  // namespace TFO_CPU_NAMESPACE
}  // namespace tfo
