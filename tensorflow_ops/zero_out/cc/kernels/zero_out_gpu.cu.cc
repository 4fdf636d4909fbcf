#include "tensorflow_ops/core/cc/cuda/cuda_launch.h"
#include "tensorflow_ops/zero_out/cc/kernels/zero_out.h"

namespace tfo {
namespace {

constexpr int kThreads = 256;

struct alignas(16) Word16 {
  uint64_t low, high;
};

// Each thread writes whole packs; the last, partial pack is written word by
// word.
template <typename Word>
__global__ void ZeroOutKernel(int64_t num_elements, int64_t keep_index,
                              const Word* input, Word* output) {
  constexpr int kWords = kPackSize<Word>;
  const int64_t step = int64_t{gridDim.x} * blockDim.x * kWords;
  int64_t i = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * kWords;
  for (; i < num_elements; i += step) {
    Pack<Word, kWords> pack = {};
#pragma unroll
    for (int w = 0; w < kWords; ++w) {
      if (i + w == keep_index) pack.values[w] = input[keep_index];
    }
    if (i + kWords <= num_elements) {
      StorePack(pack, output + i);
    } else {
      for (int w = 0; i + w < num_elements; ++w) output[i + w] = pack.values[w];
    }
  }
}

template <typename Word>
Error Enqueue(const Gpu& gpu, const ZeroOutArgs& args, const void* input,
              void* output) {
  const int64_t per_block = int64_t{kThreads} * kPackSize<Word>;
  const int64_t blocks = (args.num_elements + per_block - 1) / per_block;
  return Launch(gpu, GridSize(blocks), kThreads, ZeroOutKernel<Word>,
                args.num_elements, args.keep_index,
                static_cast<const Word*>(input), static_cast<Word*>(output));
}

}  // namespace

Error ZeroOut(const Gpu& gpu, const ZeroOutArgs& args, const void* input,
              void* output) {
  switch (args.element_size) {
    case 1:
      return Enqueue<uint8_t>(gpu, args, input, output);
    case 2:
      return Enqueue<uint16_t>(gpu, args, input, output);
    case 4:
      return Enqueue<uint32_t>(gpu, args, input, output);
    case 8:
      return Enqueue<uint64_t>(gpu, args, input, output);
    case 16:
      return Enqueue<Word16>(gpu, args, input, output);
    default:
      return "no kernel for this element size";
  }
}

}  // namespace tfo
