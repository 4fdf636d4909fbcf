// The device functions of RNN-T, for sequence_loss_gpu.cu.cc.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_SEQUENCE_LOSSES_RNNT_LOSS_GPU_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_SEQUENCE_LOSSES_RNNT_LOSS_GPU_H_

#include "tensorflow_ops/nn/cc/kernels/sequence_losses/sequence_gpu.h"

namespace tfo::sequence_internal {

// Returns where a node is in memory, from its row of logits.
template <typename Value>
__device__ int64_t CellOf(const LabelSequences& s,
                          const LossMemory<Rnnt, Value>& memory, int64_t row) {
  const int64_t u = row % memory.states, frame = row / memory.states;
  const int64_t t = frame % s.frames;
  return (frame - t + (t + u) % s.frames) * memory.states + u;
}

// Sets the probabilities of a node's edges, within the example's frames.
template <typename T>
__device__ void EmitRow(const LabelSequences& s, int64_t example, int64_t row,
                        const RowProbabilities<T>& probabilities,
                        const LossMemory<Rnnt, Accumulator<T>>& memory) {
  const int64_t u = row % memory.states, labels = s.label_lengths[example];
  if (u > labels) return;
  const int64_t cell = CellOf(s, memory, row);
  memory.blanks[cell] = probabilities.Of(s.blank);
  if (u < labels) memory.labels[cell] = probabilities.Of(s.Label(example, u));
}

template <typename Value>
struct LossPaths<Rnnt, Value, true> {
  using Number = Scaled<Value>;
  Number given, kept[1];
  Number by_blank;  // paths from the frame before

  __device__ LossPaths(int64_t u, int64_t, bool)
      : given(Number::Zero()),
        by_blank(u == 0 ? Number::One() : Number::Zero()) {}
  __device__ void Step(const Number& blank, const Number& label,
                       const Number& from) {
    kept[0] = Sum(by_blank, from);
    by_blank = kept[0] * blank;
    given = kept[0] * label;
  }
  __device__ Number Total(const Number&) const { return by_blank; }
};

template <typename Value>
struct LossPaths<Rnnt, Value, false> {
  using Number = Scaled<Value>;
  Number given, kept[1];

  __device__ LossPaths(int64_t u, int64_t labels, bool)
      : given(Number::Zero()),
        kept{u == labels ? Number::One() : Number::Zero()} {}
  __device__ void Step(const Number& blank, const Number& label,
                       const Number& from) {
    kept[0] = Sum(kept[0] * blank, from * label);
    given = kept[0];
  }
};

// The shares of a node's edges among all paths of its example.
template <typename Value>
struct EdgeShares {
  Value blank, label;
};
template <typename Value>
__device__ EdgeShares<Value> SharesOf(const LabelSequences& s,
                                      const LossMemory<Rnnt, Value>& memory,
                                      int64_t example, int64_t row) {
  using Number = Scaled<Value>;
  const int64_t u = row % memory.states, labels = s.label_lengths[example];
  const int64_t t = row / memory.states % s.frames;
  const int64_t cell = CellOf(s, memory, row);
  const Number total = memory.total[example].probability;
  const Number way = Load(memory.alpha + cell);
  EdgeShares<Value> shares = {0, 0};
  if (t + 1 < s.logit_lengths[example]) {
    const int64_t next = CellOf(s, memory, row + memory.states);
    shares.blank =
        (way * (memory.blanks[cell] * Load(memory.beta + next))).Share(total);
  } else if (u == labels) {
    shares.blank = (way * memory.blanks[cell]).Share(total);
  }
  if (u < labels) {
    const int64_t next = CellOf(s, memory, row + 1);
    shares.label =
        (way * (memory.labels[cell] * Load(memory.beta + next))).Share(total);
  }
  return shares;
}

// Subtracts the shares of a node's edges.
template <typename T>
__device__ void SubtractShares(const SequenceLossGradArgs<Rnnt, T>& args,
                               const LossMemory<Rnnt, Accumulator<T>>& memory,
                               int64_t example, int64_t row) {
  using Value = Accumulator<T>;
  using Number = Scaled<Value>;
  const LabelSequences& s = args.sequences;
  const Value scale = memory.scale[row], d = args.d_loss[example];
  const int64_t u = row % memory.states, cell = CellOf(s, memory, row);
  const EdgeShares<Value> shares = SharesOf(s, memory, example, row);
  T* const d_logits = args.d_logits + row * s.classes;
  const Value blank = memory.blanks[cell].Share(Number::One());
  d_logits[s.blank] = Narrow<T>(scale * blank - d * shares.blank);
  if (u == s.label_lengths[example]) return;
  const Value label = memory.labels[cell].Share(Number::One());
  d_logits[s.Label(example, u)] = Narrow<T>(scale * label - d * shares.label);
}

}  // namespace tfo::sequence_internal

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_SEQUENCE_LOSSES_RNNT_LOSS_GPU_H_
