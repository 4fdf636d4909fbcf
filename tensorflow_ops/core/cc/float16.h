// The 16-bit floats as bits, with conversions for host and device. The
// functions have internal linkage, so files compiled for different instruction
// sets may include this header.
#ifndef TENSORFLOW_OPS_CORE_CC_FLOAT16_H_
#define TENSORFLOW_OPS_CORE_CC_FLOAT16_H_

#include <cstdint>
#include <cstring>

#ifdef __CUDACC__
#include <cuda_fp16.h>
#define TFO_HOST_DEVICE __host__ __device__
#else
#define TFO_HOST_DEVICE
#endif

namespace tfo {

struct Half {  // IEEE binary16: 5 bits of exponent, 10 of fraction
  uint16_t bits;
};
struct BFloat16 {  // the upper half of a binary32
  uint16_t bits;
};

// Instantiates a function template for each float type; a wide one for float
// and double only.
#define TFO_INSTANTIATE_FUNCTION(Function)          \
  TFO_INSTANTIATE_WIDE_FUNCTION(Function);          \
  template decltype(Function<Half>) Function<Half>; \
  template decltype(Function<BFloat16>) Function<BFloat16>
#define TFO_INSTANTIATE_WIDE_FUNCTION(Function)       \
  template decltype(Function<float>) Function<float>; \
  template decltype(Function<double>) Function<double>

// Expands macro(T) for each float type.
#define TFO_FOR_EACH_FLOAT(macro) \
  macro(float);                   \
  macro(double);                  \
  macro(Half);                    \
  macro(BFloat16)

// The type that values of T are computed and summed in.
template <typename T>
struct AccumulatorOf {
  using Type = float;
};
template <>
struct AccumulatorOf<double> {
  using Type = double;
};
template <typename T>
using Accumulator = typename AccumulatorOf<T>::Type;

namespace float16_internal {
TFO_HOST_DEVICE static inline float FromBits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof(value));
  return value;
}
TFO_HOST_DEVICE static inline uint32_t ToBits(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof(bits));
  return bits;
}
}  // namespace float16_internal

TFO_HOST_DEVICE static inline float Widen(float value) { return value; }
TFO_HOST_DEVICE static inline double Widen(double value) { return value; }
TFO_HOST_DEVICE static inline float Widen(BFloat16 value) {
  return float16_internal::FromBits(uint32_t{value.bits} << 16);
}
TFO_HOST_DEVICE static inline float Widen(Half value) {
#ifdef __CUDA_ARCH__
  return __half2float(__ushort_as_half(value.bits));
#else
  const uint32_t sign = uint32_t{value.bits & 0x8000u} << 16;
  const uint32_t exponent = (value.bits >> 10) & 31;
  const uint32_t fraction = value.bits & 0x3FFu;
  if (exponent == 31) {
    return float16_internal::FromBits(sign | 0x7F800000u | (fraction << 13));
  }
  if (exponent != 0) {
    return float16_internal::FromBits(sign | ((exponent + 112) << 23) |
                                      (fraction << 13));
  }
  // Subnormal. By arithmetic on normal numbers: TensorFlow's threads flush
  // binary32 subnormals to zero.
  const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
  return sign ? -magnitude : magnitude;
#endif
}

// The nearest value, ties to even. Keeps NaN.
template <typename T>
TFO_HOST_DEVICE static inline T Narrow(Accumulator<T> value);

template <>
TFO_HOST_DEVICE inline float Narrow<float>(float value) {
  return value;
}
template <>
TFO_HOST_DEVICE inline double Narrow<double>(double value) {
  return value;
}
template <>
TFO_HOST_DEVICE inline BFloat16 Narrow<BFloat16>(float value) {
  const uint32_t bits = float16_internal::ToBits(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) {
    return {static_cast<uint16_t>((bits >> 16) | 0x40)};
  }
  return {static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1)) >> 16)};
}
template <>
TFO_HOST_DEVICE inline Half Narrow<Half>(float value) {
#ifdef __CUDA_ARCH__
  return {__half_as_ushort(__float2half_rn(value))};
#else
  const uint32_t bits = float16_internal::ToBits(value);
  const uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return {static_cast<uint16_t>(sign | 0x7E00)};
  if (magnitude >= 0x477FF000u) {  // 65520 and above round to infinity
    return {static_cast<uint16_t>(sign | 0x7C00)};
  }
  if (magnitude < 0x38800000u) {  // below 2^-14: a subnormal, or zero
    // Adding 0.5 leaves the rounded fraction in the low bits.
    const float shifted = float16_internal::FromBits(magnitude) + 0.5f;
    return {static_cast<uint16_t>(
        sign | (float16_internal::ToBits(shifted) - 0x3F000000u))};
  }
  const uint32_t rounded = magnitude + 0xFFFu + ((magnitude >> 13) & 1);
  return {static_cast<uint16_t>(sign | ((rounded - (112u << 23)) >> 13))};
#endif
}

// a * b, which nvcc does not fuse with a sum, so that host and device round
// alike. V may be a vector.
template <typename V>
TFO_HOST_DEVICE static inline V Product(V a, V b) {
#ifdef __CUDA_ARCH__
  if constexpr (sizeof(V) == sizeof(float)) {
    return __fmul_rn(a, b);
  } else {
    return __dmul_rn(a, b);
  }
#elif defined(TFO_EMULATED_CONTRACTION)
  V product = a * b;
  asm volatile("" : "+x"(product));
  return product;
#else
  return a * b;
#endif
}

}  // namespace tfo

#endif  // TENSORFLOW_OPS_CORE_CC_FLOAT16_H_
