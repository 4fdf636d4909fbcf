#include "tensorflow_ops/core/cc/rows_simd.h"
#include "tensorflow_ops/nn/cc/kernels/cross_entropy.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {
namespace {

// Keeps the least row.
void Report(int64_t row, int64_t* bad_row) {
  int64_t least = __atomic_load_n(bad_row, __ATOMIC_RELAXED);
  while (row < least &&
         !__atomic_compare_exchange_n(bad_row, &least, row, false,
                                      __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
}

// What a row's label says. As a number, for lanes: 1 yes, 0 no.
template <typename V>
struct LabelKind {
  V ignored, bad;
};

template <typename V, typename Args, typename Rows>
TFO_INLINE LabelKind<V> KindOfLabels(const Args& args, Rows rows, bool report) {
  const auto ignored = [&](int64_t row) {
    return args.options.ignores &&
           args.labels[row] == args.options.ignore_index;
  };
  LabelKind<V> kind;
  kind.ignored = args.options.ignores ? rows.Gather([&](int64_t row) {
    return static_cast<decltype(V{}[0] + 0)>(ignored(row));
  })
                                      : V{};
  kind.bad = rows.Gather([&](int64_t row) {
    const int64_t label = args.labels[row];
    const bool bad = (label < 0 || label >= args.classes) && !ignored(row);
    if (bad && report && args.bad_row != nullptr) Report(row, args.bad_row);
    return static_cast<decltype(V{}[0] + 0)>(bad);
  });
  return kind;
}

}  // namespace

template <typename T>
struct RowFunction<LabelLossArgs<T>> {
  using Args = LabelLossArgs<T>;
  using Element = T;
  using V = typename Lanes<T>::Vector;
  using Value = typename Lanes<T>::Value;
  using State = SoftmaxState<V, Beside::kTargets>;
  static constexpr int kInputs = 1, kOutputs = 0;
  const Args& args;

  explicit RowFunction(const Args& a) : args(a) {}
  const T* Input(int) const { return args.logits; }
  T* Output(int) const { return nullptr; }

  template <typename E>
  TFO_INLINE State Reduce(const E* const* in, int64_t n) const {
    if (args.options.label_smoothing != 0) {
      // first: how many; second: sum(x - largest)
      return ReduceSoftmax<Beside::kTargets>(in[0], n, [](auto part, int64_t) {
        return part.Keep(V{} + Value(1));
      });
    }
    const auto s = ReduceSoftmax(in[0], n);
    return {s.max, s.rest, V{}, V{}};
  }
  template <typename Rows>
  TFO_INLINE int Finish(const State& s, Rows rows, bool write) const {
    if (!write) return 0;
    const LabelKind<V> kind = KindOfLabels<V>(args, rows, /*report=*/true);
    const V of_label = rows.Gather([&](int64_t row) {
      const int64_t label = args.labels[row];
      return label >= 0 && label < args.classes
                 ? LoadOne(args.logits + row * args.classes + label)
                 : Value(0);
    });
    const V log = s.Log(), shift = s.shift();
    // Positive terms alone: what the sum is above 1, how far the label is below
    // the largest.
    V loss = log + (shift - of_label);
    if (const Value smoothing = args.options.label_smoothing; smoothing != 0) {
      loss = (1 - smoothing) * loss +
             smoothing * (log - s.second / static_cast<Value>(args.classes));
    }
    if (const Value z = args.options.z_loss; z != 0) {
      loss += z * (shift + log) * (shift + log);
    }
    loss = kind.bad != 0 ? V{} + static_cast<Value>(NAN) : loss;
    loss = kind.ignored != 0 ? V{} : loss;
    rows.Store(args.options.log_prob ? -loss : loss, args.loss);
    rows.Store(s.max, args.sums.largest);
    rows.Store(s.rest, args.sums.rest);
    return 0;
  }
};

template <typename T>
struct RowFunction<LabelLossGradArgs<T>> {
  using Args = LabelLossGradArgs<T>;
  using Element = T;
  using V = typename Lanes<T>::Vector;
  using Value = typename Lanes<T>::Value;
  using State = SumsState<V>;
  static constexpr int kInputs = 1, kOutputs = 1;
  const Args& args;

  explicit RowFunction(const Args& a) : args(a) {}
  const T* Input(int) const { return args.logits; }
  T* Output(int) const { return args.d_logits; }

  template <typename E>
  TFO_INLINE State Reduce(const E* const*, int64_t) const {
    return State();
  }
  template <typename LabelOf>
  struct Constants {
    LabelOf label;
    // d/dx = keep ? factor e^(x - shift) - uniform : 0, and at the label
    // at_label.
    V shift, factor, uniform, at_label, keep;
  };
  template <typename Rows>
  TFO_INLINE auto Finish(const State&, Rows rows, bool write) const {
    SoftmaxState<V, Beside::kNothing> s;
    s.max = rows.Load(args.sums.largest);
    s.rest = rows.Load(args.sums.rest);
    const LabelKind<V> kind = KindOfLabels<V>(args, rows, write);
    const V of_label = rows.Gather([&](int64_t row) {
      const int64_t label = args.labels[row];
      return label >= 0 && label < args.classes
                 ? LoadOne(args.logits + row * args.classes + label)
                 : Value(0);
    });
    Constants<decltype(rows.LabelsOf(args.labels))> row;
    row.label = rows.LabelsOf(args.labels);
    row.shift = s.shift();
    V d = rows.Load(args.d_loss);
    d = args.options.log_prob ? -d : d;
    d = kind.bad != 0 ? V{} + static_cast<Value>(NAN) : d;
    const Value smoothing = args.options.label_smoothing;
    const Value each = smoothing / static_cast<Value>(args.classes);
    // 2 z lse, by which z_loss weighs the probabilities more.
    const V more = Value(2 * args.options.z_loss) * (s.shift() + s.Log());
    const V inverse = s.Inverse();
    row.factor = d * (more + Value(1)) * inverse;
    row.uniform = d * each;
    const V p = ExpOfNegative(of_label - row.shift) * inverse;
    // p - 1, which for the largest is minus the others' share.
    const V less_one = of_label == s.max ? -s.rest * inverse : p - Value(1);
    row.at_label = d * (less_one + more * p + (smoothing - each));
    row.keep =
        (kind.ignored != 0) | (s.rest == Value(-1)) ? V{} : V{} + Value(1);
    return row;
  }
  template <typename Constants, typename Rows, typename Part, typename E>
  TFO_INLINE void Map(const Constants& row, Rows, Part part, const E* const* in,
                      E* const* out, int64_t at) const {
    const V e = ExpOfNegative(part.Load(in[0] + at, 0) - row.shift);
    V to = row.factor * e - row.uniform;
    to = row.label.IsAt(at) ? row.at_label : to;
    part.Store(row.keep != 0 ? to : V{}, out[0] + at);
  }
};

#define TFO_DEFINE(T)                        \
  TFO_DEFINE_ROW_FUNCTION(LabelLossArgs<T>); \
  TFO_DEFINE_ROW_FUNCTION(LabelLossGradArgs<T>)
TFO_DEFINE(float);
TFO_DEFINE(double);
TFO_DEFINE(Half);
TFO_DEFINE(BFloat16);
#undef TFO_DEFINE

}  // namespace TFO_CPU_NAMESPACE
}  // namespace tfo
