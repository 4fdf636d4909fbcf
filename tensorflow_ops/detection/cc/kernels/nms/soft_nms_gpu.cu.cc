// soft_nms on a GPU, in one block: each round depends on the one before.
#include <cmath>

#include "tensorflow_ops/detection/cc/kernels/nms/nms_gpu.h"
#include "tensorflow_ops/detection/cc/kernels/nms/soft_nms.h"

namespace tfo {
namespace {

constexpr int kThreads = 512;

template <typename T, bool kRotated>
struct Scratch {
  explicit Scratch(const SoftNmsArgs<T>& args, void* memory) : layout(memory) {
    layout.Reserve(&boxes, args.num_boxes);
    layout.Reserve(&scores, args.num_boxes);
  }

  ScratchLayout layout;
  scalar::ComparedBox<T, kRotated>* boxes;
  T* scores;  // NaN after a box is taken
};

template <typename T>
struct Best {
  T score;
  int64_t index;  // negative: none

  __device__ void Take(T other, int64_t at) {
    if (at < 0 || !(other == other)) return;
    if (index < 0 || other > score || (other == score && at < index)) {
      score = other;
      index = at;
    }
  }
};

template <typename T, typename Compared>
__device__ T Decayed(const SoftNmsArgs<T>& args, T score, const Compared& taken,
                     const Compared& box) {
  if (!scalar::CanOverlap(taken) || !scalar::CanOverlap(box)) return score;
  const T iou = scalar::IouOf<T>(taken, box);
  if (!(iou > 0)) return score;
  if (args.method == SoftNmsMethod::kGaussian) {
    return score * std::exp(-(iou * iou) / args.sigma);
  }
  return iou >= args.iou_threshold ? score * (1 - iou) : score;
}

template <typename T, bool kRotated>
__global__ void __launch_bounds__(kThreads)
    TakeBoxes(const __grid_constant__ SoftNmsArgs<T> args,
              const __grid_constant__ Scratch<T, kRotated> scratch,
              int64_t most) {
  __shared__ Best<T> bests[kThreads];
  Best<T> mine = {T(0), -1};
  for (int64_t i = threadIdx.x; i < args.num_boxes; i += blockDim.x) {
    scratch.boxes[i] =
        scalar::ReadCompared<T, kRotated>(args.boxes, i, args.format);
    scratch.scores[i] = args.scores[i];
    mine.Take(args.scores[i], i);
  }
  int64_t m = 0;
  for (; m < most; ++m) {
    bests[threadIdx.x] = mine;
    for (int half = kThreads / 2; half > 0; half /= 2) {
      __syncthreads();
      if (threadIdx.x < static_cast<unsigned>(half)) {
        const Best<T> other = bests[threadIdx.x + half];
        bests[threadIdx.x].Take(other.score, other.index);
      }
    }
    __syncthreads();
    const Best<T> best = bests[0];
    __syncthreads();
    if (best.index < 0 || !(best.score > args.score_threshold)) break;
    if (threadIdx.x == 0) {
      args.indices[m] = static_cast<int32_t>(best.index);
      args.taken_scores[m] = best.score;
    }
    const auto taken = scratch.boxes[best.index];
    mine = {T(0), -1};
    for (int64_t i = threadIdx.x; i < args.num_boxes; i += blockDim.x) {
      if (i == best.index) {
        scratch.scores[i] = NAN;
        continue;
      }
      const T score = scratch.scores[i];
      if (!(score == score)) continue;
      const T decayed = Decayed(args, score, taken, scratch.boxes[i]);
      scratch.scores[i] = decayed;
      mine.Take(decayed, i);
    }
  }
  if (threadIdx.x == 0) *args.count = static_cast<int32_t>(m);
}

}  // namespace

template <typename T>
Error SoftNms(const Gpu& gpu, const SoftNmsArgs<T>& args) {
  const int64_t most = args.max_outputs < 0 || args.max_outputs > args.num_boxes
                           ? args.num_boxes
                           : args.max_outputs;
  return WithRotated(args.format, [&](auto rotated) {
    const Scratch<T, rotated.value> scratch(args, gpu.scratch);
    return Launch(gpu, 1, kThreads, TakeBoxes<T, rotated.value>, args, scratch,
                  most);
  });
}

template <typename T>
int64_t SoftNmsScratchBytes(const SoftNmsArgs<T>& args) {
  return WithRotated(args.format, [&](auto rotated) {
    return Scratch<T, rotated.value>(args, nullptr).layout.bytes();
  });
}

TFO_INSTANTIATE_WIDE_ALGORITHM(SoftNms, Gpu, SoftNmsArgs);
TFO_INSTANTIATE_WIDE_FUNCTION(SoftNmsScratchBytes);

}  // namespace tfo
