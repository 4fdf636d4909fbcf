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

#include "tensorflow_ops/core/cc/row_states_simd.h"
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

// ForVectors with such stores; `to`, where value 0 goes, is whole values from a
// vector's place.
template <typename E, typename Body>
static TFO_INLINE void ForStreamedVectors(int64_t n, const E* to,
                                          const Body& body) {
  constexpr int kCount = Lanes<E>::kCount;
  int64_t at = -(reinterpret_cast<intptr_t>(to) / sizeof(E)) & (kCount - 1);
  if (at > n) at = n;
  if (at > 0) body(First<E>{at}, 0);
#pragma GCC unroll 2
  for (; at + kCount <= n; at += kCount) body(Streamed<E>(), at);
  if (at < n) body(First<E>{n - at}, at);
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

  // A number of each row.
  TFO_INLINE V Load(const Value* of_rows) const { return V{} + of_rows[row]; }
  TFO_INLINE void Store(V v, Value* of_rows) const { of_rows[row] = v[0]; }
  // Calls visit(row, lane) for each row, and result(lane) tells the value.
  template <typename PerRow>
  TFO_INLINE V Gather(const PerRow& per_row) const {
    return V{} + per_row(row);
  }
  // Is the class at `at` the label, lane by lane?
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
  template <typename Labels>
  TFO_INLINE LabelOf LabelsOf(const Labels& labels) const {
    return {labels[row] - begin};
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
  struct LabelOf {
    Index labels;
    TFO_INLINE Index IsAt(int64_t at) const {
      using Integer = decltype(labels[0] + 0);
      return labels == static_cast<Integer>(at / kCount);
    }
  };
  template <typename Labels>
  TFO_INLINE LabelOf LabelsOf(const Labels& labels) const {
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

// ---- Tiles: [classes][lanes] from rows and back. Not inline: all functions of
// a file share them.

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
[[gnu::noinline]] static void ReadTile(const E* from, int64_t readable,
                                       int lanes, int64_t classes,
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
[[gnu::noinline]] static void WriteTile(const typename Lanes<E>::Value* tile,
                                        int64_t classes, E* to) {
  using V = typename Lanes<E>::Vector;
  constexpr int kCount = Lanes<E>::kCount;
  // From the last classes to the first and from the first row to the last: what
  // a vector writes beyond its row is written over by what comes after.
  for (int64_t c = (classes - 1) / kCount * kCount; c >= 0; c -= kCount) {
    V v[kCount];
    const int64_t count = classes - c < kCount ? classes - c : kCount;
#pragma GCC unroll 16
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
[[gnu::noinline]] static void CopyOut(const E* from, int64_t n, bool stream,
                                      E* to) {
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
  using State = typename Function::State;
  using T = typename Function::Element;
  using Value = typename Lanes<T>::Value;
  using V = typename Lanes<T>::Vector;
  static constexpr int kIn = Function::kInputs, kOut = Function::kOutputs;
  static constexpr int kCount = Lanes<T>::kCount;

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

  // Classes [first, last) of rows [begin, end): all of the function, or, of one
  // row, its reduction into `reduced` or, after it, its results from `whole`.
  // One loop for the three, since each is as long to compile as all.
  static void Long(const Args& args, int64_t begin, int64_t end, int64_t first,
                   int64_t last, Value* reduced, const Value* whole) {
    const Function f(args);
    const bool stream = Streams(f, args.rows * args.classes);
    for (int64_t row = begin; row < end; ++row) {
      const OneRow<V> rows{row, first};
      const T* in[kIn];
      T* out[kOut + 1];
      const int64_t at = row * args.classes + first;
      for (int i = 0; i < kIn; ++i) in[i] = At(f.Input(i), at);
      for (int i = 0; i < kOut; ++i) out[i] = At(f.Output(i), at);
      const State state = whole != nullptr
                              ? State::Read(whole)
                              : f.Reduce(in, last - first).Joined();
      if (reduced != nullptr) return state.Save(reduced);
      const auto constants = f.Finish(state, rows, whole == nullptr);
      if constexpr (kOut > 0) {
        const auto map = [&](auto part, int64_t i) {
          f.Map(constants, rows, part, in, out, i);
        };
        if (stream) {
          ForStreamedVectors<T>(last - first, out[0], map);
        } else {
          ForVectors<T>(last - first, map);
        }
      }
    }
    if (stream) FinishStreaming();
  }

  // All of long rows.
  static void Long(const Args& args, int64_t begin, int64_t end) {
    if constexpr (kKeepsTerms<Function>) {
      if (args.classes <= Terms<V>::kMost) return LongKeeping(args, begin, end);
    }
    Long(args, begin, end, 0, args.classes, nullptr, nullptr);
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
      f.MapKept(f.Finish(state.Joined(), rows, true), kept, out, args.classes,
                stream);
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

  static void Join(const Args& args, int64_t row, int64_t parts,
                   Value* states) {
    const Function f(args);
    State all = State::Read(states);
    for (int64_t i = 1; i < parts; ++i) {
      all = State::Merge(all, State::Read(states + i * kRowState));
    }
    all.Save(states);
    f.Finish(all, OneRow<V>{row, 0}, true);
  }
  template <typename P>
  static P* At(P* pointer, int64_t offset) {
    return pointer == nullptr ? nullptr : pointer + offset;
  }
};

}  // namespace TFO_CPU_NAMESPACE
}  // namespace tfo

// Defines rows.h's loops for one Args.
#define TFO_DEFINE_ROW_FUNCTION(...)                                     \
  template <>                                                            \
  void RunRows<__VA_ARGS__>(const __VA_ARGS__& args, int64_t begin,      \
                            int64_t end) {                               \
    using Loops = RowLoops<__VA_ARGS__>;                                 \
    if (args.classes <= kTileClasses<Loops::T>) {                        \
      Loops::Short(args, begin, end);                                    \
    } else {                                                             \
      Loops::Long(args, begin, end);                                     \
    }                                                                    \
  }                                                                      \
  template <>                                                            \
  void ReducePart<__VA_ARGS__>(const __VA_ARGS__& args, int64_t row,     \
                               int64_t begin, int64_t end,               \
                               typename __VA_ARGS__::Value* state) {     \
    RowLoops<__VA_ARGS__>::Long(args, row, row + 1, begin, end, state,   \
                                nullptr);                                \
  }                                                                      \
  template <>                                                            \
  void JoinParts<__VA_ARGS__>(const __VA_ARGS__& args, int64_t row,      \
                              int64_t parts,                             \
                              typename __VA_ARGS__::Value* states) {     \
    RowLoops<__VA_ARGS__>::Join(args, row, parts, states);               \
  }                                                                      \
  template <>                                                            \
  void MapPart<__VA_ARGS__>(const __VA_ARGS__& args, int64_t row,        \
                            int64_t begin, int64_t end,                  \
                            const typename __VA_ARGS__::Value* state) {  \
    RowLoops<__VA_ARGS__>::Long(args, row, row + 1, begin, end, nullptr, \
                                state);                                  \
  }

#endif  // TENSORFLOW_OPS_CORE_CC_ROWS_SIMD_H_
