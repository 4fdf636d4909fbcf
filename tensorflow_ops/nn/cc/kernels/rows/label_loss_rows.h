// The formulas of cross_entropy.h for labels (rows.h says how they are called).
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_ROWS_LABEL_LOSS_ROWS_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_ROWS_LABEL_LOSS_ROWS_H_

#include "tensorflow_ops/nn/cc/kernels/rows/cross_entropy.h"
#include "tensorflow_ops/nn/cc/kernels/rows/state.h"

namespace tfo {
namespace TFO_FORMULA_NAMESPACE {

// The labels of a row or, in vectors, of a row per lane.
template <typename V>
struct LabelsOfRows {
  V ignored, bad;  // 1 or 0
  V logit;         // 0 where the label is not a class
};

template <typename V, typename Args, typename Row>
TFO_FORMULA_METHOD LabelsOfRows<V> ReadLabels(const Args& args,
                                              const Row& row) {
  using Value = ScalarOf<V>;
  const auto is_class = [&](int64_t r) {
    const int64_t label = args.labels[r];
    return label >= 0 && label < args.classes;
  };
  const auto is_ignored = [&](int64_t r) {
    return args.options.ignores && args.labels[r] == args.options.ignore_index;
  };
  LabelsOfRows<V> labels;
  labels.ignored = V{};
  if (args.options.ignores) {
    labels.ignored =
        row.Gather([&](int64_t r) { return Value(is_ignored(r)); });
  }
  labels.bad = row.Gather([&](int64_t r) {
    const bool is_bad = !is_class(r) && !is_ignored(r);
    if (is_bad) row.ReportBad(r, args.bad_row);
    return Value(is_bad);
  });
  labels.logit = row.Gather([&](int64_t r) {
    return is_class(r)
               ? LoadOne(args.logits + r * args.classes + args.labels[r])
               : Value(0);
  });
  return labels;
}

template <typename T>
struct RowFunction<LabelLossArgs<T>> {
  using Element = T;
  using V = Vec<T>;
  using Value = ScalarOf<V>;
  using State = SoftmaxState<V, AlsoSums::kTargets>;
  static constexpr int kInputs = 1, kOutputs = 0;
  LabelLossArgs<T> args;

  explicit RowFunction(const LabelLossArgs<T>& a) : args(a) {}
  TFO_HOST_DEVICE const T* Input(int) const { return args.logits; }
  TFO_HOST_DEVICE T* Output(int) const { return nullptr; }

  // Smoothing adds up x - largest of all classes: each is a target of 1.
  TFO_FORMULA_METHOD bool HasTargets() const {
    return args.options.label_smoothing != 0;
  }
  template <typename Inputs>
  TFO_FORMULA_METHOD V Target(const Inputs&) const {
    return Broadcast<V>(Value(1));
  }
  template <typename Row>
  TFO_FORMULA_METHOD int Finish(const State& s, const Row& row) const {
    if (!row.writes) return 0;
    const auto labels = ReadLabels<V>(args, row);
    const V log = s.Log(), shift = s.shift();
    // Both terms are positive: log sum, and how far the label's logit is below
    // the largest.
    V loss = log + (shift - labels.logit);
    if (const Value smoothing = args.options.label_smoothing; smoothing != 0) {
      loss = (1 - smoothing) * loss +
             smoothing * (log - s.second / static_cast<Value>(args.classes));
    }
    if (const Value z = args.options.z_loss; z != 0) {
      loss += z * (shift + log) * (shift + log);
    }
    loss = labels.bad != 0 ? Broadcast<V>(static_cast<Value>(NAN)) : loss;
    loss = labels.ignored != 0 ? V{} : loss;
    row.Store(args.options.log_prob ? -loss : loss, args.loss);
    row.Store(s.max, args.sums.largest);
    row.Store(s.rest, args.sums.rest);
    return 0;
  }
};

template <typename T>
struct RowFunction<LabelLossGradArgs<T>> {
  using Element = T;
  using V = Vec<T>;
  using Value = ScalarOf<V>;
  using State = NoState<V>;
  static constexpr int kInputs = 1, kOutputs = 1;
  LabelLossGradArgs<T> args;

  explicit RowFunction(const LabelLossGradArgs<T>& a) : args(a) {}
  TFO_HOST_DEVICE const T* Input(int) const { return args.logits; }
  TFO_HOST_DEVICE T* Output(int) const { return args.d_logits; }

  // d_logits = keep ? factor e^(x - shift) - uniform : 0, and at_label for the
  // label's logit.
  template <typename Label>
  struct Constants {
    Label label;
    V shift, factor, uniform, at_label, keep;
  };
  template <typename Row>
  TFO_FORMULA_METHOD auto Finish(const State&, const Row& row) const {
    SoftmaxState<V> s;
    s.max = row.Load(args.sums.largest);
    s.rest = row.Load(args.sums.rest);
    const auto labels = ReadLabels<V>(args, row);
    const V inverse = s.Inverse();
    V d = row.Load(args.d_loss);
    d = args.options.log_prob ? -d : d;
    d = labels.bad != 0 ? Broadcast<V>(static_cast<Value>(NAN)) : d;
    const Value smoothing = args.options.label_smoothing;
    const Value each = smoothing / static_cast<Value>(args.classes);
    // z_loss adds 2 z lse p to the gradient of each logit.
    const Value z = 2 * args.options.z_loss;
    V more = V{};
    if (z != 0) more = z * (s.shift() + s.Log());
    Constants<decltype(row.LabelIn(args.labels))> c;
    c.label = row.LabelIn(args.labels);
    c.shift = s.shift();
    c.factor = d * (more + Value(1)) * inverse;
    c.uniform = d * each;
    const V p = ExpOfNegative(labels.logit - c.shift) * inverse;
    // p - 1, which for the largest logit is minus the share of the others.
    const V p_minus_1 =
        labels.logit == s.max ? -s.rest * inverse : p - Value(1);
    c.at_label = d * (p_minus_1 + more * p + (smoothing - each));
    c.keep = (labels.ignored != 0) | (s.rest == Value(-1))
                 ? V{}
                 : Broadcast<V>(Value(1));
    return c;
  }
  template <typename Constants, typename Inputs, typename At>
  TFO_FORMULA_METHOD void Map(const Constants& row, const Inputs& in, At at,
                              V* out) const {
    V d = row.factor * ExpOfDifference<T>(in(0) - row.shift) - row.uniform;
    d = row.label.IsAt(at) ? row.at_label : d;
    out[0] = row.keep != 0 ? d : V{};
  }
};

}  // namespace TFO_FORMULA_NAMESPACE
}  // namespace tfo

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_ROWS_LABEL_LOSS_ROWS_H_
