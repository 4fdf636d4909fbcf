// Three kernels: the softmax's sums of all frames, each frame's best class, and
// each example's labels.
#include "tensorflow_ops/core/cc/cuda/warp_gpu.h"
#include "tensorflow_ops/core/cc/int_math.h"
#include "tensorflow_ops/seq2seq/cc/kernels/ctc_decode/ctc_decode_gpu.h"

namespace tfo {
namespace {

constexpr int kThreads = 128;

template <typename T>
struct GreedyMemory {
  RowSumsMemory<T> sums;
  int32_t* best;  // [batch, frames]

  int64_t LayOut(const CtcLogits<T>& input, void* base) {
    const int64_t rows = input.batch * input.frames;
    ScratchLayout scratch(base);
    sums.Reserve(rows, input.classes, &scratch);
    scratch.Reserve(&best, rows);
    return scratch.bytes();
  }
};

// The first class with a frame's largest logit, a warp for each frame.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    FindBest(CtcLogits<T> input, GreedyMemory<T> memory) {
  using Value = Accumulator<T>;
  const int lane = threadIdx.x % kWarp;
  const int64_t rows = input.batch * input.frames;
  for (int64_t first = int64_t{blockIdx.x} * (kThreads / kWarp); first < rows;
       first += int64_t{gridDim.x} * (kThreads / kWarp)) {
    const int64_t row = first + threadIdx.x / kWarp;
    // Class indices fit in an int.
    int best = INT32_MAX;
    if (row < rows) {
      const T* const logits = input.logits + row * input.classes;
      const Value largest = memory.sums.largest[row];
      for (int64_t c = lane; c < input.classes && best == INT32_MAX;
           c += kWarp) {
        // Of an impossible frame -inf, as all of its logits.
        if (CountedLogit(Value{Widen(logits[c])}) >= largest) {
          best = static_cast<int>(c);
        }
      }
    }
    best = JoinLanes(best, [](int a, int b) { return b < a ? b : a; });
    if (row < rows && lane == 0) memory.best[row] = best;
  }
}

// A block of one warp for each example.
template <typename T>
__global__ void __launch_bounds__(kWarp)
    MergeLabels(CtcGreedyArgs<T> args, GreedyMemory<T> memory) {
  const CtcLogits<T>& input = args.input;
  const int lane = threadIdx.x;
  for (int64_t b = blockIdx.x; b < input.batch; b += gridDim.x) {
    const bool valid = input.HasValidLength(b);
    const int64_t frames = valid ? input.lengths[b] : 0;
    const int32_t* const best = memory.best + b * input.frames;
    int32_t* const labels = args.labels + b * input.frames;
    int64_t length = 0;
    double log_prob = 0;
    for (int64_t begin = 0; begin < frames; begin += kWarp) {
      const int64_t t = begin + lane;
      bool is_label = false;
      if (t < frames) {
        is_label = best[t] != input.blank &&
                   !(args.merge_repeated && t > 0 && best[t] == best[t - 1]);
        const double rest = memory.sums.rest[b * input.frames + t];
        log_prob += rest == -1 ? -INFINITY : -log1p(rest);
      }
      const unsigned ballot = __ballot_sync(kAllLanes, is_label);
      if (is_label) {
        labels[length + __popc(ballot & ((1u << lane) - 1))] = best[t];
      }
      length += __popc(ballot);
    }
    log_prob = SumOfLanes(log_prob);
    for (int64_t i = length + lane; i < input.frames; i += kWarp) {
      labels[i] = args.pad_id;
    }
    if (lane == 0) {
      args.lengths[b] = static_cast<int32_t>(length);
      args.log_probs[b] = valid ? log_prob : NAN;
    }
  }
}

}  // namespace

template <typename T>
int64_t CtcDecodeScratchBytes(const CtcGreedyArgs<T>& args) {
  return GreedyMemory<T>().LayOut(args.input, nullptr);
}

template <typename T>
Error CtcGreedyDecode(const Gpu& gpu, const CtcGreedyArgs<T>& args) {
  const CtcLogits<T>& input = args.input;
  const int64_t rows = input.batch * input.frames;
  GreedyMemory<T> memory;
  memory.LayOut(input, gpu.scratch);
  if (const Error error =
          memory.sums.Sum(gpu, rows, input.classes, input.logits)) {
    return error;
  }
  if (const Error error =
          Launch(gpu, GridSize(DivideUp(rows, kThreads / kWarp)), kThreads,
                 FindBest<T>, input, memory)) {
    return error;
  }
  return Launch(gpu, GridSize(input.batch), kWarp, MergeLabels<T>, args,
                memory);
}

#define TFO_INSTANTIATE(T)                                         \
  template int64_t CtcDecodeScratchBytes(const CtcGreedyArgs<T>&); \
  template Error CtcGreedyDecode(const Gpu&, const CtcGreedyArgs<T>&)
TFO_FOR_EACH_FLOAT(TFO_INSTANTIATE);
#undef TFO_INSTANTIATE

}  // namespace tfo
