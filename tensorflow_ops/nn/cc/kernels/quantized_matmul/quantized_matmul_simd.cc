#include "tensorflow_ops/nn/cc/kernels/quantized_matmul/quantized_matmul_simd.h"

#include "tensorflow_ops/core/cc/simd/simd.h"
#include "tensorflow_ops/nn/cc/kernels/quantized_matmul/stored_bytes_simd.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {
namespace {

// Rows that are prefetched before they are unpacked.
constexpr int kRowsAhead = 8;

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

void SubtractZeros(const uint8_t* zero, bool is_signed, const float* float_zero,
                   float offset, const float* scale, const float* x_sums,
                   int64_t groups, int64_t columns, float* sums) {
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
      if (float_zero != nullptr) {
        v += part.Load(float_zero + n * groups + at, 0);
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
