// Reductions of the values that a CUDA thread has of a row: chunks. For .cu.cc
// files.
//
// A chunk is the part of a row that a thread loads at a time: kWidth values of
// each input in each of chunk.steps <= kSteps steps. Get(input, step, i)
// returns a value, or a neutral one where Has(step, i) is false.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_ROWS_REDUCTIONS_GPU_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_ROWS_REDUCTIONS_GPU_H_

#include "tensorflow_ops/core/cc/cuda/warp_gpu.h"
#include "tensorflow_ops/nn/cc/kernels/rows/state.h"

namespace tfo {
namespace scalar {

// Joins the values of `count` neighboring threads (state.h), a power of two up
// to 32; all get the same bits. All threads of the warp must call.
struct WarpLanes {
  int count;

  template <typename V>
  __device__ V Sum(V v) const {
    return Join(v, [](V a, V b) { return a + b; });
  }
  template <typename V>
  __device__ V Max(V v) const {
    return Join(v, [](V a, V b) { return scalar::Max(a, b); });
  }

 private:
  template <typename V, typename Function>
  __device__ V Join(V v, const Function& join) const {
    for (int half = count / 2; half > 0; half /= 2) {
      v = join(v, __shfl_xor_sync(kAllLanes, v, half));
    }
    return v;
  }
};

// Calls visit(step, i) for the values of a chunk.
template <typename Chunk, typename Visit>
__device__ void ForValues(const Chunk& chunk, const Visit& visit) {
#pragma unroll
  for (int step = 0; step < Chunk::kSteps; ++step) {
    if (step >= chunk.steps) break;
#pragma unroll
    for (int i = 0; i < Chunk::kWidth; ++i) visit(step, i);
  }
}

// Adds a chunk's input 0, of dtype T, to a state. target(step, i) is the
// class's target where kAlso is kTargets; zero where there is no value.
template <typename T, AlsoSums kAlso, typename Chunk, typename Target>
__device__ void AddToSoftmax(Chunk& chunk, const Target& target,
                             SoftmaxState<Accumulator<T>, kAlso>& s) {
  using Value = Accumulator<T>;
  constexpr Value kNone = -static_cast<Value>(INFINITY);
  Value max = s.max;
  ForValues(chunk,
            [&](int step, int i) { max = Max(max, chunk.Get(0, step, i)); });
  chunk.Forget();
  // How many values equal the maximum, minus one; the sum of all others.
  Value tops = 0;
  if (max > s.max) {
    const auto before = s.ScaledTo(max);
    s.max = max;
    s.rest = before.rest;
    s.second = before.second;
    tops = -1;
  }
  const Value shift = s.shift();
  Value rest = 0, first = 0, second = 0;
  ForValues(chunk, [&](int step, int i) {
    const Value value = chunk.Get(0, step, i);
    Value below = value - shift;
    if constexpr (kAlso == AlsoSums::kTargets) {
      const Value t = target(step, i);
      first += t;
      second += t == 0 ? Value(0) : t * below;
    }
    if constexpr (kAlso == AlsoSums::kWeighted) below = ClampForExp(below);
    const Value e = ExpOfDifference<T>(below);
    const bool is_top = value == max;
    rest += is_top ? Value(0) : e;
    tops += is_top ? Value(1) : Value(0);
    if constexpr (kAlso == AlsoSums::kWeighted) second += e * below;
  });
  // -inf is no class. Infinity minus itself is NaN.
  s.rest += rest + (max > kNone ? tops : Value(0)) + (shift - shift);
  s.first += first;
  s.second += second;
}
template <typename T, AlsoSums kAlso, typename Chunk>
__device__ void AddToSoftmax(Chunk& chunk,
                             SoftmaxState<Accumulator<T>, kAlso>& s) {
  AddToSoftmax<T>(chunk, [](int, int) { return 0; }, s);
}

}  // namespace scalar
}  // namespace tfo

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_ROWS_REDUCTIONS_GPU_H_
