// Exponentials of differences of logits, under one name for vectors and for
// CUDA. Formulas of rows (rows.h) call these and the functions of
// core/cc/simd/elementwise.h.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_ROWS_MATH_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_ROWS_MATH_H_

#include "tensorflow_ops/core/cc/float16.h"
#include "tensorflow_ops/core/cc/simd/elementwise.h"

namespace tfo {
namespace TFO_FORMULA_NAMESPACE {

// Vec<T>: the type that values of dtype T are computed in: a vector, or a
// scalar in CUDA kernels.

#ifdef TFO_CPU_NAMESPACE

template <typename T>
using Vec = typename Lanes<T>::Vector;

// Adds e to `sum` and 1 to `count` in the lanes where x != y, which includes
// NaN. (GCC emits extra instructions without the intrinsics.)
static TFO_INLINE void AddWhereNotEqual(FloatVector x, FloatVector y,
                                        FloatVector e, FloatVector& sum,
                                        FloatVector& count) {
#ifdef __AVX512F__
  const __mmask16 differs = _mm512_cmp_ps_mask(
      reinterpret_cast<__m512>(x), reinterpret_cast<__m512>(y), _CMP_NEQ_UQ);
  const auto add = [&](FloatVector to, FloatVector v) {
    return reinterpret_cast<FloatVector>(_mm512_mask_add_ps(
        reinterpret_cast<__m512>(to), differs, reinterpret_cast<__m512>(to),
        reinterpret_cast<__m512>(v)));
  };
  sum = add(sum, e);
  count = add(count, Broadcast<FloatVector>(1.0f));
#else
  sum += x == y ? FloatVector{} : e;
  count += x == y ? FloatVector{} : Broadcast<FloatVector>(1.0f);
#endif
}
static TFO_INLINE void AddWhereNotEqual(DoubleVector x, DoubleVector y,
                                        DoubleVector e, DoubleVector& sum,
                                        DoubleVector& count) {
  sum += x == y ? DoubleVector{} : e;
  count += x == y ? DoubleVector{} : Broadcast<DoubleVector>(1.0);
}

// Clamps x to where e^x underflows to zero, so that the result may be
// multiplied by zero. Keeps NaN.
template <typename V>
TFO_FORMULA V ClampForExp(V x) {
  return Max(Broadcast<V>(math_internal::Constants<V>::kLowest), x);
}
// e^x of a clamped x <= 0.
template <typename V>
TFO_FORMULA V ExpOfClamped(V x) {
  return math_internal::ExpOf</*kNegative=*/true>(x);
}
// e^x of x <= 0.
template <typename V>
TFO_FORMULA V ExpOfNegative(V x) {
  return ExpOfClamped(ClampForExp(x));
}
// e^x of an x <= 0, clamped or not, that is a difference of two T's.
template <typename T>
TFO_FORMULA Vec<T> ExpOfClampedDifference(Vec<T> x) {
  return ExpOfClamped(x);
}
template <typename T>
TFO_FORMULA Vec<T> ExpOfDifference(Vec<T> x) {
  return ExpOfNegative(x);
}

// ExpOfClamped as a term of a sum, with two multiplications less: its relative
// error is 1.6e-7, and 3e-9 more for every 1 of -x.
static TFO_INLINE FloatVector ExpTerm(FloatVector x) {
#if defined(__FMA__) || defined(__aarch64__)
  using C = math_internal::Constants<FloatVector>;
  const FloatVector n = MulAdd(x, Broadcast<FloatVector>(C::kLog2E),
                               Broadcast<FloatVector>(C::kShift)) -
                        C::kShift;
  const FloatVector r = MulAdd(n, FloatVector{} - 0.693147182f, x);
  // e^r on |r| <= ln(2) / 2, by least relative error.
  FloatVector p = Broadcast<FloatVector>(0.00829030667f);
  p = MulAdd(p, r, Broadcast<FloatVector>(0.0418979786f));
  p = MulAdd(p, r, Broadcast<FloatVector>(0.166676372f));
  p = MulAdd(p, r, Broadcast<FloatVector>(0.499991506f));
  p = MulAdd(p, r, Broadcast<FloatVector>(0.999999702f));
  p = MulAdd(p, r, Broadcast<FloatVector>(1.0f));
  return math_internal::Scale</*kNegative=*/true>(p, n, x);
#else
  return ExpOfClamped(x);
#endif
}
static TFO_INLINE DoubleVector ExpTerm(DoubleVector x) {
  return ExpOfClamped(x);
}

#else

template <typename T>
using Vec = Accumulator<T>;

template <typename V>
TFO_FORMULA V ClampForExp(V x) {
  constexpr V kLowest = sizeof(V) == 4 ? -104 : -746;
  return x < kLowest ? kLowest : x;
}
template <typename V>
TFO_FORMULA V ExpOfClamped(V x) {
  return Exp(x);
}
template <typename V>
TFO_FORMULA V ExpOfNegative(V x) {
  return Exp(x);
}

// For 16-bit T's in two instructions, with a relative error of
// (2 + |x|) 2^-23: T has 11 bits at most, and a sum of e^x that is weighted by
// them is off by at most (2 + log classes) 2^-23, since the mean of |x| by its
// own weights is below the logarithm. expf takes longer than the memory.
template <typename T>
TFO_FORMULA Vec<T> ExpOfDifference(Vec<T> x) {
  if constexpr (sizeof(T) > 2) {
    return Exp(x);
  } else {
    const float exponent = x * 1.44269504f;
#ifdef __CUDA_ARCH__
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(exponent));
    return result;
#else
    return exp2f(exponent);
#endif
  }
}
template <typename T>
TFO_FORMULA Vec<T> ExpOfClampedDifference(Vec<T> x) {
  return ExpOfDifference<T>(x);
}

#endif

// e^x - 1 - x without the cancellation near 0. Keeps NaN.
template <typename V>
TFO_FORMULA V ExpMinusTangent(V x) {
  using Value = ScalarOf<V>;
  const auto is_near = (x < Value(1)) & (x > Value(-1));
  // x^2/2 (1 + x/3 (1 + x/4 (...)))
  V series = Broadcast<V>(Value(1));
  TFO_UNROLL for (int k = sizeof(Value) == 4 ? 11 : 19; k >= 3; --k) {
    series =
        MulAdd(series * x, Broadcast<V>(Value(1) / k), Broadcast<V>(Value(1)));
  }
  // Infinity minus a finite number is infinity.
  const V finite = x < Value(1e30) ? x : Broadcast<V>(Value(1e30));
  return is_near ? Value(0.5) * x * x * series : Exp(x) - Value(1) - finite;
}

}  // namespace TFO_FORMULA_NAMESPACE
}  // namespace tfo

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_ROWS_MATH_H_
