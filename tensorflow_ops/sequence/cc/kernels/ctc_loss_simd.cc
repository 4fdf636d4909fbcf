#include "tensorflow_ops/sequence/cc/kernels/ctc_loss_simd.h"

#include "tensorflow_ops/nn/cc/rows/state.h"
#include "tensorflow_ops/sequence/cc/kernels/scaled_simd.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {

template <typename T, typename Value>
bool CtcEmissions(const CtcFrames<T>& frames, const CtcLattice<Value>& lattice,
                  int64_t begin, int64_t end, int64_t* lowest) {
  using S = ScaledVector<Value>;
  typename S::I least = {};
  bool finite = true;
  const int64_t labels = lattice.labels, stride = lattice.stride;
  for (int64_t t = begin; t < end; ++t) {
    const T* const logits = frames.logits + t * frames.classes;
    const int64_t row = lattice.first_row + t;
    const auto rest = frames.rest[row];
    finite &= rest == rest;
    using OfRow = typename Lanes<T>::Vector;
    const SoftmaxState<OfRow> sums = {OfRow{} + frames.largest[row],
                                      OfRow{} + rest};
    const auto shift = typename S::V{} + Value(sums.shift()[0]);
    const auto log = typename S::V{} + Value(sums.Log()[0]);
    const int64_t at = t * stride + kStateGuard;
    Value* const mantissas = lattice.emissions.mantissas + at;
    auto* const exponents = lattice.emissions.exponents + at;
    for (int64_t u = 0; u < labels; ++u) {
      mantissas[u] = LoadOne(logits + lattice.label[u]);
    }
    // States beyond the labels have probability 0.
    for (int64_t u = labels; u < stride - kStateGuard; ++u) {
      mantissas[u] = -static_cast<Value>(INFINITY);
    }
    for (int64_t u = 0; u <= labels; u += S::kCount) {
      const auto x = Load(mantissas + u);
      ScaledSoftmax(x, shift, log, least).Store(mantissas + u, exponents + u);
    }
    const auto blank = ScaledSoftmax(
        typename S::V{} + LoadOne(logits + frames.blank), shift, log, least);
    lattice.blanks.mantissas[t] = blank.mantissa[0];
    lattice.blanks.exponents[t] = blank.exponent[0];
  }
  const int64_t lane = LeastLane(least);
  *lowest = lane < *lowest ? lane : *lowest;
  return finite;
}

template <typename Value>
double CtcForward(const CtcLattice<Value>& lattice, Value* mantissa,
                  int64_t* exponent) {
  using S = ScaledVector<Value>;
  const auto &blanks = lattice.blank_paths, &labels = lattice.label_paths;
  const int64_t stride = lattice.stride;
  for (int i = 0; i < 2; ++i) {
    ClearRow(blanks, i * stride, stride);
    ClearRow(labels, i * stride, stride);
  }
  int64_t from = lattice.RowOf(-1);
  blanks.mantissas[from] = 1;
  blanks.exponents[from] = 0;
  for (int64_t t = 0; t < lattice.frames; ++t) {
    const int64_t to = lattice.RowOf(t);
    if (lattice.keeps) {
      ClearRow(blanks, to - kStateGuard, kStateGuard);
      ClearRow(labels, to - kStateGuard, kStateGuard);
    }
    const S blank = Broadcast(lattice.blanks, t);
    const int64_t emission = t * stride + kStateGuard;
    for (int64_t u = 0; u <= lattice.labels; u += S::kCount) {
      const S before = LoadAt(labels, from + u - 1);
      const S here = LoadAt(blanks, from + u);
      typename S::I skips;
      memcpy(&skips, lattice.skips + u, sizeof(skips));
      StoreAt(((here + before) * blank).Normalized(), blanks, to + u);
      const S paths =
          S::Sum(LoadAt(labels, from + u), here, before.Where(skips));
      StoreAt((paths * LoadAt(lattice.emissions, emission + u)).Normalized(),
              labels, to + u);
    }
    from = to;
  }
  const S end = (Broadcast(blanks, from + lattice.labels) +
                 Broadcast(labels, from + lattice.labels - 1))
                    .Normalized();
  *mantissa = end.mantissa[0];
  *exponent = end.exponent[0];
  return 0 - LogOfScaled(*mantissa, *exponent);
}

// Multiplies the paths that follow with their emissions at frame t: scratch
// rows 0 and 1 (blanks, labels) to rows 2 and 3. Row 3 is 0 beyond the labels.
template <typename Value>
static TFO_INLINE void EmitBackward(const CtcLattice<Value>& lattice,
                                    int64_t t) {
  using S = ScaledVector<Value>;
  const auto& rows = lattice.scratch;
  const int64_t stride = lattice.stride, emission = t * stride + kStateGuard;
  const S blank = Broadcast(lattice.blanks, t);
  for (int64_t u = kStateGuard; u <= kStateGuard + lattice.labels;
       u += S::kCount) {
    StoreAt((LoadAt(rows, u) * blank).Normalized(), rows, 2 * stride + u);
    const S y = LoadAt(lattice.emissions, emission - kStateGuard + u);
    StoreAt((LoadAt(rows, stride + u) * y).Normalized(), rows, 3 * stride + u);
  }
}

// Replaces the mantissas of a frame's emissions and blank by probabilities.
template <typename Value>
static TFO_INLINE void ToProbabilities(const CtcLattice<Value>& lattice,
                                       int64_t t) {
  using S = ScaledVector<Value>;
  const int64_t at = t * lattice.stride + kStateGuard;
  for (int64_t u = 0; u < lattice.labels; u += S::kCount) {
    const S y = LoadAt(lattice.emissions, at + u);
    Store(Shares(y, Value(1), 0), lattice.emissions.mantissas + at + u);
  }
  lattice.blanks.mantissas[t] =
      Shares(Broadcast(lattice.blanks, t), Value(1), 0)[0];
}

template <typename Value>
void CtcBackward(const CtcLattice<Value>& lattice, Value mantissa,
                 int64_t exponent) {
  using S = ScaledVector<Value>;
  const auto& rows = lattice.scratch;
  const auto &blanks = lattice.blank_paths, &labels = lattice.label_paths;
  const int64_t stride = lattice.stride, last = kStateGuard + lattice.labels;
  const Value inverse = 1 / mantissa;
  const auto total = static_cast<typename S::Exponent>(exponent);
  ClearRow(rows, 0, 4 * stride + kStateGuard);
  rows.mantissas[last] = rows.mantissas[stride + last - 1] = 1;
  rows.exponents[last] = rows.exponents[stride + last - 1] = 0;
  // Without labels, what is in front of them is the guard.
  if (lattice.labels == 0) ClearRow(rows, stride + last - 1, 1);
  for (int64_t t = lattice.frames - 1; t >= 0; --t) {
    const int64_t row = lattice.RowOf(t);
    typename S::V sum = {};
    for (int64_t u = 0; u <= lattice.labels; u += S::kCount) {
      const int64_t at = kStateGuard + u;
      sum += Shares(LoadAt(blanks, row + u) * LoadAt(rows, at), inverse, total);
      const auto share = Shares(
          LoadAt(labels, row + u) * LoadAt(rows, stride + at), inverse, total);
      Store(share, labels.mantissas + row + u);
    }
    blanks.mantissas[row] = SumLanes(sum);
    if (t > 0) EmitBackward(lattice, t);
    ToProbabilities(lattice, t);
    if (t == 0) break;
    for (int64_t u = 0; u <= lattice.labels; u += S::kCount) {
      const int64_t at = kStateGuard + u;
      typename S::I skips;
      memcpy(&skips, lattice.skips + u + 1, sizeof(skips));
      const S label = LoadAt(rows, 3 * stride + at);
      StoreAt((LoadAt(rows, 2 * stride + at) + label).Normalized(), rows, at);
      const S paths = S::Sum(label, LoadAt(rows, 2 * stride + at + 1),
                             LoadAt(rows, 3 * stride + at + 1).Where(skips));
      StoreAt(paths.Normalized(), rows, stride + at);
    }
  }
}

#define TFO_INSTANTIATE(Value)                                            \
  template double CtcForward(const CtcLattice<Value>&, Value*, int64_t*); \
  template void CtcBackward(const CtcLattice<Value>&, Value, int64_t)
TFO_INSTANTIATE(float);
TFO_INSTANTIATE(double);
#undef TFO_INSTANTIATE

#define TFO_INSTANTIATE(T, Value)                                           \
  template bool CtcEmissions(const CtcFrames<T>&, const CtcLattice<Value>&, \
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
