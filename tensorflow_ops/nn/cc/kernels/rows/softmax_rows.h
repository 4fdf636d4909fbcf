// The formulas of softmax.h (rows.h says how they are called).
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_ROWS_SOFTMAX_ROWS_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_ROWS_SOFTMAX_ROWS_H_

#include "tensorflow_ops/nn/cc/kernels/rows/softmax.h"
#include "tensorflow_ops/nn/cc/kernels/rows/state.h"

namespace tfo {
namespace TFO_FORMULA_NAMESPACE {

template <typename T>
struct RowFunction<SoftmaxArgs<T>> {
  using Element = T;
  using V = Vec<T>;
  using State = SoftmaxState<V>;
  static constexpr int kInputs = 1, kOutputs = 1;
  SoftmaxArgs<T> args;

  explicit RowFunction(const SoftmaxArgs<T>& a) : args(a) {}
  TFO_HOST_DEVICE const T* Input(int) const { return args.logits; }
  TFO_HOST_DEVICE T* Output(int) const { return args.output; }
  TFO_FORMULA_METHOD bool KeepsTerms() const { return !args.log; }

  struct Constants {
    V shift, factor;  // factor: 1 / sum, or log sum
  };
  template <typename Row>
  TFO_FORMULA_METHOD Constants Finish(const State& s, const Row&) const {
    return {s.shift(), args.log ? s.Log() : s.Inverse()};
  }
  template <typename Inputs, typename At>
  TFO_FORMULA_METHOD void Map(const Constants& row, const Inputs& in, At,
                              V* out) const {
    const V below = in(0) - row.shift;
    if (args.log) {
      out[0] = below - row.factor;
    } else {
      out[0] = ExpOfDifference<T>(below) * row.factor;
    }
  }
};

// d_logits = y (d - sum(d y)), or d - e^y sum(d) where y is a logarithm.
template <typename T>
struct RowFunction<SoftmaxGradArgs<T>> {
  using Element = T;
  using V = Vec<T>;
  using State = SumsState<V>;
  static constexpr int kInputs = 2, kOutputs = 1;
  SoftmaxGradArgs<T> args;

  explicit RowFunction(const SoftmaxGradArgs<T>& a) : args(a) {}
  TFO_HOST_DEVICE const T* Input(int i) const {
    return i == 0 ? args.d_output : args.output;
  }
  TFO_HOST_DEVICE T* Output(int) const { return args.d_logits; }

  template <typename Inputs>
  TFO_FORMULA_METHOD void Add(const Inputs& in, State& s) const {
    const V d = in(0);
    if (args.log) {
      s.first += d;
    } else {
      // A class of probability 0 does not contribute, whatever d is.
      const V y = in(1);
      s.first = y == 0 ? s.first : MulAdd(d, y, s.first);
    }
  }
  template <typename Row>
  TFO_FORMULA_METHOD V Finish(const State& s, const Row&) const {
    return s.first;
  }
  template <typename Inputs, typename At>
  TFO_FORMULA_METHOD void Map(V sum, const Inputs& in, At, V* out) const {
    const V d = in(0), y = in(1);
    if (args.log) {
      out[0] = d - ExpOfDifference<T>(y) * sum;
    } else {
      out[0] = y == 0 ? V{} : y * (d - sum);
    }
  }
};

template <typename T>
struct RowFunction<EntropyArgs<T>> {
  using Element = T;
  using State = SoftmaxState<Vec<T>, AlsoSums::kWeighted>;
  static constexpr int kInputs = 1, kOutputs = 0;
  EntropyArgs<T> args;

  explicit RowFunction(const EntropyArgs<T>& a) : args(a) {}
  TFO_HOST_DEVICE const T* Input(int) const { return args.logits; }
  TFO_HOST_DEVICE T* Output(int) const { return nullptr; }

  template <typename Row>
  TFO_FORMULA_METHOD int Finish(const State& s, const Row& row) const {
    if (!row.writes) return 0;
    // -sum p log p with log p = x - largest - log sum: both terms are positive.
    row.Store(s.Log() - s.second * s.Inverse(), args.entropy);
    row.Store(s.max, args.sums.largest);
    row.Store(s.rest, args.sums.rest);
    return 0;
  }
};

// d_logits = -d p (log p + entropy).
template <typename T>
struct RowFunction<EntropyGradArgs<T>> {
  using Element = T;
  using V = Vec<T>;
  using State = NoState<V>;
  static constexpr int kInputs = 1, kOutputs = 1;
  EntropyGradArgs<T> args;

  explicit RowFunction(const EntropyGradArgs<T>& a) : args(a) {}
  TFO_HOST_DEVICE const T* Input(int) const { return args.logits; }
  TFO_HOST_DEVICE T* Output(int) const { return args.d_logits; }

  struct Constants {
    V shift, factor, added;
  };
  template <typename Row>
  TFO_FORMULA_METHOD Constants Finish(const State&, const Row& row) const {
    SoftmaxState<V> s;
    s.max = row.Load(args.sums.largest);
    s.rest = row.Load(args.sums.rest);
    return {s.shift(), -row.Load(args.d_entropy) * s.Inverse(),
            row.Load(args.entropy) - s.Log()};
  }
  template <typename Inputs, typename At>
  TFO_FORMULA_METHOD void Map(const Constants& row, const Inputs& in, At,
                              V* out) const {
    const V below = ClampForExp(in(0) - row.shift);
    out[0] =
        row.factor * ExpOfClampedDifference<T>(below) * (below + row.added);
  }
};

}  // namespace TFO_FORMULA_NAMESPACE
}  // namespace tfo

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_ROWS_SOFTMAX_ROWS_H_
