#include "ramp/cc/ramp.h"
#include "tensorflow_ops/core/cc/cuda/cuda_launch.h"

namespace ramp {
namespace {

constexpr int kThreads = 256;

template <typename T>
__global__ void RampKernel(RampArgs args, const T* x, T* y) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  for (; i < args.num_elements; i += step) y[i] = RampValue(args, x[i]);
}

}  // namespace

template <typename T>
tfo::Error Ramp(const tfo::Gpu& gpu, const RampArgs& args, const T* x, T* y) {
  const int64_t blocks = (args.num_elements + kThreads - 1) / kThreads;
  return tfo::Launch(gpu, tfo::GridSize(blocks), kThreads, RampKernel<T>, args,
                     x, y);
}

#define INSTANTIATE(T) \
  template tfo::Error Ramp(const tfo::Gpu&, const RampArgs&, const T*, T*)
INSTANTIATE(float);
INSTANTIATE(double);
INSTANTIATE(tfo::Half);
INSTANTIATE(tfo::BFloat16);
#undef INSTANTIATE

}  // namespace ramp
