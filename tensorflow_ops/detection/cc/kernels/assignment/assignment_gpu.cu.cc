// A block for each example: its threads share the sinks of each step.
#include "tensorflow_ops/core/cc/cuda/warp_gpu.h"
#include "tensorflow_ops/detection/cc/kernels/assignment/assignment_search.h"

namespace tfo {
namespace {

constexpr int kMaxThreads = 256;
// More examples take turns. The scratch memory of so many is at most about
// twice that of as many examples of float32.
constexpr int64_t kMaxBlocks = 1024;

// The nearest of some sinks, by the order of RelaxSinks.
struct Nearest {
  double distance;
  int64_t sink;  // + kOwned if it has an owner

  static constexpr int64_t kOwned = int64_t{1} << 32;

  __device__ void Take(double other, int64_t at) {
    if (other < distance || (other == distance && at < sink)) {
      distance = other;
      sink = at;
    }
  }
  __device__ void TakeLanes() {
    for (int lanes = kWarp / 2; lanes > 0; lanes /= 2) {
      const double other = __shfl_xor_sync(kAllLanes, distance, lanes);
      const int64_t at = __shfl_xor_sync(kAllLanes, sink, lanes);
      Take(other, at);
    }
  }
};

// Whole warps, at most kWarp.
struct Block {
  template <typename Body>
  __device__ void ForEach(int64_t n, const Body& body) const {
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) body(i);
    __syncthreads();
  }
  template <typename IsOne>
  __device__ bool Any(int64_t n, const IsOne& is_one) const {
    bool any = false;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) any |= is_one(i);
    return __syncthreads_or(any);
  }
  template <typename Body>
  __device__ void Alone(const Body& body) const {
    __syncthreads();  // all have read what it writes
    if (threadIdx.x == 0) body();
    __syncthreads();
  }

  __device__ int64_t Relax(const SinkScan& scan, double* low) const {
    __shared__ Nearest of_warps[kMaxThreads / kWarp];
    const Nearest none = {assignment_internal::kInfinity, 2 * Nearest::kOwned};
    Nearest mine = none;
    for (int64_t t = threadIdx.x; t < scan.sinks; t += blockDim.x) {
      const double through = scan.base + scan.costs[t] - scan.potentials[t];
      const double before = scan.is_first ? none.distance : scan.nearest[t];
      const double now = through < before ? through : before;
      if (through < before) scan.from[t] = scan.source;
      scan.nearest[t] = now;
      if (now > mine.distance) continue;
      mine.Take(now, scan.owners[t] < 0 ? t : t + Nearest::kOwned);
    }
    mine.TakeLanes();
    if (threadIdx.x % kWarp == 0) of_warps[threadIdx.x / kWarp] = mine;
    __syncthreads();
    mine = threadIdx.x % kWarp < blockDim.x / kWarp
               ? of_warps[threadIdx.x % kWarp]
               : none;
    mine.TakeLanes();
    __syncthreads();
    *low = mine.distance;
    return mine.distance < none.distance ? mine.sink % Nearest::kOwned : -1;
  }
};

template <typename T>
__global__ void __launch_bounds__(kMaxThreads)
    AssignExamples(const __grid_constant__ AssignmentArgs<T> args,
                   const __grid_constant__ AssignmentMemory memory) {
  const AssignmentMemory mine = memory.Of(blockIdx.x);
  const Block block;
  for (int64_t i = blockIdx.x; i < args.batch; i += gridDim.x) {
    AssignExample(block, args, i, mine);
  }
}

template <typename T>
int64_t NumBlocks(const AssignmentArgs<T>& args) {
  return args.batch < kMaxBlocks ? args.batch : kMaxBlocks;
}

}  // namespace

template <typename T>
Error LinearSumAssignment(const Gpu& gpu, const AssignmentArgs<T>& args) {
  const AssignmentMemory memory(args.rows, args.columns, NumBlocks(args),
                                gpu.scratch);
  const int64_t whole_warps = RoundUp(memory.most_sinks + 1, kWarp);
  return Launch(gpu, static_cast<unsigned>(NumBlocks(args)),
                static_cast<unsigned>(whole_warps < kMaxThreads ? whole_warps
                                                                : kMaxThreads),
                AssignExamples<T>, args, memory);
}

template <typename T>
int64_t AssignmentScratchBytes(const AssignmentArgs<T>& args) {
  return AssignmentMemory(args.rows, args.columns, NumBlocks(args), nullptr)
      .bytes;
}

TFO_INSTANTIATE_ALGORITHM(LinearSumAssignment, Gpu, AssignmentArgs);
template int64_t AssignmentScratchBytes(const AssignmentArgs<float>&);
template int64_t AssignmentScratchBytes(const AssignmentArgs<double>&);
template int64_t AssignmentScratchBytes(const AssignmentArgs<Half>&);
template int64_t AssignmentScratchBytes(const AssignmentArgs<BFloat16>&);

}  // namespace tfo
