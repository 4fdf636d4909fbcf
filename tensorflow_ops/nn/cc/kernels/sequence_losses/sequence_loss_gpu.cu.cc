#include "tensorflow_ops/nn/cc/kernels/sequence_losses/ctc_loss_gpu.h"
#include "tensorflow_ops/nn/cc/kernels/sequence_losses/rnnt_loss_gpu.h"
#include "tensorflow_ops/nn/cc/kernels/sequence_losses/sequence_loss.h"

namespace tfo {
namespace {

using sequence_internal::kLossThreads;
using sequence_internal::LossMemory;

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
  const int64_t per_block = Loss::kHasNodes ? kLossThreads : 1;
  return GridSize((s.Rows<Loss>() + per_block - 1) / per_block);
}

// The probabilities of labels and blank in rows within the lengths.
template <typename Loss, typename T>
__global__ void ComputeEmissions(LabelSequences s, const T* logits,
                                 const Accumulator<T>* largest,
                                 const Accumulator<T>* rest,
                                 LossMemory<Loss, T> memory) {
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

template <typename Loss, typename T>
__global__ void Losses(SequenceLossArgs<Loss, T> args,
                       LossMemory<Loss, T> memory) {
  for (int64_t example = blockIdx.x; example < args.sequences.batch;
       example += gridDim.x) {
    const auto total =
        Forward(args.sequences, memory, example, /*keep_all=*/false);
    if (threadIdx.x == 0) {
      const double loss = total.Loss();
      const bool zero = args.zero_infinity && loss == INFINITY;
      args.loss[example] = zero ? 0 : loss;
    }
    __syncthreads();
  }
}

// The scale of rows and what SubtractShares subtracts.
template <typename Loss, typename T>
__global__ void ComputeShares(SequenceLossGradArgs<Loss, T> args,
                              LossMemory<Loss, T> memory) {
  using Value = Accumulator<T>;
  const LabelSequences& s = args.sequences;
  const int64_t per_frame = s.RowsPerFrame<Loss>();
  const int64_t rows = s.frames * per_frame;
  for (int64_t example = blockIdx.x; example < s.batch; example += gridDim.x) {
    const auto total = Forward(s, memory, example, /*keep_all=*/true);
    const Value scale = total.ScaleOf(args.d_loss[example]);
    const bool is_nan = scale != scale;
    const int64_t frames = total.valid ? s.logit_lengths[example] : s.frames;
    const int64_t labels =
        total.valid ? s.label_lengths[example] : s.max_labels;
    for (int64_t i = threadIdx.x; i < rows; i += blockDim.x) {
      const bool inside = i / per_frame < frames && i % per_frame <= labels;
      // Backward sets the scale of nodes.
      memory.scale[example * rows + i] =
          inside && (is_nan || !Loss::kHasNodes) ? scale : Value(0);
    }
    __syncthreads();
    if (!is_nan && scale != 0) {
      Backward(s, memory, example, scale, total.probability);
    }
    __syncthreads();
  }
}

template <typename Loss, typename T>
__global__ void Subtract(SequenceLossGradArgs<Loss, T> args,
                         LossMemory<Loss, T> memory) {
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
                      LossMemory<Loss, T>* memory) {
  const LabelSequences& s = args.sequences;
  memory->LayOut(s, grad, gpu.scratch);
  return Launch(gpu, RowBlocks<Loss>(s), kLossThreads,
                ComputeEmissions<Loss, T>, s, args.logits,
                static_cast<const Accumulator<T>*>(args.largest),
                static_cast<const Accumulator<T>*>(args.rest), *memory);
}

}  // namespace

template <typename Loss, typename T>
int64_t SequenceLossScratchBytes(const SequenceLossArgs<Loss, T>& args) {
  return std::max(LossMemory<Loss, T>().LayOut(args.sequences, false, nullptr),
                  RowScratchBytes(SumsOf(args)));
}
template <typename Loss, typename T>
int64_t SequenceLossScratchBytes(const SequenceLossGradArgs<Loss, T>& args) {
  return LossMemory<Loss, T>().LayOut(args.sequences, true, nullptr);
}

template <typename Loss, typename T>
Error SequenceLoss(const Gpu& gpu, const SequenceLossArgs<Loss, T>& args) {
  LossMemory<Loss, T> memory = {};
  if (const Error error = RunRowFunction(gpu, SumsOf(args))) return error;
  if (const Error error = LaunchEmissions(gpu, args, false, &memory)) {
    return error;
  }
  return Launch(gpu, GridSize(args.sequences.batch), kLossThreads,
                Losses<Loss, T>, args, memory);
}

template <typename Loss, typename T>
Error SequenceLossGrad(const Gpu& gpu,
                       const SequenceLossGradArgs<Loss, T>& args) {
  const LabelSequences& s = args.sequences;
  LossMemory<Loss, T> memory = {};
  if (const Error error = LaunchEmissions(gpu, args, true, &memory)) {
    return error;
  }
  if (const Error error = Launch(gpu, GridSize(s.batch), kLossThreads,
                                 ComputeShares<Loss, T>, args, memory)) {
    return error;
  }
  const ScaledSoftmaxArgs<T> softmax{s.Rows<Loss>(), s.classes,    args.logits,
                                     memory.scale,   args.largest, args.rest,
                                     args.d_logits};
  if (const Error error = RunRowFunction(gpu, softmax)) return error;
  return Launch(gpu, RowBlocks<Loss>(s), kLossThreads, Subtract<Loss, T>, args,
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
