#include "tensorflow_ops/seq2seq/cc/kernels/beam_search/beam_search_step_gpu.h"

#include "tensorflow_ops/core/cc/cuda/warp_gpu.h"
#include "tensorflow_ops/nn/cc/kernels/rows/state.h"
#include "tensorflow_ops/seq2seq/cc/kernels/beam_search/counted_sums.h"

// Three kernels: the softmax's sum of each row; the best candidates of each
// part of a row, by score; the best of those of each batch entry. Scores are
// compared, not logits, so ties need no second look as on the CPU.
namespace tfo {
namespace {

constexpr int kThreads = 256;

// ---- The best of a block's candidates.

// Ordered by score, then by key; keys are unique.
template <typename Value>
struct Candidate {
  Value score;
  int64_t key;

  __device__ static Candidate None() {
    return {-static_cast<Value>(INFINITY), INT64_MAX};
  }
  __device__ bool IsNone() const {
    return !(score > -static_cast<Value>(INFINITY));
  }
  __device__ bool IsBetterThan(const Candidate& other) const {
    return score > other.score || (score == other.score && key < other.key);
  }
};

template <typename Value>
struct SelectShared {
  Candidate<Value> of_warps[2][kThreads / 32];
};

// Calls emit(i, candidate) in every thread for the best `count` candidates, in
// order, and returns how many there were. next(last) returns the best of the
// thread's own candidates that are worse than `last`.
template <typename Value, typename Next, typename Emit>
__device__ int64_t Select(int64_t count, SelectShared<Value>& shared,
                          const Next& next, const Emit& emit) {
  using One = Candidate<Value>;
  One mine = next(One{static_cast<Value>(INFINITY), INT64_MIN});
  for (int64_t i = 0; i < count; ++i) {
    One best = mine;
    for (int lanes = 16; lanes > 0; lanes /= 2) {
      const One other{__shfl_xor_sync(kAllLanes, best.score, lanes),
                      __shfl_xor_sync(kAllLanes, best.key, lanes)};
      if (other.IsBetterThan(best)) best = other;
    }
    // Alternating buffers: one barrier per round is enough.
    One* const of_warps = shared.of_warps[i % 2];
    if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = best;
    __syncthreads();
    best = of_warps[0];
#pragma unroll
    for (int warp = 1; warp < kThreads / 32; ++warp) {
      if (of_warps[warp].IsBetterThan(best)) best = of_warps[warp];
    }
    if (best.IsNone()) return i;
    emit(i, best);
    if (best.key == mine.key && !mine.IsNone()) mine = next(best);
  }
  return count;
}

// ---- Candidates.

// A beam, and the terms of its candidates' scores.
template <typename Value>
struct Beam {
  Value log_prob, largest, log_sum, divisor;
  bool dead, finished;

  __device__ Value LogProb(Value logit) const {
    return log_prob + ((logit - largest) - log_sum);
  }
};
template <typename T>
__device__ Beam<Accumulator<T>> ReadBeam(const BeamSearchStepArgs<T>& args,
                                         const BeamScratchLayout<T>& scratch,
                                         int64_t row) {
  using Value = Accumulator<T>;
  Beam<Value> beam;
  beam.log_prob = args.log_probs[row];
  beam.dead = !(beam.log_prob > -static_cast<Value>(INFINITY));
  beam.finished = args.finished[row];
  const scalar::SoftmaxState<Value> s{scratch.largest[row], scratch.rest[row],
                                      0, 0};
  beam.largest = s.max;
  beam.log_sum = s.Log();
  beam.divisor = LengthDivisor<Value>(
      args.lengths[row] + int64_t{!beam.finished}, args.length_penalty);
  return beam;
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    Candidates(const __grid_constant__ BeamSearchStepArgs<T> args,
               const __grid_constant__ BeamScratchLayout<T> scratch) {
  using Value = Accumulator<T>;
  constexpr int kOwn = kBeamPart / kThreads;
  constexpr Value kNone = -static_cast<Value>(INFINITY);
  __shared__ SelectShared<Value> shared;
  __shared__ Beam<Value> of_row;
  const int thread = threadIdx.x;
  const int64_t units = args.batch * args.beams * scratch.parts;
  for (int64_t unit = blockIdx.x; unit < units; unit += gridDim.x) {
    const int64_t row = unit / scratch.parts;
    const int64_t part = unit - row * scratch.parts;
    __syncthreads();  // of_row is no longer read
    if (thread == 0) of_row = ReadBeam(args, scratch, row);
    __syncthreads();
    const Beam<Value> beam = of_row;
    Value* const scores = scratch.scores + unit * scratch.keep;
    int32_t* const tokens = scratch.tokens + unit * scratch.keep;
    int64_t found = 0;
    if (beam.finished && !beam.dead) {
      found = part == 0;
      if (found && thread == 0) {
        scores[0] = beam.log_prob / beam.divisor;
        tokens[0] = FirstEos(args.tokens);
      }
    } else if (!beam.dead) {
      const int64_t begin = part * kBeamPart;
      const int64_t left = args.vocabulary - begin;
      const int64_t from = row * args.vocabulary + begin;
      Value own[kOwn];
#pragma unroll
      for (int i = 0; i < kOwn; ++i) {
        const int at = thread + i * kThreads;
        own[i] = at < left ? Value{Widen(args.logits[from + at])} : kNone;
      }
#pragma unroll
      for (int i = 0; i < kOwn; ++i) {
        const int at = thread + i * kThreads;
        const Value logit = CountedLogit(own[i]);
        bool may = logit > kNone;
        if (may && args.tokens.rule != EosRule::kAny) {
          may = Allows(args.tokens, begin + at);
        }
        if (may && args.forbidden != nullptr) may = !args.forbidden[from + at];
        own[i] = may ? beam.LogProb(logit) / beam.divisor : kNone;
      }
      const auto next = [&](const Candidate<Value>& last) {
        auto best = Candidate<Value>::None();
#pragma unroll
        for (int i = 0; i < kOwn; ++i) {
          const Candidate<Value> one{own[i], begin + thread + i * kThreads};
          if (last.IsBetterThan(one) && one.IsBetterThan(best)) best = one;
        }
        return best;
      };
      found = Select<Value>(scratch.keep, shared, next,
                            [&](int64_t i, const Candidate<Value>& best) {
                              if (thread != 0) return;
                              scores[i] = best.score;
                              tokens[i] = static_cast<int32_t>(best.key);
                            });
    }
    for (int64_t i = found + thread; i < scratch.keep; i += kThreads) {
      scores[i] = kNone;
    }
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    Choose(const __grid_constant__ BeamSearchStepArgs<T> args,
           const __grid_constant__ BeamScratchLayout<T> scratch) {
  using Value = Accumulator<T>;
  constexpr Value kNone = -static_cast<Value>(INFINITY);
  __shared__ SelectShared<Value> shared;
  const int64_t of_beam = scratch.parts * scratch.keep;
  const int64_t count = args.beams * of_beam;
  for (int64_t entry = blockIdx.x; entry < args.batch; entry += gridDim.x) {
    const int64_t first_row = entry * args.beams;
    const Value* const scores = scratch.scores + entry * count;
    const int32_t* const tokens = scratch.tokens + entry * count;
    const auto next = [&](const Candidate<Value>& last) {
      auto best = Candidate<Value>::None();
      for (int64_t i = threadIdx.x; i < count; i += kThreads) {
        const Value score = scores[i];
        if (!(score > kNone) || score < best.score) continue;
        // The beam, and the token in the lower half.
        const Candidate<Value> one{
            score, (i / of_beam << 32) | static_cast<uint32_t>(tokens[i])};
        if (last.IsBetterThan(one) && one.IsBetterThan(best)) best = one;
      }
      return best;
    };
    const int64_t found = Select<Value>(
        args.beam_width, shared, next,
        [&](int64_t i, const Candidate<Value>& best) {
          if (threadIdx.x != 0) return;
          const int64_t to = entry * args.beam_width + i;
          const int64_t parent = best.key >> 32, row = first_row + parent;
          const int32_t token = static_cast<int32_t>(best.key);
          const Beam<Value> beam = ReadBeam(args, scratch, row);
          args.next_log_probs[to] =
              beam.finished
                  ? beam.log_prob
                  : beam.LogProb(CountedLogit(Value{
                        Widen(args.logits[row * args.vocabulary + token])}));
          args.token_ids[to] = token;
          args.parent_ids[to] = static_cast<int32_t>(parent);
          args.next_finished[to] = beam.finished || IsEos(args.tokens, token);
          args.next_lengths[to] = args.lengths[row] + !beam.finished;
        });
    for (int64_t i = found + threadIdx.x; i < args.beam_width; i += kThreads) {
      const int64_t to = entry * args.beam_width + i;
      args.next_log_probs[to] = kNone;
      args.token_ids[to] = FirstEos(args.tokens);
      args.parent_ids[to] = 0;
      args.next_finished[to] = true;
      args.next_lengths[to] = args.lengths[first_row];
    }
    __syncthreads();  // `shared` is no longer read
  }
}

}  // namespace

template <typename T>
Error BeamSearchStep(const Gpu& gpu, const BeamSearchStepArgs<T>& args) {
  if (args.batch == 0 || args.beam_width == 0) return nullptr;
  const int64_t rows = args.batch * args.beams;
  const BeamScratchLayout<T> scratch(args, gpu.scratch);
  Gpu with_states = gpu;
  with_states.scratch = scratch.states;
  if (const Error error = SumCountedRows(
          with_states, CountedSums<T>{rows, args.vocabulary, args.logits,
                                      scratch.largest, scratch.rest})) {
    return error;
  }
  if (const Error error = Launch(gpu, GridSize(rows * scratch.parts), kThreads,
                                 Candidates<T>, args, scratch)) {
    return error;
  }
  return Launch(gpu, GridSize(args.batch), kThreads, Choose<T>, args, scratch);
}

TFO_INSTANTIATE_ALGORITHM(BeamSearchStep, Gpu, BeamSearchStepArgs);

}  // namespace tfo
