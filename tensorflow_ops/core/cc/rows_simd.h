// The loops of row functions (rows.h) in vectors. Only *_simd.cc files include
// this header.
//
// Two ways to fill a vector: with consecutive classes of one row (OneRow), or,
// where rows are short, with one class of as many rows (TileRows), which are
// transposed into a tile first. Either way a function sees n values that come
// vector by vector, reduces each lane, and joins lanes if they are of one row.
#ifndef TENSORFLOW_OPS_CORE_CC_ROWS_SIMD_H_
#define TENSORFLOW_OPS_CORE_CC_ROWS_SIMD_H_

#include <type_traits>

#include "tensorflow_ops/core/cc/math_simd.h"
#include "tensorflow_ops/core/cc/rows.h"
#include "tensorflow_ops/core/cc/simd.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {

// ---- Results that go past the caches.

template <typename E>
struct Streamed : Whole<E> {
  static TFO_INLINE void Store(typename Lanes<E>::Vector v, E* to) {
    Stream<E>(v, to);
  }
};

// ForVectors with such stores; `to` is where value 0 goes.
template <typename E, typename Body>
static TFO_INLINE void ForStreamedVectors(int64_t n, const E* to,
                                          const Body& body) {
  constexpr int kCount = Lanes<E>::kCount;
  constexpr int64_t kBytes = kCount * sizeof(E);
  int64_t at = -(reinterpret_cast<intptr_t>(to) / sizeof(E)) & (kCount - 1);
  if (reinterpret_cast<intptr_t>(to + at) % kBytes != 0 || at > n) at = n;
  ForVectors<E>(at, body);
#pragma GCC unroll 2
  for (; at + kCount <= n; at += kCount) body(Streamed<E>(), at);
  if (at < n) body(First<E>{n - at}, at);
}

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

// ---- What is known of a row after reading some of it.

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
  if (n == 0) return State();
  State state = reduce(int64_t{0}, n < kBlock ? n : kBlock);
  for (int64_t begin = kBlock; begin < n; begin += kBlock) {
    const int64_t left = n - begin;
    state = State::Merge(state, reduce(begin, left < kBlock ? left : kBlock));
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

// ---- The two ways to fill a vector.

// Classes [begin, ...) of a row.
template <typename V>
struct OneRow {
  using Value = decltype(V{}[0] + 0);
  using Index = decltype(V{} < V{});
  static constexpr int kCount = sizeof(V) / sizeof(V{}[0]);
  static constexpr bool kOneRow = true;
  int64_t row, begin;

  template <typename State>
  static TFO_INLINE State Joined(const State& state) {
    return state.Joined();
  }
  // A number of each row.
  TFO_INLINE V Load(const Value* of_rows) const { return V{} + of_rows[row]; }
  TFO_INLINE void Store(V v, Value* of_rows) const { of_rows[row] = v[0]; }
  // Calls visit(row, lane) for each row, and result(lane) tells the value.
  template <typename PerRow>
  TFO_INLINE V Gather(const PerRow& per_row) const {
    return V{} + per_row(row);
  }
  // Is the class at `at` the label, lane by lane?
  template <typename Label>
  struct LabelOf {
    int64_t label;
    TFO_INLINE Index IsAt(int64_t at) const {
      Index lane;
      for (int i = 0; i < kCount; ++i) lane[i] = i;
      const int64_t in = label - at;
      const bool here = in >= 0 && in < kCount;
      using Integer = decltype(lane[0] + 0);
      return lane == static_cast<Integer>(here ? in : -1);
    }
  };
  template <typename Label>
  TFO_INLINE LabelOf<Label> LabelsOf(const Label* labels) const {
    return {static_cast<int64_t>(labels[row]) - begin};
  }
};

// Rows [row, row + lanes), a lane each.
template <typename V>
struct TileRows {
  using Value = decltype(V{}[0] + 0);
  using Index = decltype(V{} < V{});
  static constexpr int kCount = sizeof(V) / sizeof(V{}[0]);
  static constexpr bool kOneRow = false;
  int64_t row;
  int lanes;

  template <typename State>
  static TFO_INLINE State Joined(const State& state) {
    return state;
  }
  TFO_INLINE V Load(const Value* of_rows) const {
    return lanes == kCount ? TFO_CPU_NAMESPACE::Load(of_rows + row)
                           : LoadFirst(of_rows + row, lanes);
  }
  TFO_INLINE void Store(V v, Value* of_rows) const {
    if (lanes == kCount) {
      TFO_CPU_NAMESPACE::Store(v, of_rows + row);
    } else {
      StoreFirst(v, of_rows + row, lanes);
    }
  }
  template <typename PerRow>
  TFO_INLINE V Gather(const PerRow& per_row) const {
    alignas(kVectorBytes) Value values[kCount] = {};
    for (int i = 0; i < lanes; ++i) values[i] = per_row(row + i);
    return TFO_CPU_NAMESPACE::Load(values);
  }
  template <typename Label>
  struct LabelOf {
    Index labels;
    TFO_INLINE Index IsAt(int64_t at) const {
      using Integer = decltype(labels[0] + 0);
      return labels == static_cast<Integer>(at / kCount);
    }
  };
  template <typename Label>
  TFO_INLINE LabelOf<Label> LabelsOf(const Label* labels) const {
    using Integer = decltype(Index{}[0] + 0);
    Integer values[kCount] = {};
    for (int i = 0; i < lanes; ++i) {
      // No class has a number that the lane could not hold, nor this one.
      const int64_t label = labels[row + i];
      values[i] = label >= 0 && label < (1 << 30) ? label : -1;
    }
    Index all;
    memcpy(&all, values, sizeof(all));
    return {all};
  }
};

// ---- Tiles: [classes][lanes] from rows and back.

// Rows of more classes fill their vectors themselves.
template <typename E>
inline constexpr int64_t kTileClasses = 16 * Lanes<E>::kCount;

// v[i][j] -> v[j][i], kCount x kCount, by halves that are interleaved.
template <typename V>
static TFO_INLINE void Transpose(V* v) {
  using Index = decltype(v[0] < v[0]);
  constexpr int kCount = sizeof(V) / sizeof(V{}[0]);
  Index low, high;
  for (int i = 0; i < kCount; ++i) {
    low[i] = i / 2 + i % 2 * kCount;
    high[i] = low[i] + kCount / 2;
  }
#pragma GCC unroll 4
  for (int step = 1; step < kCount; step *= 2) {
    V next[kCount];
#pragma GCC unroll 16
    for (int i = 0; i < kCount / 2; ++i) {
      next[2 * i] = __builtin_shuffle(v[i], v[i + kCount / 2], low);
      next[2 * i + 1] = __builtin_shuffle(v[i], v[i + kCount / 2], high);
    }
#pragma GCC unroll 16
    for (int i = 0; i < kCount; ++i) v[i] = next[i];
  }
}

// Rows [0, lanes) of `from`, which has `readable` values, as a tile. Lanes
// without a row hold some values.
template <typename E>
static TFO_INLINE void ReadTile(const E* from, int64_t readable, int lanes,
                                int64_t classes,
                                typename Lanes<E>::Value* tile) {
  using V = typename Lanes<E>::Vector;
  constexpr int kCount = Lanes<E>::kCount;
  for (int64_t c = 0; c < classes; c += kCount) {
    V v[kCount];
    const int64_t last = (kCount - 1) * classes + c + kCount;
    if (lanes == kCount && last <= readable) {
#pragma GCC unroll 16
      for (int i = 0; i < kCount; ++i) v[i] = Load(from + i * classes + c);
    } else {
      for (int i = 0; i < kCount; ++i) {
        const int64_t at = i * classes + c;
        if (i >= lanes) {
          v[i] = V{};
        } else if (at + kCount <= readable) {
          v[i] = Load(from + at);
        } else {
          v[i] = LoadFirst(from + at, readable - at);
        }
      }
    }
    Transpose(v);
    const int64_t count = classes - c < kCount ? classes - c : kCount;
    for (int64_t i = 0; i < count; ++i) Store(v[i], tile + (c + i) * kCount);
  }
}

// A tile as contiguous rows; `to` has room for a vector more.
template <typename E>
static TFO_INLINE void WriteTile(const typename Lanes<E>::Value* tile,
                                 int64_t classes, E* to) {
  using V = typename Lanes<E>::Vector;
  constexpr int kCount = Lanes<E>::kCount;
  // From the last classes to the first and from the first row to the last: what
  // a vector writes beyond its row is written over by what comes after.
  for (int64_t c = (classes - 1) / kCount * kCount; c >= 0; c -= kCount) {
    V v[kCount];
    const int64_t count = classes - c < kCount ? classes - c : kCount;
    for (int64_t i = 0; i < kCount; ++i) {
      v[i] = i < count ? Load(tile + (c + i) * kCount) : V{};
    }
    Transpose(v);
#pragma GCC unroll 16
    for (int i = 0; i < kCount; ++i) Store(v[i], to + i * classes + c);
  }
}

// Copies n values past the caches if asked to.
template <typename E>
static TFO_INLINE void CopyOut(const E* from, int64_t n, bool stream, E* to) {
  const auto copy = [&](auto part, int64_t at) {
    part.Store(part.Load(from + at, 0), to + at);
  };
  if (stream) {
    ForStreamedVectors<E>(n, to, copy);
  } else {
    ForVectors<E>(n, copy);
  }
}

// ---- Row functions.
//
// template <> struct RowFunction<Args>:
//   using Element = T;                 of all tensors of the rows' shape
//   static constexpr int kInputs, kOutputs;      as many of those
//   RowFunction(const Args&)
//   const T* Input(int) const; T* Output(int) const;   (null from the second
//                                                       on: not asked for)
//   State Reduce(const E* const* in, int64_t n) const;
//   auto Finish(const State&, rows, bool write) const;   of joined states:
//                  writes what a row has one of, if asked to; returns constants
//   void Map(constants, rows, part, const E* const* in, E* const* out, at)
//   const;
// E is T or, in tiles, what T is computed in. With
//   static constexpr bool kKeepsTerms = true;
//   State ReduceKeeping(const T* const* in, int64_t n, Terms<V>) const;
//   void MapKept(constants, Terms<V>, T* const* out, int64_t n, stream) const;
// these two are called instead for rows of up to Terms<V>::kMost classes.
template <typename Args>
struct RowFunction;

template <typename Function, typename = void>
inline constexpr bool kKeepsTerms = false;
template <typename Function>
inline constexpr bool
    kKeepsTerms<Function, std::enable_if_t<Function::kKeepsTerms>> = true;

// Results of more bytes than a cache holds go past it.
inline constexpr int64_t kStreamBytes = int64_t{32} << 20;

template <typename Args>
struct RowLoops {
  using Function = RowFunction<Args>;
  using T = typename Function::Element;
  using Value = typename Lanes<T>::Value;
  using V = typename Lanes<T>::Vector;
  static constexpr int kIn = Function::kInputs, kOut = Function::kOutputs;
  static constexpr int kCount = Lanes<T>::kCount;

  // Writes a row's results, or a part's; pointers are those of class `begin`.
  template <typename Constants>
  static TFO_INLINE void MapRow(const Function& f, const Constants& constants,
                                OneRow<V> rows, const T* const* in,
                                T* const* out, int64_t n, bool stream) {
    if constexpr (kOut > 0) {
      const auto map = [&](auto part, int64_t at) {
        f.Map(constants, rows, part, in, out, at);
      };
      if (stream) {
        ForStreamedVectors<T>(n, out[0], map);
      } else {
        ForVectors<T>(n, map);
      }
    }
  }

  static bool Streams(const Function& f, int64_t values) {
    int64_t bytes = 0;
    intptr_t places = 0;
    for (int i = 0; i < kOut; ++i) {
      if (f.Output(i) == nullptr) continue;
      bytes += values * sizeof(T);
      places |= reinterpret_cast<intptr_t>(f.Output(i));
    }
    // Rows begin at the same distance from a vector's place in all results.
    return bytes >= kStreamBytes && places % kVectorBytes == 0;
  }

  static void Long(const Args& args, int64_t begin, int64_t end) {
    if constexpr (kKeepsTerms<Function>) {
      if (args.classes <= Terms<V>::kMost) return LongKeeping(args, begin, end);
    }
    const Function f(args);
    const bool stream = Streams(f, args.rows * args.classes);
    for (int64_t row = begin; row < end; ++row) {
      const OneRow<V> rows{row, 0};
      const T* in[kIn];
      T* out[kOut + 1];
      for (int i = 0; i < kIn; ++i) in[i] = At(f.Input(i), row * args.classes);
      for (int i = 0; i < kOut; ++i) {
        out[i] = At(f.Output(i), row * args.classes);
      }
      const auto state = f.Reduce(in, args.classes);
      MapRow(f, f.Finish(rows.Joined(state), rows, true), rows, in, out,
             args.classes, stream);
    }
    if (stream) FinishStreaming();
  }

  static void LongKeeping(const Args& args, int64_t begin, int64_t end) {
    const Function f(args);
    const bool stream = Streams(f, args.rows * args.classes);
    const auto kept = Terms<V>::Allocate();
    for (int64_t row = begin; row < end; ++row) {
      const OneRow<V> rows{row, 0};
      const T* in[kIn];
      T* out[kOut];
      for (int i = 0; i < kIn; ++i) in[i] = At(f.Input(i), row * args.classes);
      for (int i = 0; i < kOut; ++i) {
        out[i] = At(f.Output(i), row * args.classes);
      }
      const auto state = f.ReduceKeeping(in, args.classes, kept);
      f.MapKept(f.Finish(rows.Joined(state), rows, true), kept, out,
                args.classes, stream);
    }
    _mm_free(kept.terms);
    if (stream) FinishStreaming();
  }

  static void Short(const Args& args, int64_t begin, int64_t end) {
    const Function f(args);
    const int64_t classes = args.classes, n = classes * kCount;
    const bool stream = Streams(f, args.rows * classes);
    alignas(64) Value tiles[kIn + kOut][kTileClasses<T> * kCount];
    alignas(64) T written[(kTileClasses<T> + 1) * kCount];
    const Value* in[kIn];
    Value* out[kOut + 1];
    for (int i = 0; i < kIn; ++i) in[i] = tiles[i];
    for (int i = 0; i < kOut; ++i) {
      out[i] = f.Output(i) == nullptr ? nullptr : tiles[kIn + i];
    }
    for (int64_t row = begin; row < end; row += kCount) {
      const int lanes = end - row < kCount ? end - row : kCount;
      for (int i = 0; i < kIn; ++i) {
        ReadTile(f.Input(i) + row * classes, (args.rows - row) * classes, lanes,
                 classes, tiles[i]);
      }
      const TileRows<V> rows{row, lanes};
      const auto constants = f.Finish(f.Reduce(in, n), rows, true);
      if constexpr (kOut > 0) {
        ForVectors<Value>(n, [&](auto part, int64_t at) {
          f.Map(constants, rows, part, in, out, at);
        });
        for (int i = 0; i < kOut; ++i) {
          if (out[i] == nullptr) continue;
          WriteTile(out[i], classes, written);
          CopyOut(written, lanes * classes, stream,
                  f.Output(i) + row * classes);
        }
      }
    }
    if (stream) FinishStreaming();
  }

  // Of a part of a row.
  static void Reduce(const Args& args, int64_t row, int64_t begin, int64_t end,
                     Value* state) {
    const Function f(args);
    const T* in[kIn];
    for (int i = 0; i < kIn; ++i) {
      in[i] = At(f.Input(i), row * args.classes + begin);
    }
    f.Reduce(in, end - begin).Joined().Save(state);
  }
  static void Join(const Args& args, int64_t row, int64_t parts,
                   Value* states) {
    const Function f(args);
    using State = typename Function::State;
    State all = State::Read(states);
    for (int64_t i = 1; i < parts; ++i) {
      all = State::Merge(all, State::Read(states + i * kRowState));
    }
    all.Save(states);
    f.Finish(all, OneRow<V>{row, 0}, true);
  }
  static void Map(const Args& args, int64_t row, int64_t begin, int64_t end,
                  const Value* state) {
    const Function f(args);
    const OneRow<V> rows{row, begin};
    const bool stream = Streams(f, args.rows * args.classes);
    const T* in[kIn];
    T* out[kOut + 1];
    const int64_t at = row * args.classes + begin;
    for (int i = 0; i < kIn; ++i) in[i] = At(f.Input(i), at);
    for (int i = 0; i < kOut; ++i) out[i] = At(f.Output(i), at);
    const auto all = Function::State::Read(state);
    MapRow(f, f.Finish(all, rows, false), rows, in, out, end - begin, stream);
    if (stream) FinishStreaming();
  }

  template <typename P>
  static P* At(P* pointer, int64_t offset) {
    return pointer == nullptr ? nullptr : pointer + offset;
  }
};

}  // namespace TFO_CPU_NAMESPACE
}  // namespace tfo

// Defines rows.h's loops for one Args.
#define TFO_DEFINE_ROW_FUNCTION(...)                                    \
  template <>                                                           \
  void RunRows<__VA_ARGS__>(const __VA_ARGS__& args, int64_t begin,     \
                            int64_t end) {                              \
    using Loops = RowLoops<__VA_ARGS__>;                                \
    if (args.classes <= kTileClasses<Loops::T>) {                       \
      Loops::Short(args, begin, end);                                   \
    } else {                                                            \
      Loops::Long(args, begin, end);                                    \
    }                                                                   \
  }                                                                     \
  template <>                                                           \
  void ReducePart<__VA_ARGS__>(const __VA_ARGS__& args, int64_t row,    \
                               int64_t begin, int64_t end,              \
                               typename __VA_ARGS__::Value* state) {    \
    RowLoops<__VA_ARGS__>::Reduce(args, row, begin, end, state);        \
  }                                                                     \
  template <>                                                           \
  void JoinParts<__VA_ARGS__>(const __VA_ARGS__& args, int64_t row,     \
                              int64_t parts,                            \
                              typename __VA_ARGS__::Value* states) {    \
    RowLoops<__VA_ARGS__>::Join(args, row, parts, states);              \
  }                                                                     \
  template <>                                                           \
  void MapPart<__VA_ARGS__>(const __VA_ARGS__& args, int64_t row,       \
                            int64_t begin, int64_t end,                 \
                            const typename __VA_ARGS__::Value* state) { \
    RowLoops<__VA_ARGS__>::Map(args, row, begin, end, state);           \
  }

#endif  // TENSORFLOW_OPS_CORE_CC_ROWS_SIMD_H_
