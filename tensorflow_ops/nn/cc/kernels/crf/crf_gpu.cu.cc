#include "tensorflow_ops/core/cc/cuda/warp_gpu.h"
#include "tensorflow_ops/nn/cc/kernels/crf/crf.h"
#include "tensorflow_ops/nn/cc/kernels/sequence_losses/sequence_gpu.h"

namespace tfo {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32;
// Each block has memory for one example at a time. Examples are dealt to the
// blocks in turn, and the sums of blocks are added in order.
constexpr int64_t kMaxBlocks = 128;
// Two rows of tags are in shared memory.
constexpr int64_t kMaxSharedTags = 1024;

using Number = Scaled<double>;
using sequence_internal::Sum;

// The largest of scores; finite: none is NaN or +inf.
struct Largest {
  double value;
  bool finite;
};

// Scratch memory.
struct Memory {
  int64_t blocks, cells;  // cells: tags * tags
  Largest* of_frames;     // of logits, [batch, frames]
  Largest* largest;       // of transitions
  Number* matrix;         // e^(transitions - largest), or null
  void* rows;             // [blocks, 2, tags], beyond kMaxSharedTags
  // For the way back, or null: [blocks, frames, tags]
  Number *paths, *emissions;
  double* sums;     // [blocks, cells], of gradients only
  int32_t* before;  // [blocks, frames, tags], of decoding only

  enum Pass { kLikelihood, kMarginals, kGradients, kDecode };
  int64_t LayOut(int64_t batch, int64_t frames, int64_t tags, Pass pass,
                 void* base) {
    blocks = std::min(batch, kMaxBlocks);
    cells = tags * tags;
    ScratchLayout scratch(base);
    const int64_t of_blocks = blocks * frames * tags;
    scratch.Reserve(&of_frames, batch * frames);
    scratch.Reserve(&largest, 1);
    if (tags > kMaxSharedTags) {
      Number* wide;
      scratch.Reserve(&wide, blocks * 2 * tags);
      rows = wide;
    }
    if (pass == kDecode) {
      scratch.Reserve(&before, of_blocks);
      return scratch.bytes();
    }
    scratch.Reserve(&matrix, cells);
    if (pass == kLikelihood) return scratch.bytes();
    scratch.Reserve(&paths, of_blocks);
    scratch.Reserve(&emissions, of_blocks);
    if (pass == kGradients) scratch.Reserve(&sums, blocks * cells);
    return scratch.bytes();
  }
  // Two rows of this block.
  template <typename T>
  __device__ T* Rows(int64_t tags) const {
    if (tags <= kMaxSharedTags) return static_cast<T*>(DynamicShared());
    return static_cast<T*>(rows) + int64_t{blockIdx.x} * 2 * tags;
  }
};

// The threads of a block in groups that share the work of a tag: 2^n lanes.
struct Groups {
  int lanes, lane, group, groups;

  __device__ explicit Groups(int of_lanes)
      : lanes(of_lanes),
        lane(threadIdx.x % of_lanes),
        group(threadIdx.x / of_lanes),
        groups(kThreads / of_lanes) {}
  // As many lanes as there are for all tags at once.
  __device__ static Groups For(int64_t tags) {
    int lanes = 1;
    while (lanes < 32 && 2 * lanes * tags <= kThreads) lanes *= 2;
    return Groups(lanes);
  }
  // The group's first tag or, if it has none, the last.
  __device__ int64_t FirstTag(int64_t tags) const {
    return group < tags ? group : tags - 1;
  }
  // Calls body(tag, exists) for a group's tags; all its lanes call. Groups that
  // have fewer tags than others get the last again, which does not exist.
  template <typename Body>
  __device__ void ForTags(int64_t tags, const Body& body) const {
    for (int64_t tag = group; tag - group < tags; tag += groups) {
      body(tag < tags ? tag : tags - 1, tag < tags);
    }
  }
  // The sum of term(i) for i < n, the same in all lanes; n may differ between
  // groups.
  template <typename Term>
  __device__ Number SumOf(int64_t n, const Term& term) const {
    Number sum = Number::Zero();
    int64_t i = lane;
    for (; i + 3 * lanes < n; i += 4 * lanes) {
      sum = Sum(sum, term(i), term(i + lanes), term(i + 2 * lanes),
                term(i + 3 * lanes));
    }
    for (; i < n; i += lanes) sum = Sum(sum, term(i));
    for (int half = lanes / 2; half > 0; half /= 2) {
      const Number other = {__shfl_xor_sync(kAllLanes, sum.mantissa, half),
                            __shfl_xor_sync(kAllLanes, sum.exponent, half)};
      sum = Sum(sum, other);
    }
    return sum;
  }
};

// A product that is not normalized.
__device__ Number Product(const Number& a, const Number& b) {
  return {a.mantissa * b.mantissa, a.exponent + b.exponent};
}

// Of the n values that a warp's lanes read; all lanes get it.
template <typename T>
__device__ Largest LargestOfWarp(const T* values, int64_t n, int64_t first,
                                 int64_t step) {
  double most = -INFINITY;
  bool bad = false;
  for (int64_t i = first; i < n; i += step) {
    const double x = Widen(values[i]);
    bad |= !(x < INFINITY);
    most = x > most ? x : most;
  }
  return {GreatestOfLanes(most), !__any_sync(kAllLanes, bad)};
}
// Of n values; all threads of the block call and get it.
template <typename T>
__device__ Largest LargestOfBlock(const T* values, int64_t n) {
  __shared__ double of_warps[kWarps];
  const Largest mine = LargestOfWarp(values, n, threadIdx.x, kThreads);
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = mine.value;
  const bool bad = __syncthreads_or(!mine.finite);
  double most = of_warps[0];
  for (const double of_warp : of_warps) most = of_warp > most ? of_warp : most;
  return {most, !bad};
}
__device__ double Shift(double largest) {
  return largest > -INFINITY ? largest : 0;
}

// The largest scores; of transitions, and their matrix, the first block; of
// frames the others, a warp each.
template <typename T>
__global__ void Prepare(CrfScores<T> s, Memory memory) {
  if (blockIdx.x == 0) {
    const Largest largest = LargestOfBlock(s.transitions, memory.cells);
    if (threadIdx.x == 0) *memory.largest = largest;
    for (int64_t i = threadIdx.x; memory.matrix != nullptr && i < memory.cells;
         i += kThreads) {
      memory.matrix[i] = Number::Exp(static_cast<double>(s.transitions[i]) -
                                     Shift(largest.value));
    }
    return;
  }
  for (int64_t row = (int64_t{blockIdx.x} - 1) * kWarps + threadIdx.x / 32;
       row < s.batch * s.frames; row += (int64_t{gridDim.x} - 1) * kWarps) {
    if (row % s.frames >= s.lengths[row / s.frames]) continue;
    const Largest largest =
        LargestOfWarp(s.logits + row * s.tags, s.tags, threadIdx.x % 32, 32);
    if (threadIdx.x % 32 == 0) memory.of_frames[row] = largest;
  }
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
  double log;  // log Z, or NaN
};

// The score of a valid example's labels, in the units of Total. All threads
// call and get it.
template <typename T>
__device__ double ScoreOf(const CrfScores<T>& s, const Memory& memory,
                          int64_t example, const IndexArray& labels) {
  __shared__ double of_warps[kWarps];
  double score = 0;
  for (int64_t t = threadIdx.x; t < s.lengths[example]; t += kThreads) {
    const int64_t row = example * s.frames + t, label = labels[row];
    score += Widen(s.logits[row * s.tags + label]) -
             Shift(memory.of_frames[row].value);
    if (t == 0) continue;
    const Accumulator<T> transition =
        s.transitions[labels[row - 1] * s.tags + label];
    score += static_cast<double>(transition) - Shift(memory.largest->value);
  }
  score = SumOfLanes(score);
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = score;
  __syncthreads();
  score = 0;
  for (const double of_warp : of_warps) score += of_warp;
  return score;
}

// Computes the paths of a valid example. All threads call and get the total.
template <typename T>
__device__ Total Forward(const CrfScores<T>& s, const Memory& memory,
                         int64_t example) {
  const int64_t tags = s.tags, length = s.lengths[example];
  const int64_t kept = int64_t{blockIdx.x} * s.frames * tags;
  const Largest* const of_frames = memory.of_frames + example * s.frames;
  const T* const logits = s.logits + example * s.frames * tags;
  const Groups groups = Groups::For(tags);
  Number* const rows = memory.Rows<Number>(tags);
  bool bad = length > 1 && !memory.largest->finite;
  for (int64_t t = threadIdx.x; t < length; t += kThreads) {
    bad |= !of_frames[t].finite;
  }
  bad = __syncthreads_or(bad);
  // Scores of the group's first tag are loaded a frame ahead, and used only
  // then: a use waits for the load.
  struct Score {
    T logit;
    double largest;
  };
  const auto load = [&](int64_t t, int64_t tag) {
    return Score{logits[t * tags + tag], of_frames[t].value};
  };
  const int64_t first_tag = groups.FirstTag(tags);
  Score ahead = {};
  if (length > 0) ahead = load(0, first_tag);
  for (int64_t t = 0; t < length; ++t) {
    const Score loaded = ahead;
    ahead = load(t + 1 < length ? t + 1 : t, first_tag);
    const Number* const from = rows + (t + 1) % 2 * tags;
    groups.ForTags(tags, [&](int64_t j, bool exists) {
      const Score score = j == first_tag ? loaded : load(t, j);
      const Number y = Number::Exp(Widen(score.logit) - Shift(score.largest));
      const Number sum =
          t == 0 ? Number::One() : groups.SumOf(tags, [&](int64_t i) {
            return Product(from[i], memory.matrix[i * tags + j]);
          });
      if (!exists || groups.lane != 0) return;
      const Number path = sum * y;
      rows[t % 2 * tags + j] = path;
      if (memory.paths == nullptr) return;
      memory.paths[kept + t * tags + j] = path;
      memory.emissions[kept + t * tags + j] = y;
    });
    __syncthreads();
  }
  Number total = length == 0 ? Number::One() : Number::Zero();
  for (int64_t j = 0; length > 0 && j < tags; ++j) {
    total = total + rows[(length - 1) % 2 * tags + j];
  }
  __syncthreads();
  return {total, bad ? static_cast<double>(NAN) : total.Log()};
}

template <typename T>
__global__ void Likelihoods(CrfLikelihoodArgs<T> args, Memory memory) {
  const CrfScores<T>& s = args.scores;
  for (int64_t i = blockIdx.x; i < s.batch; i += gridDim.x) {
    double result = NAN;
    if (IsValid(s, &args.labels, i)) {
      const Total total = Forward(s, memory, i);
      const double score = ScoreOf(s, memory, i, args.labels);
      result = total.log == -INFINITY ? total.log : score - total.log;
      if (result > 0) result = 0;  // by rounding
    }
    if (threadIdx.x == 0) args.log_likelihood[i] = result;
    __syncthreads();
  }
}

// Calls visit(t, tag, marginal), and pairs(t)(from * tags + to, share) for
// steps to t; threads own tags and pairs.
template <typename T, typename Visit, typename Pairs>
__device__ void Backward(const CrfScores<T>& s, const Memory& memory,
                         int64_t example, const Number& total,
                         const Visit& visit, const Pairs& pairs) {
  const int64_t tags = s.tags, length = s.lengths[example];
  const int64_t kept = int64_t{blockIdx.x} * s.frames * tags;
  // Lanes read a row of the matrix.
  const Groups groups = tags > 64 ? Groups(32) : Groups::For(tags);
  const int64_t thread = threadIdx.x;
  Number* const after = memory.Rows<Number>(tags);
  Number* const emitted = after + tags;
  for (int64_t j = thread; j < tags; j += kThreads) after[j] = Number::One();
  // Of a thread's and a group's first tags, loaded a frame ahead.
  const int64_t first_tag = thread < tags ? thread : tags - 1;
  const int64_t tag_of_group = groups.FirstTag(tags);
  const auto load = [&](const Number* from, int64_t t, int64_t tag) {
    return from[kept + t * tags + tag];
  };
  if (length == 0) return;
  Number path = load(memory.paths, length - 1, first_tag);
  Number emission = load(memory.emissions, length - 1, first_tag);
  for (int64_t t = length - 1; t >= 0; --t) {
    const int64_t next = t > 0 ? t - 1 : 0;
    const Number next_path = load(memory.paths, next, first_tag);
    const Number next_emission = load(memory.emissions, next, first_tag);
    const Number path_of_group = load(memory.paths, next, tag_of_group);
    for (int64_t j = thread; j < tags; j += kThreads) {
      const bool is_loaded = j == thread;
      const Number way = is_loaded ? path : load(memory.paths, t, j);
      visit(t, j, (way * after[j]).Share(total));
      emitted[j] =
          after[j] * (is_loaded ? emission : load(memory.emissions, t, j));
    }
    __syncthreads();
    if (t == 0) break;
    const auto pair = pairs(t);
    groups.ForTags(tags, [&](int64_t i, bool exists) {
      Number way =
          i == tag_of_group ? path_of_group : load(memory.paths, t - 1, i);
      way.mantissa /= total.mantissa;
      way.exponent -= total.exponent;
      const Number sum = groups.SumOf(exists ? tags : 0, [&](int64_t j) {
        const int64_t cell = i * tags + j;
        const Number step = Product(memory.matrix[cell], emitted[j]);
        const Number share = Product(way, step);
        pair(cell, share.mantissa * Number::PowerOfTwo(share.exponent));
        return step;
      });
      if (exists && groups.lane == 0) {
        after[i] = Number::Normalized(sum.mantissa, sum.exponent);
      }
    });
    __syncthreads();
    path = next_path;
    emission = next_emission;
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
    int64_t length = s.frames;
    Total total = {Number::Zero(), NAN};
    if (IsValid(s, &args.labels, i)) {
      length = s.lengths[i];
      total = Forward(s, memory, i);
    }
    const double log = total.log;
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
        [&](int64_t t) {
          const int64_t at = i * s.frames + t;
          const int64_t of_labels =
              args.labels[at - 1] * s.tags + args.labels[at];
          return [sums, d, of_labels](int64_t cell, double share) {
            sums[cell] += d * ((cell == of_labels) - share);
          };
        });
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
    int64_t length = s.frames;
    Total total = {Number::Zero(), NAN};
    if (IsValid(s, nullptr, i)) {
      length = s.lengths[i];
      total = Forward(s, memory, i);
    }
    const double log = total.log;
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
        [](int64_t) { return [](int64_t, double) {}; });
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
  const Groups groups = Groups::For(tags);
  int32_t* const before = memory.before + int64_t{blockIdx.x} * s.frames * tags;
  double* const ways = memory.Rows<double>(tags);
  const double of_transitions = FiniteShift(memory.largest->value);
  for (int64_t i = blockIdx.x; i < s.batch; i += gridDim.x) {
    const bool valid = IsValid(s, nullptr, i);
    const int64_t length = valid ? s.lengths[i] : 0;
    double shifts = 0;
    for (int64_t t = 0; t < length; ++t) {
      const int64_t row = i * s.frames + t;
      const T* const logits = s.logits + row * tags;
      const double shift = FiniteShift(memory.of_frames[row].value);
      shifts += shift + (t > 0 ? of_transitions : 0);
      const double* const from = ways + (t + 1) % 2 * tags;
      groups.ForTags(tags, [&](int64_t j, bool exists) {
        double best = t == 0 ? 0 : -INFINITY;
        int64_t which = 0;
        for (int64_t k = groups.lane; t > 0 && k < tags; k += groups.lanes) {
          const double transition = s.transitions[k * tags + j];
          const double score =
              from[k] + OrForbidden(transition - of_transitions);
          if (score > best) {
            best = score;
            which = k;
          }
        }
        for (int half = groups.lanes / 2; half > 0; half /= 2) {
          const double other = __shfl_xor_sync(kAllLanes, best, half);
          const int64_t of_other = __shfl_xor_sync(kAllLanes, which, half);
          if (other > best || (other == best && of_other < which)) {
            best = other;
            which = of_other;
          }
        }
        if (!exists || groups.lane != 0) return;
        ways[t % 2 * tags + j] = OrForbidden(best + (Widen(logits[j]) - shift));
        before[t * tags + j] = static_cast<int32_t>(which);
      });
      __syncthreads();
    }
    int32_t* const labels = args.labels + i * s.frames;
    for (int64_t t = threadIdx.x; t < s.frames; t += kThreads) {
      if (t >= length) labels[t] = 0;
    }
    if (threadIdx.x == 0) {
      const double* const from = ways + (length + 1) % 2 * tags;
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

template <template <typename> class Args, typename T>
constexpr Memory::Pass kPass =
    std::is_same_v<Args<T>, CrfLikelihoodArgs<T>>       ? Memory::kLikelihood
    : std::is_same_v<Args<T>, CrfLikelihoodGradArgs<T>> ? Memory::kGradients
    : std::is_same_v<Args<T>, CrfMarginalsArgs<T>>      ? Memory::kMarginals
                                                        : Memory::kDecode;

template <template <typename> class Args, typename T>
int64_t LayOut(const Args<T>& args, void* scratch, Memory* memory) {
  const CrfScores<T>& s = args.scores;
  return memory->LayOut(s.batch, s.frames, s.tags, kPass<Args, T>, scratch);
}

// Runs Prepare, then `kernel`, a block for each example.
template <template <typename> class Args, typename T>
Error RunBlocks(const Gpu& gpu, const Args<T>& args, const Memory& memory,
                void (*kernel)(Args<T>, Memory)) {
  const CrfScores<T>& s = args.scores;
  const int64_t frames = s.batch * s.frames;
  const Error error = Launch(gpu, GridSize(1 + DivideUp(frames, kWarps)),
                             kThreads, Prepare<T>, s, memory);
  if (error != nullptr) return error;
  const int64_t shared =
      s.tags <= kMaxSharedTags ? 2 * s.tags * sizeof(Number) : 0;
  return LaunchWithShared(gpu, GridSize(memory.blocks), kThreads,
                          static_cast<int>(shared), kernel, args, memory);
}

template <typename T>
Error Run(const Gpu& gpu, const CrfLikelihoodArgs<T>& args,
          const Memory& memory) {
  return RunBlocks(gpu, args, memory, Likelihoods<T>);
}
template <typename T>
Error Run(const Gpu& gpu, const CrfLikelihoodGradArgs<T>& args,
          const Memory& memory) {
  const Error error = RunBlocks(gpu, args, memory, Gradients<T>);
  if (error != nullptr) return error;
  return Launch(gpu, GridSize(DivideUp(memory.cells, kThreads)), kThreads,
                AddBlocks<Accumulator<T>>, memory, args.d_transitions);
}
template <typename T>
Error Run(const Gpu& gpu, const CrfMarginalsArgs<T>& args,
          const Memory& memory) {
  return RunBlocks(gpu, args, memory, Marginals<T>);
}
template <typename T>
Error Run(const Gpu& gpu, const CrfDecodeArgs<T>& args, const Memory& memory) {
  return RunBlocks(gpu, args, memory, Decode<T>);
}

}  // namespace

template <template <typename> class Args, typename T>
Error RunCrf(const Gpu& gpu, const Args<T>& args) {
  Memory memory = {};
  LayOut(args, gpu.scratch, &memory);
  return Run(gpu, args, memory);
}
template <template <typename> class Args, typename T>
int64_t CrfScratchBytes(const Args<T>& args) {
  Memory memory = {};
  return LayOut(args, nullptr, &memory);
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
