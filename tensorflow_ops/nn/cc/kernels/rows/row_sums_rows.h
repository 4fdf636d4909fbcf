// The formulas of row_sums.h (rows.h says how they are called).
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_ROWS_ROW_SUMS_ROWS_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_ROWS_ROW_SUMS_ROWS_H_

#include "tensorflow_ops/nn/cc/kernels/rows/row_sums.h"
#include "tensorflow_ops/nn/cc/kernels/rows/state.h"

namespace tfo {
namespace TFO_FORMULA_NAMESPACE {

template <typename T>
struct RowFunction<RowSumsArgs<T>> {
  using Element = T;
  using State = SoftmaxState<Vec<T>>;
  static constexpr int kInputs = 1, kOutputs = 0;
  RowSumsArgs<T> args;

  explicit RowFunction(const RowSumsArgs<T>& a) : args(a) {}
  TFO_HOST_DEVICE const T* Input(int) const { return args.logits; }
  TFO_HOST_DEVICE T* Output(int) const { return nullptr; }

  template <typename Row>
  TFO_FORMULA_METHOD int Finish(const State& s, const Row& row) const {
    if (!row.writes) return 0;
    row.Store(s.max, args.largest);
    row.Store(s.rest, args.rest);
    return 0;
  }
};

template <typename T>
struct RowFunction<ScaledSoftmaxArgs<T>> {
  using Element = T;
  using V = Vec<T>;
  using State = NoState<V>;
  static constexpr int kInputs = 1, kOutputs = 1;
  ScaledSoftmaxArgs<T> args;

  explicit RowFunction(const ScaledSoftmaxArgs<T>& a) : args(a) {}
  TFO_HOST_DEVICE const T* Input(int) const { return args.logits; }
  TFO_HOST_DEVICE T* Output(int) const { return args.d_logits; }

  struct Constants {
    V shift, factor, scale;
  };
  template <typename Row>
  TFO_FORMULA_METHOD Constants Finish(const State&, const Row& row) const {
    SoftmaxState<V> s;
    s.max = row.Load(args.largest);
    s.rest = row.Load(args.rest);
    const V scale = row.Load(args.scale);
    return {s.shift(), scale * s.Inverse(), scale};
  }
  template <typename Constants, typename Inputs, typename At>
  TFO_FORMULA_METHOD void Map(const Constants& row, const Inputs& in, At,
                              V* out) const {
    const V d = row.factor * ExpOfDifference<T>(in(0) - row.shift);
    out[0] = row.scale == 0 ? V{} : d;
  }
};

}  // namespace TFO_FORMULA_NAMESPACE
}  // namespace tfo

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_ROWS_ROW_SUMS_ROWS_H_
