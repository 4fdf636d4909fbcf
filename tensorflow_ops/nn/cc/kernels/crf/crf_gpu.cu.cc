#include "tensorflow_ops/nn/cc/kernels/crf/crf.h"
#include "tensorflow_ops/nn/cc/kernels/sequence_losses/sequence_gpu.h"

namespace tfo {
namespace {

constexpr int kThreads = 128;
// Each block has memory for one example at a time. Examples are dealt to the
// blocks in turn, and the sums of blocks are added in order.
constexpr int64_t kMaxBlocks = 128;

using Number = Scaled<double>;

// The largest of scores; finite: none is NaN or +inf.
struct Largest {
  double value;
  bool finite;
};

// Scratch memory.
struct Memory {
  int64_t blocks, cells;  // cells: tags * tags
  Number* matrix;         // e^(transitions - largest)
  Largest* largest;       // of transitions
  bool keep_all_frames;   // all frames, for the way back
  int64_t rows;           // of paths: frames, or 2 that alternate
  Number* paths;          // [blocks, rows, tags]
  Number* emissions;      // [blocks, frames, tags], if `keep_all_frames`
  Number* after;          // [blocks, 2, tags]
  double* sums;           // [blocks, cells], of gradients only
  int32_t* before;        // [blocks, frames, tags]
  double* ways;           // [blocks, 2, tags]

  int64_t LayOut(int64_t batch, int64_t frames, int64_t tags, bool keep_frames,
                 bool grad, void* base) {
    blocks = std::min(batch, kMaxBlocks);
    cells = tags * tags;
    keep_all_frames = keep_frames;
    rows = keep_all_frames ? frames : 2;
    ScratchLayout scratch(base);
    scratch.Reserve(&matrix, cells);
    scratch.Reserve(&largest, 1);
    scratch.Reserve(&paths, blocks * rows * tags);
    if (keep_all_frames) scratch.Reserve(&emissions, blocks * frames * tags);
    scratch.Reserve(&after, blocks * 2 * tags);
    if (grad) scratch.Reserve(&sums, blocks * cells);
    return scratch.bytes();
  }
  int64_t LayOutDecode(int64_t batch, int64_t frames, int64_t tags,
                       void* base) {
    blocks = std::min(batch, kMaxBlocks);
    ScratchLayout scratch(base);
    scratch.Reserve(&before, blocks * frames * tags);
    scratch.Reserve(&ways, blocks * 2 * tags);
    return scratch.bytes();
  }
};

// Of n values; all threads of the block call and get it.
template <typename T>
__device__ Largest LargestOf(const T* values, int64_t n) {
  __shared__ double largest[kThreads];
  double mine = -INFINITY;
  bool bad = false;
  for (int64_t i = threadIdx.x; i < n; i += kThreads) {
    const double x = Widen(values[i]);
    bad |= !(x < INFINITY);
    mine = x > mine ? x : mine;
  }
  largest[threadIdx.x] = mine;
  bad = __syncthreads_or(bad);
  double all = -INFINITY;
  for (int i = 0; i < kThreads; ++i) {
    all = largest[i] > all ? largest[i] : all;
  }
  __syncthreads();
  return {all, !bad};
}
__device__ double Shift(const Largest& largest) {
  return largest.value > -INFINITY ? largest.value : 0;
}

// One block.
template <typename Value>
__global__ void Exponentiate(const Value* transitions, Memory memory) {
  const Largest largest = LargestOf(transitions, memory.cells);
  for (int64_t i = threadIdx.x; i < memory.cells; i += kThreads) {
    memory.matrix[i] =
        Number::Exp(static_cast<double>(transitions[i]) - Shift(largest));
  }
  if (threadIdx.x == 0) *memory.largest = largest;
}

// Returns whether an example's length and labels are in range. All threads must
// call it.
template <typename T>
__device__ bool IsValid(const CrfScores<T>& s, const IndexArray* labels,
                        int64_t example) {
  bool bad = s.lengths[example] < 0 || s.lengths[example] > s.frames;
  const int64_t length = bad || labels == nullptr ? 0 : s.lengths[example];
  for (int64_t t = threadIdx.x; t < length; t += kThreads) {
    const int64_t label = (*labels)[example * s.frames + t];
    bad |= label < 0 || label >= s.tags;
  }
  return !__syncthreads_or(bad);
}

// In units of each frame's largest logit and of the largest transition, so that
// a large offset of the scores does not cost accuracy.
struct Total {
  Number probability;
  double log;    // log Z, or NaN
  double score;  // of the labels
};

// Computes the paths of a valid example, in the memory of this block. Without
// `labels`, their score is 0.
template <typename T>
__device__ Total Forward(const CrfScores<T>& s, const Memory& memory,
                         int64_t example, const IndexArray* labels) {
  const int64_t tags = s.tags, length = s.lengths[example];
  const int64_t base = int64_t{blockIdx.x} * memory.rows * tags;
  const auto row_of = [&](int64_t t) {
    return memory.paths + base + (memory.keep_all_frames ? t : t & 1) * tags;
  };
  bool finite = length < 2 || memory.largest->finite;
  double score = 0;
  int64_t before = 0;
  for (int64_t t = 0; t < length; ++t) {
    const T* const logits = s.logits + (example * s.frames + t) * tags;
    const Largest frame = LargestOf(logits, tags);
    finite &= frame.finite;
    if (labels != nullptr) {
      const int64_t label = (*labels)[example * s.frames + t];
      score += Widen(logits[label]) - Shift(frame);
      if (t > 0) {
        score += static_cast<double>(s.transitions[before * tags + label]) -
                 Shift(*memory.largest);
      }
      before = label;
    }
    const Number* const from = t > 0 ? row_of(t - 1) : nullptr;
    Number* const to = row_of(t);
    for (int64_t j = threadIdx.x; j < tags; j += kThreads) {
      const Number y = Number::Exp(Widen(logits[j]) - Shift(frame));
      if (memory.keep_all_frames) memory.emissions[base + t * tags + j] = y;
      Number sum = t == 0 ? Number::One() : Number::Zero();
      for (int64_t i = 0; t > 0 && i < tags; ++i) {
        sum = sum + from[i] * memory.matrix[i * tags + j];
      }
      to[j] = sum * y;
    }
    __syncthreads();
  }
  Number total = length == 0 ? Number::One() : Number::Zero();
  for (int64_t j = 0; length > 0 && j < tags; ++j) {
    total = total + row_of(length - 1)[j];
  }
  return {total, finite ? total.Log() : static_cast<double>(NAN), score};
}

template <typename T>
__global__ void Likelihoods(CrfLikelihoodArgs<T> args, Memory memory) {
  const CrfScores<T>& s = args.scores;
  for (int64_t i = blockIdx.x; i < s.batch; i += gridDim.x) {
    double result = NAN;
    if (IsValid(s, &args.labels, i)) {
      const Total total = Forward(s, memory, i, &args.labels);
      result = total.log == -INFINITY ? total.log : total.score - total.log;
      if (result > 0) result = 0;  // by rounding
    }
    if (threadIdx.x == 0) args.log_likelihood[i] = result;
    __syncthreads();
  }
}

// Calls visit(t, tag, marginal) and pair(t, from, to, share), for steps to t;
// threads own tags and pairs.
template <typename T, typename Visit, typename Pair>
__device__ void Backward(const CrfScores<T>& s, const Memory& memory,
                         int64_t example, const Number& total,
                         const Visit& visit, const Pair& pair) {
  const int64_t tags = s.tags, length = s.lengths[example];
  const int64_t base = int64_t{blockIdx.x} * s.frames * tags;
  Number* const after = memory.after + int64_t{blockIdx.x} * 2 * tags;
  Number* const emitted = after + tags;
  for (int64_t j = threadIdx.x; j < tags; j += kThreads) {
    after[j] = Number::One();
  }
  for (int64_t t = length - 1; t >= 0; --t) {
    const Number* const paths = memory.paths + base + t * tags;
    for (int64_t j = threadIdx.x; j < tags; j += kThreads) {
      visit(t, j, (paths[j] * after[j]).Share(total));
      emitted[j] = after[j] * memory.emissions[base + t * tags + j];
    }
    __syncthreads();
    if (t == 0) break;
    for (int64_t cell = threadIdx.x; cell < memory.cells; cell += kThreads) {
      const int64_t i = cell / tags, j = cell % tags;
      const Number step = paths[i - tags] * memory.matrix[cell];
      pair(cell, (step * emitted[j]).Share(total));
    }
    for (int64_t i = threadIdx.x; i < tags; i += kThreads) {
      Number sum = Number::Zero();
      for (int64_t j = 0; j < tags; ++j) {
        sum = sum + memory.matrix[i * tags + j] * emitted[j];
      }
      after[i] = sum;
    }
    __syncthreads();
  }
}

template <typename T>
__global__ void Gradients(CrfLikelihoodGradArgs<T> args, Memory memory) {
  using Value = Accumulator<T>;
  const CrfScores<T>& s = args.scores;
  double* const sums = memory.sums + blockIdx.x * memory.cells;
  for (int64_t c = threadIdx.x; c < memory.cells; c += kThreads) sums[c] = 0;
  for (int64_t i = blockIdx.x; i < s.batch; i += gridDim.x) {
    T* const d_logits = args.d_logits + i * s.frames * s.tags;
    const double d = args.d[i];
    double log = NAN;
    int64_t length = s.frames;
    Total total;
    if (IsValid(s, &args.labels, i)) {
      length = s.lengths[i];
      total = Forward(s, memory, i, nullptr);
      log = total.log;
    }
    const bool bad = log != log;
    const double fill = bad ? d * static_cast<double>(NAN) : 0;
    for (int64_t at = threadIdx.x; at < s.frames * s.tags; at += kThreads) {
      d_logits[at] = Narrow<T>(
          static_cast<Value>(at < length * s.tags && d != 0 ? fill : 0));
    }
    if (bad && length > 1 && d != 0) {
      for (int64_t c = threadIdx.x; c < memory.cells; c += kThreads) {
        sums[c] = NAN;
      }
    }
    __syncthreads();
    if (bad || log == -INFINITY || d == 0) continue;
    Backward(
        s, memory, i, total.probability,
        [&](int64_t t, int64_t j, double marginal) {
          const bool is_label = args.labels[i * s.frames + t] == j;
          d_logits[t * s.tags + j] =
              Narrow<T>(static_cast<Value>(d * (is_label - marginal)));
        },
        [&](int64_t cell, double share) { sums[cell] -= d * share; });
    for (int64_t t = 1; threadIdx.x == 0 && t < length; ++t) {
      const int64_t at = i * s.frames + t;
      sums[args.labels[at - 1] * s.tags + args.labels[at]] += d;
    }
    __syncthreads();
  }
}

// A transition a thread.
template <typename Value>
__global__ void AddBlocks(Memory memory, Value* d_transitions) {
  for (int64_t c = int64_t{blockIdx.x} * kThreads + threadIdx.x;
       c < memory.cells; c += int64_t{gridDim.x} * kThreads) {
    double sum = 0;
    for (int64_t b = 0; b < memory.blocks; ++b) {
      sum += memory.sums[b * memory.cells + c];
    }
    d_transitions[c] = sum;
  }
}

template <typename T>
__global__ void Marginals(CrfMarginalsArgs<T> args, Memory memory) {
  const CrfScores<T>& s = args.scores;
  for (int64_t i = blockIdx.x; i < s.batch; i += gridDim.x) {
    auto* const marginals = args.marginals + i * s.frames * s.tags;
    double log = NAN;
    int64_t length = s.frames;
    Total total;
    if (IsValid(s, nullptr, i)) {
      length = s.lengths[i];
      total = Forward(s, memory, i, nullptr);
      log = total.log;
    }
    const double fill = log != log ? static_cast<double>(NAN) : 0;
    for (int64_t at = threadIdx.x; at < s.frames * s.tags; at += kThreads) {
      marginals[at] = at < length * s.tags ? fill : 0;
    }
    __syncthreads();
    if (log != log || log == -INFINITY) continue;
    Backward(
        s, memory, i, total.probability,
        [&](int64_t t, int64_t j, double marginal) {
          marginals[t * s.tags + j] = marginal;
        },
        [](int64_t, double) {});
    __syncthreads();
  }
}

__device__ double OrForbidden(double score) {
  return score == score ? score : -INFINITY;
}

template <typename T>
__global__ void Decode(CrfDecodeArgs<T> args, Memory memory) {
  const CrfScores<T>& s = args.scores;
  const int64_t tags = s.tags;
  int32_t* const before = memory.before + int64_t{blockIdx.x} * s.frames * tags;
  double* const ways = memory.ways + int64_t{blockIdx.x} * 2 * tags;
  const double of_transitions =
      FiniteShift(LargestOf(s.transitions, tags * tags).value);
  for (int64_t i = blockIdx.x; i < s.batch; i += gridDim.x) {
    const bool valid = IsValid(s, nullptr, i);
    const int64_t length = valid ? s.lengths[i] : 0;
    double shifts = 0;
    for (int64_t t = 0; t < length; ++t) {
      const T* const logits = s.logits + (i * s.frames + t) * tags;
      const double shift = FiniteShift(LargestOf(logits, tags).value);
      shifts += shift + (t > 0 ? of_transitions : 0);
      const double* const from = ways + ((t + 1) & 1) * tags;
      for (int64_t j = threadIdx.x; j < tags; j += kThreads) {
        double best = t == 0 ? 0 : -INFINITY;
        int64_t which = 0;
        for (int64_t k = 0; t > 0 && k < tags; ++k) {
          const double transition = s.transitions[k * tags + j];
          const double score =
              from[k] + OrForbidden(transition - of_transitions);
          if (score > best) {
            best = score;
            which = k;
          }
        }
        ways[(t & 1) * tags + j] =
            OrForbidden(best + (Widen(logits[j]) - shift));
        before[t * tags + j] = static_cast<int32_t>(which);
      }
      __syncthreads();
    }
    int32_t* const labels = args.labels + i * s.frames;
    for (int64_t t = threadIdx.x; t < s.frames; t += kThreads) {
      if (t >= length) labels[t] = 0;
    }
    if (threadIdx.x == 0) {
      const double* const from = ways + ((length + 1) & 1) * tags;
      int32_t label = 0;
      for (int64_t j = 1; length > 0 && j < tags; ++j) {
        if (from[j] > from[label]) label = static_cast<int32_t>(j);
      }
      // -infinity, of no allowed sequence, remains, also if a shift is
      // infinite.
      const double best =
          from[label] == -INFINITY ? from[label] : from[label] + shifts;
      args.best[i] = length > 0 ? best : valid ? 0 : NAN;
      for (int64_t t = length - 1; t >= 0; --t) {
        labels[t] = label;
        label = before[t * tags + label];
      }
    }
    __syncthreads();
  }
}

template <typename T>
Memory MemoryIn(const CrfScores<T>& s, bool keep_all_frames, bool grad,
                void* scratch) {
  Memory memory = {};
  memory.LayOut(s.batch, s.frames, s.tags, keep_all_frames, grad, scratch);
  return memory;
}

template <typename T>
Error Run(const Gpu& gpu, const CrfLikelihoodArgs<T>& args) {
  const Memory memory = MemoryIn(args.scores, false, false, gpu.scratch);
  const Error error = Launch(gpu, 1, kThreads, Exponentiate<Accumulator<T>>,
                             args.scores.transitions, memory);
  if (error != nullptr) return error;
  return Launch(gpu, GridSize(memory.blocks), kThreads, Likelihoods<T>, args,
                memory);
}
template <typename T>
Error Run(const Gpu& gpu, const CrfLikelihoodGradArgs<T>& args) {
  const Memory memory = MemoryIn(args.scores, true, true, gpu.scratch);
  Error error = Launch(gpu, 1, kThreads, Exponentiate<Accumulator<T>>,
                       args.scores.transitions, memory);
  if (error != nullptr) return error;
  error = Launch(gpu, GridSize(memory.blocks), kThreads, Gradients<T>, args,
                 memory);
  if (error != nullptr) return error;
  return Launch(gpu, GridSize((memory.cells + kThreads - 1) / kThreads),
                kThreads, AddBlocks<Accumulator<T>>, memory,
                args.d_transitions);
}
template <typename T>
Error Run(const Gpu& gpu, const CrfMarginalsArgs<T>& args) {
  const Memory memory = MemoryIn(args.scores, true, false, gpu.scratch);
  const Error error = Launch(gpu, 1, kThreads, Exponentiate<Accumulator<T>>,
                             args.scores.transitions, memory);
  if (error != nullptr) return error;
  return Launch(gpu, GridSize(memory.blocks), kThreads, Marginals<T>, args,
                memory);
}
template <typename T>
Error Run(const Gpu& gpu, const CrfDecodeArgs<T>& args) {
  const CrfScores<T>& s = args.scores;
  Memory memory = {};
  memory.LayOutDecode(s.batch, s.frames, s.tags, gpu.scratch);
  return Launch(gpu, GridSize(memory.blocks), kThreads, Decode<T>, args,
                memory);
}

template <typename T>
int64_t BytesOf(const CrfDecodeArgs<T>& args) {
  const CrfScores<T>& s = args.scores;
  return Memory().LayOutDecode(s.batch, s.frames, s.tags, nullptr);
}
template <template <typename> class Args, typename T>
int64_t BytesOf(const Args<T>& args) {
  constexpr bool kGrad = std::is_same_v<Args<T>, CrfLikelihoodGradArgs<T>>;
  constexpr bool kKeepAllFrames =
      !std::is_same_v<Args<T>, CrfLikelihoodArgs<T>>;
  const CrfScores<T>& s = args.scores;
  return Memory().LayOut(s.batch, s.frames, s.tags, kKeepAllFrames, kGrad,
                         nullptr);
}

}  // namespace

template <template <typename> class Args, typename T>
Error RunCrf(const Gpu& gpu, const Args<T>& args) {
  return Run(gpu, args);
}
template <template <typename> class Args, typename T>
int64_t CrfScratchBytes(const Args<T>& args) {
  return BytesOf(args);
}

#define TFO_INSTANTIATE_ONE(Args, T)                 \
  template Error RunCrf(const Gpu&, const Args<T>&); \
  template int64_t CrfScratchBytes(const Args<T>&)
#define TFO_INSTANTIATE(T)                       \
  TFO_INSTANTIATE_ONE(CrfLikelihoodArgs, T);     \
  TFO_INSTANTIATE_ONE(CrfLikelihoodGradArgs, T); \
  TFO_INSTANTIATE_ONE(CrfMarginalsArgs, T);      \
  TFO_INSTANTIATE_ONE(CrfDecodeArgs, T)
TFO_FOR_EACH_FLOAT(TFO_INSTANTIATE);
#undef TFO_INSTANTIATE
#undef TFO_INSTANTIATE_ONE

}  // namespace tfo
