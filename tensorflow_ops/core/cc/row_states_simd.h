// What is known of a row after reading some of it, in vectors: sums, and the
// maximum and sum of a softmax. Only *_simd.cc files include this header.
#ifndef TENSORFLOW_OPS_CORE_CC_ROW_STATES_SIMD_H_
#define TENSORFLOW_OPS_CORE_CC_ROW_STATES_SIMD_H_

#include "tensorflow_ops/core/cc/math_simd.h"
#include "tensorflow_ops/core/cc/simd.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {

// ---- Across lanes.

template <typename V, typename Join>
static TFO_INLINE V JoinLanes(V v, const Join& join) {
  using Index = decltype(v < v);
  constexpr int kCount = sizeof(v) / sizeof(v[0]);
#pragma GCC unroll 4
  for (int half = kCount / 2; half > 0; half /= 2) {
    Index other;
    for (int i = 0; i < kCount; ++i) other[i] = i ^ half;
    v = join(v, __builtin_shuffle(v, other));
  }
  return v;
}
template <typename V>
static TFO_INLINE V SumOfLanes(V v) {
  return JoinLanes(v, [](V a, V b) { return a + b; });
}
template <typename V>
static TFO_INLINE V GreatestOfLanes(V v) {
  return JoinLanes(v, [](V a, V b) { return Greater(a, b); });
}

// ---- States.

// Of rows that are summed up: no more than two sums.
template <typename V>
struct SumsState {
  V first = V{}, second = V{};

  static TFO_INLINE SumsState Merge(SumsState a, SumsState b) {
    return {a.first + b.first, a.second + b.second};
  }
  TFO_INLINE SumsState Joined() const {
    return {SumOfLanes(first), SumOfLanes(second)};
  }
  template <typename Value>
  void Save(Value* state) const {
    state[0] = first[0];
    state[1] = second[0];
  }
  template <typename Value>
  static SumsState Read(const Value* state) {
    return {V{} + state[0], V{} + state[1]};
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
  using Value = decltype(V{}[0] + 0);
  V max = V{} - static_cast<Value>(INFINITY);
  V rest = V{} - Value(1);
  V first = V{}, second = V{};

  // What is taken from x before e^x: the maximum where it is finite.
  static TFO_INLINE V Shift(V max) {
    return max > -static_cast<Value>(INFINITY) ? max : V{};
  }
  TFO_INLINE V shift() const { return Shift(max); }

  // This sum in units of e^m for an m that is no less than max: `tops` says
  // where m is the maximum, and the 1 above the rest.
  struct Scaled {
    V tops, rest, first, second;
  };
  TFO_INLINE Scaled ScaledTo(V m) const {
    const V to = Shift(m);
    const V below = ClampForExp(max - to);
    const V factor = ExpOfClamped(below);
    const auto is_top = max == m;
    Scaled s{is_top ? V{} + Value(1) : V{},
             is_top ? rest : (rest + Value(1)) * factor, first, second};
    if constexpr (kBeside == Beside::kWeighted) {
      s.second = factor * MulAdd(below, rest + Value(1), second);
    }
    if constexpr (kBeside == Beside::kTargets) {
      s.second = MulAdd(shift() - to, first, second);
    }
    return s;
  }
  static TFO_INLINE SoftmaxState Merge(const SoftmaxState& x,
                                       const SoftmaxState& y) {
    SoftmaxState both;
    both.max = Greater(x.max, y.max);
    const Scaled a = x.ScaledTo(both.max), b = y.ScaledTo(both.max);
    both.rest = a.rest + b.rest + (a.tops + b.tops - Value(1));
    both.first = a.first + b.first;
    both.second = a.second + b.second;
    return both;
  }
  TFO_INLINE SoftmaxState Joined() const {
    SoftmaxState all;
    all.max = GreatestOfLanes(max);
    const Scaled s = ScaledTo(all.max);
    all.rest = SumOfLanes(s.rest) + (SumOfLanes(s.tops) - Value(1));
    if constexpr (kBeside != Beside::kNothing) {
      all.first = SumOfLanes(s.first);
      all.second = SumOfLanes(s.second);
    }
    return all;
  }

  // 1 / sum, and log sum: 0 for a row without a class above -inf.
  TFO_INLINE V Inverse() const {
    return rest == Value(-1) ? V{} : Value(1) / (rest + Value(1));
  }
  TFO_INLINE V Log() const { return rest == Value(-1) ? V{} : Log1p(rest); }

  void Save(Value* state) const {
    state[0] = max[0];
    state[1] = rest[0];
    state[2] = first[0];
    state[3] = second[0];
  }
  static SoftmaxState Read(const Value* state) {
    SoftmaxState s;
    s.max = V{} + state[0];
    s.rest = V{} + state[1];
    s.first = V{} + state[2];
    s.second = V{} + state[3];
    return s;
  }
};

// Vectors that are reduced together: they stay in the first cache between the
// maximum and the sum.
inline constexpr int64_t kBlockVectors = 128;

// Calls reduce(begin, n) on blocks of n values and merges the states.
template <typename E, typename State, typename Reduce>
static TFO_INLINE State ReduceBlocks(int64_t n, const Reduce& reduce) {
  constexpr int64_t kBlock = kBlockVectors * Lanes<E>::kCount;
  State state;
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t left = n - begin;
    // In one place of the code: each is a copy of the whole reduction.
    const State block = reduce(begin, left < kBlock ? left : kBlock);
    state = begin == 0 ? block : State::Merge(state, block);
  }
  return state;
}

// The terms e^(x - shift) of a softmax's sum, for who needs them again, and the
// shift of each block, a number for each lane.
template <typename V>
struct Terms {
  using Value = decltype(V{}[0] + 0);
  static constexpr int64_t kBlock = kBlockVectors * (sizeof(V) / sizeof(Value));
  static constexpr int64_t kMost = int64_t{1} << 15;
  Value* terms;   // aligned, with room for whole vectors
  Value* shifts;  // the same

  // To be freed by _mm_free.
  static Terms Allocate() {
    constexpr int64_t kShifts = kMost / kBlockVectors;
    auto* const memory = static_cast<Value*>(
        _mm_malloc((kMost + kShifts) * sizeof(Value), kVectorBytes));
    return {memory, memory + kMost};
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

// The state of each lane of x. target(part, at, x) is t for Beside::kTargets,
// zero where there is no value.
template <Beside kBeside, typename E, typename Target,
          typename Kept = NoTerms<typename Lanes<E>::Vector>>
static TFO_INLINE SoftmaxState<typename Lanes<E>::Vector, kBeside>
ReduceSoftmax(const E* x, int64_t n, const Target& target,
              const Kept& kept = Kept()) {
  using V = typename Lanes<E>::Vector;
  using Value = typename Lanes<E>::Value;
  using State = SoftmaxState<V, kBeside>;
  constexpr int kCount = Lanes<E>::kCount;
  constexpr Value kNone = -static_cast<Value>(INFINITY);
  return ReduceBlocks<E, State>(n, [&](int64_t begin, int64_t size) {
    State s;
    const E* const block = x + begin;
    V greatest[4] = {s.max, s.max, s.max, s.max};
    int64_t at = 0;
    for (; at + 4 * kCount <= size; at += 4 * kCount) {
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        greatest[i] = Greater(Load(block + at + i * kCount), greatest[i]);
      }
    }
    ForVectors<E>(size - at, [&](auto part, int64_t more) {
      greatest[0] = Greater(part.Load(block + at + more, kNone), greatest[0]);
    });
    s.max = Greater(Greater(greatest[0], greatest[1]),
                    Greater(greatest[2], greatest[3]));
    const V shift = s.shift();
    kept.KeepShift(begin, shift);
    V rest = V{}, others = V{};
    ForVectors<E>(size, [&](auto part, int64_t i) {
      const V value = part.Load(block + i, kNone);
      // The next block comes from memory while this one is computed.
      __builtin_prefetch(block + i + kBlockVectors * kCount);
      const V below = ClampForExp(value - shift);
      const V e = ExpTerm(below);
      kept.Keep(begin + i, e);
      AddWhereOther(value, s.max, e, rest, others);
      if constexpr (kBeside == Beside::kWeighted) {
        s.second = MulAdd(e, below, s.second);
      }
      if constexpr (kBeside == Beside::kTargets) {
        const V t = target(part, begin + i);
        s.first += t;
        s.second += t == Value(0) ? V{} : t * (value - shift);
      }
    });
    // The maximum's own 1 comes as often as it does, less once. No class above
    // -inf leaves -1. Infinity less itself is NaN.
    const V more =
        static_cast<Value>((size + kCount - 1) / kCount - 1) - others;
    s.rest = rest + (s.max > kNone ? more : V{} - Value(1)) + (shift - shift);
    return s;
  });
}
template <typename E>
static TFO_INLINE auto ReduceSoftmax(const E* x, int64_t n) {
  return ReduceSoftmax<Beside::kNothing>(x, n, 0);
}

}  // namespace TFO_CPU_NAMESPACE
}  // namespace tfo

#endif  // TENSORFLOW_OPS_CORE_CC_ROW_STATES_SIMD_H_
