#include "tensorflow_ops/core/cc/rows_simd.h"
#include "tensorflow_ops/nn/cc/kernels/softmax.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {

template <typename T, bool kLog>
struct RowFunction<SoftmaxArgs<T, kLog>> {
  using Element = T;
  using V = typename Lanes<T>::Vector;
  using State = SoftmaxState<V, Beside::kNothing>;
  static constexpr int kInputs = 1, kOutputs = 1;
  const SoftmaxArgs<T, kLog>& args;

  explicit RowFunction(const SoftmaxArgs<T, kLog>& a) : args(a) {}
  const T* Input(int) const { return args.logits; }
  T* Output(int) const { return args.output; }

  template <typename E>
  TFO_INLINE State Reduce(const E* const* in, int64_t n) const {
    return ReduceSoftmax(in[0], n);
  }
  struct Constants {
    V shift, sum;  // the sum's logarithm or inverse
  };
  template <typename Rows>
  TFO_INLINE Constants Finish(const State& s, Rows, bool) const {
    return {s.shift(), kLog ? s.Log() : s.Inverse()};
  }
  template <typename Rows, typename Part, typename E>
  TFO_INLINE void Map(const Constants& row, Rows, Part part, const E* const* in,
                      E* const* out, int64_t at) const {
    const V below = part.Load(in[0] + at, 0) - row.shift;
    if constexpr (kLog) {
      part.Store(below - row.sum, out[0] + at);
    } else {
      part.Store(ExpOfNegative(below) * row.sum, out[0] + at);
    }
  }

  static constexpr bool kKeepsTerms = !kLog;
  TFO_INLINE State ReduceKeeping(const T* const* in, int64_t n,
                                 Terms<V> kept) const {
    return ReduceSoftmax<Beside::kNothing>(in[0], n, 0, kept);
  }
  TFO_INLINE void MapKept(const Constants& row, Terms<V> kept, T* const* out,
                          int64_t n, bool stream) const {
    constexpr int kCount = Lanes<T>::kCount;
    for (int64_t begin = 0; begin < n; begin += kept.kBlock) {
      const int64_t size = n - begin < kept.kBlock ? n - begin : kept.kBlock;
      const V shift = Load(kept.shifts + begin / kBlockVectors);
      const V factor = ExpOfNegative(shift - row.shift) * row.sum;
      // Twice: vectors that go past the caches begin in any lane.
      alignas(kVectorBytes) Value factors[2 * kCount];
      Store(factor, factors);
      Store(factor, factors + kCount);
      const auto map = [&](auto part, int64_t at) {
        const V term = Load(kept.terms + begin + at);
        part.Store(term * Load(factors + at % kCount), out[0] + begin + at);
      };
      if (stream) {
        ForStreamedVectors<T>(size, out[0] + begin, map);
      } else {
        ForVectors<T>(size, map);
      }
    }
  }
  using Value = Accumulator<T>;
};

template <typename T, bool kLog>
struct RowFunction<SoftmaxGradArgs<T, kLog>> {
  using Element = T;
  using V = typename Lanes<T>::Vector;
  using State = SumsState<V>;
  static constexpr int kInputs = 2, kOutputs = 1;
  const SoftmaxGradArgs<T, kLog>& args;

  explicit RowFunction(const SoftmaxGradArgs<T, kLog>& a) : args(a) {}
  const T* Input(int i) const { return i == 0 ? args.d_output : args.output; }
  T* Output(int) const { return args.d_logits; }

  template <typename E>
  TFO_INLINE State Reduce(const E* const* in, int64_t n) const {
    return ReduceBlocks<E, State>(n, [&](int64_t begin, int64_t size) {
      State s;
      ForVectors<E>(size, [&](auto part, int64_t at) {
        const V d = part.Load(in[0] + begin + at, 0);
        if constexpr (kLog) {
          s.first += d;
        } else {
          // A class without probability has no part in the gradient, whatever
          // comes in there.
          const V y = part.Load(in[1] + begin + at, 0);
          s.first = y == 0 ? s.first : MulAdd(d, y, s.first);
        }
      });
      return s;
    });
  }
  template <typename Rows>
  TFO_INLINE V Finish(const State& s, Rows, bool) const {
    return s.first;
  }
  template <typename Rows, typename Part, typename E>
  TFO_INLINE void Map(V sum, Rows, Part part, const E* const* in, E* const* out,
                      int64_t at) const {
    const V d = part.Load(in[0] + at, 0), y = part.Load(in[1] + at, 0);
    if constexpr (kLog) {
      part.Store(d - ExpOfNegative(y) * sum, out[0] + at);
    } else {
      part.Store(y == 0 ? V{} : y * (d - sum), out[0] + at);
    }
  }
};

template <typename T>
struct RowFunction<EntropyArgs<T>> {
  using Element = T;
  using V = typename Lanes<T>::Vector;
  using State = SoftmaxState<V, Beside::kWeighted>;
  static constexpr int kInputs = 1, kOutputs = 0;
  const EntropyArgs<T>& args;

  explicit RowFunction(const EntropyArgs<T>& a) : args(a) {}
  const T* Input(int) const { return args.logits; }
  T* Output(int) const { return nullptr; }

  template <typename E>
  TFO_INLINE State Reduce(const E* const* in, int64_t n) const {
    return ReduceSoftmax<Beside::kWeighted>(in[0], n, 0);
  }
  template <typename Rows>
  TFO_INLINE int Finish(const State& s, Rows rows, bool write) const {
    if (!write) return 0;
    // -sum p log p, log p = x - largest - log sum: both terms are positive.
    rows.Store(s.Log() - s.second * s.Inverse(), args.entropy);
    rows.Store(s.max, args.sums.largest);
    rows.Store(s.rest, args.sums.rest);
    return 0;
  }
};

template <typename T>
struct RowFunction<EntropyGradArgs<T>> {
  using Element = T;
  using V = typename Lanes<T>::Vector;
  using State = SumsState<V>;
  static constexpr int kInputs = 1, kOutputs = 1;
  const EntropyGradArgs<T>& args;

  explicit RowFunction(const EntropyGradArgs<T>& a) : args(a) {}
  const T* Input(int) const { return args.logits; }
  T* Output(int) const { return args.d_logits; }

  template <typename E>
  TFO_INLINE State Reduce(const E* const*, int64_t) const {
    return State();
  }
  struct Constants {
    V shift, factor, added;
  };
  template <typename Rows>
  TFO_INLINE Constants Finish(const State&, Rows rows, bool) const {
    SoftmaxState<V, Beside::kNothing> s;
    s.max = rows.Load(args.sums.largest);
    s.rest = rows.Load(args.sums.rest);
    return {s.shift(), -rows.Load(args.d_entropy) * s.Inverse(),
            rows.Load(args.entropy) - s.Log()};
  }
  template <typename Rows, typename Part, typename E>
  TFO_INLINE void Map(const Constants& row, Rows, Part part, const E* const* in,
                      E* const* out, int64_t at) const {
    // -d p (log p + H)
    const V below = ClampForExp(part.Load(in[0] + at, 0) - row.shift);
    part.Store(row.factor * ExpOfClamped(below) * (below + row.added),
               out[0] + at);
  }
};

#define TFO_DEFINE(T)                                 \
  TFO_DEFINE_ROW_FUNCTION(SoftmaxArgs<T, false>);     \
  TFO_DEFINE_ROW_FUNCTION(SoftmaxArgs<T, true>);      \
  TFO_DEFINE_ROW_FUNCTION(SoftmaxGradArgs<T, false>); \
  TFO_DEFINE_ROW_FUNCTION(SoftmaxGradArgs<T, true>);  \
  TFO_DEFINE_ROW_FUNCTION(EntropyArgs<T>);            \
  TFO_DEFINE_ROW_FUNCTION(EntropyGradArgs<T>)
TFO_DEFINE(float);
TFO_DEFINE(double);
TFO_DEFINE(Half);
TFO_DEFINE(BFloat16);
#undef TFO_DEFINE

}  // namespace TFO_CPU_NAMESPACE
}  // namespace tfo
