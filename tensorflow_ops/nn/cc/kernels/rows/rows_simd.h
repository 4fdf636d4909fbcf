// The loops of row functions (rows.h) in vectors. Only *_simd.cc files include
// this header.
//
// A function sees n values that come vector by vector, from one row or from as
// many rows as there are lanes (lanes_simd.h), and reduces each lane; the lanes
// of one row are joined.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_ROWS_ROWS_SIMD_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_ROWS_ROWS_SIMD_H_

#include <type_traits>

#include "tensorflow_ops/core/cc/simd/simd.h"
#include "tensorflow_ops/nn/cc/kernels/rows/lanes_simd.h"
#include "tensorflow_ops/nn/cc/kernels/rows/reductions_simd.h"
#include "tensorflow_ops/nn/cc/kernels/rows/rows_cpu.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {

// ---- Results that bypass the caches.

template <typename E>
struct Streamed : Whole<E> {
  static TFO_INLINE void Store(typename Lanes<E>::Vector v, E* to) {
    Stream<E>(v, to);
  }
};

// ForVectors with such stores. Value 0 goes to `to`, which is aligned to E.
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

// Copies n values; past the caches if `stream`.
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

// ---- The loops.

// Functions whose Map is e^(x - constants.shift) * constants.factor may keep
// the terms of the softmax's sum, for rows of up to Terms<V>::kMaxClasses.
template <typename Function, typename = void>
inline constexpr bool kMayKeepTerms = false;
template <typename Function>
inline constexpr bool
    kMayKeepTerms<Function, std::void_t<decltype(&Function::KeepsTerms)>> =
        true;

template <typename Args>
struct RowLoops {
  using Function = RowFunction<Args>;
  using State = typename Function::State;
  using T = typename Function::Element;
  using Value = typename Lanes<T>::Value;
  using V = Vec<T>;
  static constexpr int kIn = Function::kInputs, kOut = Function::kOutputs;
  static constexpr int kCount = Lanes<T>::kCount;
  static constexpr bool kReduces = kReducesRows<State>;
  static_assert(kOut == Args::kOutputs && kReduces == Args::kReduces);

  static bool Streams(const Function& f, int64_t values) {
    int64_t bytes = 0;
    intptr_t addresses = 0;
    for (int i = 0; i < kOut; ++i) {
      if (f.Output(i) == nullptr) continue;
      bytes += values * sizeof(T);
      addresses |= reinterpret_cast<intptr_t>(f.Output(i));
    }
    // Then rows have the same alignment in all results.
    return bytes >= kStreamBytes && addresses % kVectorBytes == 0;
  }

  // Reduces the n values of each input, lane by lane. E is T or, in tiles,
  // Value.
  template <typename E>
  static TFO_INLINE State Reduce(const Function& f, const E* const* in,
                                 int64_t n) {
    if constexpr (kIsSoftmaxState<State>) {
      constexpr AlsoSums kAlso = State::kAlsoSums;
      if constexpr (kAlso == AlsoSums::kTargets) {
        if (f.HasTargets()) {
          return ReduceSoftmax<kAlso>(in[0], n, [&](auto part, int64_t at) {
            return part.Keep(
                f.Target([&](int i) { return part.Load(in[i] + at, 0); }));
          });
        }
        const auto s = ReduceSoftmax(in[0], n);
        return {s.max, s.rest, V{}, V{}};
      } else {
        return ReduceSoftmax<kAlso>(in[0], n, 0);
      }
    } else if constexpr (kReduces) {
      return ReduceBlocks<E, State>(n, [&](int64_t begin, int64_t size) {
        State s;
        ForVectors<E>(size, [&](auto part, int64_t at) {
          f.Add([&](int i) { return part.Load(in[i] + begin + at, 0); }, s);
        });
        return s;
      });
    } else {
      return State();
    }
  }

  template <typename Constants, typename Part, typename E>
  static TFO_INLINE void Map(const Function& f, const Constants& row, Part part,
                             const E* const* in, E* const* out, int64_t at) {
    V results[kOut];
    f.Map(row, [&](int i) { return part.Load(in[i] + at, 0); }, at, results);
    for (int i = 0; i < kOut; ++i) {
      if (i == 0 || out[i] != nullptr) part.Store(results[i], out[i] + at);
    }
  }

  // Classes [first, last) of rows [begin, end): all of the function or, for one
  // row in parts, its reduction into `reduced` or, after it, its results from
  // `whole`. One loop for the three, since each takes as long to compile as
  // all.
  static void Long(const Args& args, int64_t begin, int64_t end, int64_t first,
                   int64_t last, Value* reduced, const Value* whole) {
    const Function f(args);
    const bool stream = Streams(f, args.rows * args.classes);
    for (int64_t row = begin; row < end; ++row) {
      const OneRow<V> rows{row, first, whole == nullptr && first == 0};
      const T* in[kIn];
      T* out[kOut + 1];
      const int64_t at = row * args.classes + first;
      for (int i = 0; i < kIn; ++i) in[i] = At(f.Input(i), at);
      for (int i = 0; i < kOut; ++i) out[i] = At(f.Output(i), at);
      State state;
      if constexpr (kReduces) {
        state = whole != nullptr
                    ? State::Read(whole)
                    : Reduce(f, in, last - first).Joined(VectorLanes());
        if (reduced != nullptr) return state.Save(reduced);
      }
      const auto constants = f.Finish(state, rows);
      if constexpr (kOut > 0) {
        const auto map = [&](auto part, int64_t i) {
          Map(f, constants, part, in, out, i);
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
    if constexpr (kMayKeepTerms<Function>) {
      if (Function(args).KeepsTerms() &&
          args.classes <= Terms<V>::kMaxClasses) {
        return LongKeepingTerms(args, begin, end);
      }
    }
    Long(args, begin, end, 0, args.classes, nullptr, nullptr);
  }

  static void LongKeepingTerms(const Args& args, int64_t begin, int64_t end) {
    const Function f(args);
    const bool stream = Streams(f, args.rows * args.classes);
    const auto terms = Terms<V>::Allocate();
    for (int64_t row = begin; row < end; ++row) {
      const T* const in = f.Input(0) + row * args.classes;
      const auto state =
          ReduceSoftmax<AlsoSums::kNothing>(in, args.classes, 0, terms);
      const auto constants =
          f.Finish(state.Joined(VectorLanes()), OneRow<V>{row, 0, true});
      MapTerms(terms, constants.shift, constants.factor, args.classes, stream,
               f.Output(0) + row * args.classes);
    }
    free(terms.terms);
    if (stream) FinishStreaming();
  }

  // Scales the terms of blocks, whose shifts differ, to one row's.
  static TFO_INLINE void MapTerms(const Terms<V>& terms, V shift, V row_factor,
                                  int64_t n, bool stream, T* out) {
    for (int64_t begin = 0; begin < n; begin += terms.kBlock) {
      const int64_t size = n - begin < terms.kBlock ? n - begin : terms.kBlock;
      const V block_shift = Load(terms.shifts + begin / kBlockVectors);
      const V factor = ExpOfNegative(block_shift - shift) * row_factor;
      // Twice: streamed vectors begin in any lane.
      alignas(kVectorBytes) Value factors[2 * kCount];
      Store(factor, factors);
      Store(factor, factors + kCount);
      const auto map = [&](auto part, int64_t at) {
        const V term = Load(terms.terms + begin + at);
        part.Store(term * Load(factors + at % kCount), out + begin + at);
      };
      if (stream) {
        ForStreamedVectors<T>(size, out + begin, map);
      } else {
        ForVectors<T>(size, map);
      }
    }
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
      const auto constants =
          f.Finish(Reduce(f, in, n), TileRows<V>{row, lanes});
      if constexpr (kOut > 0) {
        ForVectors<Value>(n, [&](auto part, int64_t at) {
          Map(f, constants, part, in, out, at);
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
    if constexpr (kReduces) {
      State all = State::Read(states);
      for (int64_t i = 1; i < parts; ++i) {
        all = State::Merge(all, State::Read(states + i * kRowState));
      }
      all.Save(states);
      Function(args).Finish(all, OneRow<V>{row, 0, true});
    }
  }
  template <typename P>
  static P* At(P* pointer, int64_t offset) {
    return pointer == nullptr ? nullptr : pointer + offset;
  }
};

}  // namespace TFO_CPU_NAMESPACE
}  // namespace tfo

// Defines what rows_cpu.h declares, for one Args.
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

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_ROWS_ROWS_SIMD_H_
