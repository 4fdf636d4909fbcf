// The formulas of cross_entropy.h for distributions (rows.h says how they are
// called).
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_ROWS_CROSS_ENTROPY_ROWS_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_ROWS_CROSS_ENTROPY_ROWS_H_

#include "tensorflow_ops/nn/cc/kernels/rows/cross_entropy.h"
#include "tensorflow_ops/nn/cc/kernels/rows/state.h"

namespace tfo {
namespace TFO_FORMULA_NAMESPACE {

// Label smoothing: keep * label + each.
template <typename V>
struct LabelSmoothing {
  ScalarOf<V> keep, each;

  LabelSmoothing(double smoothing, int64_t classes)
      : keep(1 - smoothing), each(smoothing / static_cast<double>(classes)) {}
  TFO_FORMULA_METHOD V operator()(V label) const {
    return MulAdd(label, Broadcast<V>(keep), Broadcast<V>(each));
  }
};

template <typename T>
struct RowFunction<CrossEntropyArgs<T>> {
  using Element = T;
  using V = Vec<T>;
  using State = SoftmaxState<V, AlsoSums::kTargets>;
  static constexpr int kInputs = 2, kOutputs = 0;
  CrossEntropyArgs<T> args;
  LabelSmoothing<V> smooth;

  explicit RowFunction(const CrossEntropyArgs<T>& a)
      : args(a), smooth(a.label_smoothing, a.classes) {}
  TFO_HOST_DEVICE const T* Input(int i) const {
    return i == 0 ? args.logits : args.labels;
  }
  TFO_HOST_DEVICE T* Output(int) const { return nullptr; }

  TFO_FORMULA_METHOD static constexpr bool HasTargets() { return true; }
  template <typename Inputs>
  TFO_FORMULA_METHOD V Target(const Inputs& in) const {
    return smooth(in(1));
  }
  template <typename Row>
  TFO_FORMULA_METHOD int Finish(const State& s, const Row& row) const {
    if (!row.writes) return 0;
    row.Store(s.first * s.Log() - s.second, args.loss);
    row.Store(s.max, args.sums.largest);
    row.Store(s.rest, args.sums.rest);
    row.Store(s.first, args.label_sum);
    return 0;
  }
};

// d_logits = d (p label_sum - t), d_labels = -d log p (1 - smoothing).
template <typename T>
struct RowFunction<CrossEntropyGradArgs<T>> {
  using Element = T;
  using V = Vec<T>;
  using Value = ScalarOf<V>;
  using State = NoState<V>;
  static constexpr int kInputs = 2, kOutputs = 2;
  CrossEntropyGradArgs<T> args;
  LabelSmoothing<V> smooth;

  explicit RowFunction(const CrossEntropyGradArgs<T>& a)
      : args(a), smooth(a.label_smoothing, a.classes) {}
  TFO_HOST_DEVICE const T* Input(int i) const {
    return i == 0 ? args.logits : args.labels;
  }
  TFO_HOST_DEVICE T* Output(int i) const {
    return i == 0 ? args.d_logits : args.d_labels;
  }

  struct Constants {
    V shift, factor, d, log, keep;
  };
  template <typename Row>
  TFO_FORMULA_METHOD Constants Finish(const State&, const Row& row) const {
    SoftmaxState<V> s;
    s.max = row.Load(args.sums.largest);
    s.rest = row.Load(args.sums.rest);
    return {s.shift(), row.Load(args.label_sum) * s.Inverse(),
            row.Load(args.d_loss), s.Log(),
            s.rest == Value(-1) ? V{} : Broadcast<V>(Value(1))};
  }
  template <typename Inputs, typename At>
  TFO_FORMULA_METHOD void Map(const Constants& row, const Inputs& in, At,
                              V* out) const {
    const V below = in(0) - row.shift;
    const V t = smooth(in(1));
    const V to_logit = row.d * (row.factor * ExpOfDifference<T>(below) - t);
    out[0] = row.keep != 0 ? to_logit : V{};
    if (args.d_labels == nullptr) return;
    // A class with neither probability nor target does not contribute.
    const V to_label = row.d * smooth.keep * (row.log - below);
    constexpr Value kNone = -static_cast<Value>(INFINITY);
    out[1] = (below == kNone) & (t == 0) ? V{} : to_label;
  }
};

}  // namespace TFO_FORMULA_NAMESPACE
}  // namespace tfo

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_ROWS_CROSS_ENTROPY_ROWS_H_
