// Weights and scores of vectors, for attention's *_simd.cc files.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_ATTENTION_ATTENTION_MATH_SIMD_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_ATTENTION_ATTENTION_MATH_SIMD_H_

#include "tensorflow_ops/core/cc/simd/math_simd.h"
#include "tensorflow_ops/nn/cc/kernels/rows/math.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {

// e^x for x of at most some tens. Keeps NaN. kRounded: to within 3e-6, enough
// for weights that are rounded to bfloat16.
template <bool kRounded = false, typename V>
static TFO_INLINE V ExpOfWeight(V x) {
#ifdef __AVX512F__
  if constexpr (kRounded) {
    // 2^y = 2^r 2^floor(y). Powers of r by least relative error.
    const __m512 y = reinterpret_cast<__m512>(x * 1.44269504f);
    const FloatVector r = reinterpret_cast<FloatVector>(_mm512_reduce_ps(y, 1));
    V p = Broadcast<V>(0.013534168f);
    for (const float c : {0.05201146f, 0.24144275f, 0.69300383f, 1.0000026f}) {
      p = MulAdd(p, r, Broadcast<V>(c));
    }
    return reinterpret_cast<V>(
        _mm512_scalef_ps(reinterpret_cast<__m512>(p), y));
  }
#endif
  return ExpTerm(ClampForExp(x));
}

// What a product becomes by the scale and, if kCurved, a softcap that is not 0.
template <typename C, bool kCurved>
class Curve {
 public:
  using Vector = typename Lanes<C>::Vector;

  TFO_INLINE Curve(C scale, C softcap) : scale_(scale), softcap_(softcap) {
    if (kCurved && softcap != 0) {
      const C quotient = scale / softcap;
      if (__builtin_isnormal(quotient)) {
        scale_ = quotient;
      } else {
        of_cap_ = 1 / softcap;
      }
    }
  }

  // Also multiplies `slope` by the derivative along scale * product.
  TFO_INLINE Vector Of(Vector product, Vector* slope) const {
    Vector s = product * scale_;
    if (!kCurved || softcap_ == 0) return s;
    s *= of_cap_;
    const Vector tanh = Tanh(s);
    // 1 - tanh^2, which cancels: (1 - |tanh|) (1 + |tanh|), where the first
    // is e^(-2 |s|) times the second.
    const Vector sum = 1 + Max(tanh, -tanh);
    *slope *= ExpOfWeight(-2 * Max(s, -s)) * sum * sum;
    return tanh * softcap_;
  }

 private:
  // Their product is scale, over the softcap if there is one: that quotient, if
  // it is a normal number, or scale itself.
  C scale_, of_cap_ = 1;
  C softcap_;
};

}  // namespace TFO_CPU_NAMESPACE
}  // namespace tfo

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_ATTENTION_ATTENTION_MATH_SIMD_H_
