// Vectors of the width a file is compiled for. Only *_simd.cc files include
// this header: all of it lies in the level's own namespace.
#ifndef TENSORFLOW_OPS_CORE_CC_SIMD_SIMD_H_
#define TENSORFLOW_OPS_CORE_CC_SIMD_SIMD_H_

#ifdef __aarch64__
#include <arm_neon.h>
#else
#include <immintrin.h>
#endif

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <type_traits>
#include <utility>

#include "tensorflow_ops/core/cc/float16.h"

#ifndef TFO_CPU_NAMESPACE
#error "Compile this file as one of tfo_algorithm_library's simd_srcs."
#endif

#define TFO_INLINE inline __attribute__((always_inline))

namespace tfo {
namespace TFO_CPU_NAMESPACE {

#ifdef __AVX512F__
inline constexpr int kVectorBytes = 64;
#elif defined(__aarch64__)
inline constexpr int kVectorBytes = 16;
#else
inline constexpr int kVectorBytes = 32;
#endif

// Lanes<T>: vectors of kCount values of T, widened to the type of computation.
// Index has as many lanes as Vector and is also its mask type.
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

// Each lane is value. Compilers drop the subtraction; they would keep the
// addition of a zero vector, since 0 + -0 is not -0.
template <typename V, typename T>
TFO_INLINE V Broadcast(T value) {
  if constexpr (std::is_arithmetic_v<V>) {
    return static_cast<V>(value);
  } else {
    return static_cast<std::remove_reference_t<decltype(V{}[0])>>(value) - V{};
  }
}

// Load: reads Lanes<T>::kCount values at any alignment.
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
  return _mm512_cvtph_ps(
      _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
#elif defined(__F16C__)
  return _mm256_cvtph_ps(
      _mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
#elif defined(__aarch64__)
  return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(&from->bits)));
#else
  FloatVector v;
  for (int i = 0; i < kFloats; ++i) v[i] = Widen(from[i]);
  return v;
#endif
}

// Store: rounds to the nearest values, ties to even.
static inline void Store(FloatVector v, float* to) {
  memcpy(to, &v, sizeof(v));
}
static inline void Store(DoubleVector v, double* to) {
  memcpy(to, &v, sizeof(v));
}
static inline void Store(FloatVector v, BFloat16* to) {
#ifdef __AVX512F__
  const __m512i bits = reinterpret_cast<__m512i>(v);
  const __m512i odd =
      _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i rounded =
      _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7FFF)));
  const __mmask16 is_nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
  const __m512i out =
      _mm512_mask_or_epi32(rounded, is_nan, bits, _mm512_set1_epi32(0x400000));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to),
                      _mm512_cvtepi32_epi16(_mm512_srli_epi32(out, 16)));
#else
  const Bits32 bits = reinterpret_cast<Bits32>(v);
  const Bits32 rounded = bits + 0x7FFFu + ((bits >> 16) & 1u);
  const Bits32 quiet = bits | 0x400000u;
  const Bits16 out =
      __builtin_convertvector((v == v ? rounded : quiet) >> 16, Bits16);
  memcpy(to, &out, sizeof(out));
#endif
}
static inline void Store(FloatVector v, Half* to) {
#if defined(__AVX512F__)
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to),
                      _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
#elif defined(__F16C__)
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to),
                   _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
#elif defined(__aarch64__)
  vst1_u16(&to->bits, vreinterpret_u16_f16(vcvt_f16_f32(v)));
#else
  for (int i = 0; i < kFloats; ++i) to[i] = Narrow<Half>(v[i]);
#endif
}

// Stores past the caches, for memory that is not read soon; `to` is aligned to
// the size of the narrowed vector. Call FinishStreaming() before the memory is
// read.
template <typename T>
static inline void Stream(typename Lanes<T>::Vector v, T* to) {
#ifdef __aarch64__
  Store(v, to);  // GCC 12 has no intrinsic for STNP
#else
  alignas(kVectorBytes) T values[Lanes<T>::kCount];
  Store(v, values);
  if constexpr (sizeof(values) == 64) {
#ifdef __AVX512F__
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to),
                        _mm512_load_si512(values));
#endif
  } else if constexpr (sizeof(values) == 32) {
    _mm256_stream_si256(
        reinterpret_cast<__m256i*>(to),
        _mm256_load_si256(reinterpret_cast<const __m256i*>(values)));
  } else {
    _mm_stream_si128(reinterpret_cast<__m128i*>(to),
                     _mm_load_si128(reinterpret_cast<const __m128i*>(values)));
  }
#endif
}
static inline void FinishStreaming() {
#ifndef __aarch64__
  _mm_sfence();
#endif
}

// Memory aligned for vectors, to be freed by free().
static inline void* AllocateAligned(size_t bytes) {
  return std::aligned_alloc(64, (bytes + 63) / 64 * 64);
}

// Stores the lanes of an index vector as int32.
static inline void StoreIndex(IntVector v, int32_t* to) {
  memcpy(to, &v, sizeof(v));
}
static inline void StoreIndex(Lanes<double>::Index v, int32_t* to) {
  typedef int32_t Narrowed __attribute__((vector_size(kVectorBytes / 2)));
  const Narrowed out = __builtin_convertvector(v, Narrowed);
  memcpy(to, &out, sizeof(out));
}

// Loads what StoreIndex wrote.
template <typename T>
static TFO_INLINE typename Lanes<T>::Index LoadIndex(const int32_t* from) {
  typedef int32_t Narrowed __attribute__((vector_size(4 * Lanes<T>::kCount)));
  Narrowed v;
  memcpy(&v, from, sizeof(v));
  return __builtin_convertvector(v, typename Lanes<T>::Index);
}

#ifdef __AVX__
#ifndef __AVX512F__
// From kFirstLanes + kFloats - n on, a mask of the first n 32-bit lanes.
static constexpr int32_t kFirstLanes[2 * kFloats] = {-1, -1, -1, -1,
                                                     -1, -1, -1, -1};
static inline __m256i FirstLanes(int64_t n) {
  return _mm256_loadu_si256(
      reinterpret_cast<const __m256i*>(kFirstLanes + kFloats - n));
}

// The first n < 8 values of 16 bits in registers: a wide load of bytes that
// narrow stores have just written would wait for them.
static inline __m128i LoadFirst16(const void* from, int64_t n) {
  const char* at = static_cast<const char*>(from);
  uint64_t low = 0, rest = 0;
  uint32_t two = 0;
  uint16_t one = 0;
  if (n & 4) memcpy(&low, at, 8), at += 8;
  if (n & 2) memcpy(&two, at, 4), at += 4;
  if (n & 1) memcpy(&one, at, 2);
  rest = two | static_cast<uint64_t>(one) << (n & 2 ? 32 : 0);
  return n & 4 ? _mm_set_epi64x(rest, low) : _mm_set_epi64x(0, rest);
}
static inline void StoreFirst16(__m128i values, void* to, int64_t n) {
  char* at = static_cast<char*>(to);
  uint64_t rest = _mm_cvtsi128_si64(values);
  if (n & 4) {
    memcpy(at, &rest, 8), at += 8;
    rest = _mm_extract_epi64(values, 1);
  }
  if (n & 2) memcpy(at, &rest, 4), at += 4, rest >>= 32;
  if (n & 1) memcpy(at, &rest, 2);
}
#endif
#endif

// Loads the first n < Lanes<T>::kCount values only; the other lanes are zero.
template <typename T>
static inline typename Lanes<T>::Vector LoadFirst(const T* from, int64_t n) {
#ifdef __AVX512F__
  const uint32_t first = (1u << n) - 1;
  if constexpr (sizeof(T) == 8) {
    return reinterpret_cast<DoubleVector>(
        _mm512_maskz_loadu_pd(static_cast<__mmask8>(first), from));
  } else if constexpr (sizeof(T) == 4) {
    return reinterpret_cast<FloatVector>(
        _mm512_maskz_loadu_ps(static_cast<__mmask16>(first), from));
  } else {
    T padded[Lanes<T>::kCount];
    _mm256_storeu_si256(
        reinterpret_cast<__m256i*>(padded),
        _mm256_maskz_loadu_epi16(static_cast<__mmask16>(first), from));
    return Load(padded);
  }
#elif defined(__aarch64__)
  // At most three values.
  T padded[Lanes<T>::kCount] = {};
  for (int64_t i = 0; i < n; ++i) padded[i] = from[i];
  return Load(padded);
#else
  if constexpr (sizeof(T) == 8) {
    return reinterpret_cast<DoubleVector>(
        _mm256_maskload_pd(from, FirstLanes(2 * n)));
  } else if constexpr (sizeof(T) == 4) {
    return reinterpret_cast<FloatVector>(
        _mm256_maskload_ps(from, FirstLanes(n)));
  } else {
    T padded[Lanes<T>::kCount];
    _mm_storeu_si128(reinterpret_cast<__m128i*>(padded), LoadFirst16(from, n));
    return Load(padded);
  }
#endif
}
template <typename T>
static inline void StoreFirst(typename Lanes<T>::Vector v, T* to, int64_t n) {
#ifdef __AVX512F__
  const uint32_t first = (1u << n) - 1;
  if constexpr (sizeof(T) == 8) {
    _mm512_mask_storeu_pd(to, static_cast<__mmask8>(first),
                          reinterpret_cast<__m512d>(v));
  } else if constexpr (sizeof(T) == 4) {
    _mm512_mask_storeu_ps(to, static_cast<__mmask16>(first),
                          reinterpret_cast<__m512>(v));
  } else {
    T padded[Lanes<T>::kCount];
    Store(v, padded);
    _mm256_mask_storeu_epi16(
        to, static_cast<__mmask16>(first),
        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(padded)));
  }
#elif defined(__aarch64__)
  T padded[Lanes<T>::kCount];
  Store(v, padded);
  for (int64_t i = 0; i < n; ++i) to[i] = padded[i];
#else
  if constexpr (sizeof(T) == 8) {
    _mm256_maskstore_pd(to, FirstLanes(2 * n), reinterpret_cast<__m256d>(v));
  } else if constexpr (sizeof(T) == 4) {
    _mm256_maskstore_ps(to, FirstLanes(n), reinterpret_cast<__m256>(v));
  } else {
    T padded[Lanes<T>::kCount];
    Store(v, padded);
    StoreFirst16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(padded)), to,
                 n);
  }
#endif
}

// The parts that ForVectors passes: whole vectors, and the first n values of
// one.
template <typename E>
struct Whole {
  using Vector = typename Lanes<E>::Vector;
  template <typename T>
  static TFO_INLINE Vector Load(const T* from, typename Lanes<E>::Value) {
    return TFO_CPU_NAMESPACE::Load(from);
  }
  static TFO_INLINE void Store(Vector v, E* to) {
    TFO_CPU_NAMESPACE::Store(v, to);
  }
  // The values, and zero in other lanes.
  static TFO_INLINE Vector Keep(Vector v) { return v; }
};

template <typename E>
struct First {
  using Vector = typename Lanes<E>::Vector;
  using Index = typename Lanes<E>::Index;
  int64_t n;  // below Lanes<E>::kCount

  TFO_INLINE Index IsValue() const {
    Index lane;
    for (int i = 0; i < Lanes<E>::kCount; ++i) lane[i] = i;
    return lane < static_cast<typename Lanes<E>::Integer>(n);
  }
  // Other lanes get `fill`. T: E, or what E widens to.
  template <typename T>
  TFO_INLINE Vector Load(const T* from, typename Lanes<E>::Value fill) const {
    return IsValue() ? LoadFirst(from, n) : Broadcast<Vector>(fill);
  }
  TFO_INLINE void Store(Vector v, E* to) const { StoreFirst(v, to, n); }
  TFO_INLINE Vector Keep(Vector v) const { return IsValue() ? v : Vector{}; }
};

// Calls body(part, at) for the vectors of n values.
template <typename E, typename Body>
static TFO_INLINE void ForVectors(int64_t n, const Body& body) {
  constexpr int kCount = Lanes<E>::kCount;
  int64_t at = 0;
#pragma GCC unroll 2
  for (; at + kCount <= n; at += kCount) body(Whole<E>(), at);
  if (at < n) body(First<E>{n - at}, at);
}

template <int kNumber>
struct Constant {
  static constexpr int kValue = kNumber;
};

// Goes through `count` values from `at` on: calls whole(Constant<k>, at) for
// groups of k vectors, with k = kVectors while possible, then half of that and
// so on, and last(at, n) for the n remaining values.
template <int kVectors, int kCount, typename Whole, typename Last>
static TFO_INLINE void ForVectorGroups(int64_t count, int64_t at,
                                       const Whole& whole, const Last& last) {
  for (; at + kVectors * kCount <= count; at += kVectors * kCount) {
    whole(Constant<kVectors>{}, at);
  }
  if constexpr (kVectors > 1) {
    ForVectorGroups<kVectors / 2, kCount>(count, at, whole, last);
  } else {
    if (at < count) last(at, count - at);
  }
}

// One value, widened.
static inline float LoadOne(const float* from) { return *from; }
static inline double LoadOne(const double* from) { return *from; }
static inline float LoadOne(const BFloat16* from) { return Widen(*from); }
static inline float LoadOne(const Half* from) {
#ifdef __F16C__
  return _cvtsh_ss(from->bits);
#else
  return Widen(*from);
#endif
}

// a * b + c, with one rounding where the level has FMA.
static inline FloatVector MulAdd(FloatVector a, FloatVector b, FloatVector c) {
#if defined(__AVX512F__)
  return _mm512_fmadd_ps(a, b, c);
#elif defined(__FMA__)
  return _mm256_fmadd_ps(a, b, c);
#elif defined(__aarch64__)
  return vfmaq_f32(c, a, b);
#else
  return a * b + c;
#endif
}
static inline DoubleVector MulAdd(DoubleVector a, DoubleVector b,
                                  DoubleVector c) {
#if defined(__AVX512F__)
  return _mm512_fmadd_pd(a, b, c);
#elif defined(__FMA__)
  return _mm256_fmadd_pd(a, b, c);
#elif defined(__aarch64__)
  return vfmaq_f64(c, a, b);
#else
  return a * b + c;
#endif
}
static inline float MulAdd(float a, float b, float c) {
#if defined(__FMA__) || defined(__aarch64__)
  return __builtin_fmaf(a, b, c);
#else
  return a * b + c;
#endif
}
static inline double MulAdd(double a, double b, double c) {
#if defined(__FMA__) || defined(__aarch64__)
  return __builtin_fma(a, b, c);
#else
  return a * b + c;
#endif
}

// Is any lane of a mask, with lanes of 32 or 64 bits, set?
template <typename Mask>
static TFO_INLINE bool AnyLane(Mask mask) {
#ifdef __AVX512F__
  const __m512i m = reinterpret_cast<__m512i>(mask);
  return _mm512_test_epi32_mask(m, m) != 0;
#elif defined(__aarch64__)
  return vmaxvq_u32(reinterpret_cast<uint32x4_t>(mask)) != 0;
#else
  return _mm256_movemask_ps(reinterpret_cast<__m256>(mask)) != 0;
#endif
}

// Permutes the lanes of two vectors of n lanes: lane i of the result, which has
// kLanes or n, is lane(i), where lanes of b follow those of a. `lane` is a
// lambda without captures, so that the compiler knows all lanes. For few lanes,
// __builtin_shufflevector(a, b, 0, 1, ...) does the same.
template <typename V, typename Lane, int... kI>
static TFO_INLINE auto ShuffleEach(V a, V b, Lane lane,
                                   std::integer_sequence<int, kI...>) {
  return __builtin_shufflevector(a, b, lane(kI)...);
}
template <int kLanes = 0, typename V, typename Lane>
static TFO_INLINE auto Shuffle(V a, V b, Lane lane) {
  constexpr int kCount = kLanes > 0 ? kLanes : sizeof(V) / sizeof(V{}[0]);
  return ShuffleEach(a, b, lane, std::make_integer_sequence<int, kCount>());
}

// a0 a2 ... b0 b2 ... and a1 a3 ... b1 b3 ...
template <typename V>
static TFO_INLINE V EvenLanes(V a, V b) {
  return Shuffle(a, b, [](int i) { return 2 * i; });
}
template <typename V>
static TFO_INLINE V OddLanes(V a, V b) {
  return Shuffle(a, b, [](int i) { return 2 * i + 1; });
}
// a0 b0 a1 b1 ... of the first or second half of the lanes.
template <typename V>
static TFO_INLINE V InterleaveLow(V a, V b) {
  constexpr int kCount = sizeof(V) / sizeof(V{}[0]);
  return Shuffle(a, b, [](int i) { return i / 2 + i % 2 * kCount; });
}
template <typename V>
static TFO_INLINE V InterleaveHigh(V a, V b) {
  constexpr int kCount = sizeof(V) / sizeof(V{}[0]);
  return Shuffle(a, b, [](int i) { return (i + kCount) / 2 + i % 2 * kCount; });
}

// Lane i of vector j moves to place i * kVectors + j of all lanes; kVectors is
// a power of two.
template <int kVectors, typename V>
static TFO_INLINE void InterleaveAll(V* v) {
#pragma GCC unroll 4
  for (int step = 1; step < kVectors; step *= 2) {
    V next[kVectors];
#pragma GCC unroll 16
    for (int i = 0; i < kVectors / 2; ++i) {
      next[2 * i] = InterleaveLow(v[i], v[i + kVectors / 2]);
      next[2 * i + 1] = InterleaveHigh(v[i], v[i + kVectors / 2]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < kVectors; ++i) v[i] = next[i];
  }
}

// Transposes the values of as many vectors as each has lanes.
template <typename V>
static TFO_INLINE void Transpose(V* v) {
  InterleaveAll<sizeof(V) / sizeof(V{}[0])>(v);
}

// Calls body(Constant<n>) for n = kCount / 2, kCount / 4, ... 1.
template <int kCount, typename Body>
static TFO_INLINE void ForHalves(const Body& body) {
  if constexpr (kCount > 1) {
    body(Constant<kCount / 2>());
    ForHalves<kCount / 2>(body);
  }
}

// Updates each lane's maximum and its position. NaN replaces any number and
// stays; of equal values, the first stays.
template <typename V, typename I, typename N>
static TFO_INLINE void TakeGreater(V value, N where, V& best, I& at) {
#ifdef __AVX512F__
  if constexpr (sizeof(at[0]) == 4) {
    const __m512 v = reinterpret_cast<__m512>(value);
    const __m512 b = reinterpret_cast<__m512>(best);
    const __mmask16 replaces = _mm512_mask_cmp_ps_mask(
        _mm512_cmp_ps_mask(b, b, _CMP_ORD_Q), v, b, _CMP_NLE_UQ);
    best = reinterpret_cast<V>(_mm512_mask_mov_ps(b, replaces, v));
    at = reinterpret_cast<I>(_mm512_mask_mov_epi32(
        reinterpret_cast<__m512i>(at), replaces, _mm512_set1_epi32(where)));
    return;
  }
#endif
  const I replaces = ~(value <= best) & (best == best);
  best = replaces ? value : best;
  at = replaces ? Broadcast<I>(where) : at;
}

// The sum of all lanes, by halves; a scalar is returned as it is.
template <typename V>
static TFO_INLINE auto SumLanes(V v) {
  if constexpr (std::is_arithmetic_v<V>) {
    return v;
  } else if constexpr (sizeof(v) == 2 * sizeof(v[0])) {
    return v[0] + v[1];
  } else {
    typedef __typeof__(v[0] + v[0]) OfHalf
        __attribute__((vector_size(sizeof(v) / 2)));
    OfHalf halves[2];
    memcpy(halves, &v, sizeof(v));
    return SumLanes(halves[0] + halves[1]);
  }
}

}  // namespace TFO_CPU_NAMESPACE
}  // namespace tfo

#endif  // TENSORFLOW_OPS_CORE_CC_SIMD_SIMD_H_
