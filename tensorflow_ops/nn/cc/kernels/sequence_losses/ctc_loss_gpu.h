// The device functions of CTC, for sequence_loss_gpu.cu.cc.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_SEQUENCE_LOSSES_CTC_LOSS_GPU_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_SEQUENCE_LOSSES_CTC_LOSS_GPU_H_

#include "tensorflow_ops/nn/cc/kernels/sequence_losses/sequence_gpu.h"

namespace tfo::sequence_internal {

// Sets the emissions of a row within the example's length. All threads of the
// block call.
template <typename T>
__device__ void EmitRow(const LabelSequences& s, int64_t example, int64_t row,
                        const RowProbabilities<T>& probabilities,
                        const LossMemory<Ctc, Accumulator<T>>& memory) {
  const int64_t labels = s.label_lengths[example];
  for (int64_t u = threadIdx.x; u <= labels; u += blockDim.x) {
    const bool is_label = u < labels;
    Store(probabilities.Of(is_label ? s.Label(example, u) : s.blank),
          is_label ? memory.labels + row * memory.states + u
                   : memory.blanks + row);
  }
}

template <typename Value>
struct LossPaths<Ctc, Value, true> {
  using Number = Scaled<Value>;
  bool skips;
  Number given, kept[2];

  __device__ LossPaths(int64_t u, int64_t, bool may_skip)
      : skips(may_skip),
        given(Number::Zero()),
        kept{u == 0 ? Number::One() : Number::Zero(), Number::Zero()} {}
  __device__ void Step(const Number& blank, const Number& label,
                       const Number& from) {
    const Number here = kept[0];
    kept[0] = Sum(here, from) * blank;
    kept[1] = Sum(kept[1], here, skips ? from : Number::Zero()) * label;
    given = kept[1];
  }
  __device__ Number Total(const Number& from) const {
    return Sum(kept[0], from);
  }
};

template <typename Value>
struct LossPaths<Ctc, Value, false> {
  using Number = Scaled<Value>;
  bool skips;
  Number given, kept[2];
  Number by_blank, by_label;  // paths from the frame after on

  __device__ LossPaths(int64_t u, int64_t labels, bool may_skip)
      : skips(may_skip),
        by_blank(u == labels ? Number::One() : Number::Zero()),
        by_label(Number::Zero()) {
    given = by_blank;
  }
  __device__ void Step(const Number& blank, const Number& label,
                       const Number& from) {
    kept[0] = Sum(by_blank, by_label);
    kept[1] = Sum(by_label, from);
    by_blank = kept[0] * blank;
    by_label = kept[1] * label;
    given = Sum(by_blank, skips ? by_label : Number::Zero());
  }
};

// Finds the next label that is equal, or states; none for one that is not the
// first: ~that. All threads of the block call.
template <typename Value>
__device__ void LinkLabels(const LabelSequences& s,
                           const LossMemory<Ctc, Value>& memory,
                           int64_t example) {
  const int64_t labels = s.label_lengths[example];
  for (int64_t u = threadIdx.x; u < labels; u += blockDim.x) {
    const int64_t label = s.Label(example, u);
    int64_t next = u + 1, before = u - 1;
    while (next < labels && s.Label(example, next) != label) ++next;
    while (before >= 0 && s.Label(example, before) != label) --before;
    memory.next[example * memory.states + u] = before < 0 ? next : ~next;
  }
}

// The sum of the block's values, the same in all threads.
template <typename Value>
__device__ Value SumOfBlock(Value value) {
  __shared__ Value values[kRowThreads];
  values[threadIdx.x] = value;
  for (int half = kRowThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (static_cast<int>(threadIdx.x) < half) {
      values[threadIdx.x] += values[threadIdx.x + half];
    }
  }
  __syncthreads();
  const Value sum = values[0];
  __syncthreads();
  return sum;
}

// Subtracts posteriors from a row of the gradient. All threads of the block
// call.
template <typename T>
__device__ void SubtractShares(const SequenceLossGradArgs<Ctc, T>& args,
                               const LossMemory<Ctc, Accumulator<T>>& memory,
                               int64_t example, int64_t row) {
  using Value = Accumulator<T>;
  using Number = Scaled<Value>;
  const LabelSequences& s = args.sequences;
  const Value scale = memory.scale[row];
  const int64_t labels = s.label_lengths[example], states = memory.states;
  const int64_t* const next = memory.next + example * states;
  const Number total = memory.total[example].probability;
  T* const d_logits = args.d_logits + row * s.classes;
  // Of the paths through label u, or the blank before it.
  const auto share = [&](int64_t u, int is_label) {
    const int64_t at = (row * 2 + is_label) * states + u;
    return (Load(memory.alpha + at) * Load(memory.beta + at)).Share(total);
  };
  Value blanks = 0;
  for (int64_t u = threadIdx.x; u <= labels; u += blockDim.x) {
    blanks += share(u, 0);
  }
  blanks = SumOfBlock(blanks);
  if (threadIdx.x == 0) {
    const Value softmax = memory.blanks[row].Share(Number::One());
    d_logits[s.blank] = Narrow<T>(scale * (softmax - blanks));
  }
  for (int64_t u = threadIdx.x; u < labels; u += blockDim.x) {
    if (next[u] < 0) continue;
    Value difference = memory.labels[row * states + u].Share(Number::One());
    for (int64_t i = u; i < labels; i = next[i] < 0 ? ~next[i] : next[i]) {
      difference -= share(i, 1);
    }
    d_logits[s.Label(example, u)] = Narrow<T>(scale * difference);
  }
}

}  // namespace tfo::sequence_internal

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_SEQUENCE_LOSSES_CTC_LOSS_GPU_H_
