// The gradient to the bias of deformable convolution.
#include "tensorflow_ops/nn/cc/kernels/deform_conv/deform_conv_grad_gpu.h"

namespace tfo {
namespace deform_conv {
namespace {

constexpr int kTileChannels = 32, kOwners = kThreads / kTileChannels;

// A block has kTileChannels channels and a part of the rows, which kOwners
// threads share.
template <typename T, typename C = Accumulator<T>>
__global__ void GradToBias(int64_t rows, int64_t channels, int64_t parts,
                           const T* d_output, C* sums) {
  __shared__ C partial[kOwners][kTileChannels];
  const int share = threadIdx.x / kTileChannels;
  const int column = threadIdx.x % kTileChannels;
  const int64_t across = DivideUp(channels, kTileChannels);
  for (int64_t block = blockIdx.x; block < across * parts; block += gridDim.x) {
    const int64_t c = block % across * kTileChannels + column;
    const int64_t part = block / across;
    const int64_t end = rows * (part + 1) / parts;
    C sum = 0;
    for (int64_t m = rows * part / parts + share; c < channels && m < end;
         m += kOwners) {
      sum += Widen(d_output[m * channels + c]);
    }
    partial[share][column] = sum;
    __syncthreads();
    if (share == 0 && c < channels) {
      for (int i = 1; i < kOwners; ++i) sum += partial[i][column];
      sums[part * channels + c] = sum;
    }
    __syncthreads();
  }
}

}  // namespace

template <typename T>
Error EnqueueBiasGrad(const Gpu& gpu, const DeformConvGradArgs<T>& args,
                      const GradPlan<T>& plan, const GradMemory<T>& memory) {
  using C = Accumulator<T>;
  C* const sums = memory.bias_sums;
  const int64_t blocks =
      DivideUp(args.out_channels, kTileChannels) * plan.bias_parts;
  const Error error =
      Launch(gpu, GridSize(blocks), kThreads, GradToBias<T>, plan.rows,
             args.out_channels, plan.bias_parts, args.d_output, sums);
  if (error != nullptr) return error;
  return EnqueueSumParts(gpu, args.out_channels, plan.bias_parts,
                         static_cast<const C*>(sums), args.d_bias);
}

#define TFO_INSTANTIATE(T)                                                 \
  template Error EnqueueBiasGrad(const Gpu&, const DeformConvGradArgs<T>&, \
                                 const GradPlan<T>&, const GradMemory<T>&)
TFO_FOR_EACH_FLOAT(TFO_INSTANTIATE);
#undef TFO_INSTANTIATE

}  // namespace deform_conv
}  // namespace tfo
