// The device functions of RNN-T, for sequence_loss_gpu.cu.cc.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_SEQUENCE_LOSSES_RNNT_LOSS_GPU_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_SEQUENCE_LOSSES_RNNT_LOSS_GPU_H_

#include "tensorflow_ops/nn/cc/kernels/sequence_losses/sequence_gpu.h"

namespace tfo::sequence_internal {

// Scratch memory. A node (t, u) of an example has the index of its row of
// logits.
template <typename T>
struct LossMemory<Rnnt, T> {
  using Value = Accumulator<T>;
  using Number = Scaled<Value>;
  int64_t states;              // max_labels + 1
  Number *blanks, *emissions;  // of nodes
  Number* alpha;  // of nodes or, without a gradient, [batch, 2, states]
  // Of gradients only.
  Number* beta;                  // [batch, 2, states]
  Value *blank_shares, *shares;  // of nodes' edges
  Value* scale;                  // of nodes

  // Lays out the arrays from `base` on. Returns the bytes that they take.
  int64_t LayOut(const LabelSequences& s, bool grad, void* base) {
    states = s.max_labels + 1;
    const int64_t nodes = s.batch * s.frames * states;
    ScratchLayout scratch(base);
    scratch.Reserve(&blanks, nodes);
    scratch.Reserve(&emissions, nodes);
    scratch.Reserve(&alpha, grad ? nodes : s.batch * 2 * states);
    if (!grad) return scratch.bytes();
    scratch.Reserve(&beta, s.batch * 2 * states);
    scratch.Reserve(&blank_shares, nodes);
    scratch.Reserve(&shares, nodes);
    scratch.Reserve(&scale, nodes);
    return scratch.bytes();
  }
};

// Sets the probabilities of a node's edges, within the example's frames.
template <typename T>
__device__ void EmitRow(const LabelSequences& s, int64_t example, int64_t row,
                        const RowProbabilities<T>& probabilities,
                        const LossMemory<Rnnt, T>& memory) {
  const int64_t u = row % memory.states, labels = s.label_lengths[example];
  if (u > labels) return;
  memory.blanks[row] = probabilities.Of(s.blank);
  memory.emissions[row] = u == labels ? Scaled<Accumulator<T>>::Zero()
                                      : probabilities.Of(s.Label(example, u));
}

// The probability of the labels. All threads of the block call.
template <typename T>
__device__ TotalProbability<Accumulator<T>> Forward(
    const LabelSequences& s, const LossMemory<Rnnt, T>& memory, int64_t example,
    bool keep_all_rows) {
  using Number = Scaled<Accumulator<T>>;
  if (!IsValid(s, example, Rnnt::kLeastFrames)) return {Number::Zero(), false};
  const int64_t labels = s.label_lengths[example];
  const int64_t frames = s.logit_lengths[example], states = memory.states;
  const int64_t first = example * s.frames * states;
  Number* const alpha =
      memory.alpha + (keep_all_rows ? first : example * 2 * states);
  const auto place = [&](int64_t d, int64_t u) {
    return keep_all_rows ? (d - u) * states + u : (d & 1) * states + u;
  };
  for (int64_t d = 0; d < frames + labels; ++d) {
    __syncthreads();
    for (int64_t u = threadIdx.x; u <= labels; u += blockDim.x) {
      const int64_t t = d - u;
      if (t < 0 || t >= frames) continue;
      const int64_t node = first + t * states + u;
      Number sum = d == 0 ? Number::One() : Number::Zero();
      if (t > 0) {
        sum = sum + alpha[place(d - 1, u)] * memory.blanks[node - states];
      }
      if (u > 0) {
        sum = sum + alpha[place(d - 1, u - 1)] * memory.emissions[node - 1];
      }
      alpha[place(d, u)] = sum;
    }
  }
  __syncthreads();
  const int64_t last = first + (frames - 1) * states + labels;
  return {alpha[place(frames + labels - 1, labels)] * memory.blanks[last],
          true};
}

// Computes posteriors from the alpha that Forward kept.
template <typename T>
__device__ void Backward(const LabelSequences& s,
                         const LossMemory<Rnnt, T>& memory, int64_t example,
                         Accumulator<T> scale,
                         const Scaled<Accumulator<T>>& total) {
  using Number = Scaled<Accumulator<T>>;
  const int64_t labels = s.label_lengths[example];
  const int64_t frames = s.logit_lengths[example], states = memory.states;
  const int64_t first = example * s.frames * states;
  Number* const beta = memory.beta + example * 2 * states;
  for (int64_t d = frames + labels - 1; d >= 0; --d) {
    __syncthreads();
    const Number* const next = beta + ((d + 1) & 1) * states;
    for (int64_t u = threadIdx.x; u <= labels; u += blockDim.x) {
      const int64_t t = d - u;
      if (t < 0 || t >= frames) continue;
      const int64_t node = first + t * states + u;
      Number by_blank = Number::Zero(), by_label = Number::Zero();
      if (t + 1 < frames) {
        by_blank = memory.blanks[node] * next[u];
      } else if (u == labels) {
        by_blank = memory.blanks[node];
      }
      if (u < labels) by_label = memory.emissions[node] * next[u + 1];
      beta[(d & 1) * states + u] = by_blank + by_label;
      const Number way = memory.alpha[node];
      memory.blank_shares[node] = (way * by_blank).Share(total);
      memory.shares[node] = (way * by_label).Share(total);
      memory.scale[node] =
          scale * (memory.blank_shares[node] + memory.shares[node]);
    }
  }
}

// Subtracts the shares of a node's edges.
template <typename T>
__device__ void SubtractShares(const SequenceLossGradArgs<Rnnt, T>& args,
                               const LossMemory<Rnnt, T>& memory,
                               int64_t example, int64_t row) {
  using Value = Accumulator<T>;
  using Number = Scaled<Value>;
  const LabelSequences& s = args.sequences;
  const Value scale = memory.scale[row], d = args.d_loss[example];
  const int64_t u = row % memory.states;
  T* const d_logits = args.d_logits + row * s.classes;
  const Value blank = memory.blanks[row].Share(Number::One());
  d_logits[s.blank] = Narrow<T>(scale * blank - d * memory.blank_shares[row]);
  if (u == s.label_lengths[example]) return;
  const Value label = memory.emissions[row].Share(Number::One());
  d_logits[s.Label(example, u)] =
      Narrow<T>(scale * label - d * memory.shares[row]);
}

}  // namespace tfo::sequence_internal

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_SEQUENCE_LOSSES_RNNT_LOSS_GPU_H_
