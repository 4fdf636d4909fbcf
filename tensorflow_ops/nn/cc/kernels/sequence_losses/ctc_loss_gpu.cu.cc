#include "tensorflow_ops/nn/cc/kernels/sequence_losses/ctc_loss.h"
#include "tensorflow_ops/nn/cc/kernels/sequence_losses/sequence_gpu.h"

namespace tfo {
namespace {

constexpr int kThreads = 128;

// Scratch memory that the kernels share, for each example.
template <typename T>
struct Memory {
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

// Emissions of frames, a block each.
template <typename T>
__global__ void ComputeEmissions(LabelSequences s, const T* logits,
                                 const Accumulator<T>* largest,
                                 const Accumulator<T>* rest, Memory<T> memory) {
  for (int64_t row = blockIdx.x; row < s.batch * s.frames; row += gridDim.x) {
    const int64_t example = row / s.frames;
    if (!s.HasValidLengths(example, 0) ||
        row % s.frames >= s.logit_lengths[example]) {
      continue;
    }
    const RowProbabilities<T> row_probabilities(logits, s.classes, largest,
                                                rest, row);
    const int64_t labels = s.label_lengths[example];
    for (int64_t u = threadIdx.x; u <= labels; u += blockDim.x) {
      const int64_t label = u == labels ? s.blank : s.Label(example, u);
      memory.emissions[row * memory.states + (u == labels ? s.max_labels : u)] =
          row_probabilities.Of(label);
    }
  }
}

// The probability of the labels. All threads of the block call.
template <typename T>
__device__ TotalProbability<Accumulator<T>> Forward(const LabelSequences& s,
                                                    const Memory<T>& memory,
                                                    int64_t example,
                                                    bool keep_all_frames) {
  using Number = Scaled<Accumulator<T>>;
  if (!IsValid(s, example, 0)) return {Number::Zero(), false};
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

template <typename T>
__global__ void Losses(CtcArgs<T> args, Memory<T> memory) {
  for (int64_t example = blockIdx.x; example < args.sequences.batch;
       example += gridDim.x) {
    const auto total = Forward(args.sequences, memory, example, false);
    if (threadIdx.x == 0) {
      double loss = total.Loss();
      if (args.zero_infinity && loss == INFINITY) loss = 0;
      args.loss[example] = loss;
    }
    __syncthreads();
  }
}

// Multiplies the paths after frame t with its emissions.
template <typename T>
__device__ void EmitBackward(const LabelSequences& s, const Memory<T>& memory,
                             int64_t example, int64_t t) {
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
__device__ void Backward(const LabelSequences& s, const Memory<T>& memory,
                         int64_t example, const Scaled<Accumulator<T>>& total) {
  using Number = Scaled<Accumulator<T>>;
  const int64_t labels = s.label_lengths[example], states = memory.states;
  Number* const beta = memory.beta + example * 4 * states;
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

// Finds the next label that is equal, or states; none for one that is not the
// first: ~that.
template <typename T>
__device__ void LinkLabels(const LabelSequences& s, const Memory<T>& memory,
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

template <typename T>
__global__ void Posteriors(CtcGradArgs<T> args, Memory<T> memory) {
  using Value = Accumulator<T>;
  const LabelSequences& s = args.sequences;
  for (int64_t example = blockIdx.x; example < s.batch; example += gridDim.x) {
    const auto total = Forward(s, memory, example, true);
    const Value scale = total.ScaleOf(args.d_loss[example]);
    const int64_t frames = total.valid ? s.logit_lengths[example] : s.frames;
    for (int64_t t = threadIdx.x; t < s.frames; t += blockDim.x) {
      memory.scale[example * s.frames + t] = t < frames ? scale : Value(0);
    }
    if (scale == scale && scale != 0) {
      LinkLabels(s, memory, example);
      Backward(s, memory, example, total.probability);
    }
    __syncthreads();
  }
}

// The sum of the block's values, the same in all threads.
template <typename Value>
__device__ Value SumOfBlock(Value value) {
  __shared__ Value values[kThreads];
  values[threadIdx.x] = value;
  for (int half = kThreads / 2; half > 0; half /= 2) {
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

// Subtracts posteriors, a frame a block.
template <typename T>
__global__ void Subtract(CtcGradArgs<T> args, Memory<T> memory) {
  using Value = Accumulator<T>;
  using Number = Scaled<Value>;
  const LabelSequences& s = args.sequences;
  const int64_t states = memory.states;
  for (int64_t row = blockIdx.x; row < s.batch * s.frames; row += gridDim.x) {
    const Value scale = memory.scale[row];
    if (scale == 0 || scale != scale) continue;
    const int64_t example = row / s.frames, cell = row * states;
    const int64_t labels = s.label_lengths[example];
    const int64_t* const next = memory.next + example * states;
    T* const d_logits = args.d_logits + row * s.classes;
    Value blanks = 0;
    for (int64_t u = threadIdx.x; u <= labels; u += blockDim.x) {
      blanks += memory.blank_shares[cell + u];
    }
    blanks = SumOfBlock(blanks);
    for (int64_t u = threadIdx.x; u <= labels; u += blockDim.x) {
      if (u < labels && next[u] < 0) continue;
      const int64_t at = u == labels ? s.max_labels : u;
      Value difference = memory.emissions[cell + at].Share(Number::One());
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
}

template <typename T>
Memory<T> MemoryIn(const LabelSequences& s, bool grad, void* scratch) {
  Memory<T> memory;
  memory.LayOut(s, grad, scratch);
  return memory;
}

}  // namespace

template <typename T>
int64_t CtcScratchBytes(const CtcArgs<T>& args) {
  const LabelSequences& s = args.sequences;
  const RowSumsArgs<T> sums{s.batch * s.frames, s.classes, args.logits,
                            args.largest, args.rest};
  return std::max(Memory<T>().LayOut(s, false, nullptr), RowScratchBytes(sums));
}
template <typename T>
int64_t CtcScratchBytes(const CtcGradArgs<T>& args) {
  return Memory<T>().LayOut(args.sequences, true, nullptr);
}

template <typename T>
Error CtcLoss(const Gpu& gpu, const CtcArgs<T>& args) {
  const LabelSequences& s = args.sequences;
  const RowSumsArgs<T> sums{s.batch * s.frames, s.classes, args.logits,
                            args.largest, args.rest};
  if (const Error error = RunRowFunction(gpu, sums)) return error;
  const auto memory = MemoryIn<T>(s, false, gpu.scratch);
  if (const Error error = Launch(gpu, GridSize(s.batch * s.frames), kThreads,
                                 ComputeEmissions<T>, s, args.logits,
                                 args.largest, args.rest, memory)) {
    return error;
  }
  return Launch(gpu, GridSize(s.batch), kThreads, Losses<T>, args, memory);
}

template <typename T>
Error CtcLossGrad(const Gpu& gpu, const CtcGradArgs<T>& args) {
  const LabelSequences& s = args.sequences;
  const int64_t rows = s.batch * s.frames;
  const auto memory = MemoryIn<T>(s, true, gpu.scratch);
  const ScaledSoftmaxArgs<T> softmax{rows,         s.classes,    args.logits,
                                     memory.scale, args.largest, args.rest,
                                     args.d_logits};
  if (const Error error =
          Launch(gpu, GridSize(rows), kThreads, ComputeEmissions<T>, s,
                 args.logits, args.largest, args.rest, memory)) {
    return error;
  }
  if (const Error error = Launch(gpu, GridSize(s.batch), kThreads,
                                 Posteriors<T>, args, memory)) {
    return error;
  }
  if (const Error error = RunRowFunction(gpu, softmax)) return error;
  return Launch(gpu, GridSize(rows), kThreads, Subtract<T>, args, memory);
}

#define TFO_INSTANTIATE(T)                                       \
  template Error CtcLoss(const Gpu&, const CtcArgs<T>&);         \
  template Error CtcLossGrad(const Gpu&, const CtcGradArgs<T>&); \
  template int64_t CtcScratchBytes(const CtcArgs<T>&);           \
  template int64_t CtcScratchBytes(const CtcGradArgs<T>&)
TFO_INSTANTIATE(float);
TFO_INSTANTIATE(double);
TFO_INSTANTIATE(Half);
TFO_INSTANTIATE(BFloat16);
#undef TFO_INSTANTIATE

}  // namespace tfo
