// CTC on the CPU.
#include <algorithm>
#include <limits>
#include <memory>
#include <vector>

#include "tensorflow_ops/nn/cc/kernels/sequence_losses/ctc_lattice_simd.h"
#include "tensorflow_ops/nn/cc/kernels/sequence_losses/sequence_loss_simd.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {

// The lattice of an example, in `memory`.
template <typename Value>
class CtcLatticeIn {
 public:
  CtcLatticeIn(const Example& example, int64_t max_frames, bool keep_all_frames,
               bool keep_beta, LatticeMemory* memory) {
    lattice_.frames = example.frames;
    lattice_.labels = example.labels;
    lattice_.stride = StatesStride(example.labels + 1);
    lattice_.first_row = example.index * max_frames;
    lattice_.label = example.label.data();
    lattice_.keep_all_frames = keep_all_frames;
    const int64_t stride = lattice_.stride;
    const int64_t rows = keep_all_frames ? example.frames + 1 : 2;
    memory->Place<Value>(
        {{&lattice_.emissions, example.frames * stride},
         {&lattice_.blanks, example.frames},
         {&lattice_.alpha_blank, rows * stride},
         {&lattice_.alpha_label, rows * stride},
         {&lattice_.scratch, keep_all_frames ? 4 * stride + kStateGuard : 0},
         {&lattice_.beta, keep_beta ? example.frames * 2 * stride : 0}});
    skips_.assign(stride + kStateGuard, 0);
    for (int64_t u = 1; u < example.labels; ++u) {
      skips_[u] = example.label[u] == example.label[u - 1] ? 0 : -1;
    }
    lattice_.skips = skips_.data();
  }
  const CtcLattice<Value>& get() const { return lattice_; }

  // Returns whether the exponents of a path's probability can overflow.
  bool MayOverflow(int64_t lowest) const {
    return lowest < ScaledLimits<Value>::kLowest / (lattice_.frames + 1);
  }

 private:
  CtcLattice<Value> lattice_;
  std::vector<typename CtcLattice<Value>::Exponent> skips_;
};

// Args are those of the loss or of its gradient.
template <typename T, typename Args>
CtcFrames<T> FramesOf(const Args& args, int64_t example) {
  const LabelSequences& s = args.sequences;
  return {args.logits + example * s.frames * s.classes, s.classes, s.blank,
          args.largest, args.rest};
}

template <typename Value, typename T, typename Sums>
bool ComputeLoss(const SequenceLossArgs<Ctc, T>& args, int64_t index,
                 const Sums& sums, LatticeMemory* memory, double* loss) {
  const LabelSequences& s = args.sequences;
  const Example example(s, index);
  const CtcLatticeIn<Value> lattice(example, s.frames,
                                    /*keep_all_frames=*/false,
                                    /*keep_beta=*/false, memory);
  const auto frames = FramesOf<T>(args, index);
  bool finite = true;
  int64_t lowest = 0;
  ForRowBlocks(0, example.frames, s.classes, [&](int64_t begin, int64_t end) {
    sums(begin, end);
    finite &= CtcEmissions(frames, lattice.get(), begin, end, &lowest);
  });
  *loss = std::numeric_limits<double>::quiet_NaN();
  if (!finite) return true;
  if (lattice.MayOverflow(lowest)) return false;
  ScaledTotal<Value> total;
  *loss = CtcForward(lattice.get(), &total);
  return true;
}

// The recursions of an example with mantissas of type Value, in passes that
// threads can share if `shared`. Call, in this order: ComputeEmissions of all
// blocks, RunForward and RunBackward, ComputePosteriors of all blocks. Without
// `shared`, RunBackward does the work of ComputePosteriors in the same pass.
template <typename T, typename Value>
class CtcPasses {
 public:
  static constexpr int64_t kBlock = 32;  // frames

  CtcPasses(const SequenceLossGradArgs<Ctc, T>& args, const Example& example,
            bool shared, LatticeMemory* memory)
      : frames_(FramesOf<T>(args, example.index)),
        lattice_(example, args.sequences.frames, /*keep_all_frames=*/true,
                 /*keep_beta=*/shared, memory),
        shared_(shared),
        lowest_(Blocks()),
        finite_(Blocks(), 1) {}

  int64_t Blocks() const { return (lattice().frames + kBlock - 1) / kBlock; }
  int64_t BlockEnd(int64_t block) const {
    return std::min((block + 1) * kBlock, lattice().frames);
  }
  void ComputeEmissions(int64_t block) {
    finite_[block] = CtcEmissions(frames_, lattice(), block * kBlock,
                                  BlockEnd(block), &lowest_[block]);
  }
  void RunForward() {
    if (!IsFinite() || Overflows()) return;
    CtcForward(lattice(), &total_);
  }
  void RunBackward() {
    if (!IsFinite() || Overflows()) return;
    // If shared, RunForward may be at work.
    if (!shared_ && !IsPossible()) return;
    CtcBackward(lattice(), shared_ ? nullptr : &total_);
  }
  void ComputePosteriors(int64_t block) {
    if (!shared_ || !IsPossible()) return;
    CtcPosteriors(lattice(), block * kBlock, BlockEnd(block), total_);
  }

  bool IsFinite() const {
    return std::find(finite_.begin(), finite_.end(), 0) == finite_.end();
  }
  // Requires IsFinite().
  bool Overflows() const {
    const auto lowest = std::min_element(lowest_.begin(), lowest_.end());
    return lowest != lowest_.end() && lattice_.MayOverflow(*lowest);
  }
  bool IsPossible() const { return total_.mantissa != 0; }
  const CtcLattice<Value>& lattice() const { return lattice_.get(); }

 private:
  const CtcFrames<T> frames_;
  const CtcLatticeIn<Value> lattice_;
  const bool shared_;
  std::vector<int64_t> lowest_;  // of each block
  std::vector<char> finite_;     // likewise
  ScaledTotal<Value> total_ = {};
};

template <typename T>
class ExampleGrad<Ctc, T> {
 public:
  using Value = Accumulator<T>;
  using Args = SequenceLossGradArgs<Ctc, T>;

  // `scale` is [batch, frames]. If `shared`, by threads, `memory` is for this
  // example alone.
  ExampleGrad(const Args& args, int64_t index, Value* scale, bool shared,
              LatticeMemory* memory)
      : args_(args),
        example_(args.sequences, index),
        scale_(scale + index * args.sequences.frames),
        slot_(example_.labels),
        memory_(memory),
        passes_(args, example_, shared, memory) {
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
    differences_.reset(new Value[example_.frames * (firsts_.size() + 1)]);
  }

  // Computes posteriors and the scale of rows.
  void Prepare() {
    RunAll(&passes_);
    Finish();
  }
  // The same for examples that threads share. Each pass goes over all examples
  // at once: one has too little work for all threads.
  static void PrepareAll(
      const Cpu& cpu, double cost,
      const std::vector<std::unique_ptr<ExampleGrad>>& grads) {
    struct Block {
      ExampleGrad* grad;
      int64_t index;
    };
    std::vector<Block> blocks;
    double block_cost = 0;
    for (const auto& grad : grads) {
      for (int64_t at = 0; at < grad->passes_.Blocks(); ++at) {
        blocks.push_back({grad.get(), at});
        block_cost = CtcPasses<T, Value>::kBlock *
                     (8.0 * grad->args_.sequences.max_labels + 100);
      }
    }
    const auto for_blocks = [&](const auto& body) {
      cpu.ParallelFor(blocks.size(), block_cost,
                      [&](int64_t begin, int64_t end) {
                        for (int64_t i = begin; i < end; ++i) body(blocks[i]);
                      });
    };
    for_blocks([](const Block& block) {
      block.grad->passes_.ComputeEmissions(block.index);
    });
    cpu.ParallelFor(2 * grads.size(), cost, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        auto& passes = grads[i / 2]->passes_;
        i % 2 == 0 ? passes.RunForward() : passes.RunBackward();
      }
    });
    for_blocks([](const Block& block) {
      block.grad->Combine(&block.grad->passes_, block.index);
    });
    for (const auto& grad : grads) grad->Finish();
  }

  // Writes the gradient of frames [begin, end), padding included.
  void WriteFrames(int64_t begin, int64_t end) const {
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

  template <typename Passes>
  static State StateOf(const Passes& passes) {
    if (!passes.IsFinite() || passes.Overflows()) return kNan;
    return passes.IsPossible() ? kPossible : kImpossible;
  }

  template <typename Passes>
  void RunAll(Passes* passes) {
    const int64_t blocks = passes->Blocks();
    for (int64_t i = 0; i < blocks; ++i) passes->ComputeEmissions(i);
    passes->RunForward();
    passes->RunBackward();
    for (int64_t i = 0; i < blocks; ++i) Combine(passes, i);
  }

  // Computes a block's posteriors and sets differences_ to probabilities minus
  // posteriors. Equal labels share a class.
  template <typename Passes>
  void Combine(Passes* passes, int64_t block) {
    if (!passes->IsPossible()) return;
    passes->ComputePosteriors(block);
    const auto& lattice = passes->lattice();
    const int64_t distinct = firsts_.size();
    const int64_t end = passes->BlockEnd(block);
    for (int64_t t = block * Passes::kBlock; t < end; ++t) {
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

  // Sets the state and the scale of rows. Where exponents overflow, computes
  // the example with those of double.
  void Finish() {
    if (passes_.IsFinite() && passes_.Overflows()) {
      CtcPasses<T, double> passes(args_, example_, /*shared=*/false, memory_);
      RunAll(&passes);
      state_ = StateOf(passes);
    } else {
      state_ = StateOf(passes_);
    }
    const LabelSequences& s = args_.sequences;
    Value d = args_.d_loss[example_.index];
    if (state_ == kNan) d = std::numeric_limits<Value>::quiet_NaN();
    if (state_ == kImpossible) d = 0;
    std::fill(scale_, scale_ + example_.frames, d);
    std::fill(scale_ + example_.frames, scale_ + s.frames, Value(0));
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

  const Args& args_;
  const Example example_;
  Value* const scale_;  // [frames]
  std::vector<int64_t> slot_, firsts_;
  // Probabilities minus posteriors of distinct labels and, last, of blank.
  std::unique_ptr<Value[]> differences_;  // [frames, distinct labels + 1]
  LatticeMemory* const memory_;
  CtcPasses<T, Value> passes_;
  State state_ = kPossible;
};

template <typename T>
Error SequenceLoss(const Cpu& cpu, const CtcLossArgs<T>& args) {
  return ComputeLosses(cpu, args);
}
template <typename T>
Error SequenceLossGrad(const Cpu& cpu, const CtcLossGradArgs<T>& args) {
  return ComputeGradients(cpu, args);
}

}  // namespace TFO_CPU_NAMESPACE

TFO_INSTANTIATE_ALGORITHM_PER_LEVEL(SequenceLoss, CtcLossArgs);
TFO_INSTANTIATE_ALGORITHM_PER_LEVEL(SequenceLossGrad, CtcLossGradArgs);

}  // namespace tfo
