#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "tensorflow_ops/sequence/cc/kernels/ctc_loss.h"
#include "tensorflow_ops/sequence/cc/kernels/ctc_loss_simd.h"
#include "tensorflow_ops/sequence/cc/kernels/row_sums_cpu.h"

namespace tfo {
namespace {

// The labels of an example.
struct Example {
  Example(const LabelSequences& s, int64_t index)
      : index(index),
        frames(s.logit_lengths[index]),
        labels(s.label_lengths[index]),
        label(labels) {
    for (int64_t u = 0; u < labels; ++u) label[u] = s.Label(index, u);
  }
  int64_t index, frames, labels;
  std::vector<int64_t> label;
};

// Memory of lattices, for one after another: the operating system would take
// back and clear what each example allocates for itself.
class LatticeMemory {
 public:
  // Uninitialized, aligned to 8 bytes.
  char* Get(int64_t bytes) {
    if (bytes > bytes_) {
      memory_.reset();
      memory_.reset(new char[bytes]);
      bytes_ = bytes;
    }
    return memory_.get();
  }

 private:
  std::unique_ptr<char[]> memory_;
  int64_t bytes_ = 0;
};

// A lattice in such memory.
template <typename Value>
class Lattice {
 public:
  using Exponent = typename ScaledLimits<Value>::Exponent;

  Lattice(const Example& example, int64_t max_frames, bool keeps,
          LatticeMemory* memory) {
    lattice_.frames = example.frames;
    lattice_.labels = example.labels;
    lattice_.stride = StatesStride(example.labels + 1);
    lattice_.first_row = example.index * max_frames;
    lattice_.label = example.label.data();
    lattice_.keeps = keeps;
    const int64_t stride = lattice_.stride;
    const int64_t rows = keeps ? example.frames + 1 : 2;
    const int64_t sizes[] = {example.frames * stride, example.frames,
                             rows * stride, rows * stride,
                             keeps ? 4 * stride + kStateGuard : 0};
    int64_t total = 0;
    for (const int64_t size : sizes) total += size;
    auto* const mantissas = reinterpret_cast<Value*>(
        memory->Get(total * (sizeof(Value) + sizeof(Exponent))));
    auto* const exponents = reinterpret_cast<Exponent*>(mantissas + total);
    ScaledRows<Value>* const places[] = {
        &lattice_.emissions, &lattice_.blanks, &lattice_.blank_paths,
        &lattice_.label_paths, &lattice_.scratch};
    int64_t at = 0;
    for (int i = 0; i < 5; ++i) {
      *places[i] = {mantissas + at, exponents + at};
      at += sizes[i];
    }
    skips_.assign(stride + kStateGuard, 0);
    for (int64_t u = 1; u < example.labels; ++u) {
      skips_[u] = example.label[u] == example.label[u - 1] ? 0 : -1;
    }
    lattice_.skips = skips_.data();
  }
  const CtcLattice<Value>& get() const { return lattice_; }

  // Can the exponents of a path's probability overflow?
  static bool MayOverflow(int64_t frames, int64_t lowest) {
    return lowest < ScaledLimits<Value>::kLowest / (frames + 1);
  }

 private:
  CtcLattice<Value> lattice_;
  std::vector<Exponent> skips_;
};

template <typename T>
CtcFrames<T> FramesOf(const LabelSequences& s, const T* logits,
                      const Accumulator<T>* largest, const Accumulator<T>* rest,
                      int64_t index) {
  return {logits + index * s.frames * s.classes, s.classes, s.blank, largest,
          rest};
}

// Computes the loss with mantissas of type Value. `sums` computes the sums of
// frames [begin, end). Returns false if exponents may overflow.
template <typename Value, typename T, typename Sums>
bool ComputeLoss(const CtcArgs<T>& args, const Example& example,
                 const Sums& sums, LatticeMemory* memory, double* loss) {
  const LabelSequences& s = args.sequences;
  const Lattice<Value> lattice(example, s.frames, /*keeps=*/false, memory);
  const auto frames =
      FramesOf(s, args.logits, args.largest, args.rest, example.index);
  bool finite = true;
  int64_t lowest = 0;
  ForRowBlocks(0, example.frames, s.classes, [&](int64_t begin, int64_t end) {
    sums(begin, end);
    finite &= TFO_DISPATCH(CtcEmissions<T, Value>)(frames, lattice.get(), begin,
                                                   end, &lowest);
  });
  *loss = std::numeric_limits<double>::quiet_NaN();
  if (!finite) return true;
  if (Lattice<Value>::MayOverflow(example.frames, lowest)) return false;
  Value mantissa;
  int64_t exponent;
  *loss = TFO_DISPATCH(CtcForward<Value>)(lattice.get(), &mantissa, &exponent);
  return true;
}

// The gradient of an example. Posteriors are in memory of this object, so that
// several threads can compute rows.
template <typename T>
class ExampleGrad {
 public:
  using Value = Accumulator<T>;

  ExampleGrad(const CtcGradArgs<T>& args, int64_t index, Value* scale)
      : args_(args),
        example_(args.sequences, index),
        scale_(scale + index * args.sequences.frames),
        slot_(example_.labels) {
    // The distinct labels: slot_ is a label's number among them.
    std::vector<int64_t> order(example_.labels);
    const auto& label = example_.label;
    for (int64_t u = 0; u < example_.labels; ++u) order[u] = u;
    std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
      return label[a] != label[b] ? label[a] < label[b] : a < b;
    });
    for (int64_t i = 0; i < example_.labels; ++i) {
      if (i == 0 || label[order[i]] != label[order[i - 1]]) {
        firsts_.push_back(order[i]);
      }
      slot_[order[i]] = firsts_.size() - 1;
    }
  }

  // Computes posteriors and the scale of rows.
  void Prepare(LatticeMemory* memory) {
    const LabelSequences& s = args_.sequences;
    Value d = args_.d_loss[example_.index];
    if (!Compute<Value>(memory)) Compute<double>(memory);
    if (state_ == kNan) d = std::numeric_limits<Value>::quiet_NaN();
    if (state_ == kImpossible) d = 0;
    std::fill(scale_, scale_ + example_.frames, d);
    std::fill(scale_ + example_.frames, scale_ + s.frames, Value(0));
  }

  // Writes the gradient of frames [begin, end), padding included.
  void WriteRows(int64_t begin, int64_t end) const {
    const LabelSequences& s = args_.sequences;
    const int64_t first = example_.index * s.frames;
    const ScaledSoftmaxArgs<T> softmax{
        s.batch * s.frames, s.classes,  args_.logits,  scale_ - first,
        args_.largest,      args_.rest, args_.d_logits};
    const int64_t frames = std::clamp(example_.frames, begin, end);
    T* const d_logits = args_.d_logits + first * s.classes;
    const bool zero =
        state_ == kImpossible || args_.d_loss[example_.index] == 0;
    const int64_t computed = zero ? begin : frames;
    ForRowBlocks(begin, computed, s.classes, [&](int64_t from, int64_t to) {
      MapRows(softmax, first + from, first + to);
      if (state_ == kPossible) SubtractPosteriors(from, to);
    });
    std::fill(d_logits + computed * s.classes, d_logits + end * s.classes, T());
  }

 private:
  enum State { kPossible, kImpossible, kNan };

  // Returns false if exponents may overflow.
  template <typename Mantissa>
  bool Compute(LatticeMemory* memory) {
    const LabelSequences& s = args_.sequences;
    const Lattice<Mantissa> with_memory(example_, s.frames, /*keeps=*/true,
                                        memory);
    const auto& lattice = with_memory.get();
    const auto frames =
        FramesOf(s, args_.logits, args_.largest, args_.rest, example_.index);
    int64_t lowest = 0;
    state_ = kNan;
    if (!TFO_DISPATCH(CtcEmissions<T, Mantissa>)(frames, lattice, 0,
                                                 example_.frames, &lowest)) {
      return true;
    }
    if (Lattice<Mantissa>::MayOverflow(example_.frames, lowest)) return false;
    Mantissa mantissa;
    int64_t exponent;
    TFO_DISPATCH(CtcForward<Mantissa>)(lattice, &mantissa, &exponent);
    state_ = mantissa == 0 ? kImpossible : kPossible;
    if (state_ == kImpossible) return true;
    TFO_DISPATCH(CtcBackward<Mantissa>)(lattice, mantissa, exponent);
    // Equal labels share a class.
    const int64_t distinct = firsts_.size();
    differences_.resize(example_.frames * (distinct + 1));
    for (int64_t t = 0; t < example_.frames; ++t) {
      Value* const difference = &differences_[t * (distinct + 1)];
      const int64_t row = lattice.RowOf(t);
      const auto* const p = lattice.emissions.mantissas + t * lattice.stride;
      for (int64_t i = 0; i < distinct; ++i) {
        difference[i] = p[kStateGuard + firsts_[i]];
      }
      for (int64_t u = 0; u < example_.labels; ++u) {
        difference[slot_[u]] -= lattice.label_paths.mantissas[row + u];
      }
      difference[distinct] =
          lattice.blanks.mantissas[t] - lattice.blank_paths.mantissas[row];
    }
    return true;
  }

  // Replaces scale * p of the labels and of blank by scale * (p - posterior).
  void SubtractPosteriors(int64_t begin, int64_t end) const {
    const LabelSequences& s = args_.sequences;
    const int64_t distinct = firsts_.size();
    const Value d = args_.d_loss[example_.index];
    for (int64_t t = begin; t < end; ++t) {
      T* const row =
          args_.d_logits + (example_.index * s.frames + t) * s.classes;
      const Value* const difference = &differences_[t * (distinct + 1)];
      for (int64_t i = 0; i < distinct; ++i) {
        row[example_.label[firsts_[i]]] = Narrow<T>(d * difference[i]);
      }
      row[s.blank] = Narrow<T>(d * difference[distinct]);
    }
  }

  const CtcGradArgs<T>& args_;
  const Example example_;
  Value* const scale_;  // [frames]
  std::vector<int64_t> slot_, firsts_;
  // Probabilities minus posteriors of distinct labels and, last, of blank.
  std::vector<Value> differences_;  // [frames, distinct labels + 1]
  State state_ = kPossible;
};

// A cycle estimate of an example's passes.
template <typename T>
double CostOf(const LabelSequences& s, int64_t example) {
  const double width = s.classes * 2.0 + 20.0 * s.label_lengths[example];
  return s.logit_lengths[example] * width + 1000;
}

}  // namespace

template <typename T>
Error CtcLoss(const Cpu& cpu, const CtcArgs<T>& args) {
  const LabelSequences& s = args.sequences;
  const RowSumsArgs<T> sums{s.batch * s.frames, s.classes, args.logits,
                            args.largest, args.rest};
  const auto order = LongestFirst(
      s.batch, [&](int64_t example) { return CostOf<T>(s, example); });
  double total = 0;
  for (int64_t i = 0; i < s.batch; ++i) total += CostOf<T>(s, i);
  // Fewer examples than threads: rows are split first.
  const bool splits = s.batch < cpu.num_threads;
  for (int64_t i = 0; splits && i < s.batch; ++i) {
    cpu.ParallelFor((s.logit_lengths[i] + 15) / 16, 24.0 * s.classes + 50,
                    [&](int64_t begin, int64_t end) {
                      const int64_t last = i * s.frames + s.logit_lengths[i];
                      SumRows(sums, i * s.frames + begin * 16,
                              std::min(i * s.frames + end * 16, last));
                    });
  }
  cpu.ParallelFor(
      s.batch, s.batch > 0 ? total / s.batch : 0,
      [&](int64_t begin, int64_t end) {
        LatticeMemory memory;
        for (int64_t i = begin; i < end; ++i) {
          const Example example(s, order[i]);
          const int64_t first = example.index * s.frames;
          const auto sum = [&](int64_t from, int64_t to) {
            if (!splits) SumRows(sums, first + from, first + to);
          };
          double loss;
          if (!ComputeLoss<Accumulator<T>>(args, example, sum, &memory,
                                           &loss)) {
            const auto computed = [](int64_t, int64_t) {};
            ComputeLoss<double>(args, example, computed, &memory, &loss);
          }
          const bool zero = args.zero_infinity && std::isinf(loss);
          args.loss[example.index] = zero ? 0 : loss;
          const int64_t padding = first + example.frames;
          std::fill(args.largest + padding, args.largest + first + s.frames,
                    Accumulator<T>(0));
          std::fill(args.rest + padding, args.rest + first + s.frames,
                    Accumulator<T>(0));
        }
      });
  return nullptr;
}

template <typename T>
Error CtcLossGrad(const Cpu& cpu, const CtcGradArgs<T>& args) {
  const LabelSequences& s = args.sequences;
  std::vector<Accumulator<T>> scale(s.batch * s.frames);
  const auto order = LongestFirst(
      s.batch, [&](int64_t example) { return CostOf<T>(s, example); });
  double total = 0;
  for (int64_t i = 0; i < s.batch; ++i) total += 3 * CostOf<T>(s, i);
  const double cost = s.batch > 0 ? total / s.batch : 0;
  if (s.batch >= cpu.num_threads) {
    cpu.ParallelFor(s.batch, cost, [&](int64_t begin, int64_t end) {
      LatticeMemory memory;
      for (int64_t i = begin; i < end; ++i) {
        ExampleGrad<T> grad(args, order[i], scale.data());
        grad.Prepare(&memory);
        grad.WriteRows(0, s.frames);
      }
    });
    return nullptr;
  }
  std::vector<std::unique_ptr<ExampleGrad<T>>> grads(s.batch);
  cpu.ParallelFor(s.batch, cost, [&](int64_t begin, int64_t end) {
    LatticeMemory memory;
    for (int64_t i = begin; i < end; ++i) {
      grads[i].reset(new ExampleGrad<T>(args, order[i], scale.data()));
      grads[i]->Prepare(&memory);
    }
  });
  for (const auto& grad : grads) {
    cpu.ParallelFor((s.frames + 15) / 16, 32.0 * s.classes + 100,
                    [&](int64_t begin, int64_t end) {
                      grad->WriteRows(begin * 16, std::min(end * 16, s.frames));
                    });
  }
  return nullptr;
}

#define TFO_INSTANTIATE(T)                               \
  template Error CtcLoss(const Cpu&, const CtcArgs<T>&); \
  template Error CtcLossGrad(const Cpu&, const CtcGradArgs<T>&)
TFO_INSTANTIATE(float);
TFO_INSTANTIATE(double);
TFO_INSTANTIATE(Half);
TFO_INSTANTIATE(BFloat16);
#undef TFO_INSTANTIATE

}  // namespace tfo
