#include "tensorflow_ops/nn/cc/kernels/quantized_matmul/quantized_matmul_simd.h"

#include "tensorflow_ops/core/cc/simd.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {
namespace {

typedef uint8_t ByteVector __attribute__((vector_size(kFloats)));

// One vector of bytes, as integers.
template <bool kSigned>
TFO_INLINE IntVector Widened(const uint8_t* from) {
#if defined(__AVX512F__)
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  return reinterpret_cast<IntVector>(kSigned ? _mm512_cvtepi8_epi32(bytes)
                                             : _mm512_cvtepu8_epi32(bytes));
#elif defined(__AVX2__)
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from));
  return reinterpret_cast<IntVector>(kSigned ? _mm256_cvtepi8_epi32(bytes)
                                             : _mm256_cvtepu8_epi32(bytes));
#else
  ByteVector bytes;
  memcpy(&bytes, from, sizeof(bytes));
  if constexpr (kSigned) {
    typedef int8_t Signed __attribute__((vector_size(kFloats)));
    return __builtin_convertvector(reinterpret_cast<Signed>(bytes), IntVector);
  } else {
    return __builtin_convertvector(bytes, IntVector);
  }
#endif
}

TFO_INLINE FloatVector ToFloat(IntVector v) {
  return __builtin_convertvector(v, FloatVector);
}

// The same, of the first n bytes only.
template <bool kSigned>
TFO_INLINE IntVector WidenedFirst(const uint8_t* from, int64_t n) {
  uint8_t padded[kFloats] = {};
  memcpy(padded, from, n < kFloats ? n : kFloats);
  return Widened<kSigned>(padded);
}

// The raw numbers of the low and the high halves of bytes. Signed ones are
// stored as two's complements: flipping bit 3 adds 8.
struct Halves {
  FloatVector low, high;
};
template <bool kSigned>
TFO_INLINE Halves HalvesOf(IntVector bytes) {
  if constexpr (kSigned) bytes ^= 0x88;
  return {ToFloat(bytes & 15), ToFloat(bytes >> 4)};
}

// Calls body with the bytes' format as constants.
template <typename Body>
TFO_INLINE void ForFormat(const StoredBytes& bytes, const Body& body) {
  const auto with_sign = [&](auto is_signed) {
    switch (bytes.pairs) {
      case StoredPairs::kNone:
        return body(is_signed,
                    Constant<static_cast<int>(StoredPairs::kNone)>());
      case StoredPairs::kAlong:
        return body(is_signed,
                    Constant<static_cast<int>(StoredPairs::kAlong)>());
      case StoredPairs::kAcross:
        return body(is_signed,
                    Constant<static_cast<int>(StoredPairs::kAcross)>());
    }
  };
  if (bytes.is_signed) {
    with_sign(Constant<1>());
  } else {
    with_sign(Constant<0>());
  }
}

// A vector of words of eight numbers of 4 bits. Signed ones are stored as two's
// complements: flipping bit 3 adds 8.
constexpr int kWordBytes = kVectorBytes;
template <bool kSigned>
TFO_INLINE Bits32 LoadWords(const uint8_t* from) {
  Bits32 words;
  memcpy(&words, from, sizeof(words));
  return kSigned ? words ^ 0x88888888u : words;
}
// The same, of the first n < kWordBytes bytes only.
template <bool kSigned>
TFO_INLINE Bits32 LoadFirstWords(const uint8_t* from, int64_t n) {
  uint8_t padded[kWordBytes] = {};
  memcpy(padded, from, n);
  return LoadWords<kSigned>(padded);
}

// Number kIndex of each word, times 16^(kIndex % 4): masks and conversions are
// cheaper with fewer shifts.
constexpr float PowerOf(int index) {
  return static_cast<float>(1 << 4 * (index % 4));
}
template <int kIndex>
TFO_INLINE FloatVector NumberOf(Bits32 words) {
  const Bits32 half = kIndex < 4 ? words : words >> 16;
  return ToFloat(reinterpret_cast<IntVector>(half & (15u << 4 * (kIndex % 4))));
}

// Calls body(Constant<i>) for i from kFirst to kFirst + kCount - 1.
template <int kFirst, int kCount, typename Body>
TFO_INLINE void ForConstants(const Body& body) {
  if constexpr (kCount > 0) {
    body(Constant<kFirst>());
    ForConstants<kFirst + 1, kCount - 1>(body);
  }
}

// Rows that are prefetched before they are unpacked.
constexpr int kRowsAhead = 8;

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

// Lane i of vector j moves to place i * kVectors + j of all lanes; kVectors is
// a power of two. Transpose does so with as many vectors as lanes.
template <int kVectors, typename V>
TFO_INLINE void InterleaveAll(V* v) {
#pragma GCC unroll 4
  for (int step = 1; step < kVectors; step *= 2) {
    V next[kVectors];
#pragma GCC unroll 8
    for (int i = 0; i < kVectors / 2; ++i) {
      next[2 * i] = InterleaveLow(v[i], v[i + kVectors / 2]);
      next[2 * i + 1] = InterleaveHigh(v[i], v[i + kVectors / 2]);
    }
#pragma GCC unroll 8
    for (int i = 0; i < kVectors; ++i) v[i] = next[i];
  }
}

// Vectors of sums that a vector of words has: of columns i, i + 8, ... or,
// where neighbors are of the depth, of columns i, i + 4, ...
template <StoredPairs kPairs>
constexpr int kWordVectors = kPairs == StoredPairs::kAlong ? 8 : 4;

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

// Puts n sums in the order of columns.
template <StoredPairs kPairs>
TFO_INLINE void OrderSums(int64_t n, float* products) {
  constexpr int kCount = kWordVectors<kPairs>;
  for (int64_t at = 0; at < n;
       at += kCount * kFloats, products += kCount * kFloats) {
    FloatVector v[kCount];
    ForConstants<0, kCount>([&](auto index) {
      constexpr int kI = decltype(index)::kValue;
      constexpr float kScale =
          1 / PowerOf(kI * (kPairs == StoredPairs::kAlong ? 1 : 2));
      v[kI] = Load(products + kI * kFloats) * Broadcast<FloatVector>(kScale);
    });
    InterleaveAll<kCount>(v);
#pragma GCC unroll 8
    for (int i = 0; i < kCount; ++i) Store(v[i], products + i * kFloats);
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
template <bool kSigned, StoredPairs kPairs, bool kExact, int kRows>
TFO_INLINE void DotTile(const StoredBytes& bytes, int64_t column,
                        int64_t columns, const float* x, int64_t x_stride,
                        const DepthBlock* blocks, int64_t num_blocks,
                        const float* scale, int64_t groups, void* to,
                        int64_t to_stride) {
  constexpr bool kBytes = kPairs == StoredPairs::kNone;
  constexpr int kColumns = DotColumns<kPairs, kRows>();
  constexpr bool kAcross = kPairs == StoredPairs::kAcross;
  constexpr int kPerByte = kPairs == StoredPairs::kAlong ? 2 : 1;
  // Bytes of a step.
  constexpr int kStep = kBytes ? kFloats : kWordBytes;
  constexpr int kRowsOfBytes = kAcross ? kColumns / 2 : kColumns;
  // Unsigned, so that overflow is defined.
  using Total = std::conditional_t<kExact, Bits32, FloatVector>;
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
  Total totals[kRows][kColumns] = {};
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
        if constexpr (kExact) {
          totals[m][i] += reinterpret_cast<Bits32>(
              __builtin_convertvector(sums[m][i], IntVector));
        } else if (scale != nullptr) {
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
      const auto sum = SumLanes(totals[m][i]);
      memcpy(static_cast<char*>(to) + 4 * (m * to_stride + i), &sum, 4);
    }
  }
}

}  // namespace

void UnpackRow(const StoredBytes& bytes, int64_t row, int64_t first,
               int64_t count, float* raw) {
  ForFormat(bytes, [&](auto is_signed, auto pairs) {
    constexpr bool kSigned = decltype(is_signed)::kValue;
    constexpr auto kPairs = static_cast<StoredPairs>(decltype(pairs)::kValue);
    constexpr bool kExtend = kSigned && kPairs == StoredPairs::kNone;
    constexpr int kPerByte = kPairs == StoredPairs::kAlong ? 2 : 1;
    const uint8_t* const from =
        bytes.data +
        (kPairs == StoredPairs::kAcross ? row / 2 : row) * bytes.stride +
        first / kPerByte;
    const bool is_high = kPairs == StoredPairs::kAcross && row % 2 == 1;
    const int64_t n = (count + kPerByte - 1) / kPerByte;
    // Rows may be pages apart, where processors do not prefetch.
    for (int64_t i = 0; i < n; i += 64) {
      __builtin_prefetch(from + kRowsAhead * bytes.stride + i);
    }
    for (int64_t i = 0; i < n; i += kFloats) {
      const IntVector v = i + kFloats <= n
                              ? Widened<kExtend>(from + i)
                              : WidenedFirst<kExtend>(from + i, n - i);
      if constexpr (kPairs == StoredPairs::kNone) {
        Store(ToFloat(v), raw + i);
      } else {
        const Halves halves = HalvesOf<kSigned>(v);
        if constexpr (kPairs == StoredPairs::kAlong) {
          Store(InterleaveLow(halves.low, halves.high), raw + 2 * i);
          Store(InterleaveHigh(halves.low, halves.high), raw + 2 * i + kFloats);
        } else {
          Store(is_high ? halves.high : halves.low, raw + i);
        }
      }
    }
  });
}

template <typename C>
void ScaleRow(const float* raw, const C* zero, const C* scale, int64_t count,
              int64_t panel, int64_t panel_stride, C* to) {
  typedef float Raw __attribute__((vector_size(4 * Lanes<C>::kCount)));
  int64_t in_panel = 0;
  ForVectors<C>(count, [&](auto part, int64_t at) {
    Raw bits;
    memcpy(&bits, raw + at, sizeof(bits));
    auto v = __builtin_convertvector(bits, typename Lanes<C>::Vector) -
             part.Load(zero + at, 0);
    if (scale != nullptr) v *= part.Load(scale + at, 0);
    if (in_panel == panel) {
      in_panel = 0;
      to += panel_stride;
    }
    Store(v, to + in_panel);
    in_panel += Lanes<C>::kCount;
  });
}

int64_t WordColumns(StoredPairs pairs) {
  return pairs == StoredPairs::kNone     ? 2 * kFloats
         : pairs == StoredPairs::kAcross ? kWordBytes
                                         : 2 * kWordBytes;
}

void UnpackPanels(const StoredBytes& bytes, int64_t row, int64_t column,
                  int64_t depth, int64_t columns, float* panels) {
  constexpr int kPanel = 2 * kFloats;
  ForFormat(bytes, [&](auto is_signed, auto pairs) {
    constexpr bool kSigned = decltype(is_signed)::kValue;
    constexpr auto kPairs = static_cast<StoredPairs>(decltype(pairs)::kValue);
    constexpr bool kAcross = kPairs == StoredPairs::kAcross;
    constexpr int kPerByte = kPairs == StoredPairs::kAlong ? 2 : 1;
    constexpr int kColumns =
        kPairs == StoredPairs::kNone ? kPanel : kWordBytes * kPerByte;
    const uint8_t* from = bytes.data +
                          (kAcross ? row / 2 : row) * bytes.stride +
                          column / kPerByte;
    const int64_t ahead = kRowsAhead * bytes.stride;
    for (int64_t k = 0; k < depth; k += kAcross ? 2 : 1, from += bytes.stride) {
      for (int64_t at = 0; at < columns; at += kColumns) {
        const uint8_t* const here = from + at / kPerByte;
        const int64_t valid = (columns - at + kPerByte - 1) / kPerByte;
        float* const to = panels + at * depth + k * kPanel;
        // Rows may be pages apart, where processors do not prefetch.
        __builtin_prefetch(here + ahead);
        if constexpr (kPairs == StoredPairs::kNone) {
          const bool whole = valid >= kPanel;
#pragma GCC unroll 2
          for (int i = 0; i < kPanel; i += kFloats) {
            Store(
                ToFloat(whole       ? Widened<kSigned>(here + i)
                        : valid > i ? WidenedFirst<kSigned>(here + i, valid - i)
                                    : IntVector{}),
                to + i);
          }
        } else {
          const Bits32 words = valid < kWordBytes
                                   ? LoadFirstWords<kSigned>(here, valid)
                                   : LoadWords<kSigned>(here);
          ForConstants<0, 8>([&](auto index) {
            constexpr int kI = decltype(index)::kValue;
            // The sum that it is in; numbers of a sum have one factor.
            constexpr int kSum = kAcross ? kI / 2 : kI;
            float* const place =
                to + kSum / 2 * depth * kPanel + kSum % 2 * kFloats;
            if constexpr (kAcross && kI % 2 == 1) {
              Store(NumberOf<kI - 1>(words >> 4), place + kPanel);
            } else {
              Store(NumberOf<kI>(words), place);
            }
          });
        }
      }
    }
  });
}

void OrderProducts(StoredPairs pairs, int64_t columns, float* products) {
  if (pairs == StoredPairs::kAlong) {
    OrderSums<StoredPairs::kAlong>(columns, products);
  } else if (pairs == StoredPairs::kAcross) {
    OrderSums<StoredPairs::kAcross>(columns, products);
  }
}

void ArrangeBlock(StoredPairs pairs, const float* x, int64_t depth, float* to) {
  if (pairs == StoredPairs::kNone) {
    memcpy(to, x, depth * sizeof(float));
    return;
  }
  // Of a vector of words.
  const int per_word = pairs == StoredPairs::kAlong ? 8 : 4;
  for (int64_t k = 0; k < depth; ++k) {
    const int64_t in_word = k % per_word;
    const int64_t word = k / per_word % kFloats;
    const int64_t number = pairs == StoredPairs::kAlong ? in_word : 2 * in_word;
    to[k / (per_word * kFloats) * (per_word * kFloats) + in_word * kFloats +
       word] = x[k] / PowerOf(static_cast<int>(number));
  }
}

int64_t UnpackArranged(const StoredBytes& bytes, int64_t row, int64_t first,
                       int64_t depth, float* to) {
  int64_t written = 0;
  ForFormat(bytes, [&](auto is_signed, auto pairs) {
    constexpr bool kSigned = decltype(is_signed)::kValue;
    constexpr auto kPairs = static_cast<StoredPairs>(decltype(pairs)::kValue);
    constexpr bool kAcross = kPairs == StoredPairs::kAcross;
    constexpr int kPerByte = kPairs == StoredPairs::kAlong ? 2 : 1;
    constexpr int kStep = kPairs == StoredPairs::kNone ? kFloats : kWordBytes;
    const uint8_t* from = bytes.data +
                          (kAcross ? row / 2 : row) * bytes.stride +
                          first / kPerByte;
    const int shift = kAcross && row % 2 == 1 ? 4 : 0;
    for (; written < depth; written += kStep * kPerByte, from += kStep) {
      const int64_t left = bytes.end - from;
      float* const at = to + written;
      if constexpr (kPairs == StoredPairs::kNone) {
        Store(ToFloat(left < kStep ? WidenedFirst<kSigned>(from, left)
                                   : Widened<kSigned>(from)),
              at);
      } else {
        const Bits32 words = (left < kStep ? LoadFirstWords<kSigned>(from, left)
                                           : LoadWords<kSigned>(from)) >>
                             shift;
        ForConstants<0, kAcross ? 4 : 8>([&](auto index) {
          constexpr int kI = decltype(index)::kValue;
          Store(NumberOf<kAcross ? 2 * kI : kI>(words), at + kI * kFloats);
        });
      }
    }
  });
  return written;
}

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
                   const float* scale, int64_t groups, bool exact, void* sums,
                   int64_t sums_stride) {
  ForFormat(bytes, [&](auto is_signed, auto pairs) {
    constexpr bool kSigned = decltype(is_signed)::kValue;
    constexpr auto kPairs = static_cast<StoredPairs>(decltype(pairs)::kValue);
    const auto run = [&](auto count, auto is_exact) {
      constexpr int kRows = decltype(count)::kValue;
      constexpr int kColumns = DotColumns<kPairs, kRows>();
      for (int64_t at = 0; at < columns; at += kColumns) {
        DotTile<kSigned, kPairs, decltype(is_exact)::kValue, kRows>(
            bytes, column + at, columns - at, x, x_stride, blocks, num_blocks,
            scale, groups, static_cast<char*>(sums) + 4 * at, sums_stride);
      }
    };
    const auto with_rows = [&](auto is_exact) {
      if (rows == 1) run(Constant<1>(), is_exact);
      if (rows == 2) run(Constant<2>(), is_exact);
      if (rows == 3) run(Constant<3>(), is_exact);
      if (rows == 4) run(Constant<4>(), is_exact);
    };
    if (exact) {
      with_rows(Constant<1>());
    } else {
      with_rows(Constant<0>());
    }
  });
}

void AddProducts(const float* products, const float* zero, float x_sum,
                 const float* scale, int64_t n, float* sums) {
  const FloatVector x = Broadcast<FloatVector>(-x_sum);
  ForVectors<float>(n, [&](auto part, int64_t at) {
    FloatVector v = part.Load(products + at, 0);
    if (zero != nullptr) v = MulAdd(part.Load(zero + at, 0), x, v);
    const FloatVector sum = part.Load(sums + at, 0);
    part.Store(
        scale != nullptr ? MulAdd(v, part.Load(scale + at, 0), sum) : sum + v,
        sums + at);
  });
}

void AddIntegers(const float* products, const float* zero, float x_sum,
                 int64_t n, int32_t* sums) {
  for (int64_t i = 0; i < n; ++i) {
    const float v =
        zero != nullptr ? products[i] - zero[i] * x_sum : products[i];
    // Unsigned, so that overflow is defined.
    sums[i] =
        static_cast<int32_t>(static_cast<uint32_t>(sums[i]) +
                             static_cast<uint32_t>(static_cast<int32_t>(v)));
  }
}

void SubtractZeros(const uint8_t* zero, bool is_signed, float offset,
                   const float* scale, const float* x_sums, int64_t groups,
                   int64_t columns, float* sums) {
  for (int64_t n = 0; n < columns; ++n, scale += groups) {
    FloatVector sum = {};
    ForVectors<float>(groups, [&](auto part, int64_t at) {
      FloatVector v = Broadcast<FloatVector>(offset);
      if (zero != nullptr) {
        const uint8_t* const from = zero + n * groups + at;
        if constexpr (std::is_same_v<decltype(part), Whole<float>>) {
          v += ToFloat(is_signed ? Widened<true>(from) : Widened<false>(from));
        } else {
          v += ToFloat(is_signed ? WidenedFirst<true>(from, part.n)
                                 : WidenedFirst<false>(from, part.n));
        }
      }
      sum =
          MulAdd(part.Load(scale + at, 0) * v, part.Load(x_sums + at, 0), sum);
    });
    sums[n] -= SumLanes(sum);
  }
}

#define TFO_INSTANTIATE(C)                                             \
  template void ScaleRow<C>(const float*, const C*, const C*, int64_t, \
                            int64_t, int64_t, C*)
TFO_INSTANTIATE(float);
TFO_INSTANTIATE(double);
#undef TFO_INSTANTIATE

}  // namespace TFO_CPU_NAMESPACE
}  // namespace tfo
