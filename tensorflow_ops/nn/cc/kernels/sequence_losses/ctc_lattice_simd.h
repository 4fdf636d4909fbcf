// The recursions of CTC over one example. The extended label, which has
// blanks between labels, is stored as two rows: blanks 0 .. labels, where blank
// u precedes label u, and labels 0 .. labels - 1. A vector holds consecutive
// states. Only *_simd.cc files include this header.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_SEQUENCE_LOSSES_CTC_LATTICE_SIMD_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_SEQUENCE_LOSSES_CTC_LATTICE_SIMD_H_

#include "tensorflow_ops/nn/cc/kernels/rows/state.h"
#include "tensorflow_ops/nn/cc/kernels/sequence_losses/scaled_simd.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {

template <typename Value>
struct CtcLattice {
  using Exponent = typename ScaledLimits<Value>::Exponent;
  int64_t frames, labels;
  int64_t stride;        // of rows of states
  int64_t first_row;     // of the example in `largest` and `rest`
  const int64_t* label;  // [labels]
  // [stride + kStateGuard]: -1 if label u differs from label u - 1, else 0; 0
  // for u = 0.
  const Exponent* skips;

  ScaledRows<Value> emissions;  // [frames, stride], of labels
  ScaledRows<Value> blanks;     // [frames]
  // Row t + 1 has the forward sums (alpha) after frame t, row 0 those before
  // the first frame; without keep_all_frames, these are two alternating rows.
  // Posteriors overwrite them: those of labels, and the sum of blanks in the
  // first value of each row.
  bool keep_all_frames;
  ScaledRows<Value> alpha_blank, alpha_label;
  ScaledRows<Value> scratch;  // 4 rows and a guard
  // [frames, 2, stride], if CtcBackward keeps them: backward sums (beta) of
  // blanks and labels.
  ScaledRows<Value> beta;

  int64_t RowOf(int64_t t) const {
    return (keep_all_frames ? t + 1 : (t + 1) & 1) * stride + kStateGuard;
  }
};

// The inputs of a frame's probabilities.
template <typename T>
struct CtcFrames {
  const T* logits;  // of the example
  int64_t classes, blank;
  const Accumulator<T>*largest, *rest;  // [batch, frames]
};

// Frames whose logits are gathered before their exponentials are computed:
// loading a vector right after its values were stored one by one would stall.
inline constexpr int64_t kFramesAtOnce = 32;

// Probabilities of up to kFramesAtOnce frames.
template <typename T, typename Value>
struct FrameSums {
  using S = ScaledVector<Value>;
  using OfRow = typename Lanes<T>::Vector;
  Accumulator<T> shifts[kFramesAtOnce], logs[kFramesAtOnce];

  // Sets the shifts and logs of frames from `row` on. Returns whether all
  // logits are below infinity.
  TFO_INLINE bool Read(const CtcFrames<T>& frames, int64_t row, int64_t count) {
    using Number = Accumulator<T>;
    bool finite = true;
    ForVectors<Number>(count, [&](auto part, int64_t at) {
      const SoftmaxState<OfRow> sums = {
          part.Load(frames.largest + row + at, Number(0)),
          part.Load(frames.rest + row + at, Number(0))};
      finite &= !AnyLane(sums.rest != sums.rest);
      Store(sums.shift(), shifts + at);
      Store(sums.Log(), logs + at);
    });
    return finite;
  }

  // Turns logits of blank into probabilities.
  TFO_INLINE void SetBlanks(const ScaledRows<Value>& blanks, int64_t first,
                            int64_t count, typename S::I& least) const {
    Value x[kFramesAtOnce], shift[kFramesAtOnce] = {}, log[kFramesAtOnce] = {};
    typename S::Exponent exponents[kFramesAtOnce];
    for (int64_t i = 0; i < kFramesAtOnce; ++i) {
      x[i] = i < count ? blanks.mantissas[first + i]
                       : -static_cast<Value>(INFINITY);
      shift[i] = i < count ? shifts[i] : Accumulator<T>(0);
      log[i] = i < count ? logs[i] : Accumulator<T>(0);
    }
    for (int64_t i = 0; i < count; i += S::kCount) {
      ScaledSoftmax(Load(x + i), Load(shift + i), Load(log + i), least)
          .Store(x + i, exponents + i);
    }
    memcpy(blanks.mantissas + first, x, count * sizeof(*x));
    memcpy(blanks.exponents + first, exponents, count * sizeof(*exponents));
  }
};

// Gathers the logits of a frame's labels and of blank.
template <typename T, typename Value>
static TFO_INLINE void Gather(const CtcFrames<T>& frames,
                              const CtcLattice<Value>& lattice, int64_t t) {
  const T* const logits = frames.logits + t * frames.classes;
  const int64_t at = t * lattice.stride + kStateGuard;
  Value* const gathered = lattice.emissions.mantissas + at;
  for (int64_t u = 0; u < lattice.labels; ++u) {
    gathered[u] = LoadOne(logits + lattice.label[u]);
  }
  // States beyond the labels have probability 0.
  for (int64_t u = lattice.labels; u < lattice.stride - kStateGuard; ++u) {
    gathered[u] = -static_cast<Value>(INFINITY);
  }
  lattice.blanks.mantissas[t] = LoadOne(logits + frames.blank);
}

// Sets emissions and blanks of frames [begin, end). Lowers `lowest` to their
// exponents. Returns whether all logits are below infinity.
template <typename T, typename Value>
bool CtcEmissions(const CtcFrames<T>& frames, const CtcLattice<Value>& lattice,
                  int64_t begin, int64_t end, int64_t* lowest) {
  using S = ScaledVector<Value>;
  typename S::I least = {};
  bool finite = true;
  FrameSums<T, Value> sums;
  for (int64_t first = begin; first < end; first += kFramesAtOnce) {
    const int64_t left = end - first;
    const int64_t count = left < kFramesAtOnce ? left : kFramesAtOnce;
    for (int64_t t = first; t < first + count; ++t) Gather(frames, lattice, t);
    finite &= sums.Read(frames, lattice.first_row + first, count);
    sums.SetBlanks(lattice.blanks, first, count, least);
    for (int64_t i = 0; i < count; ++i) {
      const auto shift = Broadcast<typename S::V>(Value(sums.shifts[i]));
      const auto log = Broadcast<typename S::V>(Value(sums.logs[i]));
      const int64_t at = (first + i) * lattice.stride + kStateGuard;
      Value* const mantissas = lattice.emissions.mantissas + at;
      auto* const exponents = lattice.emissions.exponents + at;
      for (int64_t u = 0; u <= lattice.labels; u += S::kCount) {
        ScaledSoftmax(Load(mantissas + u), shift, log, least)
            .Store(mantissas + u, exponents + u);
      }
    }
  }
  const int64_t lane = LeastLane(least);
  *lowest = lane < *lowest ? lane : *lowest;
  return finite;
}

// Computes alpha_blank and alpha_label. Returns the loss, and sets the total
// probability.
template <typename Value>
double CtcForward(const CtcLattice<Value>& lattice, ScaledTotal<Value>* total) {
  using S = ScaledVector<Value>;
  const auto &blanks = lattice.alpha_blank, &labels = lattice.alpha_label;
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
    if (lattice.keep_all_frames) {
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
  *total = {end.mantissa[0], end.exponent[0]};
  return 0 - LogOfScaled(total->mantissa, total->exponent);
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

// Sets the paths that follow the last frame: scratch rows 0 and 1.
template <typename Value>
static TFO_INLINE void StartBackward(const CtcLattice<Value>& lattice) {
  const auto& rows = lattice.scratch;
  const int64_t stride = lattice.stride, last = kStateGuard + lattice.labels;
  ClearRow(rows, 0, 4 * stride + kStateGuard);
  rows.mantissas[last] = rows.mantissas[stride + last - 1] = 1;
  rows.exponents[last] = rows.exponents[stride + last - 1] = 0;
  // Without labels, the state before them is the guard.
  if (lattice.labels == 0) ClearRow(rows, stride + last - 1, 1);
}

// Sums the results of EmitBackward: the paths that follow the previous frame.
template <typename Value>
static TFO_INLINE void StepBackward(const CtcLattice<Value>& lattice) {
  using S = ScaledVector<Value>;
  const auto& rows = lattice.scratch;
  const int64_t stride = lattice.stride;
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

// Turns a frame's alpha into posteriors. `beta` has two rows: blanks, labels.
template <typename Value>
static TFO_INLINE void SetPosteriors(const CtcLattice<Value>& lattice,
                                     int64_t t, const ScaledRows<Value>& beta,
                                     const ScaledTotal<Value>& of_all) {
  using S = ScaledVector<Value>;
  const auto &blanks = lattice.alpha_blank, &labels = lattice.alpha_label;
  const Value inverse = 1 / of_all.mantissa;
  const auto total = static_cast<typename S::Exponent>(of_all.exponent);
  const int64_t row = lattice.RowOf(t);
  typename S::V sum = {};
  for (int64_t u = 0; u <= lattice.labels; u += S::kCount) {
    const int64_t at = kStateGuard + u;
    sum += Shares(LoadAt(blanks, row + u) * LoadAt(beta, at), inverse, total);
    const auto share =
        Shares(LoadAt(labels, row + u) * LoadAt(beta, lattice.stride + at),
               inverse, total);
    Store(share, labels.mantissas + row + u);
  }
  blanks.mantissas[row] = SumLanes(sum);
}

// Computes beta and, with it, turns alpha into posteriors, and the mantissas of
// emissions and blanks into probabilities. If `total` is null, keeps beta for
// CtcPosteriors instead, and does not depend on CtcForward.
template <typename Value>
void CtcBackward(const CtcLattice<Value>& lattice,
                 const ScaledTotal<Value>* total) {
  const auto &rows = lattice.scratch, &beta = lattice.beta;
  const int64_t size = 2 * lattice.stride;
  StartBackward(lattice);
  for (int64_t t = lattice.frames - 1; t >= 0; --t) {
    if (total != nullptr) {
      SetPosteriors(lattice, t, rows, *total);
    } else {
      memcpy(beta.mantissas + t * size, rows.mantissas,
             size * sizeof(*rows.mantissas));
      memcpy(beta.exponents + t * size, rows.exponents,
             size * sizeof(*rows.exponents));
    }
    if (t > 0) EmitBackward(lattice, t);
    if (total != nullptr) ToProbabilities(lattice, t);
    if (t > 0) StepBackward(lattice);
  }
}

// The rest, with the same bits, for frames [begin, end).
template <typename Value>
void CtcPosteriors(const CtcLattice<Value>& lattice, int64_t begin, int64_t end,
                   const ScaledTotal<Value>& total) {
  for (int64_t t = begin; t < end; ++t) {
    const int64_t at = 2 * t * lattice.stride;
    const ScaledRows<Value> beta = {lattice.beta.mantissas + at,
                                    lattice.beta.exponents + at};
    SetPosteriors(lattice, t, beta, total);
    ToProbabilities(lattice, t);
  }
}

}  // namespace TFO_CPU_NAMESPACE
}  // namespace tfo

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_SEQUENCE_LOSSES_CTC_LATTICE_SIMD_H_
