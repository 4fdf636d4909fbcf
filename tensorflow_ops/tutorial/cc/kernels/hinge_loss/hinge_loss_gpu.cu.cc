#include "tensorflow_ops/core/cc/cuda/warp_gpu.h"
#include "tensorflow_ops/tutorial/cc/kernels/hinge_loss/hinge_loss.h"
#include "tensorflow_ops/tutorial/cc/kernels/hinge_loss/hinge_loss_math.h"

namespace tfo {
namespace {

using scalar::HingeLossSlope;
using scalar::HingeLossTerm;

constexpr int kWarps = 8;  // of a block

// A warp per row.
template <typename T>
__global__ void __launch_bounds__(kWarp* kWarps)
    HingeLossKernel(const __grid_constant__ HingeLossArgs<T> args) {
  const int lane = threadIdx.x % kWarp;
  int64_t row = int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp;
  for (; row < args.rows; row += int64_t{gridDim.x} * kWarps) {
    Accumulator<T> sum = 0;
    int32_t rank = 0;
    if (HasHingeLoss(args, row)) {
      const T* const logits = args.logits + row * args.classes;
      const int64_t label = args.labels[row];
      const auto of_label = Widen(logits[label]);
      for (int64_t c = lane; c < args.classes; c += kWarp) {
        if (c == label) continue;
        const auto x = Widen(logits[c]) - of_label;
        sum += HingeLossTerm(x);
        rank += x > 0;
      }
    }
    sum = SumOfLanes(sum);
    rank = SumOfLanes(rank);
    if (lane == 0) {
      args.loss[row] = Narrow<T>(sum);
      args.rank[row] = rank;
    }
  }
}

template <typename T>
__global__ void __launch_bounds__(kWarp* kWarps)
    HingeLossGradKernel(const __grid_constant__ HingeLossGradArgs<T> args) {
  const int lane = threadIdx.x % kWarp;
  int64_t row = int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp;
  for (; row < args.rows; row += int64_t{gridDim.x} * kWarps) {
    const bool has_loss = HasHingeLoss(args, row);
    const T* const logits = args.logits + row * args.classes;
    T* const d_logits = args.d_logits + row * args.classes;
    const int64_t label = has_loss ? args.labels[row] : -1;
    const auto d_loss = Widen(args.d_loss[row]);
    Accumulator<T> sum = 0;
    for (int64_t c = lane; c < args.classes; c += kWarp) {
      if (c == label) continue;
      Accumulator<T> d_x = 0;
      if (has_loss) {
        d_x = HingeLossSlope(Widen(logits[c]) - Widen(logits[label])) * d_loss;
      }
      sum += d_x;
      d_logits[c] = Narrow<T>(d_x);
    }
    sum = SumOfLanes(sum);
    if (has_loss && lane == 0) d_logits[label] = Narrow<T>(-sum);
  }
}

unsigned BlocksFor(int64_t rows) {
  return GridSize((rows + kWarps - 1) / kWarps);
}

}  // namespace

template <typename T>
Error HingeLoss(const Gpu& gpu, const HingeLossArgs<T>& args) {
  return Launch(gpu, BlocksFor(args.rows), kWarp * kWarps, HingeLossKernel<T>,
                args);
}

template <typename T>
Error HingeLossGrad(const Gpu& gpu, const HingeLossGradArgs<T>& args) {
  return Launch(gpu, BlocksFor(args.rows), kWarp * kWarps,
                HingeLossGradKernel<T>, args);
}

TFO_INSTANTIATE_ALGORITHM(HingeLoss, Gpu, HingeLossArgs);
TFO_INSTANTIATE_ALGORITHM(HingeLossGrad, Gpu, HingeLossGradArgs);

}  // namespace tfo
