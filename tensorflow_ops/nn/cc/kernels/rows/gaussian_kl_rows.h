// The formulas of gaussian_kl.h (rows.h says how they are called).
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_ROWS_GAUSSIAN_KL_ROWS_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_ROWS_GAUSSIAN_KL_ROWS_H_

#include "tensorflow_ops/nn/cc/kernels/rows/gaussian_kl.h"
#include "tensorflow_ops/nn/cc/kernels/rows/state.h"

namespace tfo {
namespace TFO_FORMULA_NAMESPACE {

// Two Gaussians in a dimension: s_q - s_p, e^(-s_p / 2), and the difference of
// means in p's standard deviations.
template <typename V>
struct GaussianDifference {
  V log_variances, inverse_deviation, means;
};

template <typename V, bool kUnit, typename Inputs>
TFO_FORMULA_METHOD GaussianDifference<V> DifferenceOf(const Inputs& in) {
  using Value = ScalarOf<V>;
  const V q_mean = in(0), q_log = in(1);
  if constexpr (kUnit) {
    return {q_log, Broadcast<V>(Value(1)), q_mean};
  } else {
    const V p_log = in(3), means = q_mean - in(2);
    // The square root: a square overflows before the result does.
    const V inverse = Exp(p_log * Value(-0.5));
    return {q_log - p_log, inverse, means == 0 ? V{} : means * inverse};
  }
}

template <typename T, bool kUnit>
struct RowFunction<GaussianKlArgs<T, kUnit>> {
  using Element = T;
  using V = Vec<T>;
  using State = SumsState<V>;
  static constexpr int kInputs = kUnit ? 2 : 4, kOutputs = 0;
  GaussianKlArgs<T, kUnit> args;

  explicit RowFunction(const GaussianKlArgs<T, kUnit>& a) : args(a) {}
  TFO_HOST_DEVICE const T* Input(int i) const {
    return i == 0   ? args.q_mean
           : i == 1 ? args.q_log_variance
           : i == 2 ? args.p_mean
                    : args.p_log_variance;
  }
  TFO_HOST_DEVICE T* Output(int) const { return nullptr; }

  template <typename Inputs>
  TFO_FORMULA_METHOD void Add(const Inputs& in, State& s) const {
    const auto d = DifferenceOf<V, kUnit>(in);
    s.first += ExpMinusTangent(d.log_variances);
    s.second = MulAdd(d.means, d.means, s.second);
  }
  template <typename Row>
  TFO_FORMULA_METHOD int Finish(const State& s, const Row& row) const {
    using Value = ScalarOf<V>;
    if (row.writes)
      row.Store(Value(0.5) * (s.first + s.second), args.divergence);
    return 0;
  }
};

template <typename T, bool kUnit>
struct RowFunction<GaussianKlGradArgs<T, kUnit>> {
  using Args = GaussianKlGradArgs<T, kUnit>;
  using Element = T;
  using V = Vec<T>;
  using State = NoState<V>;
  static constexpr int kInputs = kUnit ? 2 : 4, kOutputs = Args::kOutputs;
  Args args;

  explicit RowFunction(const Args& a) : args(a) {}
  TFO_HOST_DEVICE const T* Input(int i) const {
    return i == 0   ? args.q_mean
           : i == 1 ? args.q_log_variance
           : i == 2 ? args.p_mean
                    : args.p_log_variance;
  }
  TFO_HOST_DEVICE T* Output(int i) const {
    return i == 0   ? args.d_q_mean
           : i == 1 ? args.d_q_log_variance
           : i == 2 ? args.d_p_mean
                    : args.d_p_log_variance;
  }

  template <typename Row>
  TFO_FORMULA_METHOD V Finish(const State&, const Row& row) const {
    return row.Load(args.d_divergence);
  }
  template <typename Inputs, typename At>
  TFO_FORMULA_METHOD void Map(V d_row, const Inputs& in, At, V* out) const {
    using Value = ScalarOf<V>;
    const auto d = DifferenceOf<V, kUnit>(in);
    const V d_mean = d.means == 0 ? V{} : d_row * d.means * d.inverse_deviation;
    const V ratio = Expm1(d.log_variances), half = d_row * Value(0.5);
    out[0] = d_mean;
    out[1] = half * ratio;
    if constexpr (!kUnit) {
      out[2] = -d_mean;
      out[3] = -half * MulAdd(d.means, d.means, ratio);
    }
  }
};

}  // namespace TFO_FORMULA_NAMESPACE
}  // namespace tfo

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_ROWS_GAUSSIAN_KL_ROWS_H_
