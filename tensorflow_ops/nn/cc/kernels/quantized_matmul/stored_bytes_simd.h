// Loads of StoredBytes, and the order of sums of their numbers.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_QUANTIZED_MATMUL_STORED_BYTES_SIMD_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_QUANTIZED_MATMUL_STORED_BYTES_SIMD_H_

#include "tensorflow_ops/core/cc/simd/simd.h"
#include "tensorflow_ops/nn/cc/kernels/quantized_matmul/stored_bytes.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {

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

// A vector of words of eight numbers of 4 bits; FlipOf says why to flip signed
// ones.
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

// Vectors of sums that a vector of words has: of columns i, i + 8, ... or,
// where neighbors are of the depth, of columns i, i + 4, ...
template <StoredPairs kPairs>
constexpr int kWordVectors = kPairs == StoredPairs::kAlong ? 8 : 4;

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

}  // namespace TFO_CPU_NAMESPACE
}  // namespace tfo

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_QUANTIZED_MATMUL_STORED_BYTES_SIMD_H_
