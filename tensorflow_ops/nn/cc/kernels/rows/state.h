// The state of a reduction after some of the classes of a row, written once for
// vectors and CUDA. V is a vector, whose lanes are reduced side by side, or a
// scalar.
//
// Every state has
//   Merge(a, b)     the state of a's classes and b's
//   Joined(lanes)   the state of all lanes' classes, in every lane; `lanes` has
//                   Sum and Max: of a vector's lanes, or of a warp's threads
//   Save, Read      to and from kRowState scalars
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_ROWS_STATE_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_ROWS_STATE_H_

#include "tensorflow_ops/nn/cc/kernels/rows/math.h"
#include "tensorflow_ops/nn/cc/kernels/rows/partition.h"

namespace tfo {

// The sums of a softmax's state besides that of e^(x - max): none; e^(x - max)
// (x - max); or targets t and t (x - max), where 0 * -inf is 0.
enum class AlsoSums { kNothing, kWeighted, kTargets };

namespace TFO_FORMULA_NAMESPACE {

// rows.h describes it.
template <typename Args>
struct RowFunction;

// Of functions that reduce nothing.
template <typename V>
struct NoState {
  using Value = ScalarOf<V>;
};

// Up to two sums.
template <typename V>
struct SumsState {
  using Value = ScalarOf<V>;
  V first = V{}, second = V{};

  TFO_FORMULA_METHOD static SumsState Merge(const SumsState& a,
                                            const SumsState& b) {
    return {a.first + b.first, a.second + b.second};
  }
  template <typename Join>
  TFO_FORMULA_METHOD SumsState Joined(const Join& lanes) const {
    return {lanes.Sum(first), lanes.Sum(second)};
  }
  TFO_FORMULA_METHOD void Save(Value* state) const {
    state[0] = FirstLane(first);
    state[1] = FirstLane(second);
  }
  TFO_FORMULA_METHOD static SumsState Read(const Value* state) {
    return {Broadcast<V>(state[0]), Broadcast<V>(state[1])};
  }
};

// sum e^(x - max) is at least 1. `rest` is that sum minus 1, kept apart since
// the logarithm of a sum near 1 needs it exact. With no class above -inf, max
// is -inf and rest -1. A NaN or +inf input makes `rest` NaN.
template <typename V, AlsoSums kAlso = AlsoSums::kNothing>
struct SoftmaxState {
  using Value = ScalarOf<V>;
  static constexpr AlsoSums kAlsoSums = kAlso;
  V max = V{} - static_cast<Value>(INFINITY);
  V rest = V{} - Value(1);
  V first = V{}, second = V{};

  // Returns the value to subtract from x before e^x: the maximum if it is
  // finite, else 0.
  TFO_FORMULA_METHOD static V Shift(V max) {
    return max > -static_cast<Value>(INFINITY) ? max : V{};
  }
  TFO_FORMULA_METHOD V shift() const { return Shift(max); }

  // The sums in units of e^m, for m >= max. `tops` is 1 where m == max: the 1
  // that `rest` leaves out.
  struct Scaled {
    V tops, rest, first, second;
  };
  TFO_FORMULA_METHOD Scaled ScaledTo(V m) const {
    const V to = Shift(m);
    const V below = ClampForExp(max - to);
    const V factor = ExpOfClamped(below);
    const auto is_top = max == m;
    Scaled s{is_top ? Broadcast<V>(Value(1)) : V{},
             is_top ? rest : (rest + Value(1)) * factor, first, second};
    if constexpr (kAlso == AlsoSums::kWeighted) {
      s.second = factor * MulAdd(below, rest + Value(1), second);
    }
    if constexpr (kAlso == AlsoSums::kTargets) {
      s.second = MulAdd(shift() - to, first, second);
    }
    return s;
  }
  TFO_FORMULA_METHOD static SoftmaxState Merge(const SoftmaxState& x,
                                               const SoftmaxState& y) {
    SoftmaxState both;
    both.max = Max(x.max, y.max);
    const Scaled a = x.ScaledTo(both.max), b = y.ScaledTo(both.max);
    both.rest = a.rest + b.rest + (a.tops + b.tops - Value(1));
    both.first = a.first + b.first;
    both.second = a.second + b.second;
    return both;
  }
  template <typename Join>
  TFO_FORMULA_METHOD SoftmaxState Joined(const Join& lanes) const {
    SoftmaxState all;
    all.max = lanes.Max(max);
    const Scaled s = ScaledTo(all.max);
    all.rest = lanes.Sum(s.rest) + (lanes.Sum(s.tops) - Value(1));
    if constexpr (kAlso == AlsoSums::kTargets) all.first = lanes.Sum(s.first);
    if constexpr (kAlso != AlsoSums::kNothing) all.second = lanes.Sum(s.second);
    return all;
  }

  // 1 / sum and log sum; 0 for a row with no class above -inf.
  TFO_FORMULA_METHOD V Inverse() const {
    return rest == Value(-1) ? V{} : Value(1) / (rest + Value(1));
  }
  TFO_FORMULA_METHOD V Log() const {
    return rest == Value(-1) ? V{} : Log1p(rest);
  }

  TFO_FORMULA_METHOD void Save(Value* state) const {
    state[0] = FirstLane(max);
    state[1] = FirstLane(rest);
    state[2] = FirstLane(first);
    state[3] = FirstLane(second);
  }
  TFO_FORMULA_METHOD static SoftmaxState Read(const Value* state) {
    return {Broadcast<V>(state[0]), Broadcast<V>(state[1]),
            Broadcast<V>(state[2]), Broadcast<V>(state[3])};
  }
};

template <typename State>
inline constexpr bool kIsSoftmaxState = false;
template <typename V, AlsoSums kAlso>
inline constexpr bool kIsSoftmaxState<SoftmaxState<V, kAlso>> = true;

// Whether a function with this state reduces its rows.
template <typename State>
inline constexpr bool kReducesRows = true;
template <typename V>
inline constexpr bool kReducesRows<NoState<V>> = false;

}  // namespace TFO_FORMULA_NAMESPACE
}  // namespace tfo

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_ROWS_STATE_H_
