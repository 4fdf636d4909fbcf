// multiclass_nms on a GPU: a block sorts and sweeps a class of an image; then a
// block of each image merges its classes.
#include "tensorflow_ops/core/cc/sort_gpu.h"
#include "tensorflow_ops/detection/cc/kernels/nms/multiclass_nms.h"
#include "tensorflow_ops/detection/cc/kernels/nms/nms_gpu.h"

namespace tfo {
namespace {

constexpr int kThreads = 256;
constexpr int kMaxBlocks = 256;  // that have scratch memory at once

template <typename T, bool kRotated>
struct Scratch {
  using Item = Ranked<ScoreKey<T>>;
  using Compared = scalar::ComparedBox<T, kRotated>;

  Scratch(const MulticlassNmsArgs<T>& args, void* memory) : arrays(memory) {
    tasks = args.images * args.classes;
    blocks = tasks < kMaxBlocks ? tasks : kMaxBlocks;
    most = args.MostPerClass();
    for (num_items = 1; num_items < args.num_boxes;) num_items *= 2;
    items = arrays.template Add<Item>(blocks * num_items);
    kept = arrays.template Add<Compared>(blocks * most);
    best = arrays.template Add<Item>(tasks * most);
    counts = arrays.template Add<int32_t>(tasks);
    heads = arrays.template Add<int32_t>(tasks);
  }

  ScratchArrays arrays;
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

template <typename T, bool kRotated>
__global__ void __launch_bounds__(kThreads)
    SweepClasses(const __grid_constant__ MulticlassNmsArgs<T> args,
                 const __grid_constant__ Scratch<T, kRotated> scratch,
                 ScoreKey<T> limit) {
  using Item = Ranked<ScoreKey<T>>;
  Item* const items = scratch.items + blockIdx.x * scratch.num_items;
  auto* const kept = scratch.kept + blockIdx.x * scratch.most;
  const int64_t image_boxes =
      args.num_boxes * (args.boxes_per_class ? args.classes : 1);
  for (int64_t task = blockIdx.x; task < scratch.tasks; task += gridDim.x) {
    const int64_t image = task / args.classes, c = task % args.classes;
    const T* const scores = args.scores + image * args.num_boxes * args.classes;
    __syncthreads();  // the items before are no longer read
    for (int64_t k = threadIdx.x; k < scratch.num_items; k += blockDim.x) {
      const int64_t position = k * args.classes + c;
      items[k] = k < args.num_boxes
                     ? RankedOf(scores[position], limit, position)
                     : Item{NoScore<T>(), 0x7FFFFFFF};
    }
    SortInBlock(items, scratch.num_items, RanksBefore<Item>());
    // All threads have the same count.
    int32_t count = 0;
    int64_t comparable = 0;
    for (int64_t r = 0; r < args.num_boxes && count < scratch.most; ++r) {
      const Item item = items[r];
      if (item.key == NoScore<T>()) break;
      const auto box = scalar::ReadCompared<T, kRotated>(
          args.boxes, image * image_boxes + args.BoxOf(item.index),
          args.format);
      const bool can_suppress = scalar::CanSuppress(box, args.iou_threshold);
      bool suppressed = false;
      if (can_suppress) {
        for (int64_t j = threadIdx.x; j < comparable && !suppressed;
             j += blockDim.x) {
          suppressed = scalar::Suppresses(kept[j], box, args.iou_threshold);
        }
      }
      if (__syncthreads_or(suppressed)) continue;
      if (threadIdx.x == 0) {
        if (can_suppress) kept[comparable] = box;
        scratch.best[task * scratch.most + count] = item;
      }
      comparable += can_suppress;
      ++count;
      __syncthreads();
    }
    if (threadIdx.x == 0) {
      scratch.counts[task] = count;
      scratch.heads[task] = 0;
    }
  }
}

// The best item of a block's threads, and whose it is.
template <typename Item>
struct Offer {
  Item item;
  int32_t from;
};

// A block of an image: repeatedly takes the best of the classes' first boxes.
template <typename T, bool kRotated>
__global__ void __launch_bounds__(kThreads)
    MergeClasses(const __grid_constant__ MulticlassNmsArgs<T> args,
                 const __grid_constant__ Scratch<T, kRotated> scratch) {
  using Item = Ranked<ScoreKey<T>>;
  __shared__ Offer<Item> offers[kThreads];
  const RanksBefore<Item> before;
  for (int64_t image = blockIdx.x; image < args.images; image += gridDim.x) {
    const int64_t first = image * args.classes;
    int64_t m = 0;
    for (; m < args.max_outputs; ++m) {
      Offer<Item> mine = {{NoScore<T>(), 0x7FFFFFFF}, -1};
      for (int64_t c = threadIdx.x; c < args.classes; c += blockDim.x) {
        const int32_t head = scratch.heads[first + c];
        if (head >= scratch.counts[first + c]) continue;
        const Item item = scratch.best[(first + c) * scratch.most + head];
        if (mine.from < 0 || before(item, mine.item)) {
          mine = {item, static_cast<int32_t>(c)};
        }
      }
      offers[threadIdx.x] = mine;
      for (int half = kThreads / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < static_cast<unsigned>(half)) {
          const Offer<Item> other = offers[threadIdx.x + half];
          Offer<Item>& best = offers[threadIdx.x];
          if (other.from >= 0 &&
              (best.from < 0 || before(other.item, best.item))) {
            best = other;
          }
        }
      }
      __syncthreads();
      const Offer<Item> best = offers[0];
      __syncthreads();
      if (best.from < 0) break;
      if (threadIdx.x == 0) {
        ++scratch.heads[first + best.from];
        const int64_t to = image * args.max_outputs + m;
        args.indices[to] = static_cast<int32_t>(best.item.index / args.classes);
        args.class_ids[to] = best.from;
        args.positions[to] = best.item.index;
      }
      __syncthreads();
    }
    if (threadIdx.x == 0) args.counts[image] = static_cast<int32_t>(m);
    for (int64_t p = m + threadIdx.x; p < args.max_outputs; p += blockDim.x) {
      const int64_t to = image * args.max_outputs + p;
      args.indices[to] = -1;
      args.class_ids[to] = 0;
      args.positions[to] = 0;
    }
    __syncthreads();  // the offers are no longer read
  }
}

template <typename T, bool kRotated>
Error Run(const Gpu& gpu, const MulticlassNmsArgs<T>& args) {
  const Scratch<T, kRotated> scratch(args, gpu.scratch);
  const Error error =
      Launch(gpu, GridSize(scratch.blocks), kThreads, SweepClasses<T, kRotated>,
             args, scratch, KeyOfThreshold(args.score_threshold));
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
    return Scratch<T, rotated.value>(args, nullptr).arrays.bytes();
  });
}

TFO_INSTANTIATE_WIDE_ALGORITHM(MulticlassNms, Gpu, MulticlassNmsArgs);
TFO_INSTANTIATE_WIDE_FUNCTION(MulticlassNmsScratchBytes);

}  // namespace tfo
