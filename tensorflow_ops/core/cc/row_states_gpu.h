// What is known of a row after reading some of it, for CUDA kernels: the
// scalars of rows_simd.h's states. A state is merged with that of other values,
// joined over the threads that share a row, and saved in kPartState numbers.
//
// A chunk is what a thread has of a row at a time: chunk.steps times kWidth
// values of each input, at most kSteps times. Get(input, step, i) is a value,
// and where Has(step, i) says that there is none, what the function fills in.
// For .cu.cc files.
#ifndef TENSORFLOW_OPS_CORE_CC_ROW_STATES_GPU_H_
#define TENSORFLOW_OPS_CORE_CC_ROW_STATES_GPU_H_

#include "tensorflow_ops/core/cc/math_gpu.h"
#include "tensorflow_ops/core/cc/row_parts.h"

namespace tfo {

// Calls visit(step, i) for the places of a chunk.
template <typename Chunk, typename Visit>
__device__ void ForPlaces(const Chunk& chunk, const Visit& visit) {
#pragma unroll
  for (int step = 0; step < Chunk::kSteps; ++step) {
    if (step >= chunk.steps) break;
#pragma unroll
    for (int i = 0; i < Chunk::kWidth; ++i) visit(step, i);
  }
}

// Of functions that need nothing of a row.
template <typename V>
struct NoState {
  using Value = V;
};

// Of rows that are summed up: no more than two sums.
template <typename V>
struct SumsState {
  using Value = V;
  V first = 0, second = 0;

  __device__ static SumsState Merge(const SumsState& a, const SumsState& b) {
    return {a.first + b.first, a.second + b.second};
  }
  __device__ SumsState Joined(int lanes) const {
    return {SumOfLanes(first, lanes), SumOfLanes(second, lanes)};
  }
  __device__ void Save(V* state) const {
    state[0] = first;
    state[1] = second;
  }
  __device__ static SumsState Read(const V* state) {
    return {state[0], state[1]};
  }
};

// What goes with a softmax's sum: nothing; sum e^(x - max) (x - max); or, with
// targets t, sum t and sum t (x - max), where 0 * -inf counts as 0.
enum class Beside { kNothing, kWeighted, kTargets };

// sum e^(x - max) is at least 1; what it is above that is `rest`, since the
// logarithm of a sum near 1 needs it exact. Of nothing, or of -inf alone, max
// is -inf and rest -1. A NaN makes rest one, and so does +inf.
template <typename V, Beside kBeside>
struct SoftmaxState {
  using Value = V;
  V max = -static_cast<V>(INFINITY);
  V rest = -1;
  V first = 0, second = 0;

  // What is taken from x before e^x: the maximum where it is finite.
  __device__ static V Shift(V max) {
    return max > -static_cast<V>(INFINITY) ? max : V(0);
  }
  __device__ V shift() const { return Shift(max); }

  // This sum in units of e^m for an m that is no less than max: `tops` says
  // where m is the maximum, and the 1 above the rest.
  struct Scaled {
    V tops, rest, first, second;
  };
  __device__ Scaled ScaledTo(V m) const {
    const V to = Shift(m);
    const V below = ClampForExp(max - to);
    const V factor = Exp(below);
    const bool is_top = max == m;
    Scaled s{is_top ? V(1) : V(0), is_top ? rest : (rest + 1) * factor, first,
             second};
    if constexpr (kBeside == Beside::kWeighted) {
      s.second = factor * (below * (rest + 1) + second);
    }
    if constexpr (kBeside == Beside::kTargets) {
      s.second = (shift() - to) * first + second;
    }
    return s;
  }
  __device__ static SoftmaxState Merge(const SoftmaxState& x,
                                       const SoftmaxState& y) {
    SoftmaxState both;
    both.max = Greater(x.max, y.max);
    const Scaled a = x.ScaledTo(both.max), b = y.ScaledTo(both.max);
    both.rest = a.rest + b.rest + (a.tops + b.tops - 1);
    both.first = a.first + b.first;
    both.second = a.second + b.second;
    return both;
  }
  __device__ SoftmaxState Joined(int lanes) const {
    SoftmaxState all;
    all.max = GreatestOfLanes(max, lanes);
    const Scaled s = ScaledTo(all.max);
    all.rest = SumOfLanes(s.rest, lanes) + (SumOfLanes(s.tops, lanes) - 1);
    if constexpr (kBeside == Beside::kTargets) {
      all.first = SumOfLanes(s.first, lanes);
    }
    if constexpr (kBeside != Beside::kNothing) {
      all.second = SumOfLanes(s.second, lanes);
    }
    return all;
  }

  // 1 / sum, and log sum: 0 for a row without a class above -inf.
  __device__ V Inverse() const { return rest == -1 ? V(0) : 1 / (rest + 1); }
  __device__ V Log() const { return rest == -1 ? V(0) : Log1p(rest); }

  __device__ void Save(V* state) const {
    state[0] = max;
    state[1] = rest;
    state[2] = first;
    state[3] = second;
  }
  __device__ static SoftmaxState Read(const V* state) {
    return {state[0], state[1], state[2], state[3]};
  }
};

// Adds a chunk's first input, of T's, to a state. target(step, i) is t for
// Beside::kTargets, zero where there is no value.
template <typename T, Beside kBeside, typename Chunk, typename Target>
__device__ void AddToSoftmax(Chunk& chunk, const Target& target,
                             SoftmaxState<Accumulator<T>, kBeside>& s) {
  using Value = Accumulator<T>;
  constexpr Value kNone = -static_cast<Value>(INFINITY);
  Value max = s.max;
  ForPlaces(chunk, [&](int step, int i) {
    max = Greater(max, chunk.Get(0, step, i));
  });
  chunk.Forget();
  // How many values are the maximum, less one; the sum of all others.
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
  ForPlaces(chunk, [&](int step, int i) {
    const Value value = chunk.Get(0, step, i);
    Value below = value - shift;
    if constexpr (kBeside == Beside::kTargets) {
      const Value t = target(step, i);
      first += t;
      second += t == 0 ? Value(0) : t * below;
    }
    if constexpr (kBeside == Beside::kWeighted) below = ClampForExp(below);
    const Value e = ExpFor<T>(below);
    const bool is_top = value == max;
    rest += is_top ? Value(0) : e;
    tops += is_top ? Value(1) : Value(0);
    if constexpr (kBeside == Beside::kWeighted) second += e * below;
  });
  // -inf alone is no class. Infinity less itself is NaN.
  s.rest += rest + (max > kNone ? tops : Value(0)) + (shift - shift);
  s.first += first;
  s.second += second;
}
template <typename T, Beside kBeside, typename Chunk>
__device__ void AddToSoftmax(Chunk& chunk,
                             SoftmaxState<Accumulator<T>, kBeside>& s) {
  AddToSoftmax<T>(chunk, [](int, int) { return 0; }, s);
}

}  // namespace tfo

#endif  // TENSORFLOW_OPS_CORE_CC_ROW_STATES_GPU_H_
