#include "tensorflow_ops/nn/cc/kernels/sequence_losses/rnnt_loss_simd.h"

#include "tensorflow_ops/nn/cc/kernels/rows/state.h"
#include "tensorflow_ops/nn/cc/kernels/sequence_losses/scaled_simd.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {

// One vector of nodes (t, u ...), `count` of them.
template <typename T, typename Value>
static TFO_INLINE bool EmitVector(const RnntNodes<T>& nodes,
                                  const RnntLattice<Value>& lattice, int64_t t,
                                  int64_t u, int64_t count,
                                  typename ScaledVector<Value>::I& least) {
  using S = ScaledVector<Value>;
  using Exponent = typename S::Exponent;
  constexpr int kCount = S::kCount;
  constexpr Value kNone = -static_cast<Value>(INFINITY);
  const int64_t row = nodes.first_row + t * nodes.rows_per_frame + u;
  typename S::V blank = {}, label = {}, largest = {}, rest = {};
  bool finite = true;
  for (int i = 0; i < kCount; ++i) {
    blank[i] = label[i] = kNone;
    if (i >= count) continue;
    const T* const logits = nodes.logits + (row + i) * nodes.classes;
    largest[i] = nodes.largest[row + i];
    rest[i] = nodes.rest[row + i];
    finite &= rest[i] == rest[i];
    blank[i] = LoadOne(logits + nodes.blank);
    if (u + i < lattice.labels) {
      label[i] = LoadOne(logits + lattice.label[u + i]);
    }
  }
  const SoftmaxState<typename S::V> sums = {largest, rest};
  const auto shift = sums.shift(), log = sums.Log();
  Value mantissas[2][kCount];
  Exponent exponents[2][kCount];
  ScaledSoftmax(blank, shift, log, least).Store(mantissas[0], exponents[0]);
  ScaledSoftmax(label, shift, log, least).Store(mantissas[1], exponents[1]);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t at = lattice.At(t, u + i);
    lattice.blanks.mantissas[at] = mantissas[0][i];
    lattice.blanks.exponents[at] = exponents[0][i];
    lattice.emissions.mantissas[at] = mantissas[1][i];
    lattice.emissions.exponents[at] = exponents[1][i];
  }
  return finite;
}

template <typename T, typename Value>
bool RnntEmissions(const RnntNodes<T>& nodes, const RnntLattice<Value>& lattice,
                   int64_t begin, int64_t end, int64_t* lowest) {
  using S = ScaledVector<Value>;
  typename S::I least = {};
  bool finite = true;
  for (int64_t t = begin; t < end; ++t) {
    for (int64_t u = 0; u <= lattice.labels; u += S::kCount) {
      const int64_t left = lattice.labels + 1 - u;
      const int64_t count = left < S::kCount ? left : S::kCount;
      finite &= EmitVector(nodes, lattice, t, u, count, least);
    }
  }
  const int64_t lane = LeastLane(least);
  *lowest = lane < *lowest ? lane : *lowest;
  return finite;
}

template <typename Value>
double RnntForward(const RnntLattice<Value>& lattice,
                   ScaledTotal<Value>* total) {
  using S = ScaledVector<Value>;
  const auto& alpha = lattice.alpha;
  const int64_t last = lattice.Diagonals() - 1;
  for (int64_t d = 0; d <= last; ++d) {
    if (d < 2 || lattice.keep_all_rows) {
      ClearRow(alpha, lattice.RowOf(d) - kStateGuard, lattice.stride);
    }
    if (d == 0) {
      alpha.mantissas[lattice.RowOf(0)] = 1;
      alpha.exponents[lattice.RowOf(0)] = 0;
      continue;
    }
    const int64_t from = lattice.RowOf(d - 1), to = lattice.RowOf(d);
    const int64_t edges = (d - 1) * lattice.stride + kStateGuard;
    for (int64_t u = 0; u <= lattice.labels; u += S::kCount) {
      const S waits =
          LoadAt(alpha, from + u) * LoadAt(lattice.blanks, edges + u);
      const S emits = LoadAt(alpha, from + u - 1) *
                      LoadAt(lattice.emissions, edges + u - 1);
      StoreAt((waits + emits).Normalized(), alpha, to + u);
    }
  }
  const int64_t end = lattice.RowOf(last) + lattice.labels;
  const S sum = (Broadcast(alpha, end) *
                 Broadcast(lattice.blanks,
                           lattice.At(lattice.frames - 1, lattice.labels)))
                    .Normalized();
  *total = {sum.mantissa[0], sum.exponent[0]};
  return 0 - LogOfScaled(total->mantissa, total->exponent);
}

template <typename Value>
void RnntBackward(const RnntLattice<Value>& lattice,
                  const ScaledTotal<Value>& of_all) {
  using S = ScaledVector<Value>;
  const auto& beta = lattice.scratch;
  const Value inverse = 1 / of_all.mantissa;
  const auto total = static_cast<typename S::Exponent>(of_all.exponent);
  const int64_t stride = lattice.stride;
  ClearRow(beta, 0, 2 * stride + kStateGuard);
  const int64_t last = lattice.Diagonals() - 1;
  const int64_t end = (last + 1) % 2 * stride + kStateGuard + lattice.labels;
  beta.mantissas[end] = 1;
  beta.exponents[end] = 0;
  for (int64_t d = last; d >= 0; --d) {
    const int64_t row = d * stride + kStateGuard;
    const int64_t from = (d + 1) % 2 * stride + kStateGuard;
    const int64_t to = d % 2 * stride + kStateGuard;
    for (int64_t u = 0; u <= lattice.labels; u += S::kCount) {
      const S way = LoadAt(lattice.alpha, row + u);
      const S blank = LoadAt(lattice.blanks, row + u);
      const S label = LoadAt(lattice.emissions, row + u);
      const S by_blank = (blank * LoadAt(beta, from + u)).Normalized();
      const S by_label = (label * LoadAt(beta, from + u + 1)).Normalized();
      StoreAt((by_blank + by_label).Normalized(), beta, to + u);
      const auto blanks = Shares(way * by_blank, inverse, total);
      const auto labels = Shares(way * by_label, inverse, total);
      const auto node = blanks + labels;
      Store(node, lattice.alpha.mantissas + row + u);
      Store(node * Shares(blank, Value(1), 0) - blanks,
            lattice.blanks.mantissas + row + u);
      Store(node * Shares(label, Value(1), 0) - labels,
            lattice.emissions.mantissas + row + u);
    }
  }
}

#define TFO_INSTANTIATE(Value)                                                 \
  template double RnntForward(const RnntLattice<Value>&, ScaledTotal<Value>*); \
  template void RnntBackward(const RnntLattice<Value>&,                        \
                             const ScaledTotal<Value>&)
TFO_INSTANTIATE(float);
TFO_INSTANTIATE(double);
#undef TFO_INSTANTIATE

#define TFO_INSTANTIATE(T, Value)                                             \
  template bool RnntEmissions(const RnntNodes<T>&, const RnntLattice<Value>&, \
                              int64_t, int64_t, int64_t*)
TFO_INSTANTIATE(float, float);
TFO_INSTANTIATE(Half, float);
TFO_INSTANTIATE(BFloat16, float);
TFO_INSTANTIATE(float, double);
TFO_INSTANTIATE(Half, double);
TFO_INSTANTIATE(BFloat16, double);
TFO_INSTANTIATE(double, double);
#undef TFO_INSTANTIATE

}  // namespace TFO_CPU_NAMESPACE
}  // namespace tfo
