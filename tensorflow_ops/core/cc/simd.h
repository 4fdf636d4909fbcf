// Vectors of the width a file is compiled for. Only *_simd.cc files include
// this header: all of it lies in the level's own namespace, so that no two
// levels share a function and the linker cannot hand one level's code to
// another.
#ifndef TENSORFLOW_OPS_CORE_CC_SIMD_H_
#define TENSORFLOW_OPS_CORE_CC_SIMD_H_

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "tensorflow_ops/core/cc/float16.h"

#ifndef TFO_CPU_NAMESPACE
#error "Compile this file as one of tfo_algorithm_library's simd_srcs."
#endif

namespace tfo {
namespace TFO_CPU_NAMESPACE {

#ifdef __AVX512F__
inline constexpr int kVectorBytes = 64;
#else
inline constexpr int kVectorBytes = 32;
#endif

// Lanes<T>: vectors that hold kCount values of T, widened to what they are
// computed in. Index has as many lanes as Vector and serves as its mask, too.
template <typename T>
struct Lanes {
  using Value = float;
  using Integer = int32_t;
  static constexpr int kCount = kVectorBytes / 4;
  typedef float Vector __attribute__((vector_size(kVectorBytes)));
  typedef int32_t Index __attribute__((vector_size(kVectorBytes)));
};
template <>
struct Lanes<double> {
  using Value = double;
  using Integer = int64_t;
  static constexpr int kCount = kVectorBytes / 8;
  typedef double Vector __attribute__((vector_size(kVectorBytes)));
  typedef int64_t Index __attribute__((vector_size(kVectorBytes)));
};

using FloatVector = Lanes<float>::Vector;
using IntVector = Lanes<float>::Index;
using DoubleVector = Lanes<double>::Vector;
inline constexpr int kFloats = Lanes<float>::kCount;
typedef uint16_t Bits16 __attribute__((vector_size(kVectorBytes / 2)));
typedef uint32_t Bits32 __attribute__((vector_size(kVectorBytes)));

// Load: Lanes<T>::kCount values from memory of any alignment.
static inline FloatVector Load(const float* from) {
  FloatVector v;
  memcpy(&v, from, sizeof(v));
  return v;
}
static inline DoubleVector Load(const double* from) {
  DoubleVector v;
  memcpy(&v, from, sizeof(v));
  return v;
}
static inline FloatVector Load(const BFloat16* from) {
  Bits16 bits;
  memcpy(&bits, from, sizeof(bits));
#if defined(__AVX512F__)
  return reinterpret_cast<FloatVector>(_mm512_slli_epi32(
      _mm512_cvtepu16_epi32(reinterpret_cast<__m256i>(bits)), 16));
#else
  return reinterpret_cast<FloatVector>(__builtin_convertvector(bits, Bits32)
                                       << 16);
#endif
}
static inline FloatVector Load(const Half* from) {
#if defined(__AVX512F__)
  return reinterpret_cast<FloatVector>(_mm512_cvtph_ps(
      _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from))));
#elif defined(__F16C__)
  return reinterpret_cast<FloatVector>(
      _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))));
#else
  FloatVector v;
  for (int i = 0; i < kFloats; ++i) v[i] = Widen(from[i]);
  return v;
#endif
}

// Store: the nearest values, ties to even.
static inline void Store(FloatVector v, float* to) {
  memcpy(to, &v, sizeof(v));
}
static inline void Store(DoubleVector v, double* to) {
  memcpy(to, &v, sizeof(v));
}
static inline void Store(FloatVector v, BFloat16* to) {
  const Bits32 bits = reinterpret_cast<Bits32>(v);
  const Bits32 rounded = bits + 0x7FFFu + ((bits >> 16) & 1u);
  const Bits32 quiet = bits | 0x400000u;
  const Bits16 out =
      __builtin_convertvector((v == v ? rounded : quiet) >> 16, Bits16);
  memcpy(to, &out, sizeof(out));
}
static inline void Store(FloatVector v, Half* to) {
#if defined(__AVX512F__)
  _mm256_storeu_si256(
      reinterpret_cast<__m256i*>(to),
      _mm512_cvtps_ph(reinterpret_cast<__m512>(v), _MM_FROUND_TO_NEAREST_INT));
#elif defined(__F16C__)
  _mm_storeu_si128(
      reinterpret_cast<__m128i*>(to),
      _mm256_cvtps_ph(reinterpret_cast<__m256>(v), _MM_FROUND_TO_NEAREST_INT));
#else
  for (int i = 0; i < kFloats; ++i) to[i] = Narrow<Half>(v[i]);
#endif
}

// The lanes of an index vector as int32.
static inline void StoreIndex(IntVector v, int32_t* to) {
  memcpy(to, &v, sizeof(v));
}
static inline void StoreIndex(Lanes<double>::Index v, int32_t* to) {
  typedef int32_t Narrowed __attribute__((vector_size(kVectorBytes / 2)));
  const Narrowed out = __builtin_convertvector(v, Narrowed);
  memcpy(to, &out, sizeof(out));
}

// The first n < Lanes<T>::kCount values only; the other lanes are zero.
template <typename T>
static inline typename Lanes<T>::Vector LoadFirst(const T* from, int64_t n) {
  T padded[Lanes<T>::kCount] = {};
  for (int64_t i = 0; i < n; ++i) padded[i] = from[i];
  return Load(padded);
}
template <typename T>
static inline void StoreFirst(typename Lanes<T>::Vector v, T* to, int64_t n) {
  T padded[Lanes<T>::kCount];
  Store(v, padded);
  for (int64_t i = 0; i < n; ++i) to[i] = padded[i];
}

}  // namespace TFO_CPU_NAMESPACE
}  // namespace tfo

#endif  // TENSORFLOW_OPS_CORE_CC_SIMD_H_
