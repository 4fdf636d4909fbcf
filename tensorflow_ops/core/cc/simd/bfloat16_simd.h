// Packs of bfloat16 in vectors.
#ifndef TENSORFLOW_OPS_CORE_CC_SIMD_BFLOAT16_SIMD_H_
#define TENSORFLOW_OPS_CORE_CC_SIMD_BFLOAT16_SIMD_H_

#include <cstdint>

#include "tensorflow_ops/core/cc/float16.h"
#include "tensorflow_ops/core/cc/simd/simd.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {

typedef uint16_t Words __attribute__((vector_size(kVectorBytes)));

// The lanes of `low` and then those of `high`, rounded.
TFO_INLINE Words NarrowBoth(FloatVector low, FloatVector high) {
  Words words;
#ifdef __AVX512F__
  asm("vcvtne2ps2bf16 %2, %1, %0" : "=v"(words) : "v"(high), "v"(low));
#else
  BFloat16 values[2 * kFloats];
  Store(low, values);
  Store(high, values + kFloats);
  memcpy(&words, values, sizeof(words));
#endif
  return words;
}

// a0 b0 a1 b1 ... of a0 a1 ... b0 b1 ...
TFO_INLINE Words InterleaveHalves(Words ab) {
  return Shuffle(ab, ab, [](int i) { return i / 2 + i % 2 * kFloats; });
}

// Packs of widened numbers.
TFO_INLINE FloatVector PackOf(FloatVector first, FloatVector second) {
  return reinterpret_cast<FloatVector>(reinterpret_cast<Bits32>(first) >> 16 |
                                       reinterpret_cast<Bits32>(second));
}

}  // namespace TFO_CPU_NAMESPACE
}  // namespace tfo

#endif  // TENSORFLOW_OPS_CORE_CC_SIMD_BFLOAT16_SIMD_H_
