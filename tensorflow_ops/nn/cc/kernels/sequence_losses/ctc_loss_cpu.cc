#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "tensorflow_ops/nn/cc/kernels/sequence_losses/ctc_lattice_cpu.h"
#include "tensorflow_ops/nn/cc/kernels/sequence_losses/ctc_loss.h"
#include "tensorflow_ops/nn/cc/kernels/sequence_losses/ctc_loss_simd.h"
#include "tensorflow_ops/nn/cc/kernels/sequence_losses/row_sums_cpu.h"

namespace tfo {
namespace {

using ctc_internal::Example;
using ctc_internal::Lattice;
using ctc_internal::LatticeMemory;

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
  const Lattice<Value> lattice(example, s.frames, /*keep_all_frames=*/false,
                               memory);
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
    if (!Compute<Value>(memory)) Compute<double>(memory);
    SetScale();
  }

  // The same as Prepare, for threads that share an example. Call, in this
  // order: Start, ComputeEmissions for all blocks, RunRecursion in both
  // directions, Combine for all blocks, Finish.
  static constexpr int64_t kBlock = 32;  // frames
  int64_t Blocks() const { return (example_.frames + kBlock - 1) / kBlock; }
  void Start() {
    const LabelSequences& s = args_.sequences;
    lattice_.reset(new Lattice<Value>(example_, s.frames,
                                      /*keep_all_frames=*/true, &memory_,
                                      /*keep_beta=*/true));
    lowest_.assign(Blocks(), 0);
    finite_.assign(Blocks(), 1);
  }
  void ComputeEmissions(int64_t block) {
    const int64_t begin = block * kBlock;
    finite_[block] = TFO_DISPATCH(CtcEmissions<T, Value>)(
        Frames(), lattice_->get(), begin,
        std::min(begin + kBlock, example_.frames), &lowest_[block]);
  }
  void RunRecursion(bool forward) {
    if (!IsFinite() || Overflows()) return;
    if (forward) {
      TFO_DISPATCH(CtcForward<Value>)(lattice_->get(), &mantissa_, &exponent_);
      differences_.resize(example_.frames * (firsts_.size() + 1));
    } else {
      TFO_DISPATCH(CtcBeta<Value>)(lattice_->get());
    }
  }
  void Combine(int64_t block) {
    if (mantissa_ == 0) return;
    const int64_t begin = block * kBlock;
    const int64_t end = std::min(begin + kBlock, example_.frames);
    TFO_DISPATCH(CtcPosteriors<Value>)
    (lattice_->get(), begin, end, mantissa_, exponent_);
    SetDifferences(lattice_->get(), begin, end);
  }
  void Finish() {
    state_ = !IsFinite() ? kNan : mantissa_ == 0 ? kImpossible : kPossible;
    if (IsFinite() && Overflows()) Compute<double>(&memory_);
    SetScale();
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

  CtcFrames<T> Frames() const {
    return FramesOf(args_.sequences, args_.logits, args_.largest, args_.rest,
                    example_.index);
  }
  bool IsFinite() const {
    return std::find(finite_.begin(), finite_.end(), 0) == finite_.end();
  }
  bool Overflows() const {
    const auto lowest = std::min_element(lowest_.begin(), lowest_.end());
    return lowest != lowest_.end() &&
           Lattice<Value>::MayOverflow(example_.frames, *lowest);
  }
  void SetScale() {
    const LabelSequences& s = args_.sequences;
    Value d = args_.d_loss[example_.index];
    if (state_ == kNan) d = std::numeric_limits<Value>::quiet_NaN();
    if (state_ == kImpossible) d = 0;
    std::fill(scale_, scale_ + example_.frames, d);
    std::fill(scale_ + example_.frames, scale_ + s.frames, Value(0));
  }

  // Returns false if exponents may overflow.
  template <typename Mantissa>
  bool Compute(LatticeMemory* memory) {
    const LabelSequences& s = args_.sequences;
    const Lattice<Mantissa> with_memory(example_, s.frames,
                                        /*keep_all_frames=*/true, memory);
    const auto& lattice = with_memory.get();
    int64_t lowest = 0;
    state_ = kNan;
    if (!TFO_DISPATCH(CtcEmissions<T, Mantissa>)(Frames(), lattice, 0,
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
    differences_.resize(example_.frames * (firsts_.size() + 1));
    SetDifferences(lattice, 0, example_.frames);
    return true;
  }

  // Equal labels share a class.
  template <typename Mantissa>
  void SetDifferences(const CtcLattice<Mantissa>& lattice, int64_t begin,
                      int64_t end) {
    const int64_t distinct = firsts_.size();
    for (int64_t t = begin; t < end; ++t) {
      Value* const difference = &differences_[t * (distinct + 1)];
      const int64_t row = lattice.RowOf(t);
      const auto* const p = lattice.emissions.mantissas + t * lattice.stride;
      for (int64_t i = 0; i < distinct; ++i) {
        difference[i] = p[kStateGuard + firsts_[i]];
      }
      for (int64_t u = 0; u < example_.labels; ++u) {
        difference[slot_[u]] -= lattice.alpha_label.mantissas[row + u];
      }
      difference[distinct] =
          lattice.blanks.mantissas[t] - lattice.alpha_blank.mantissas[row];
    }
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
  // Where threads share the example.
  LatticeMemory memory_;
  std::unique_ptr<Lattice<Value>> lattice_;
  std::vector<int64_t> lowest_;  // of each block
  std::vector<char> finite_;     // the same
  Value mantissa_ = 0;
  int64_t exponent_ = 0;
};

// Estimates the cycles of an example's pass.
template <typename T>
double CyclesPerExample(const LabelSequences& s, int64_t example) {
  const double width = s.classes * 2.0 + 20.0 * s.label_lengths[example];
  return s.logit_lengths[example] * width + 1000;
}

}  // namespace

template <typename T>
Error CtcLoss(const Cpu& cpu, const CtcArgs<T>& args) {
  const LabelSequences& s = args.sequences;
  const RowSumsArgs<T> sums{s.batch * s.frames, s.classes, args.logits,
                            args.largest, args.rest};
  const auto order = LongestFirst(s.batch, [&](int64_t example) {
    return CyclesPerExample<T>(s, example);
  });
  double total = 0;
  for (int64_t i = 0; i < s.batch; ++i) total += CyclesPerExample<T>(s, i);
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
  const auto order = LongestFirst(s.batch, [&](int64_t example) {
    return CyclesPerExample<T>(s, example);
  });
  double total = 0;
  for (int64_t i = 0; i < s.batch; ++i) total += 3 * CyclesPerExample<T>(s, i);
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
  // Each pass goes over all examples at once: one has too little work for all
  // threads.
  std::vector<std::unique_ptr<ExampleGrad<T>>> grads(s.batch);
  struct Block {
    ExampleGrad<T>* grad;
    int64_t index;
  };
  std::vector<Block> blocks;
  for (int64_t i = 0; i < s.batch; ++i) {
    grads[i].reset(new ExampleGrad<T>(args, i, scale.data()));
    grads[i]->Start();
    for (int64_t at = 0; at < grads[i]->Blocks(); ++at) {
      blocks.push_back({grads[i].get(), at});
    }
  }
  const auto for_blocks = [&](const auto& body) {
    cpu.ParallelFor(blocks.size(),
                    ExampleGrad<T>::kBlock * (8.0 * s.max_labels + 100),
                    [&](int64_t begin, int64_t end) {
                      for (int64_t i = begin; i < end; ++i) body(blocks[i]);
                    });
  };
  for_blocks(
      [](const Block& block) { block.grad->ComputeEmissions(block.index); });
  cpu.ParallelFor(2 * s.batch, cost, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      grads[i / 2]->RunRecursion(/*forward=*/i % 2 == 0);
    }
  });
  for_blocks([](const Block& block) { block.grad->Combine(block.index); });
  for (const auto& grad : grads) grad->Finish();
  const int64_t groups = (s.frames + 15) / 16;  // of rows of an example
  cpu.ParallelFor(s.batch * groups, 32.0 * s.classes + 100,
                  [&](int64_t begin, int64_t end) {
                    for (int64_t at = begin; at < end;) {
                      const int64_t first = at % groups;
                      const int64_t last = std::min(groups, first + end - at);
                      grads[at / groups]->WriteRows(
                          first * 16, std::min(last * 16, s.frames));
                      at += last - first;
                    }
                  });
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
