// Vectors of four floats, whatever the width of others. For *_simd.cc files.
#ifndef TENSORFLOW_OPS_IMAGE_CC_KERNELS_GRID_SAMPLE_FOUR_SIMD_H_
#define TENSORFLOW_OPS_IMAGE_CC_KERNELS_GRID_SAMPLE_FOUR_SIMD_H_

#include "tensorflow_ops/core/cc/simd/simd.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {

typedef float Four __attribute__((vector_size(16)));

TFO_INLINE Four LoadFour(const float* from) {
  Four v;
  memcpy(&v, from, sizeof(v));
  return v;
}
TFO_INLINE void StoreFour(Four v, float* to) { memcpy(to, &v, sizeof(v)); }

// a * b + c, fused where the level can.
TFO_INLINE Four MulAddFour(float a, Four b, Four c) {
#ifdef __FMA__
  return reinterpret_cast<Four>(_mm_fmadd_ps(_mm_set1_ps(a),
                                             reinterpret_cast<__m128>(b),
                                             reinterpret_cast<__m128>(c)));
#elif defined(__aarch64__)
  return reinterpret_cast<Four>(vfmaq_n_f32(
      reinterpret_cast<float32x4_t>(c), reinterpret_cast<float32x4_t>(b), a));
#else
  return a * b + c;
#endif
}

}  // namespace TFO_CPU_NAMESPACE
}  // namespace tfo

#endif  // TENSORFLOW_OPS_IMAGE_CC_KERNELS_GRID_SAMPLE_FOUR_SIMD_H_
