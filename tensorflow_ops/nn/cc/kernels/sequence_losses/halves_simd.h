// Vectors of floats as two halves, each with as many lanes as a vector has
// doubles: in registers, since loading a vector right after its halves were
// stored would stall. Only *_simd.cc files include this header.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_SEQUENCE_LOSSES_HALVES_SIMD_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_SEQUENCE_LOSSES_HALVES_SIMD_H_

#include "tensorflow_ops/core/cc/simd/simd.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {

typedef float HalfOfFloats __attribute__((vector_size(kVectorBytes / 2)));
typedef int32_t HalfOfInts __attribute__((vector_size(kVectorBytes / 2)));

// The lower and the upper half as doubles.
static TFO_INLINE DoubleVector WidenLow(FloatVector v) {
  return __builtin_convertvector(
      Shuffle<kFloats / 2>(v, v, [](int i) { return i; }), DoubleVector);
}
static TFO_INLINE DoubleVector WidenHigh(FloatVector v) {
  return __builtin_convertvector(
      Shuffle<kFloats / 2>(v, v, [](int i) { return kFloats / 2 + i; }),
      DoubleVector);
}
static TFO_INLINE FloatVector JoinHalves(HalfOfFloats low, HalfOfFloats high) {
  return Shuffle<kFloats>(low, high, [](int i) { return i; });
}
static TFO_INLINE IntVector JoinHalves(HalfOfInts low, HalfOfInts high) {
  return Shuffle<kFloats>(low, high, [](int i) { return i; });
}
// Both rounded.
static TFO_INLINE FloatVector Narrowed(DoubleVector low, DoubleVector high) {
  return JoinHalves(__builtin_convertvector(low, HalfOfFloats),
                    __builtin_convertvector(high, HalfOfFloats));
}

}  // namespace TFO_CPU_NAMESPACE
}  // namespace tfo

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_SEQUENCE_LOSSES_HALVES_SIMD_H_
