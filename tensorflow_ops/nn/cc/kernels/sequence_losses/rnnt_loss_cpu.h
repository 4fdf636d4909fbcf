// RNN-T of one example, for sequence_loss_cpu.cc.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_SEQUENCE_LOSSES_RNNT_LOSS_CPU_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_SEQUENCE_LOSSES_RNNT_LOSS_CPU_H_

#include <algorithm>
#include <limits>
#include <memory>
#include <vector>

#include "tensorflow_ops/nn/cc/kernels/rows/row_sums_cpu.h"
#include "tensorflow_ops/nn/cc/kernels/sequence_losses/lattice_memory_cpu.h"
#include "tensorflow_ops/nn/cc/kernels/sequence_losses/rnnt_loss_simd.h"

namespace tfo::sequence_internal {

// The lattice of an example, in `memory`.
template <typename Value>
class RnntLatticeIn {
 public:
  RnntLatticeIn(const Example& example, bool keep_all_rows,
                LatticeMemory* memory) {
    lattice_.frames = example.frames;
    lattice_.labels = example.labels;
    lattice_.stride = StatesStride(example.labels + 1);
    lattice_.keep_all_rows = keep_all_rows;
    lattice_.label = example.label.data();
    const int64_t cells = lattice_.Diagonals() * lattice_.stride;
    const int64_t two = 2 * lattice_.stride + kStateGuard;
    memory->Place<Value>({{&lattice_.blanks, cells},
                          {&lattice_.emissions, cells},
                          {&lattice_.alpha, keep_all_rows ? cells : two},
                          {&lattice_.scratch, keep_all_rows ? two : 0}});
    for (const auto& rows : {lattice_.blanks, lattice_.emissions}) {
      std::fill_n(rows.mantissas, cells, Value(0));
      std::fill_n(rows.exponents, cells, ScaledLimits<Value>::kZero);
    }
  }
  const RnntLattice<Value>& get() const { return lattice_; }

  // Returns whether the exponents of a way's probability can overflow.
  bool MayOverflow(int64_t lowest) const {
    return lowest < ScaledLimits<Value>::kLowest / (lattice_.Diagonals() + 1);
  }

 private:
  RnntLattice<Value> lattice_;
};

// Args are those of the loss or of its gradient.
template <typename T, typename Args>
RnntNodes<T> NodesOf(const Args& args, int64_t example) {
  const LabelSequences& s = args.sequences;
  const int64_t per_frame = s.max_labels + 1;
  return {example * s.frames * per_frame,
          per_frame,
          s.classes,
          s.blank,
          args.logits,
          args.largest,
          args.rest};
}

// Computes the loss with mantissas of type Value. `sums` computes the sums of
// frames [begin, end). Returns false if exponents may overflow.
template <typename Value, typename T, typename Sums>
bool ComputeLoss(const SequenceLossArgs<Rnnt, T>& args, int64_t index,
                 const Sums& sums, LatticeMemory* memory, double* loss) {
  const Example example(args.sequences, index);
  const RnntLatticeIn<Value> lattice(example, /*keep_all_rows=*/false, memory);
  const auto nodes = NodesOf<T>(args, index);
  bool finite = true;
  int64_t lowest = 0;
  for (int64_t t = 0; t < example.frames; ++t) {
    sums(t, t + 1);
    finite &= TFO_DISPATCH(RnntEmissions<T, Value>)(nodes, lattice.get(), t,
                                                    t + 1, &lowest);
  }
  *loss = std::numeric_limits<double>::quiet_NaN();
  if (!finite) return true;
  if (lattice.MayOverflow(lowest)) return false;
  ScaledTotal<Value> total;
  *loss = TFO_DISPATCH(RnntForward<Value>)(lattice.get(), &total);
  return true;
}

template <typename T>
class ExampleGrad<Rnnt, T> {
 public:
  using Value = Accumulator<T>;
  using Args = SequenceLossGradArgs<Rnnt, T>;

  // `scale` is [batch, frames, max_labels + 1].
  ExampleGrad(const Args& args, int64_t index, Value* scale, bool /*shared*/,
              LatticeMemory* memory)
      : args_(args),
        example_(args.sequences, index),
        scale_(scale),
        memory_(memory) {}

  // Computes shares and the scale of rows.
  void Prepare() {
    if (!Compute<Value>()) Compute<double>();
  }
  static void PrepareAll(
      const Cpu& cpu, double cost,
      const std::vector<std::unique_ptr<ExampleGrad>>& grads) {
    cpu.ParallelFor(grads.size(), cost, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) grads[i]->Prepare();
    });
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
      const int64_t row = (example_.index * s.frames + t) * per_frame;
      const int64_t rows =
          is_zero_ || t >= example_.frames ? 0 : example_.labels + 1;
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
    const Value d = args_.d_loss[example_.index];
    if (d == 0) {
      is_zero_ = true;
      return true;
    }
    const RnntLatticeIn<Mantissa> with_memory(example_, /*keep_all_rows=*/true,
                                              memory_);
    const auto& lattice = with_memory.get();
    int64_t lowest = 0;
    if (!TFO_DISPATCH(RnntEmissions<T, Mantissa>)(
            NodesOf<T>(args_, example_.index), lattice, 0, example_.frames,
            &lowest)) {
      ForNodes([&](int64_t, int64_t, int64_t row) {
        scale_[row] = std::numeric_limits<Value>::quiet_NaN();
      });
      return true;
    }
    if (with_memory.MayOverflow(lowest)) return false;
    ScaledTotal<Mantissa> total;
    TFO_DISPATCH(RnntForward<Mantissa>)(lattice, &total);
    is_zero_ = total.mantissa == 0;
    if (is_zero_) return true;
    TFO_DISPATCH(RnntBackward<Mantissa>)(lattice, total);
    differences_.resize(example_.frames * (example_.labels + 1) * 2);
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
    for (int64_t t = 0; t < example_.frames; ++t) {
      for (int64_t u = 0; u <= example_.labels; ++u) {
        body(t, u, (example_.index * s.frames + t) * (s.max_labels + 1) + u);
      }
    }
  }

  // Replaces the gradients of blank and of the next label at a frame's nodes.
  void SubtractShares(int64_t t, int64_t row) const {
    const LabelSequences& s = args_.sequences;
    const Value* const difference =
        &differences_[t * (example_.labels + 1) * 2];
    for (int64_t u = 0; u <= example_.labels; ++u) {
      T* const d_logits = args_.d_logits + (row + u) * s.classes;
      d_logits[s.blank] = Narrow<T>(difference[2 * u]);
      if (u == example_.labels) break;
      d_logits[example_.label[u]] = Narrow<T>(difference[2 * u + 1]);
    }
  }

  const Args& args_;
  const Example example_;
  Value* const scale_;  // [batch, frames, max_labels + 1]
  LatticeMemory* const memory_;
  // Of blank and the next label at each node; empty for a gradient of NaN.
  std::vector<Value> differences_;
  bool is_zero_ = false;
};

}  // namespace tfo::sequence_internal

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_SEQUENCE_LOSSES_RNNT_LOSS_CPU_H_
