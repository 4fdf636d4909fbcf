#include "tensorflow_ops/core/cc/cuda/cuda_launch.h"
#include "tensorflow_ops/core/cc/int_math.h"
#include "tensorflow_ops/seq2seq/cc/kernels/gather_tree/gather_tree.h"

namespace tfo {
namespace {

constexpr int kThreads = 128;

// A thread walks back through one sequence; neighboring threads access
// neighboring elements.
template <typename Id>
__global__ void __launch_bounds__(kThreads)
    Gather(const __grid_constant__ GatherTreeArgs<Id> args) {
  constexpr int64_t kNoBeam = -1;  // padded from here on
  const int64_t all = args.batch * args.beams;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < all;
       i += int64_t{gridDim.x} * kThreads) {
    const int64_t length = args.lengths[i];
    const int64_t entry = i - i % args.beams;
    int64_t at = kNoBeam;
    for (int64_t t = args.time - 1; t >= 0; --t) {
      if (length == t + 1) at = i;
      args.output[t * all + i] =
          at == kNoBeam ? args.pad_id : args.token_ids[t * all + at];
      if (at == kNoBeam || t == 0) continue;
      const Id parent = args.parent_ids[t * all + at];
      at = parent >= 0 && parent < args.beams ? entry + parent : kNoBeam;
    }
  }
}

}  // namespace

template <typename Id>
Error GatherTree(const Gpu& gpu, const GatherTreeArgs<Id>& args) {
  const int64_t all = args.batch * args.beams;
  return Launch(gpu, GridSize(DivideUp(all, kThreads)), kThreads, Gather<Id>,
                args);
}

template Error GatherTree(const Gpu&, const GatherTreeArgs<int32_t>&);
template Error GatherTree(const Gpu&, const GatherTreeArgs<int64_t>&);

}  // namespace tfo
