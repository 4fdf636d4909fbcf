#include "tensorflow_ops/core/cc/rows_simd.h"
#include "tensorflow_ops/nn/cc/kernels/cross_entropy.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {

template <typename T>
struct RowFunction<CrossEntropyArgs<T>> {
  using Args = CrossEntropyArgs<T>;
  using Element = T;
  using V = typename Lanes<T>::Vector;
  using Value = typename Lanes<T>::Value;
  using State = SoftmaxState<V, Beside::kTargets>;
  static constexpr int kInputs = 2, kOutputs = 0;
  const Args& args;

  explicit RowFunction(const Args& a) : args(a) {}
  const T* Input(int i) const { return i == 0 ? args.logits : args.labels; }
  T* Output(int) const { return nullptr; }

  template <typename E>
  TFO_INLINE State Reduce(const E* const* in, int64_t n) const {
    const Value keep = 1 - args.label_smoothing;
    const Value each = args.label_smoothing / args.classes;
    return ReduceSoftmax<Beside::kTargets>(
        in[0], n, [&](auto part, int64_t at) {
          const V t = part.Load(in[1] + at, 0);
          return part.Keep(MulAdd(t, V{} + keep, V{} + each));
        });
  }
  template <typename Rows>
  TFO_INLINE int Finish(const State& s, Rows rows, bool write) const {
    if (!write) return 0;
    rows.Store(s.first * s.Log() - s.second, args.loss);
    rows.Store(s.max, args.sums.largest);
    rows.Store(s.rest, args.sums.rest);
    rows.Store(s.first, args.label_sum);
    return 0;
  }
};

template <typename T>
struct RowFunction<CrossEntropyGradArgs<T>> {
  using Args = CrossEntropyGradArgs<T>;
  using Element = T;
  using V = typename Lanes<T>::Vector;
  using Value = typename Lanes<T>::Value;
  using State = SumsState<V>;
  static constexpr int kInputs = 2, kOutputs = 2;
  const Args& args;

  explicit RowFunction(const Args& a) : args(a) {}
  const T* Input(int i) const { return i == 0 ? args.logits : args.labels; }
  T* Output(int i) const { return i == 0 ? args.d_logits : args.d_labels; }

  template <typename E>
  TFO_INLINE State Reduce(const E* const*, int64_t) const {
    return State();
  }
  struct Constants {
    V shift, factor, d, log, keep;
  };
  template <typename Rows>
  TFO_INLINE Constants Finish(const State&, Rows rows, bool) const {
    SoftmaxState<V, Beside::kNothing> s;
    s.max = rows.Load(args.sums.largest);
    s.rest = rows.Load(args.sums.rest);
    const V d = rows.Load(args.d_loss);
    return {s.shift(), rows.Load(args.label_sum) * s.Inverse(), d, s.Log(),
            s.rest == Value(-1) ? V{} : V{} + Value(1)};
  }
  template <typename Rows, typename Part, typename E>
  TFO_INLINE void Map(const Constants& row, Rows, Part part, const E* const* in,
                      E* const* out, int64_t at) const {
    const Value keep = 1 - args.label_smoothing;
    const Value each = args.label_smoothing / args.classes;
    const V below = part.Load(in[0] + at, 0) - row.shift;
    const V t = MulAdd(part.Load(in[1] + at, 0), V{} + keep, V{} + each);
    const V to = row.d * (row.factor * ExpOfNegative(below) - t);
    part.Store(row.keep != 0 ? to : V{}, out[0] + at);
    if (out[1] != nullptr) {
      // -log p; a class that has neither probability nor target has no part.
      const V to_label = row.d * keep * (row.log - below);
      constexpr Value kNone = -static_cast<Value>(INFINITY);
      part.Store((below == kNone) & (t == 0) ? V{} : to_label, out[1] + at);
    }
  }
};

#define TFO_DEFINE(T)                           \
  TFO_DEFINE_ROW_FUNCTION(CrossEntropyArgs<T>); \
  TFO_DEFINE_ROW_FUNCTION(CrossEntropyGradArgs<T>)
TFO_DEFINE(float);
TFO_DEFINE(double);
TFO_DEFINE(Half);
TFO_DEFINE(BFloat16);
#undef TFO_DEFINE

}  // namespace TFO_CPU_NAMESPACE
}  // namespace tfo
