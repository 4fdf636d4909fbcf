// Reductions of long rows in vectors: sums, and the maximum and sum of a
// softmax. Only *_simd.cc files include this header.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_ROWS_REDUCTIONS_SIMD_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_ROWS_REDUCTIONS_SIMD_H_

#include "tensorflow_ops/core/cc/simd/simd.h"
#include "tensorflow_ops/nn/cc/kernels/rows/state.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {

// Joins the lanes of a vector (state.h); every lane of the result has it.
struct VectorLanes {
  template <typename V>
  static TFO_INLINE V Sum(V v) {
    return Join(v, [](V a, V b) { return a + b; });
  }
  template <typename V>
  static TFO_INLINE V Max(V v) {
    return Join(v, [](V a, V b) { return TFO_CPU_NAMESPACE::Max(a, b); });
  }

 private:
  template <typename V, typename Function>
  static TFO_INLINE V Join(V v, const Function& join) {
    ForHalves<sizeof(v) / sizeof(v[0])>([&](auto half) {
      constexpr int kHalf = half.kValue;
      v = join(v, Shuffle(v, v, [](int i) { return i ^ kHalf; }));
    });
    return v;
  }
};

// Blocks of vectors are reduced together: they stay in the first cache between
// the maximum and the sum.
inline constexpr int64_t kBlockVectors = 128;

// Calls reduce(begin, n) for blocks of n values and merges the states.
template <typename E, typename State, typename Reduce>
static TFO_INLINE State ReduceBlocks(int64_t n, const Reduce& reduce) {
  constexpr int64_t kBlock = kBlockVectors * Lanes<E>::kCount;
  State state;
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t left = n - begin;
    // Called in one place only, since each call is a copy of the whole
    // reduction.
    const State block = reduce(begin, left < kBlock ? left : kBlock);
    state = begin == 0 ? block : State::Merge(state, block);
  }
  return state;
}

// The terms e^(x - shift) of a softmax's sum, kept so that mapping the row does
// not compute them again, and each block's shift, one per lane.
template <typename V>
struct Terms {
  using Value = decltype(V{}[0] + 0);
  static constexpr int64_t kBlock = kBlockVectors * (sizeof(V) / sizeof(Value));
  static constexpr int64_t kMaxClasses = int64_t{1} << 15;
  Value* terms;   // aligned, with room for whole vectors
  Value* shifts;  // the same

  // Free with free(terms).
  static Terms Allocate() {
    constexpr int64_t kShifts = kMaxClasses / kBlockVectors;
    auto* const memory = static_cast<Value*>(
        AllocateAligned((kMaxClasses + kShifts) * sizeof(Value)));
    return {memory, memory + kMaxClasses};
  }
  TFO_INLINE void Keep(int64_t at, V term) const { Store(term, terms + at); }
  TFO_INLINE void KeepShift(int64_t at, V shift) const {
    Store(shift, shifts + at / kBlockVectors);
  }
};
template <typename V>
struct NoTerms {
  TFO_INLINE void Keep(int64_t, V) const {}
  TFO_INLINE void KeepShift(int64_t, V) const {}
};

// The state of each lane of x. target(part, at) is the class's target where
// kAlso is kTargets; zero beyond n.
template <AlsoSums kAlso, typename E, typename Target,
          typename Kept = NoTerms<typename Lanes<E>::Vector>>
static TFO_INLINE SoftmaxState<typename Lanes<E>::Vector, kAlso> ReduceSoftmax(
    const E* x, int64_t n, const Target& target, const Kept& kept = Kept()) {
  using V = typename Lanes<E>::Vector;
  using Value = typename Lanes<E>::Value;
  using State = SoftmaxState<V, kAlso>;
  constexpr int kCount = Lanes<E>::kCount;
  constexpr Value kNone = -static_cast<Value>(INFINITY);
  return ReduceBlocks<E, State>(n, [&](int64_t begin, int64_t size) {
    State s;
    const E* const block = x + begin;
    V max[4] = {s.max, s.max, s.max, s.max};
    int64_t at = 0;
    for (; at + 4 * kCount <= size; at += 4 * kCount) {
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        max[i] = Max(Load(block + at + i * kCount), max[i]);
      }
    }
    ForVectors<E>(size - at, [&](auto part, int64_t more) {
      max[0] = Max(part.Load(block + at + more, kNone), max[0]);
    });
    s.max = Max(Max(max[0], max[1]), Max(max[2], max[3]));
    const V shift = s.shift();
    kept.KeepShift(begin, shift);
    V rest = V{}, not_max = V{};
    ForVectors<E>(size, [&](auto part, int64_t i) {
      const V value = part.Load(block + i, kNone);
      // The next block comes from memory while this one is computed.
      __builtin_prefetch(block + i + kBlockVectors * kCount);
      const V below = ClampForExp(value - shift);
      const V e = ExpTerm(below);
      kept.Keep(begin + i, e);
      AddWhereNotEqual(value, s.max, e, rest, not_max);
      if constexpr (kAlso == AlsoSums::kWeighted) {
        s.second = MulAdd(e, below, s.second);
      }
      if constexpr (kAlso == AlsoSums::kTargets) {
        const V t = target(part, begin + i);
        s.first += t;
        s.second += t == Value(0) ? V{} : t * (value - shift);
      }
    });
    // Each lane's maximum adds a 1 as often as it occurs, minus the 1 that rest
    // leaves out. Infinity minus itself is NaN.
    const V tops =
        static_cast<Value>((size + kCount - 1) / kCount - 1) - not_max;
    s.rest = rest + (s.max > kNone ? tops : V{} - Value(1)) + (shift - shift);
    return s;
  });
}
template <typename E>
static TFO_INLINE auto ReduceSoftmax(const E* x, int64_t n) {
  return ReduceSoftmax<AlsoSums::kNothing>(x, n, 0);
}

}  // namespace TFO_CPU_NAMESPACE
}  // namespace tfo

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_ROWS_REDUCTIONS_SIMD_H_
