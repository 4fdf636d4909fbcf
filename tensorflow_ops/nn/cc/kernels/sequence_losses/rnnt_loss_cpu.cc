#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "tensorflow_ops/nn/cc/kernels/sequence_losses/rnnt_loss.h"
#include "tensorflow_ops/nn/cc/kernels/sequence_losses/rnnt_loss_simd.h"
#include "tensorflow_ops/nn/cc/kernels/sequence_losses/row_sums_cpu.h"

namespace tfo {
namespace {

// The memory of an example's lattice. Value is float or double.
template <typename Value>
class Lattice {
 public:
  using Exponent = typename ScaledLimits<Value>::Exponent;

  Lattice(const LabelSequences& s, int64_t example, bool keep_all_rows) {
    lattice_.frames = s.logit_lengths[example];
    lattice_.labels = s.label_lengths[example];
    lattice_.stride = StatesStride(lattice_.labels + 1);
    lattice_.keep_all_rows = keep_all_rows;
    labels_.resize(lattice_.labels);
    for (int64_t u = 0; u < lattice_.labels; ++u) {
      labels_[u] = s.Label(example, u);
    }
    lattice_.label = labels_.data();
    const int64_t cells = lattice_.Diagonals() * lattice_.stride;
    const int64_t two = 2 * lattice_.stride + kStateGuard;
    const int64_t sizes[] = {cells, cells, keep_all_rows ? cells : two,
                             keep_all_rows ? two : 0};
    ScaledRows<Value>* const places[] = {&lattice_.blanks, &lattice_.emissions,
                                         &lattice_.alpha, &lattice_.scratch};
    int64_t total = 0;
    for (const int64_t size : sizes) total += size;
    // Uninitialized.
    mantissas_.reset(new Value[total]);
    exponents_.reset(new Exponent[total]);
    int64_t at = 0;
    for (int i = 0; i < 4; ++i) {
      *places[i] = {mantissas_.get() + at, exponents_.get() + at};
      at += sizes[i];
    }
    std::fill_n(lattice_.blanks.mantissas, 2 * cells, Value(0));
    std::fill_n(lattice_.blanks.exponents, 2 * cells,
                ScaledLimits<Value>::kZero);
  }
  const RnntLattice<Value>& get() const { return lattice_; }

  // Returns whether the exponents of a way's probability can overflow.
  bool MayOverflow(int64_t lowest) const {
    return lowest < ScaledLimits<Value>::kLowest / (lattice_.Diagonals() + 1);
  }

 private:
  RnntLattice<Value> lattice_;
  std::vector<int64_t> labels_;
  std::unique_ptr<Value[]> mantissas_;
  std::unique_ptr<Exponent[]> exponents_;
};

template <typename Args>
auto NodesOf(const Args& args, int64_t example) {
  const LabelSequences& s = args.sequences;
  using T = std::remove_cv_t<std::remove_pointer_t<decltype(args.logits)>>;
  const int64_t per_frame = s.max_labels + 1;
  return RnntNodes<T>{example * s.frames * per_frame,
                      per_frame,
                      s.classes,
                      s.blank,
                      args.logits,
                      args.largest,
                      args.rest};
}

// Computes the loss with mantissas of type Value. sums(t) computes the sums of
// a frame's nodes. Returns false if exponents may overflow.
template <typename Value, typename T, typename Sums>
bool ComputeLoss(const RnntArgs<T>& args, int64_t example, const Sums& sums,
                 double* loss) {
  const Lattice<Value> lattice(args.sequences, example,
                               /*keep_all_rows=*/false);
  const auto nodes = NodesOf(args, example);
  bool finite = true;
  int64_t lowest = 0;
  for (int64_t t = 0; t < lattice.get().frames; ++t) {
    sums(t);
    finite &= TFO_DISPATCH(RnntEmissions<T, Value>)(nodes, lattice.get(), t,
                                                    t + 1, &lowest);
  }
  *loss = std::numeric_limits<double>::quiet_NaN();
  if (!finite) return true;
  if (lattice.MayOverflow(lowest)) return false;
  Value mantissa;
  int64_t exponent;
  *loss = TFO_DISPATCH(RnntForward<Value>)(lattice.get(), &mantissa, &exponent);
  return true;
}

// The gradient of an example. Shares are in memory of this object, so that
// several threads can compute rows.
template <typename T>
class ExampleGrad {
 public:
  using Value = Accumulator<T>;

  ExampleGrad(const RnntGradArgs<T>& args, int64_t example, Value* scale)
      : args_(args),
        example_(example),
        frames_(args.sequences.logit_lengths[example]),
        labels_(args.sequences.label_lengths[example]),
        scale_(scale) {}

  // Computes shares and the scale of rows.
  void Prepare() {
    if (!Compute<Value>()) Compute<double>();
  }

  // Writes the gradient of frames [begin, end), padding included.
  void WriteFrames(int64_t begin, int64_t end) const {
    const LabelSequences& s = args_.sequences;
    const int64_t per_frame = s.max_labels + 1;
    const ScaledSoftmaxArgs<T> softmax{s.batch * s.frames * per_frame,
                                       s.classes,
                                       args_.logits,
                                       scale_,
                                       args_.largest,
                                       args_.rest,
                                       args_.d_logits};
    for (int64_t t = begin; t < end; ++t) {
      const int64_t row = (example_ * s.frames + t) * per_frame;
      const int64_t rows = is_zero_ || t >= frames_ ? 0 : labels_ + 1;
      MapRows(softmax, row, row + rows);
      if (rows > 0 && !differences_.empty()) SubtractShares(t, row);
      std::fill(args_.d_logits + (row + rows) * s.classes,
                args_.d_logits + (row + per_frame) * s.classes, T());
    }
  }

 private:
  // Returns false if exponents may overflow.
  template <typename Mantissa>
  bool Compute() {
    const LabelSequences& s = args_.sequences;
    const Value d = args_.d_loss[example_];
    if (d == 0) {
      is_zero_ = true;
      return true;
    }
    const Lattice<Mantissa> memory(s, example_, /*keep_all_rows=*/true);
    const auto& lattice = memory.get();
    int64_t lowest = 0;
    if (!TFO_DISPATCH(RnntEmissions<T, Mantissa>)(
            NodesOf(args_, example_), lattice, 0, frames_, &lowest)) {
      ForNodes([&](int64_t, int64_t, int64_t row) {
        scale_[row] = std::numeric_limits<Value>::quiet_NaN();
      });
      return true;
    }
    if (memory.MayOverflow(lowest)) return false;
    Mantissa mantissa;
    int64_t exponent;
    TFO_DISPATCH(RnntForward<Mantissa>)(lattice, &mantissa, &exponent);
    is_zero_ = mantissa == 0;
    if (is_zero_) return true;
    TFO_DISPATCH(RnntBackward<Mantissa>)(lattice, mantissa, exponent);
    differences_.resize(frames_ * (labels_ + 1) * 2);
    Value* difference = differences_.data();
    ForNodes([&](int64_t t, int64_t u, int64_t row) {
      const int64_t at = lattice.At(t, u);
      scale_[row] = d * static_cast<Value>(lattice.alpha.mantissas[at]);
      *difference++ = d * static_cast<Value>(lattice.blanks.mantissas[at]);
      *difference++ = d * static_cast<Value>(lattice.emissions.mantissas[at]);
    });
    return true;
  }

  template <typename Body>
  void ForNodes(const Body& body) const {
    const LabelSequences& s = args_.sequences;
    for (int64_t t = 0; t < frames_; ++t) {
      for (int64_t u = 0; u <= labels_; ++u) {
        body(t, u, (example_ * s.frames + t) * (s.max_labels + 1) + u);
      }
    }
  }

  // Replaces the gradients of blank and of the next label at a frame's nodes.
  void SubtractShares(int64_t t, int64_t row) const {
    const LabelSequences& s = args_.sequences;
    const Value* const difference = &differences_[t * (labels_ + 1) * 2];
    for (int64_t u = 0; u <= labels_; ++u) {
      T* const d_logits = args_.d_logits + (row + u) * s.classes;
      d_logits[s.blank] = Narrow<T>(difference[2 * u]);
      if (u == labels_) break;
      d_logits[s.Label(example_, u)] = Narrow<T>(difference[2 * u + 1]);
    }
  }

  const RnntGradArgs<T>& args_;
  const int64_t example_, frames_, labels_;
  Value* const scale_;  // [batch, frames, max_labels + 1]
  // Of blank and the next label at each node; empty for a gradient of NaN.
  std::vector<Value> differences_;
  bool is_zero_ = false;
};

// Estimates the cycles of an example's pass.
double CyclesPerExample(const LabelSequences& s, int64_t example) {
  const double nodes = s.logit_lengths[example] *
                       static_cast<double>(s.label_lengths[example] + 1);
  return nodes * (s.classes * 2.0 + 30) + 1000;
}

}  // namespace

template <typename T>
Error RnntLoss(const Cpu& cpu, const RnntArgs<T>& args) {
  using Value = Accumulator<T>;
  const LabelSequences& s = args.sequences;
  const int64_t per_frame = s.max_labels + 1;
  const RowSumsArgs<T> sums{s.batch * s.frames * per_frame, s.classes,
                            args.logits, args.largest, args.rest};
  const auto order = LongestFirst(
      s.batch, [&](int64_t example) { return CyclesPerExample(s, example); });
  double total = 0;
  for (int64_t i = 0; i < s.batch; ++i) total += CyclesPerExample(s, i);
  // Sums the labels' nodes, and sets the others to 0.
  const auto sum_frame = [&](int64_t example, int64_t t) {
    const int64_t row = (example * s.frames + t) * per_frame;
    const int64_t rows =
        t < s.logit_lengths[example] ? s.label_lengths[example] + 1 : 0;
    SumRows(sums, row, row + rows);
    for (Value* const of_rows : {args.largest, args.rest}) {
      std::fill(of_rows + row + rows, of_rows + row + per_frame, Value(0));
    }
  };
  // Fewer examples than threads: frames are split first.
  const bool splits = s.batch < cpu.num_threads;
  for (int64_t i = 0; splits && i < s.batch; ++i) {
    cpu.ParallelFor(s.frames, 1.5 * s.classes * per_frame,
                    [&](int64_t begin, int64_t end) {
                      for (int64_t t = begin; t < end; ++t) sum_frame(i, t);
                    });
  }
  cpu.ParallelFor(s.batch, s.batch > 0 ? total / s.batch : 0,
                  [&](int64_t begin, int64_t end) {
                    for (int64_t i = begin; i < end; ++i) {
                      const int64_t example = order[i];
                      double loss;
                      const auto sum = [&](int64_t t) {
                        if (!splits) sum_frame(example, t);
                      };
                      if (!ComputeLoss<Value>(args, example, sum, &loss)) {
                        ComputeLoss<double>(
                            args, example, [](int64_t) {}, &loss);
                      }
                      args.loss[example] = loss;
                      for (int64_t t = s.logit_lengths[example];
                           !splits && t < s.frames; ++t) {
                        sum_frame(example, t);
                      }
                    }
                  });
  return nullptr;
}

template <typename T>
Error RnntLossGrad(const Cpu& cpu, const RnntGradArgs<T>& args) {
  const LabelSequences& s = args.sequences;
  const int64_t per_frame = s.max_labels + 1;
  std::unique_ptr<Accumulator<T>[]> scale(
      new Accumulator<T>[s.batch * s.frames * per_frame]);
  const auto order = LongestFirst(
      s.batch, [&](int64_t example) { return CyclesPerExample(s, example); });
  double total = 0;
  for (int64_t i = 0; i < s.batch; ++i) total += 2 * CyclesPerExample(s, i);
  const double cost = s.batch > 0 ? total / s.batch : 0;
  if (s.batch >= cpu.num_threads) {
    cpu.ParallelFor(s.batch, cost, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        ExampleGrad<T> grad(args, order[i], scale.get());
        grad.Prepare();
        grad.WriteFrames(0, s.frames);
      }
    });
    return nullptr;
  }
  std::vector<std::unique_ptr<ExampleGrad<T>>> grads(s.batch);
  cpu.ParallelFor(s.batch, cost, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      grads[i].reset(new ExampleGrad<T>(args, order[i], scale.get()));
      grads[i]->Prepare();
    }
  });
  for (const auto& grad : grads) {
    cpu.ParallelFor(
        s.frames, 2.0 * s.classes * per_frame,
        [&](int64_t begin, int64_t end) { grad->WriteFrames(begin, end); });
  }
  return nullptr;
}

#define TFO_INSTANTIATE(T)                                 \
  template Error RnntLoss(const Cpu&, const RnntArgs<T>&); \
  template Error RnntLossGrad(const Cpu&, const RnntGradArgs<T>&)
TFO_INSTANTIATE(float);
TFO_INSTANTIATE(double);
TFO_INSTANTIATE(Half);
TFO_INSTANTIATE(BFloat16);
#undef TFO_INSTANTIATE

}  // namespace tfo
