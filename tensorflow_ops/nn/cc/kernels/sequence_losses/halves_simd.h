// Vectors of floats as two halves, each with as many lanes as a vector has
// doubles: in registers, since loading a vector right after its halves were
// stored would stall. Only *_simd.cc files include this header.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_SEQUENCE_LOSSES_HALVES_SIMD_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_SEQUENCE_LOSSES_HALVES_SIMD_H_

#include "tensorflow_ops/core/cc/simd.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {

typedef float HalfOfFloats __attribute__((vector_size(kVectorBytes / 2)));
typedef int32_t HalfOfInts __attribute__((vector_size(kVectorBytes / 2)));

#if defined(__AVX512F__)
#define TFO_LOW_LANES 0, 1, 2, 3, 4, 5, 6, 7
#define TFO_HIGH_LANES 8, 9, 10, 11, 12, 13, 14, 15
#elif defined(__aarch64__)
#define TFO_LOW_LANES 0, 1
#define TFO_HIGH_LANES 2, 3
#else
#define TFO_LOW_LANES 0, 1, 2, 3
#define TFO_HIGH_LANES 4, 5, 6, 7
#endif

// The lower and the upper half as doubles.
static TFO_INLINE DoubleVector WidenLow(FloatVector v) {
  return __builtin_convertvector(__builtin_shufflevector(v, v, TFO_LOW_LANES),
                                 DoubleVector);
}
static TFO_INLINE DoubleVector WidenHigh(FloatVector v) {
  return __builtin_convertvector(__builtin_shufflevector(v, v, TFO_HIGH_LANES),
                                 DoubleVector);
}
static TFO_INLINE FloatVector JoinHalves(HalfOfFloats low, HalfOfFloats high) {
  return __builtin_shufflevector(low, high, TFO_LOW_LANES, TFO_HIGH_LANES);
}
static TFO_INLINE IntVector JoinHalves(HalfOfInts low, HalfOfInts high) {
  return __builtin_shufflevector(low, high, TFO_LOW_LANES, TFO_HIGH_LANES);
}
// Both rounded.
static TFO_INLINE FloatVector Narrowed(DoubleVector low, DoubleVector high) {
  return JoinHalves(__builtin_convertvector(low, HalfOfFloats),
                    __builtin_convertvector(high, HalfOfFloats));
}

#undef TFO_LOW_LANES
#undef TFO_HIGH_LANES

}  // namespace TFO_CPU_NAMESPACE
}  // namespace tfo

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_SEQUENCE_LOSSES_HALVES_SIMD_H_
