// Transposes of values in registers. For *_simd.cc files.
#ifndef TENSORFLOW_OPS_CORE_CC_TRANSPOSE_SIMD_H_
#define TENSORFLOW_OPS_CORE_CC_TRANSPOSE_SIMD_H_

#include "tensorflow_ops/core/cc/simd.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {

// Transposes the values of as many vectors as each has lanes, by interleaving
// halves.
template <typename V>
static TFO_INLINE void Transpose(V* v) {
  constexpr int kCount = sizeof(V) / sizeof(V{}[0]);
#pragma GCC unroll 4
  for (int step = 1; step < kCount; step *= 2) {
    V next[kCount];
#pragma GCC unroll 16
    for (int i = 0; i < kCount / 2; ++i) {
      next[2 * i] = InterleaveLow(v[i], v[i + kCount / 2]);
      next[2 * i + 1] = InterleaveHigh(v[i], v[i + kCount / 2]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < kCount; ++i) v[i] = next[i];
  }
}

}  // namespace TFO_CPU_NAMESPACE
}  // namespace tfo

#endif  // TENSORFLOW_OPS_CORE_CC_TRANSPOSE_SIMD_H_
