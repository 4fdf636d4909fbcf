// Elementary functions for CUDA kernels, for float and double alike, and what
// the threads of a warp tell one another. For .cu.cc files.
#ifndef TENSORFLOW_OPS_CORE_CC_MATH_GPU_H_
#define TENSORFLOW_OPS_CORE_CC_MATH_GPU_H_

#include <cmath>

#include "tensorflow_ops/core/cc/cuda_launch.h"
#include "tensorflow_ops/core/cc/float16.h"

namespace tfo {

__device__ inline float Exp(float x) { return expf(x); }
__device__ inline double Exp(double x) { return exp(x); }
__device__ inline float Log1p(float x) { return log1pf(x); }
__device__ inline double Log1p(double x) { return log1p(x); }
// The greater of two, and the other one if one is NaN.
__device__ inline float Greater(float a, float b) { return fmaxf(a, b); }
__device__ inline double Greater(double a, double b) { return fmax(a, b); }
// e^x - 1 without the cancellation near 0.
__device__ inline float ExpLessOne(float x) { return expm1f(x); }
__device__ inline double ExpLessOne(double x) { return expm1(x); }

// e^x - 1 - x without the cancellation near 0; NaN stays one.
template <typename Value>
__device__ Value ExpLessTangent(Value x) {
  if (x < 1 && x > -1) {
    // x^2/2 (1 + x/3 (1 + x/4 (...)))
    Value sum = 1;
#pragma unroll
    for (int k = sizeof(Value) == 4 ? 11 : 19; k >= 3; --k) {
      sum = sum * x * (Value(1) / static_cast<Value>(k)) + Value(1);
    }
    return Value(0.5) * x * x * sum;
  }
  // Infinity less a finite number is infinity.
  return Exp(x) - Value(1) - (x < Value(1e30) ? x : Value(1e30));
}

// Where e^x of no class is taken for 0; as an x, it may be multiplied by 0.
template <typename Value>
__device__ Value ClampForExp(Value x) {
  constexpr Value kLowest = sizeof(Value) == 4 ? -104 : -746;
  return x < kLowest ? kLowest : x;
}

// e^x of an x <= 0 that is a difference of T's. For 16-bit T's in two
// instructions, to within (2 + |x|) 2^-23 of it: those have 11 bits at most,
// and a sum of e^x that is weighted by them is off by no more than
// (2 + log classes) 2^-23, since the mean of |x| by its own weights is below
// the logarithm. expf would take longer than the memory.
template <typename T>
__device__ Accumulator<T> ExpFor(Accumulator<T> x) {
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

// Of a value of each of `lanes` threads side by side, a power of two up to 32;
// all of them get the same bits. All of the warp must come here.
template <typename Value, typename Join>
__device__ Value JoinLanes(Value value, int lanes, const Join& join) {
  for (int half = lanes / 2; half > 0; half /= 2) {
    value = join(value, __shfl_xor_sync(0xFFFFFFFFu, value, half));
  }
  return value;
}
template <typename Value>
__device__ Value SumOfLanes(Value value, int lanes) {
  return JoinLanes(value, lanes, [](Value a, Value b) { return a + b; });
}
template <typename Value>
__device__ Value GreatestOfLanes(Value value, int lanes) {
  return JoinLanes(value, lanes,
                   [](Value a, Value b) { return Greater(a, b); });
}

}  // namespace tfo

#endif  // TENSORFLOW_OPS_CORE_CC_MATH_GPU_H_
