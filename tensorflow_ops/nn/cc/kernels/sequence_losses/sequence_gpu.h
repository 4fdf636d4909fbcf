// Shared by the CUDA kernels of label sequences: losses, random fields,
// decoders. For .cu.cc files.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_SEQUENCE_LOSSES_SEQUENCE_GPU_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_SEQUENCE_LOSSES_SEQUENCE_GPU_H_

#include <algorithm>
#include <type_traits>

#include "tensorflow_ops/core/cc/cuda/cuda_launch.h"
#include "tensorflow_ops/core/cc/int_math.h"
#include "tensorflow_ops/core/cc/scratch.h"
#include "tensorflow_ops/nn/cc/kernels/rows/row_sums.h"
#include "tensorflow_ops/nn/cc/kernels/rows/state.h"
#include "tensorflow_ops/nn/cc/kernels/sequence_losses/scaled.h"
#include "tensorflow_ops/nn/cc/kernels/sequence_losses/sequence_loss.h"

namespace tfo {

// Returns whether an example's lengths and labels are in range. All threads of
// the block must call it.
__device__ inline bool IsValid(const LabelSequences& s, int64_t example,
                               int64_t least_frames) {
  bool bad = !s.HasValidLengths(example, least_frames);
  const int64_t labels = bad ? 0 : s.label_lengths[example];
  for (int64_t u = threadIdx.x; u < labels; u += blockDim.x) {
    bad |= !s.IsLabel(s.Label(example, u));
  }
  return !__syncthreads_or(bad);
}

// The probabilities of a row's classes.
template <typename T>
struct RowProbabilities {
  using Value = Accumulator<T>;
  const T* logits;
  int64_t classes;
  double shift;

  __device__ RowProbabilities(const T* of_rows, int64_t of_classes,
                              const Value* largest, const Value* rest,
                              int64_t row)
      : logits(of_rows + row * of_classes), classes(of_classes) {
    scalar::SoftmaxState<Value> sums;
    sums.max = largest[row];
    sums.rest = rest[row];
    shift = static_cast<double>(sums.shift()) + sums.Log();
  }
  // Returns NaN if `label` is not a class.
  __device__ Scaled<Value> Of(int64_t label) const {
    const bool is_class = label >= 0 && label < classes;
    const double x = is_class ? Widen(logits[label]) : NAN;
    return Scaled<Value>::Exp(x - shift);
  }
};

// The probability of an example's labels; not valid if lengths or labels are
// out of range.
template <typename Value>
struct TotalProbability {
  Scaled<Value> probability;
  bool valid;

  __device__ double Loss() const {
    return valid ? 0 - probability.Log() : static_cast<double>(NAN);
  }
  // Returns the factor of the gradient: 0 if d_loss is 0, NaN if the loss is
  // NaN, 0 if the loss is infinite, else d_loss.
  __device__ Value ScaleOf(Value d_loss) const {
    if (d_loss == 0) return Value(0);
    const Value mantissa = probability.mantissa;
    if (!valid || mantissa != mantissa) return static_cast<Value>(NAN);
    return mantissa == 0 ? Value(0) : d_loss;
  }
};

namespace sequence_internal {

inline constexpr int kRowThreads = 128, kMaxSweepThreads = 256;

// The threads of a block that sweeps an example's lattice: one for each label
// and the end, if there are not too many.
inline int SweepThreads(const LabelSequences& s) {
  return static_cast<int>(
      std::min<int64_t>((s.max_labels + 32) / 32 * 32, kMaxSweepThreads));
}

// Scratch memory. A cell belongs to a frame of an example and a state u, which
// has emitted u labels. Cells of RNN-T that a sweep visits at once, on a
// diagonal, are in a row: (t, u) is in row (t + u) % frames.
template <typename Loss, typename Value>
struct LossMemory {
  using Number = Scaled<Value>;
  // Kept of a cell: its paths; of CTC those that end in blank and in label u.
  static constexpr int kKept = Loss::kHasNodes ? 1 : 2;
  int64_t states;                  // max_labels + 1
  Number* blanks;                  // probabilities of blank in rows of logits
  Number* labels;                  // of label u, in [batch, frames, states]
  Number* given;                   // between the parts of a sweep
  int64_t given_size;              // of a part
  TotalProbability<Value>* total;  // [batch]
  Number* zero;                    // one
  // Of gradients only.
  Number *alpha, *beta;  // [batch, frames, kKept, states]
  Value* scale;          // of rows of logits
  int64_t* next;         // [batch, states], of CTC

  // Lays out the arrays from `base` on. Returns the bytes that they take.
  int64_t LayOut(const LabelSequences& s, bool grad, void* base) {
    states = s.max_labels + 1;
    const int64_t cells = s.batch * s.frames * states;
    ScratchLayout scratch(base);
    scratch.Reserve(&blanks, s.Rows<Loss>());
    scratch.Reserve(&labels, cells);
    given_size = s.frames + states;
    if (states > kMaxSweepThreads) {
      scratch.Reserve(&given, s.batch * 4 * given_size);
    }
    scratch.Reserve(&total, s.batch);
    scratch.Reserve(&zero, 1);
    if (!grad) return scratch.bytes();
    scratch.Reserve(&alpha, cells * kKept);
    scratch.Reserve(&beta, cells * kKept);
    scratch.Reserve(&scale, s.Rows<Loss>());
    if (!Loss::kHasNodes) scratch.Reserve(&next, s.batch * states);
    return scratch.bytes();
  }
};

template <typename Number>
__device__ Number Load(const Number* from) {
  return LoadPack<1>(from).values[0];
}
template <typename Number>
__device__ void Store(const Number& number, Number* to) {
  StorePack(Pack<Number, 1>{{number}}, to);
}

// In two instructions: the register of the padding that a float's number has
// would be used for something else, which then waits for the load.
template <typename Number>
__device__ Number LoadParts(const Number* from) {
  return {from->mantissa, from->exponent};
}

template <typename Number>
__device__ void StoreShared(const Number& number, Number* to) {
  uint4 word;
  memcpy(&word, &number, sizeof(word));
  cuda_launch_internal::CheckAligned(to, sizeof(word));
  *reinterpret_cast<uint4*>(to) = word;
}

// A sum that is not normalized: fewer instructions. Products normalize it.
template <typename Value, typename... More>
__device__ Scaled<Value> Sum(const Scaled<Value>& first, const More&... more) {
  int64_t exponent = first.exponent;
  ((exponent = more.exponent > exponent ? more.exponent : exponent), ...);
  const auto mantissa = [exponent](const Scaled<Value>& number) {
    return number.mantissa *
           Scaled<Value>::PowerOfTwo(number.exponent - exponent);
  };
  return {(mantissa(first) + ... + mantissa(more)), exponent};
}

// Calls step(i, i % 2, load(i)) for i < steps, and load some steps ahead:
// memory takes longer to answer than a step. Both are called in turn; load for
// i beyond, too.
template <typename LoadStep, typename Step>
__device__ void ForSteps(int64_t steps, const LoadStep& load,
                         const Step& step) {
  constexpr int kAhead = 4;  // even
  decltype(load(0)) loaded[kAhead];
#pragma unroll
  for (int i = 0; i < kAhead; ++i) loaded[i] = load(i);
  int64_t first = 0;
  // An exit between the steps would cost moves of registers, which wait for
  // the loads.
  for (; first + kAhead <= steps; first += kAhead) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const auto now = loaded[i];
      loaded[i] = load(first + i + kAhead);
      step(first + i, i % 2, now);
    }
  }
#pragma unroll
  for (int i = 0; i + 1 < kAhead; ++i) {
    if (first + i < steps) step(first + i, i % 2, loaded[i]);
  }
}

// A state's paths on a sweep, those from the start (kForward) or to the end.
// ctc_loss_gpu.h and rnnt_loss_gpu.h define it, with these members:
//   LossPaths(u, labels, skips);  // skips: label u may follow label u - 1
//                                 // without a blank
//   Number given;                 // to the next state at the next step
//   Number kept[kKept];           // of the cell of the last step
//   // `from` is what the state before has given. (Backward, the state before
//   // is u + 1.)
//   void Step(const Number& blank, const Number& label, const Number& from);
//   Number Total(const Number& from);  // forward, of the last state
template <typename Loss, typename Value, bool kForward>
struct LossPaths;

// Sums the paths of a valid example: a thread has a state, and passes on what
// its neighbor needs in shared memory. If there are more states than threads,
// part after part takes all steps, with what the part before has given
// (kInParts). Writes alpha or beta, if it has memory, and the total (kForward).
// All threads of the block call.
template <bool kForward, bool kInParts, typename Loss, typename Value>
__device__ void Sweep(const LabelSequences& s,
                      const LossMemory<Loss, Value>& memory, int64_t example) {
  using Number = Scaled<Value>;
  constexpr int kKept = LossMemory<Loss, Value>::kKept;
  const int64_t labels = s.label_lengths[example];
  const int64_t frames = s.logit_lengths[example], states = memory.states;
  const int64_t steps = frames + (Loss::kHasNodes ? labels : 0);
  const int thread = threadIdx.x, threads = blockDim.x;
  // What threads give, twice, since they alternate. Thread i takes values[i] of
  // `given` and gives the next one or, backward, the other way round.
  auto* const given = static_cast<Number*>(DynamicShared());
  Number* const take[] = {given + thread + !kForward,
                          given + (threads + 1) + thread + !kForward};
  Number* const give[] = {given + thread + kForward,
                          given + (threads + 1) + thread + kForward};
  const bool is_first = thread == (kForward ? 0 : threads - 1);
  const bool is_last = thread == (kForward ? threads - 1 : 0);
  const int64_t parts = kInParts ? labels / threads + 1 : 1;
  const int64_t first_cell = example * s.frames * states;
  const int64_t end_cell = s.frames * states;
  for (int64_t part = 0; part < parts; ++part) {
    const int64_t u = (kForward ? part : parts - 1 - part) * threads + thread;
    // The steps in which the state is in the lattice.
    const int64_t first_step = !Loss::kHasNodes ? 0 : kForward ? u : labels - u;
    const uint64_t num_steps = u <= labels ? frames : 0;
    const auto is_inside = [&](int64_t i) {
      return static_cast<uint64_t>(i - first_step) < num_steps;
    };
    // What a part has given at each step.
    const auto given_by = [&](int64_t p) {
      return memory.given +
             ((example * 2 + kForward) * 2 + p % 2) * memory.given_size;
    };
    const Number* const before =
        kInParts && is_first && part > 0 ? given_by(part - 1) : nullptr;
    Number* const after =
        kInParts && is_last && part + 1 < parts ? given_by(part) : nullptr;
    // The first step's frame, in memory; steps go through frames in turn.
    int64_t first_frame = 0;
    if (!kForward) {
      first_frame = Loss::kHasNodes ? (steps - 1) % s.frames : steps - 1;
    }
    const auto advance = [&](int64_t* cell) {
      *cell += kForward ? states : -states;
      if (!Loss::kHasNodes) return;
      if (kForward && *cell >= end_cell) *cell -= end_cell;
      if (!kForward && *cell < 0) *cell += end_cell;
    };
    int64_t load_at = first_frame * states, keep_at = load_at;
    const Number* const label_cells = memory.labels + first_cell + u;
    const Number* const blank_cells = memory.blanks + first_cell + u;
    const Number* const blanks = memory.blanks + example * s.frames;
    int64_t blank_at = first_frame;
    const bool has_label = u < labels;
    struct Loaded {
      Number blank, label, given;
    };
    const auto load = [&](int64_t i) {
      // Chooses addresses: a choice between values would wait for them here.
      const bool inside = is_inside(i);
      const Number* const blank =
          inside ? (Loss::kHasNodes ? blank_cells + load_at : blanks + blank_at)
                 : memory.zero;
      const Number* const label =
          inside && has_label ? label_cells + load_at : memory.zero;
      Loaded loaded = {LoadParts(blank), LoadParts(label), Number::Zero()};
      if (kInParts) {
        loaded.given = LoadParts(before != nullptr && i <= steps ? before + i
                                                                 : memory.zero);
      }
      advance(&load_at);
      blank_at += kForward ? 1 : -1;
      return loaded;
    };
    const bool skips =
        u > 0 && u < labels && s.Label(example, u) != s.Label(example, u - 1);
    LossPaths<Loss, Value, kForward> paths(u, labels, skips);
    const auto pass_on = [&](int64_t i, int turn) {
      StoreShared(paths.given, give[turn]);
      if (after != nullptr) Store(paths.given, after + i);
      __syncthreads();
    };
    if (is_first) {
      for (Number* const to : take) StoreShared(Number::Zero(), to);
    }
    pass_on(0, 0);
    Number* const keep = kForward ? memory.alpha : memory.beta;
    Number* const kept_cells = keep + first_cell * kKept + u;
    ForSteps(steps, load, [&](int64_t i, int turn, const Loaded& loaded) {
      if (before != nullptr) StoreShared(loaded.given, take[turn]);
      paths.Step(loaded.blank, loaded.label, Load(take[turn]));
      if (keep != nullptr && is_inside(i)) {
#pragma unroll
        for (int k = 0; k < kKept; ++k) {
          Store(paths.kept[k], kept_cells + keep_at * kKept + k * states);
        }
      }
      advance(&keep_at);
      pass_on(i + 1, 1 - turn);
    });
    if constexpr (kForward) {
      if (u == labels) {
        Number* const from = steps % 2 == 0 ? take[0] : take[1];
        if (before != nullptr) StoreShared(Load(before + steps), from);
        memory.total[example] = {paths.Total(Load(from)), true};
      }
    }
  }
}
template <bool kForward, typename Loss, typename Value>
__device__ void Sweep(const LabelSequences& s,
                      const LossMemory<Loss, Value>& memory, int64_t example) {
  if (s.label_lengths[example] < blockDim.x) {
    Sweep<kForward, false>(s, memory, example);
  } else {
    Sweep<kForward, true>(s, memory, example);
  }
}

}  // namespace sequence_internal
}  // namespace tfo

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_SEQUENCE_LOSSES_SEQUENCE_GPU_H_
