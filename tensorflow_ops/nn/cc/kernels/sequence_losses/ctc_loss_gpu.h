// The device functions of CTC, for sequence_loss_gpu.cu.cc.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_SEQUENCE_LOSSES_CTC_LOSS_GPU_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_SEQUENCE_LOSSES_CTC_LOSS_GPU_H_

#include "tensorflow_ops/nn/cc/kernels/sequence_losses/sequence_gpu.h"

namespace tfo::sequence_internal {

// Scratch memory that the kernels share, for each example.
template <typename T>
struct LossMemory<Ctc, T> {
  using Value = Accumulator<T>;
  using Number = Scaled<Value>;
  int64_t states;  // max_labels + 1: labels and, last, blank; blanks of a row
  int64_t rows;    // kept of paths
  Number* emissions;                  // [batch, frames, states]
  Number *alpha_blank, *alpha_label;  // [batch, rows, states]
  // Of gradients only.
  Number* beta;                  // [batch, 4, states]
  Value *blank_shares, *shares;  // [batch, frames, states]
  Value* scale;                  // [batch, frames]
  int64_t* next;                 // [batch, states]

  // Lays out the arrays from `base` on. Returns the bytes that they take.
  int64_t LayOut(const LabelSequences& s, bool grad, void* base) {
    states = s.max_labels + 1;
    rows = grad ? s.frames + 1 : 2;
    ScratchLayout scratch(base);
    const int64_t cells = s.batch * s.frames * states;
    scratch.Reserve(&emissions, cells);
    scratch.Reserve(&alpha_blank, s.batch * rows * states);
    scratch.Reserve(&alpha_label, s.batch * rows * states);
    if (!grad) return scratch.bytes();
    scratch.Reserve(&beta, s.batch * 4 * states);
    scratch.Reserve(&blank_shares, cells);
    scratch.Reserve(&shares, cells);
    scratch.Reserve(&scale, s.batch * s.frames);
    scratch.Reserve(&next, s.batch * states);
    return scratch.bytes();
  }
};

// Sets the emissions of a row within the example's length. All threads of the
// block call.
template <typename T>
__device__ void EmitRow(const LabelSequences& s, int64_t example, int64_t row,
                        const RowProbabilities<T>& probabilities,
                        const LossMemory<Ctc, T>& memory) {
  const int64_t labels = s.label_lengths[example];
  for (int64_t u = threadIdx.x; u <= labels; u += blockDim.x) {
    const int64_t label = u == labels ? s.blank : s.Label(example, u);
    memory.emissions[row * memory.states + (u == labels ? s.max_labels : u)] =
        probabilities.Of(label);
  }
}

// The probability of the labels. All threads of the block call.
template <typename T>
__device__ TotalProbability<Accumulator<T>> Forward(
    const LabelSequences& s, const LossMemory<Ctc, T>& memory, int64_t example,
    bool keep_all_frames) {
  using Number = Scaled<Accumulator<T>>;
  if (!IsValid(s, example, Ctc::kLeastFrames)) return {Number::Zero(), false};
  const int64_t labels = s.label_lengths[example];
  const int64_t frames = s.logit_lengths[example], states = memory.states;
  Number* const blanks = memory.alpha_blank + example * memory.rows * states;
  Number* const paths = memory.alpha_label + example * memory.rows * states;
  const auto row_of = [&](int64_t t) {
    return (keep_all_frames ? t + 1 : (t + 1) & 1) * states;
  };
  for (int64_t u = threadIdx.x; u <= labels; u += blockDim.x) {
    blanks[row_of(-1) + u] = u == 0 ? Number::One() : Number::Zero();
    paths[row_of(-1) + u] = Number::Zero();
  }
  for (int64_t t = 0; t < frames; ++t) {
    __syncthreads();
    const int64_t from = row_of(t - 1), to = row_of(t);
    const Number* const emissions =
        memory.emissions + (example * s.frames + t) * states;
    const Number blank = emissions[s.max_labels];
    for (int64_t u = threadIdx.x; u <= labels; u += blockDim.x) {
      const Number before = u == 0 ? Number::Zero() : paths[from + u - 1];
      const Number here = blanks[from + u];
      blanks[to + u] = (here + before) * blank;
      if (u == labels) break;
      const bool skips =
          u > 0 && s.Label(example, u) != s.Label(example, u - 1);
      const Number stay = paths[from + u] + here;
      paths[to + u] = (skips ? stay + before : stay) * emissions[u];
    }
  }
  __syncthreads();
  const int64_t last = row_of(frames - 1) + labels;
  const Number end =
      labels == 0 ? blanks[last] : blanks[last] + paths[last - 1];
  return {end, true};
}

// Finds the next label that is equal, or states; none for one that is not the
// first: ~that.
template <typename T>
__device__ void LinkLabels(const LabelSequences& s,
                           const LossMemory<Ctc, T>& memory, int64_t example) {
  const int64_t labels = s.label_lengths[example];
  for (int64_t u = threadIdx.x; u < labels; u += blockDim.x) {
    const int64_t label = s.Label(example, u);
    int64_t next = u + 1, before = u - 1;
    while (next < labels && s.Label(example, next) != label) ++next;
    while (before >= 0 && s.Label(example, before) != label) --before;
    memory.next[example * memory.states + u] = before < 0 ? next : ~next;
  }
}

// Multiplies the paths after frame t with its emissions.
template <typename T>
__device__ void EmitBackward(const LabelSequences& s,
                             const LossMemory<Ctc, T>& memory, int64_t example,
                             int64_t t) {
  const int64_t labels = s.label_lengths[example], states = memory.states;
  auto* const beta = memory.beta + example * 4 * states;
  const auto* const emissions =
      memory.emissions + (example * s.frames + t) * states;
  for (int64_t u = threadIdx.x; u <= labels; u += blockDim.x) {
    beta[2 * states + u] = beta[u] * emissions[s.max_labels];
    if (u < labels) beta[3 * states + u] = beta[states + u] * emissions[u];
  }
}

// Computes shares from the paths that Forward kept.
template <typename T>
__device__ void Backward(const LabelSequences& s,
                         const LossMemory<Ctc, T>& memory, int64_t example,
                         Accumulator<T> /*scale*/,
                         const Scaled<Accumulator<T>>& total) {
  using Number = Scaled<Accumulator<T>>;
  const int64_t labels = s.label_lengths[example], states = memory.states;
  Number* const beta = memory.beta + example * 4 * states;
  LinkLabels(s, memory, example);
  for (int64_t u = threadIdx.x; u <= labels; u += blockDim.x) {
    beta[u] = u == labels ? Number::One() : Number::Zero();
    beta[states + u] = u == labels - 1 ? Number::One() : Number::Zero();
  }
  for (int64_t t = s.logit_lengths[example] - 1; t >= 0; --t) {
    __syncthreads();
    const int64_t row = (example * memory.rows + t + 1) * states;
    const int64_t cell = (example * s.frames + t) * states;
    for (int64_t u = threadIdx.x; u <= labels; u += blockDim.x) {
      memory.blank_shares[cell + u] =
          (memory.alpha_blank[row + u] * beta[u]).Share(total);
      if (u == labels) break;
      memory.shares[cell + u] =
          (memory.alpha_label[row + u] * beta[states + u]).Share(total);
    }
    EmitBackward(s, memory, example, t);
    __syncthreads();
    for (int64_t u = threadIdx.x; u <= labels; u += blockDim.x) {
      const Number blank = beta[2 * states + u];
      if (u == labels) {
        beta[u] = blank;
        break;
      }
      const Number label = beta[3 * states + u];
      const bool skips =
          u + 1 < labels && s.Label(example, u) != s.Label(example, u + 1);
      Number paths = label + beta[2 * states + u + 1];
      if (skips) paths = paths + beta[3 * states + u + 1];
      beta[u] = blank + label;
      beta[states + u] = paths;
    }
  }
}

// The sum of the block's values, the same in all threads.
template <typename Value>
__device__ Value SumOfBlock(Value value) {
  __shared__ Value values[kLossThreads];
  values[threadIdx.x] = value;
  for (int half = kLossThreads / 2; half > 0; half /= 2) {
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
                               const LossMemory<Ctc, T>& memory,
                               int64_t example, int64_t row) {
  using Value = Accumulator<T>;
  const LabelSequences& s = args.sequences;
  const Value scale = memory.scale[row];
  const int64_t labels = s.label_lengths[example];
  const int64_t cell = row * memory.states;
  const int64_t* const next = memory.next + example * memory.states;
  T* const d_logits = args.d_logits + row * s.classes;
  Value blanks = 0;
  for (int64_t u = threadIdx.x; u <= labels; u += blockDim.x) {
    blanks += memory.blank_shares[cell + u];
  }
  blanks = SumOfBlock(blanks);
  for (int64_t u = threadIdx.x; u <= labels; u += blockDim.x) {
    if (u < labels && next[u] < 0) continue;
    const int64_t at = u == labels ? s.max_labels : u;
    Value difference = memory.emissions[cell + at].Share(Scaled<Value>::One());
    if (u == labels) {
      d_logits[s.blank] = Narrow<T>(scale * (difference - blanks));
      continue;
    }
    for (int64_t i = u; i < labels; i = next[i] < 0 ? ~next[i] : next[i]) {
      difference -= memory.shares[cell + i];
    }
    d_logits[s.Label(example, u)] = Narrow<T>(scale * difference);
  }
}

}  // namespace tfo::sequence_internal

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_SEQUENCE_LOSSES_CTC_LOSS_GPU_H_
