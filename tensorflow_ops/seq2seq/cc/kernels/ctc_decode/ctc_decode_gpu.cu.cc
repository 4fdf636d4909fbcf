// A search has three kernels: the softmax's sums of all frames, the best labels
// of each frame, and the search itself, a block for each example. A step has
// the first and a frame of the last.
#include "tensorflow_ops/seq2seq/cc/kernels/ctc_decode/ctc_decode_gpu.h"

#include "tensorflow_ops/seq2seq/cc/kernels/ctc_decode/ctc_beams_gpu.h"

namespace tfo {
namespace {

constexpr int kMaxThreads = 512, kFewThreads = 128;
constexpr int kRankBlocks = 256;  // at most, where they need scratch memory
// Of dynamic shared memory. Every supported GPU has 64 kB for a block, which
// also hold its static variables.
constexpr int64_t kSharedBytes = 60 << 10;

// The memory of a block: shared if it fits, else from `base` on.
struct BlockMemory {
  int64_t bytes;
  char* base;

  bool IsShared() const { return bytes <= kSharedBytes; }
  int SharedBytes() const { return IsShared() ? static_cast<int>(bytes) : 0; }
  void Reserve(int64_t of_block, int64_t blocks, ScratchLayout* scratch) {
    bytes = of_block;
    base = nullptr;
    if (!IsShared()) scratch->Reserve(&base, blocks * bytes);
  }
  __device__ char* OfBlock() const {
    return bytes <= kSharedBytes ? static_cast<char*>(DynamicShared())
                                 : base + blockIdx.x * bytes;
  }
};

// How a frame changed a prefix.
struct CtcChange {
  int32_t from, added;
};

template <typename T>
struct SearchMemory {
  RowSumsMemory<T> sums;
  int threads;
  int64_t num_labels, rank_capacity;
  CtcBeamLayout layout;
  BlockMemory ranks, beams;
  int32_t *labels, *label_counts;  // [batch, frames, num_labels]: best first
  CtcChange* changes;              // [batch, frames, width]

  // Returns the size in bytes, or more than any GPU has where it might
  // overflow.
  int64_t LayOut(const CtcBeamSearchArgs<T>& args, void* base) {
    const CtcLogits<T>& input = args.input;
    const int64_t rows = input.batch * input.frames;
    // A beam has at most classes^frames prefixes.
    int64_t width = 1;
    for (int64_t t = 0; t < input.frames && width < args.beam_width; ++t) {
      if (input.classes == 1) break;
      width = width > args.beam_width / input.classes ? args.beam_width
                                                      : width * input.classes;
    }
    // A prefix takes less than 2^9 bytes.
    if (rows > 0 && width > (int64_t{1} << 50) / rows) return int64_t{1} << 62;
    threads = width <= 256 ? kFewThreads : kMaxThreads;
    num_labels = std::min(width + 1, input.classes - 1);
    rank_capacity = BestRanks::Capacity(num_labels, kFewThreads);
    layout = CtcBeamLayout(width, threads);
    ScratchLayout scratch(base);
    sums.Reserve(rows, input.classes, &scratch);
    scratch.Reserve(&labels, rows * num_labels);
    scratch.Reserve(&label_counts, rows);
    scratch.Reserve(&changes, rows * width);
    ranks.Reserve(rank_capacity * sizeof(CtcRank), kRankBlocks, &scratch);
    beams.Reserve(layout.bytes, input.batch, &scratch);
    return scratch.bytes();
  }
};

// The best labels of each frame, a block each.
template <typename T>
__global__ void __launch_bounds__(kFewThreads)
    RankLabels(const __grid_constant__ CtcLogits<T> input,
               const __grid_constant__ SearchMemory<T> memory) {
  using Value = Accumulator<T>;
  __shared__ int count;
  BestRanks best(reinterpret_cast<CtcRank*>(memory.ranks.OfBlock()), &count,
                 memory.num_labels, memory.rank_capacity);
  for (int64_t row = blockIdx.x; row < input.batch * input.frames;
       row += gridDim.x) {
    const int64_t example = row / input.frames;
    if (!input.HasValidLength(example) ||
        row % input.frames >= input.lengths[example]) {
      continue;
    }
    const T* const logits = input.logits + row * input.classes;
    best.Clear();
    for (int64_t begin = 0; begin < input.classes; begin += blockDim.x) {
      const int64_t c = begin + threadIdx.x;
      CtcRank rank = BestRanks::None();
      if (c < input.classes && c != input.blank) {
        rank = {CountedLogit(Value{Widen(logits[c])}), c};
      }
      best.Offer(rank);
    }
    const int64_t found = best.Sort();
    for (int64_t r = threadIdx.x; r < found; r += blockDim.x) {
      memory.labels[row * memory.num_labels + r] =
          static_cast<int32_t>(best[r].order);
    }
    if (threadIdx.x == 0) {
      memory.label_counts[row] = static_cast<int32_t>(found);
    }
  }
}

// A frame of CtcBlockBeams.
template <typename T>
struct SearchFrame {
  static constexpr bool kByBest = true;
  RowLogProbs<T> log_probs;
  int64_t blank, count;
  const int32_t* labels;
  double label_bonus;

  __device__ double LogProb(int64_t c) const { return log_probs.LogProb(c); }
  __device__ CtcLabel Label(int64_t r) const {
    return {LogProb(labels[r]), labels[r]};
  }
  __device__ double Bonus(int64_t, int64_t) const { return label_bonus; }
};

// Writes the best prefixes of an example; all are missing without `size`.
template <typename T>
__device__ void WritePaths(const CtcBeamSearchArgs<T>& args,
                           const SearchMemory<T>& memory, int64_t example,
                           const CtcPrefix* prefixes, int64_t size,
                           double missing) {
  const int64_t frames = args.input.frames, width = memory.layout.width;
  const CtcChange* const changes = memory.changes + example * frames * width;
  for (int64_t k = threadIdx.x; k < args.top_paths; k += blockDim.x) {
    const int64_t to = example * args.top_paths + k;
    const bool is_missing = k >= size;
    args.scores[to] = is_missing ? missing : prefixes[k].Score();
    args.log_probs[to] = is_missing ? missing : prefixes[k].total;
    const int64_t last = is_missing ? -1 : args.input.lengths[example] - 1;
    int64_t length = 0;
    for (int64_t t = last, at = k; t >= 0; --t) {
      const CtcChange change = changes[t * width + at];
      length += change.added >= 0;
      at = change.from;
    }
    args.lengths[to] = static_cast<int32_t>(length);
    int32_t* const labels = args.labels + to * frames;
    for (int64_t i = length; i < frames; ++i) labels[i] = args.pad_id;
    for (int64_t t = last, at = k; length > 0; --t) {
      const CtcChange change = changes[t * width + at];
      if (change.added >= 0) labels[--length] = change.added;
      at = change.from;
    }
  }
}

template <typename T>
__global__ void __launch_bounds__(kMaxThreads)
    Search(const __grid_constant__ CtcBeamSearchArgs<T> args,
           const __grid_constant__ SearchMemory<T> memory) {
  __shared__ int count;
  const CtcLogits<T>& input = args.input;
  for (int64_t b = blockIdx.x; b < input.batch; b += gridDim.x) {
    const bool valid = input.HasValidLength(b);
    const int64_t frames = valid ? input.lengths[b] : 0;
    CtcBlockBeams beams(memory.layout, memory.beams.OfBlock(), &count);
    if (threadIdx.x == 0) beams.prefixes()[0] = CtcPrefix();
    beams.set_size(valid ? 1 : 0);
    __syncthreads();
    for (int64_t t = 0; t < frames; ++t) {
      const int64_t row = b * input.frames + t;
      beams.Advance(SearchFrame<T>{
          RowLogProbs<T>(memory.sums, input.logits, input.classes, row),
          input.blank, memory.num_labels > 0 ? memory.label_counts[row] : 0,
          memory.labels + row * memory.num_labels, args.label_bonus});
      for (int64_t k = threadIdx.x; k < beams.size(); k += blockDim.x) {
        const CtcPrefix& prefix = beams.prefixes()[k];
        memory.changes[row * memory.layout.width + k] = {
            static_cast<int32_t>(prefix.from),
            static_cast<int32_t>(prefix.added)};
      }
    }
    __syncthreads();
    WritePaths(args, memory, b, beams.prefixes(), beams.size(),
               valid ? -INFINITY : NAN);
    __syncthreads();  // the beam is no longer read
  }
}

// ---- A step.

template <typename T>
struct StepMemory {
  RowSumsMemory<T> sums;
  int threads;
  CtcBeamLayout layout;
  BlockMemory beams;

  int64_t LayOut(const CtcBeamSearchStepArgs<T>& args, void* base) {
    threads =
        args.beam_width * args.classes <= (1 << 12) ? kFewThreads : kMaxThreads;
    layout = CtcBeamLayout(args.beam_width, threads);
    ScratchLayout scratch(base);
    sums.Reserve(args.batch, args.classes, &scratch);
    beams.Reserve(layout.bytes, args.batch, &scratch);
    return scratch.bytes();
  }
};

template <typename T>
struct StepFrame {
  static constexpr bool kByBest = false;
  RowLogProbs<T> log_probs;
  int64_t blank, count;
  const Accumulator<T>* scores;  // of the example
  double lm_weight, label_bonus;

  __device__ double LogProb(int64_t c) const { return log_probs.LogProb(c); }
  __device__ CtcLabel Label(int64_t r) const {
    const int64_t c = r + (r >= blank);
    return {LogProb(c), c};
  }
  __device__ double Bonus(int64_t i, int64_t label) const {
    return CtcModelBonus(CountedLogit(scores[i * log_probs.classes + label]),
                         lm_weight, label_bonus);
  }
};

// Reads the beam of an example. All threads call, and get its size.
template <typename T>
__device__ int64_t LoadBeam(const CtcBeamSearchStepArgs<T>& args,
                            int64_t example, CtcPrefix* prefixes, int* size) {
  if (threadIdx.x == 0) *size = static_cast<int>(args.beam_width);
  __syncthreads();
  for (int64_t k = threadIdx.x; k < args.beam_width; k += blockDim.x) {
    const int64_t at = example * args.beam_width + k;
    const double* const weights = args.weights + at * kCtcWeights;
    const int64_t* const ids = args.prefixes + at * kCtcPrefixIds;
    CtcPrefix prefix;
    prefix.blank = weights[0];
    prefix.label = weights[1];
    prefix.total = CtcLogAdd(prefix.blank, prefix.label);
    // Those behind a missing one are missing, too.
    if (!(prefix.total > -INFINITY)) atomicMin(size, static_cast<int>(k));
    prefix.bonus = weights[2];
    prefix.last = ids[0];
    prefix.id = {static_cast<uint64_t>(ids[1]), static_cast<uint64_t>(ids[2])};
    prefix.parent = {static_cast<uint64_t>(ids[3]),
                     static_cast<uint64_t>(ids[4])};
    prefix.from = k;
    prefixes[k] = prefix;
  }
  __syncthreads();
  return *size;
}

template <typename T>
__device__ void StoreBeam(const CtcBeamSearchStepArgs<T>& args, int64_t example,
                          const CtcPrefix* prefixes, int64_t size) {
  for (int64_t k = threadIdx.x; k < args.beam_width; k += blockDim.x) {
    const int64_t at = example * args.beam_width + k;
    CtcPrefix prefix;
    prefix.blank = -INFINITY;
    if (k < size) prefix = prefixes[k];
    double* const weights = args.next_weights + at * kCtcWeights;
    int64_t* const ids = args.next_prefixes + at * kCtcPrefixIds;
    weights[0] = prefix.blank;
    weights[1] = prefix.label;
    weights[2] = prefix.bonus;
    ids[0] = prefix.last;
    ids[1] = static_cast<int64_t>(prefix.id.a);
    ids[2] = static_cast<int64_t>(prefix.id.b);
    ids[3] = static_cast<int64_t>(prefix.parent.a);
    ids[4] = static_cast<int64_t>(prefix.parent.b);
    args.parents[at] = static_cast<int32_t>(prefix.from);
    args.labels[at] = static_cast<int32_t>(prefix.added);
  }
}

template <typename T>
__global__ void __launch_bounds__(kMaxThreads)
    Step(const __grid_constant__ CtcBeamSearchStepArgs<T> args,
         const __grid_constant__ StepMemory<T> memory) {
  __shared__ int count, size;
  for (int64_t b = blockIdx.x; b < args.batch; b += gridDim.x) {
    CtcBlockBeams beams(memory.layout, memory.beams.OfBlock(), &count);
    beams.set_size(LoadBeam(args, b, beams.prefixes(), &size));
    if (args.is_frame[b]) {
      beams.Advance(StepFrame<T>{
          RowLogProbs<T>(memory.sums, args.logits, args.classes, b), args.blank,
          args.classes - 1,
          args.label_scores + b * args.beam_width * args.classes,
          args.lm_weight, args.label_bonus});
    }
    StoreBeam(args, b, beams.prefixes(), beams.size());
    __syncthreads();  // the beam is no longer read
  }
}

}  // namespace

template <typename T>
int64_t CtcDecodeScratchBytes(const CtcBeamSearchArgs<T>& args) {
  return SearchMemory<T>().LayOut(args, nullptr);
}

template <typename T>
Error CtcBeamSearch(const Gpu& gpu, const CtcBeamSearchArgs<T>& args) {
  const CtcLogits<T>& input = args.input;
  const int64_t rows = input.batch * input.frames;
  SearchMemory<T> memory;
  memory.LayOut(args, gpu.scratch);
  if (const Error error =
          memory.sums.Sum(gpu, rows, input.classes, input.logits)) {
    return error;
  }
  if (memory.num_labels > 0) {
    const int64_t blocks =
        memory.ranks.IsShared() ? rows : std::min<int64_t>(rows, kRankBlocks);
    if (const Error error = LaunchWithShared(gpu, GridSize(blocks), kFewThreads,
                                             memory.ranks.SharedBytes(),
                                             RankLabels<T>, input, memory)) {
      return error;
    }
  }
  return LaunchWithShared(gpu, GridSize(input.batch), memory.threads,
                          memory.beams.SharedBytes(), Search<T>, args, memory);
}

template <typename T>
int64_t CtcDecodeScratchBytes(const CtcBeamSearchStepArgs<T>& args) {
  return StepMemory<T>().LayOut(args, nullptr);
}

template <typename T>
Error CtcBeamSearchStep(const Gpu& gpu, const CtcBeamSearchStepArgs<T>& args) {
  StepMemory<T> memory;
  memory.LayOut(args, gpu.scratch);
  if (const Error error =
          memory.sums.Sum(gpu, args.batch, args.classes, args.logits)) {
    return error;
  }
  return LaunchWithShared(gpu, GridSize(args.batch), memory.threads,
                          memory.beams.SharedBytes(), Step<T>, args, memory);
}

#define TFO_INSTANTIATE(T)                                                 \
  template int64_t CtcDecodeScratchBytes(const CtcBeamSearchArgs<T>&);     \
  template int64_t CtcDecodeScratchBytes(const CtcBeamSearchStepArgs<T>&); \
  template Error CtcBeamSearch(const Gpu&, const CtcBeamSearchArgs<T>&);   \
  template Error CtcBeamSearchStep(const Gpu&, const CtcBeamSearchStepArgs<T>&)
TFO_FOR_EACH_FLOAT(TFO_INSTANTIATE);
#undef TFO_INSTANTIATE

}  // namespace tfo
