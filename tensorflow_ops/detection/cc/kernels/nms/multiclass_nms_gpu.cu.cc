// multiclass_nms on a GPU: a block sorts and sweeps a class of an image; then a
// block of each image merges its classes.
#include "tensorflow_ops/core/cc/cuda/sort_gpu.h"
#include "tensorflow_ops/detection/cc/kernels/nms/multiclass_nms.h"
#include "tensorflow_ops/detection/cc/kernels/nms/nms_gpu.h"

namespace tfo {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWord;

// Blocks that have scratch memory at once: as many as fit on a large GPU, but
// fewer for long lists of boxes.
constexpr int64_t kMinBlocks = 256, kMaxBlocks = 1024;
constexpr int64_t kItemsOfBlocks = int64_t{1} << 22;

template <typename T, bool kRotated>
struct Scratch {
  using Item = Ranked<ScoreKey<T>>;
  using Compared = scalar::ComparedBox<T, kRotated>;

  Scratch(const MulticlassNmsArgs<T>& args, void* memory) : layout(memory) {
    tasks = args.images * args.classes;
    most = args.MostPerClass();
    for (num_items = 1; num_items < args.num_boxes;) num_items *= 2;
    const int64_t fit = kItemsOfBlocks / num_items;
    blocks = fit < kMinBlocks   ? kMinBlocks
             : fit < kMaxBlocks ? fit
                                : kMaxBlocks;
    if (tasks < blocks) blocks = tasks;
    layout.Reserve(&items, blocks * num_items);
    layout.Reserve(&kept, blocks * most);
    layout.Reserve(&best, tasks * most);
    layout.Reserve(&counts, tasks);
    layout.Reserve(&heads, tasks);
  }

  ScratchLayout layout;
  int64_t tasks;      // classes of all images
  int64_t blocks;     // that sweep them
  int64_t most;       // boxes of a class
  int64_t num_items;  // to sort, a power of two
  Item* items;        // [blocks, num_items]
  Compared* kept;     // [blocks, most]
  Item* best;         // [tasks, most]: the kept boxes, by rank
  int32_t* counts;    // [tasks]
  int32_t* heads;     // [tasks]: how many of them are merged
};

// A block of a class of an image: sorts the boxes whose scores take part, then
// goes through them, a word at once.
template <typename T, bool kRotated>
__global__ void __launch_bounds__(kThreads)
    SweepClasses(const __grid_constant__ MulticlassNmsArgs<T> args,
                 const __grid_constant__ Scratch<T, kRotated> scratch,
                 ScoreKey<T> limit) {
  using Item = Ranked<ScoreKey<T>>;
  using Compared = typename Scratch<T, kRotated>::Compared;
  __shared__ int candidates;
  __shared__ uint32_t suppressed[kWarps];  // by each warp's kept boxes
  // Where the sort's tile was: a word of boxes, and by warp, which of its boxes
  // suppress a lane's.
  auto* const of_word = static_cast<Compared*>(DynamicShared());
  auto* const suppressing = reinterpret_cast<uint32_t*>(of_word + kWord);
  static_assert(sizeof(Compared) * kWord + sizeof(uint32_t) * kThreads <=
                kBytesOfTile<Item>);
  const int lane = threadIdx.x % kWord, warp = threadIdx.x / kWord;
  Item* const items = scratch.items + blockIdx.x * scratch.num_items;
  auto* const kept = scratch.kept + blockIdx.x * scratch.most;
  const int64_t image_boxes =
      args.num_boxes * (args.boxes_per_class ? args.classes : 1);
  for (int64_t task = blockIdx.x; task < scratch.tasks; task += gridDim.x) {
    const int64_t image = task / args.classes, c = task % args.classes;
    const T* const scores = args.scores + image * args.num_boxes * args.classes;
    __syncthreads();  // the items before are no longer read
    if (threadIdx.x == 0) candidates = 0;
    __syncthreads();
    // In any order: no two are equal.
    for (int64_t k = threadIdx.x; k < args.num_boxes; k += blockDim.x) {
      const int64_t position = k * args.classes + c;
      const Item item = RankedOf(scores[position], limit, position);
      if (item.key != NoScore<T>()) items[atomicAdd(&candidates, 1)] = item;
    }
    __syncthreads();
    int64_t num_items = 1;
    while (num_items < candidates) num_items *= 2;
    for (int64_t r = candidates + threadIdx.x; r < num_items; r += blockDim.x) {
      items[r] = {NoScore<T>(), 0x7FFFFFFF};
    }
    SortInBlockByTiles(items, num_items, RanksBefore<Item>());
    // All warps know who is kept.
    int64_t count = 0, comparable = 0;
    for (int64_t first = 0; first < candidates && count < scratch.most;
         first += kWord) {
      const bool exists = first + lane < candidates;
      Item item = {};
      Compared box = {};
      if (exists) {
        item = items[first + lane];
        box = scalar::ReadCompared<T, kRotated>(
            args.boxes, image * image_boxes + args.BoxOf(item.index),
            args.format);
      }
      const bool can_suppress =
          exists && scalar::CanSuppress(box, args.iou_threshold);
      if (warp == 0) of_word[lane] = box;
      const uint32_t can = __ballot_sync(kAllLanes, can_suppress);
      __syncthreads();
      // Boxes that suppress none are suppressed by none.
      bool gone = false;
      uint32_t by = 0;
      if (can_suppress) {
        for (int64_t j = warp; j < comparable && !gone; j += kWarps) {
          gone = scalar::Suppresses(kept[j], box, args.iou_threshold);
        }
        for (int b = warp; b < lane && !gone; b += kWarps) {
          if (((can >> b) & 1) != 0 &&
              scalar::Suppresses(of_word[b], box, args.iou_threshold)) {
            by |= 1u << b;
          }
        }
      }
      suppressing[threadIdx.x] = by;
      const uint32_t all_gone = __ballot_sync(kAllLanes, gone);
      if (lane == 0) suppressed[warp] = all_gone;
      __syncthreads();
      by = 0;
      uint32_t bits = __ballot_sync(kAllLanes, exists);
      for (int w = 0; w < kWarps; ++w) {
        by |= suppressing[w * kWord + lane];
        bits &= ~suppressed[w];
      }
      bits = KeptOf(bits, by);
      const int64_t at = count + BitsBefore(bits);
      const bool is_kept = ((bits >> lane) & 1) != 0 && at < scratch.most;
      bits = __ballot_sync(kAllLanes, is_kept);
      if (warp == 0 && is_kept) {
        scratch.best[task * scratch.most + at] = item;
        if (can_suppress) kept[comparable + BitsBefore(bits & can)] = box;
      }
      count += __popc(bits);
      comparable += __popc(bits & can);
    }
    if (threadIdx.x == 0) {
      scratch.counts[task] = static_cast<int32_t>(count);
      scratch.heads[task] = 0;
    }
  }
}

// The best item of `lanes` neighboring ones of a warp, in all of them.
template <typename Item>
__device__ Item BestOf(Item item, int lanes) {
  for (int distance = lanes / 2; distance > 0; distance /= 2) {
    const Item other = {__shfl_xor_sync(kAllLanes, item.key, distance),
                        __shfl_xor_sync(kAllLanes, item.index, distance)};
    if (RanksBefore<Item>()(other, item)) item = other;
  }
  return item;
}

// A block of an image: repeatedly takes the best of the classes' first boxes.
// Each thread remembers the best one of its classes.
template <typename T, bool kRotated>
__global__ void __launch_bounds__(kThreads)
    MergeClasses(const __grid_constant__ MulticlassNmsArgs<T> args,
                 const __grid_constant__ Scratch<T, kRotated> scratch) {
  using Item = Ranked<ScoreKey<T>>;
  __shared__ Item of_warps[2][kWarps];
  const int lane = threadIdx.x % kWord, warp = threadIdx.x / kWord;
  for (int64_t image = blockIdx.x; image < args.images; image += gridDim.x) {
    const int64_t first = image * args.classes;
    const auto best_of_mine = [&] {
      Item mine = {NoScore<T>(), 0x7FFFFFFF};
      for (int64_t c = threadIdx.x; c < args.classes; c += blockDim.x) {
        const int32_t head = scratch.heads[first + c];
        if (head >= scratch.counts[first + c]) continue;
        const Item item = scratch.best[(first + c) * scratch.most + head];
        if (RanksBefore<Item>()(item, mine)) mine = item;
      }
      return mine;
    };
    Item mine = best_of_mine();
    int64_t m = 0;
    for (; m < args.max_outputs; ++m) {
      const Item of_warp = BestOf(mine, kWord);
      if (lane == 0) of_warps[m % 2][warp] = of_warp;
      __syncthreads();
      const Item best = BestOf(of_warps[m % 2][lane % kWarps], kWarps);
      if (best.key == NoScore<T>()) break;
      if (best.index != mine.index) continue;
      const int32_t c = best.index % static_cast<int32_t>(args.classes);
      const int64_t to = image * args.max_outputs + m;
      args.indices[to] = best.index / static_cast<int32_t>(args.classes);
      args.class_ids[to] = c;
      args.positions[to] = best.index;
      ++scratch.heads[first + c];
      mine = best_of_mine();
    }
    if (threadIdx.x == 0) args.counts[image] = static_cast<int32_t>(m);
    for (int64_t p = m + threadIdx.x; p < args.max_outputs; p += blockDim.x) {
      const int64_t to = image * args.max_outputs + p;
      args.indices[to] = -1;
      args.class_ids[to] = 0;
      args.positions[to] = 0;
    }
    __syncthreads();  // the warps' items are no longer read
  }
}

template <typename T, bool kRotated>
Error Run(const Gpu& gpu, const MulticlassNmsArgs<T>& args) {
  const Scratch<T, kRotated> scratch(args, gpu.scratch);
  const Error error = LaunchWithShared(gpu, GridSize(scratch.blocks), kThreads,
                                       kBytesOfTile<Ranked<ScoreKey<T>>>,
                                       SweepClasses<T, kRotated>, args, scratch,
                                       KeyOfScore(args.score_threshold));
  if (error != nullptr) return error;
  return Launch(gpu, GridSize(args.images), kThreads, MergeClasses<T, kRotated>,
                args, scratch);
}

}  // namespace

template <typename T>
Error MulticlassNms(const Gpu& gpu, const MulticlassNmsArgs<T>& args) {
  return WithRotated(args.format, [&](auto rotated) {
    return Run<T, rotated.value>(gpu, args);
  });
}

template <typename T>
int64_t MulticlassNmsScratchBytes(const MulticlassNmsArgs<T>& args) {
  return WithRotated(args.format, [&](auto rotated) {
    return Scratch<T, rotated.value>(args, nullptr).layout.bytes();
  });
}

TFO_INSTANTIATE_WIDE_ALGORITHM(MulticlassNms, Gpu, MulticlassNmsArgs);
TFO_INSTANTIATE_WIDE_FUNCTION(MulticlassNmsScratchBytes);

}  // namespace tfo
