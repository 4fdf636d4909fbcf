#include "tensorflow_ops/nn/cc/kernels/sequence_losses/rnnt_loss.h"
#include "tensorflow_ops/nn/cc/kernels/sequence_losses/sequence_gpu.h"

namespace tfo {
namespace {

constexpr int kThreads = 128;

// Scratch memory. A node (t, u) of an example has the index of its row of
// logits.
template <typename T>
struct Memory {
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

// The probabilities of nodes' edges, a node a thread.
template <typename T>
__global__ void ComputeEmissions(LabelSequences s, const T* logits,
                                 const Accumulator<T>* largest,
                                 const Accumulator<T>* rest, Memory<T> memory) {
  const int64_t nodes = s.batch * s.frames * memory.states;
  for (int64_t node = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
       node < nodes; node += int64_t{gridDim.x} * blockDim.x) {
    const int64_t example = node / memory.states / s.frames;
    const int64_t t = node / memory.states % s.frames, u = node % memory.states;
    if (!s.HasValidLengths(example, 1) || t >= s.logit_lengths[example] ||
        u > s.label_lengths[example]) {
      continue;
    }
    const RowProbabilities<T> row(logits, s.classes, largest, rest, node);
    memory.blanks[node] = row.Of(s.blank);
    memory.emissions[node] = u == s.label_lengths[example]
                                 ? Scaled<Accumulator<T>>::Zero()
                                 : row.Of(s.Label(example, u));
  }
}

// The probability of the labels. All threads of the block call.
template <typename T>
__device__ TotalProbability<Accumulator<T>> Forward(const LabelSequences& s,
                                                    const Memory<T>& memory,
                                                    int64_t example,
                                                    bool keep_all_rows) {
  using Number = Scaled<Accumulator<T>>;
  if (!IsValid(s, example, 1)) return {Number::Zero(), false};
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

template <typename T>
__global__ void Losses(RnntArgs<T> args, Memory<T> memory) {
  for (int64_t example = blockIdx.x; example < args.sequences.batch;
       example += gridDim.x) {
    const auto total = Forward(args.sequences, memory, example, false);
    if (threadIdx.x == 0) args.loss[example] = total.Loss();
    __syncthreads();
  }
}

// Computes posteriors from the alpha that Forward kept.
template <typename T>
__device__ void Backward(const LabelSequences& s, const Memory<T>& memory,
                         int64_t example, Accumulator<T> scale,
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

template <typename T>
__global__ void EdgeShares(RnntGradArgs<T> args, Memory<T> memory) {
  using Value = Accumulator<T>;
  const LabelSequences& s = args.sequences;
  for (int64_t example = blockIdx.x; example < s.batch; example += gridDim.x) {
    const auto total = Forward(s, memory, example, true);
    const Value scale = total.ScaleOf(args.d_loss[example]);
    const bool finite = scale == scale;
    const int64_t frames = total.valid ? s.logit_lengths[example] : s.frames;
    const int64_t labels =
        total.valid ? s.label_lengths[example] : s.max_labels;
    const int64_t nodes = s.frames * memory.states;
    for (int64_t i = threadIdx.x; i < nodes; i += blockDim.x) {
      const bool inside =
          i / memory.states < frames && i % memory.states <= labels;
      memory.scale[example * nodes + i] = inside && !finite ? scale : Value(0);
    }
    __syncthreads();
    if (finite && scale != 0) {
      Backward(s, memory, example, scale, total.probability);
    }
    __syncthreads();
  }
}

// Subtracts the shares of edges, a node a thread.
template <typename T>
__global__ void Subtract(RnntGradArgs<T> args, Memory<T> memory) {
  using Value = Accumulator<T>;
  using Number = Scaled<Value>;
  const LabelSequences& s = args.sequences;
  const int64_t nodes = s.batch * s.frames * memory.states;
  for (int64_t node = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
       node < nodes; node += int64_t{gridDim.x} * blockDim.x) {
    const Value scale = memory.scale[node];
    if (scale == 0 || scale != scale) continue;
    const int64_t example = node / memory.states / s.frames;
    const int64_t u = node % memory.states;
    const Value d = args.d_loss[example];
    T* const d_logits = args.d_logits + node * s.classes;
    const Value blank = memory.blanks[node].Share(Number::One());
    d_logits[s.blank] =
        Narrow<T>(scale * blank - d * memory.blank_shares[node]);
    if (u == s.label_lengths[example]) continue;
    const Value label = memory.emissions[node].Share(Number::One());
    d_logits[s.Label(example, u)] =
        Narrow<T>(scale * label - d * memory.shares[node]);
  }
}

template <typename T>
Memory<T> MemoryIn(const LabelSequences& s, bool grad, void* scratch) {
  Memory<T> memory;
  memory.LayOut(s, grad, scratch);
  return memory;
}

unsigned NodeBlocks(int64_t nodes) {
  return GridSize((nodes + kThreads - 1) / kThreads);
}

}  // namespace

template <typename T>
int64_t RnntScratchBytes(const RnntArgs<T>& args) {
  const LabelSequences& s = args.sequences;
  const RowSumsArgs<T> sums{s.batch * s.frames * (s.max_labels + 1), s.classes,
                            args.logits, args.largest, args.rest};
  return std::max(Memory<T>().LayOut(s, false, nullptr), RowScratchBytes(sums));
}
template <typename T>
int64_t RnntScratchBytes(const RnntGradArgs<T>& args) {
  return Memory<T>().LayOut(args.sequences, true, nullptr);
}

template <typename T>
Error RnntLoss(const Gpu& gpu, const RnntArgs<T>& args) {
  const LabelSequences& s = args.sequences;
  const int64_t nodes = s.batch * s.frames * (s.max_labels + 1);
  const RowSumsArgs<T> sums{nodes, s.classes, args.logits, args.largest,
                            args.rest};
  if (const Error error = RunRowFunction(gpu, sums)) return error;
  const auto memory = MemoryIn<T>(s, false, gpu.scratch);
  if (const Error error =
          Launch(gpu, NodeBlocks(nodes), kThreads, ComputeEmissions<T>, s,
                 args.logits, args.largest, args.rest, memory)) {
    return error;
  }
  return Launch(gpu, GridSize(s.batch), kThreads, Losses<T>, args, memory);
}

template <typename T>
Error RnntLossGrad(const Gpu& gpu, const RnntGradArgs<T>& args) {
  const LabelSequences& s = args.sequences;
  const int64_t nodes = s.batch * s.frames * (s.max_labels + 1);
  const auto memory = MemoryIn<T>(s, true, gpu.scratch);
  const ScaledSoftmaxArgs<T> softmax{nodes,        s.classes,    args.logits,
                                     memory.scale, args.largest, args.rest,
                                     args.d_logits};
  if (const Error error =
          Launch(gpu, NodeBlocks(nodes), kThreads, ComputeEmissions<T>, s,
                 args.logits, args.largest, args.rest, memory)) {
    return error;
  }
  if (const Error error = Launch(gpu, GridSize(s.batch), kThreads,
                                 EdgeShares<T>, args, memory)) {
    return error;
  }
  if (const Error error = RunRowFunction(gpu, softmax)) return error;
  return Launch(gpu, NodeBlocks(nodes), kThreads, Subtract<T>, args, memory);
}

#define TFO_INSTANTIATE(T)                                         \
  template Error RnntLoss(const Gpu&, const RnntArgs<T>&);         \
  template Error RnntLossGrad(const Gpu&, const RnntGradArgs<T>&); \
  template int64_t RnntScratchBytes(const RnntArgs<T>&);           \
  template int64_t RnntScratchBytes(const RnntGradArgs<T>&)
TFO_INSTANTIATE(float);
TFO_INSTANTIATE(double);
TFO_INSTANTIATE(Half);
TFO_INSTANTIATE(BFloat16);
#undef TFO_INSTANTIATE

}  // namespace tfo
