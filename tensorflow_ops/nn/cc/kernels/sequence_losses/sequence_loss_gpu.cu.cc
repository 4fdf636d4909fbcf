#include "tensorflow_ops/nn/cc/kernels/sequence_losses/ctc_loss_gpu.h"
#include "tensorflow_ops/nn/cc/kernels/sequence_losses/rnnt_loss_gpu.h"
#include "tensorflow_ops/nn/cc/kernels/sequence_losses/sequence_loss.h"

namespace tfo {
namespace {

using sequence_internal::kMaxSweepThreads;
using sequence_internal::kRowThreads;
using sequence_internal::LossMemory;
using sequence_internal::SweepThreads;

// Calls body(example, row) for all rows of logits: with a block each or, of
// nodes, a thread.
template <typename Loss, typename Body>
__device__ void ForRows(const LabelSequences& s, const Body& body) {
  const int64_t block = blockIdx.x, blocks = gridDim.x;
  const int64_t first =
      Loss::kHasNodes ? block * blockDim.x + threadIdx.x : block;
  const int64_t step = Loss::kHasNodes ? blocks * blockDim.x : blocks;
  const int64_t of_example = s.frames * s.RowsPerFrame<Loss>();
  for (int64_t row = first; row < s.Rows<Loss>(); row += step) {
    body(row / of_example, row);
  }
}
template <typename Loss>
unsigned RowBlocks(const LabelSequences& s) {
  const int64_t per_block = Loss::kHasNodes ? kRowThreads : 1;
  return GridSize(DivideUp(s.Rows<Loss>(), per_block));
}

// The probabilities of labels and blank in rows within the lengths.
template <typename Loss, typename T>
__global__ void ComputeEmissions(LabelSequences s, const T* logits,
                                 const Accumulator<T>* largest,
                                 const Accumulator<T>* rest,
                                 LossMemory<Loss, Accumulator<T>> memory) {
  if (blockIdx.x == 0 && threadIdx.x == 0) {
    *memory.zero = Scaled<Accumulator<T>>::Zero();
  }
  ForRows<Loss>(s, [&](int64_t example, int64_t row) {
    const int64_t t = row / s.RowsPerFrame<Loss>() % s.frames;
    if (!s.HasValidLengths(example, Loss::kLeastFrames) ||
        t >= s.logit_lengths[example]) {
      return;
    }
    const RowProbabilities<T> probabilities(logits, s.classes, largest, rest,
                                            row);
    EmitRow(s, example, row, probabilities, memory);
  });
}

// A block sweeps an example's paths (sequence_gpu.h).
template <typename Loss, typename Value>
__global__ void __launch_bounds__(kMaxSweepThreads)
    Losses(LabelSequences s, LossMemory<Loss, Value> memory, bool zero_infinity,
           Value* losses) {
  for (int64_t example = blockIdx.x; example < s.batch; example += gridDim.x) {
    double loss = NAN;
    if (IsValid(s, example, Loss::kLeastFrames)) {
      sequence_internal::Sweep<true>(s, memory, example);
      __syncthreads();
      loss = memory.total[example].Loss();
    }
    if (threadIdx.x == 0) {
      losses[example] = zero_infinity && loss == INFINITY ? 0 : loss;
    }
  }
}

// The paths from the start in one block of an example, those to the end in the
// next.
template <typename Loss, typename Value>
__global__ void __launch_bounds__(kMaxSweepThreads)
    ComputePaths(LabelSequences s, LossMemory<Loss, Value> memory) {
  for (int64_t i = blockIdx.x; i < 2 * s.batch; i += gridDim.x) {
    const int64_t example = i / 2;
    if (!IsValid(s, example, Loss::kLeastFrames)) {
      if (threadIdx.x == 0 && i % 2 == 0) memory.total[example].valid = false;
    } else if (i % 2 == 0) {
      sequence_internal::Sweep<true>(s, memory, example);
    } else {
      if constexpr (!Loss::kHasNodes) LinkLabels(s, memory, example);
      sequence_internal::Sweep<false>(s, memory, example);
    }
    __syncthreads();
  }
}

// The scales of rows of logits, a thread each.
template <typename Loss, typename Value>
__global__ void ComputeScales(LabelSequences s, const Value* d_loss,
                              LossMemory<Loss, Value> memory) {
  const int64_t per_frame = s.RowsPerFrame<Loss>(), rows = s.Rows<Loss>();
  const int64_t step = int64_t{gridDim.x} * kRowThreads;
  for (int64_t row = int64_t{blockIdx.x} * kRowThreads + threadIdx.x;
       row < rows; row += step) {
    const int64_t frame = row / per_frame, example = frame / s.frames;
    const auto total = memory.total[example];
    Value scale = total.ScaleOf(d_loss[example]);
    if (total.valid && (frame % s.frames >= s.logit_lengths[example] ||
                        row % per_frame > s.label_lengths[example])) {
      scale = 0;
    }
    if constexpr (Loss::kHasNodes) {
      if (scale == scale && scale != 0) {
        const auto shares = SharesOf(s, memory, example, row);
        scale *= shares.blank + shares.label;
      }
    }
    memory.scale[row] = scale;
  }
}

template <typename Loss, typename T>
__global__ void Subtract(SequenceLossGradArgs<Loss, T> args,
                         LossMemory<Loss, Accumulator<T>> memory) {
  ForRows<Loss>(args.sequences, [&](int64_t example, int64_t row) {
    const auto scale = memory.scale[row];
    if (scale == 0 || scale != scale) return;
    SubtractShares(args, memory, example, row);
  });
}

template <typename Loss, typename T>
RowSumsArgs<T> SumsOf(const SequenceLossArgs<Loss, T>& args) {
  const LabelSequences& s = args.sequences;
  return {s.Rows<Loss>(), s.classes, args.logits, args.largest, args.rest};
}

// Computes emissions in new scratch memory. Args are those of the loss or of
// its gradient.
template <typename Loss, typename T, typename Args>
Error LaunchEmissions(const Gpu& gpu, const Args& args, bool grad,
                      LossMemory<Loss, Accumulator<T>>* memory) {
  const LabelSequences& s = args.sequences;
  memory->LayOut(s, grad, gpu.scratch);
  return Launch(gpu, RowBlocks<Loss>(s), kRowThreads, ComputeEmissions<Loss, T>,
                s, args.logits,
                static_cast<const Accumulator<T>*>(args.largest),
                static_cast<const Accumulator<T>*>(args.rest), *memory);
}

// Launches blocks that sweep.
template <typename Value, typename... Parameters, typename... Arguments>
Error LaunchSweeps(const Gpu& gpu, const LabelSequences& s, int64_t blocks,
                   void (*kernel)(Parameters...), Arguments... arguments) {
  const int threads = SweepThreads(s);
  return LaunchWithShared(gpu, GridSize(blocks), threads,
                          2 * (threads + 1) * sizeof(Scaled<Value>), kernel,
                          arguments...);
}

}  // namespace

template <typename Loss, typename T>
int64_t SequenceLossScratchBytes(const SequenceLossArgs<Loss, T>& args) {
  return std::max(
      LossMemory<Loss, Accumulator<T>>().LayOut(args.sequences, false, nullptr),
      RowScratchBytes(SumsOf(args)));
}
template <typename Loss, typename T>
int64_t SequenceLossScratchBytes(const SequenceLossGradArgs<Loss, T>& args) {
  return LossMemory<Loss, Accumulator<T>>().LayOut(args.sequences, true,
                                                   nullptr);
}

template <typename Loss, typename T>
Error SequenceLoss(const Gpu& gpu, const SequenceLossArgs<Loss, T>& args) {
  using Value = Accumulator<T>;
  LossMemory<Loss, Value> memory = {};
  if (const Error error = RunRowFunction(gpu, SumsOf(args))) return error;
  if (const Error error = LaunchEmissions<Loss, T>(gpu, args, false, &memory)) {
    return error;
  }
  const LabelSequences& s = args.sequences;
  return LaunchSweeps<Value>(gpu, s, s.batch, Losses<Loss, Value>, s, memory,
                             args.zero_infinity, args.loss);
}

template <typename Loss, typename T>
Error SequenceLossGrad(const Gpu& gpu,
                       const SequenceLossGradArgs<Loss, T>& args) {
  const LabelSequences& s = args.sequences;
  using Value = Accumulator<T>;
  LossMemory<Loss, Value> memory = {};
  if (const Error error = LaunchEmissions<Loss, T>(gpu, args, true, &memory)) {
    return error;
  }
  if (const Error error = LaunchSweeps<Value>(
          gpu, s, 2 * s.batch, ComputePaths<Loss, Value>, s, memory)) {
    return error;
  }
  if (const Error error = Launch(
          gpu, GridSize(DivideUp(s.Rows<Loss>(), kRowThreads)), kRowThreads,
          ComputeScales<Loss, Value>, s, args.d_loss, memory)) {
    return error;
  }
  const ScaledSoftmaxArgs<T> softmax{s.Rows<Loss>(), s.classes,    args.logits,
                                     memory.scale,   args.largest, args.rest,
                                     args.d_logits};
  if (const Error error = RunRowFunction(gpu, softmax)) return error;
  return Launch(gpu, RowBlocks<Loss>(s), kRowThreads, Subtract<Loss, T>, args,
                memory);
}

#define TFO_INSTANTIATE_ONE(Loss, T)                                           \
  template Error SequenceLoss(const Gpu&, const SequenceLossArgs<Loss, T>&);   \
  template Error SequenceLossGrad(const Gpu&,                                  \
                                  const SequenceLossGradArgs<Loss, T>&);       \
  template int64_t SequenceLossScratchBytes(const SequenceLossArgs<Loss, T>&); \
  template int64_t SequenceLossScratchBytes(                                   \
      const SequenceLossGradArgs<Loss, T>&)
#define TFO_INSTANTIATE(T)     \
  TFO_INSTANTIATE_ONE(Ctc, T); \
  TFO_INSTANTIATE_ONE(Rnnt, T)
TFO_FOR_EACH_FLOAT(TFO_INSTANTIATE);
#undef TFO_INSTANTIATE
#undef TFO_INSTANTIATE_ONE

}  // namespace tfo
