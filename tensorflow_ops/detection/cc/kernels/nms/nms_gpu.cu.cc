// nms on a GPU: sorts, compares a chunk of boxes with all later ones into bit
// masks, goes through the chunk's masks in one warp, and removes what the chunk
// suppresses; then the next chunk. So scratch memory grows with the number of
// boxes, not with its square.
#include "tensorflow_ops/detection/cc/kernels/nms/nms_gpu.h"

#include "tensorflow_ops/core/cc/cuda/sort_gpu.h"
#include "tensorflow_ops/detection/cc/kernels/nms/nms.h"

namespace tfo {
namespace {

constexpr int kThreads = 256;
constexpr int kChunkWords = 32;
constexpr int kChunk = kWord * kChunkWords;

template <typename T, bool kRotated>
struct Scratch {
  using Compared = scalar::ComparedBox<T, kRotated>;

  explicit Scratch(const NmsArgs<T>& args, void* memory) : layout(memory) {
    num_items = PaddedForSort(args.num_boxes);
    words = DivideUp(args.num_boxes, kWord);
    layout.Reserve(&items, num_items);
    layout.Reserve(&boxes, args.num_boxes);
    layout.Reserve(&groups, args.groups.exist() ? args.num_boxes : 0);
    layout.Reserve(&removed, words);
    layout.Reserve(&kept, kChunkWords);
    layout.Reserve(&masks, kChunk * words);
  }

  ScratchLayout layout;
  int64_t num_items, words;
  Ranked<ScoreKey<T>>* items;
  Compared* boxes;    // by rank, as all that follow
  int64_t* groups;    // read if the arguments have groups
  uint32_t* removed;  // suppressed, or no candidate: [words]
  uint32_t* kept;     // boxes of the chunk: [kChunkWords]
  // Which boxes of each word of the chunk would suppress the box of a rank:
  // [kChunkWords, words * kWord].
  uint32_t* masks;
};

template <typename T>
__global__ void __launch_bounds__(kThreads)
    MakeItems(const __grid_constant__ NmsArgs<T> args, ScoreKey<T> limit,
              Ranked<ScoreKey<T>>* items, int64_t num_items) {
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
       i < num_items; i += static_cast<int64_t>(gridDim.x) * kThreads) {
    items[i] = i < args.num_boxes
                   ? RankedOf(args.scores[i], limit, i)
                   : Ranked<ScoreKey<T>>{NoScore<T>(), 0x7FFFFFFF};
  }
}

// Reads the boxes in the order of their ranks. A warp has a word of ranks.
template <typename T, bool kRotated>
__global__ void __launch_bounds__(kThreads)
    ReadBoxes(const __grid_constant__ NmsArgs<T> args,
              const __grid_constant__ Scratch<T, kRotated> scratch) {
  for (int64_t rank = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
       rank < scratch.words * kWord;
       rank += static_cast<int64_t>(gridDim.x) * kThreads) {
    // There are at least as many items.
    const auto item = scratch.items[rank];
    const bool is_candidate = item.key != NoScore<T>();
    if (is_candidate) {
      scratch.boxes[rank] = scalar::ReadCompared<T, kRotated>(
          args.boxes, item.index, args.format);
      if (args.groups.exist()) scratch.groups[rank] = args.groups[item.index];
    }
    const uint32_t removed = __ballot_sync(kAllLanes, !is_candidate);
    if (threadIdx.x % kWord == 0) scratch.removed[rank / kWord] = removed;
  }
}

// Words [begin, begin + count) of boxes. Finished: as many are kept as may be.
struct Chunk {
  int64_t begin, count, most;
  const int32_t* kept_count;

  __device__ bool IsFinished() const { return *kept_count >= most; }
};

// A thread compares the box of its rank with a word of the chunk's boxes.
template <typename T, bool kRotated>
__global__ void __launch_bounds__(kThreads)
    CompareChunk(const __grid_constant__ NmsArgs<T> args,
                 const __grid_constant__ Scratch<T, kRotated> scratch,
                 const __grid_constant__ Chunk chunk) {
  if (chunk.IsFinished()) return;
  const int64_t word = blockIdx.x % chunk.count, first = chunk.begin + word;
  const int64_t rank =
      first * kWord + blockIdx.x / chunk.count * kThreads + threadIdx.x;
  if (rank >= scratch.words * kWord) return;
  uint32_t mask = 0;
  if (((scratch.removed[rank / kWord] >> (rank % kWord)) & 1) == 0 &&
      scalar::CanOverlap(scratch.boxes[rank])) {
    const auto box = scratch.boxes[rank];
    const int64_t group = args.groups.exist() ? scratch.groups[rank] : 0;
    const uint32_t removed = scratch.removed[first];
    for (int b = 0; b < kWord; ++b) {
      const int64_t other = first * kWord + b;
      if (other >= rank) break;
      if (((removed >> b) & 1) != 0) continue;
      if (args.groups.exist() && scratch.groups[other] != group) continue;
      const auto better = scratch.boxes[other];
      if (scalar::CanSuppress(better, args.iou_threshold) &&
          scalar::Suppresses(better, box, args.iou_threshold)) {
        mask |= 1u << b;
      }
    }
  }
  scratch.masks[word * scratch.words * kWord + rank] = mask;
}

// The masks of a rank: those of the chunk's words up to `last`, which repeats.
// All are loaded at once, without branches.
struct RankMasks {
  __device__ RankMasks(const uint32_t* masks, int64_t stride, int64_t last) {
#pragma unroll
    for (int w = 0; w < kChunkWords; ++w) {
      words[w] = *masks;
      if (w < last) masks += stride;
    }
    of_last = *masks;
  }

  // Returns whether kept boxes suppress the box.
  __device__ bool Meet(const uint32_t* kept) const {
    uint32_t suppressing = 0;
#pragma unroll
    for (int w = 0; w < kChunkWords; ++w) suppressing |= words[w] & kept[w];
    return suppressing != 0;
  }

  uint32_t words[kChunkWords], of_last;
};

// One warp: goes through the chunk's words and appends those boxes that are
// kept.
template <typename T, bool kRotated>
__global__ void __launch_bounds__(kWord)
    SweepChunk(const __grid_constant__ Scratch<T, kRotated> scratch,
               const __grid_constant__ Chunk chunk, int32_t* kept,
               int32_t* count) {
  __shared__ uint32_t kept_words[kChunkWords];
  if (chunk.IsFinished()) return;
  const int lane = threadIdx.x;
  const int64_t stride = scratch.words * kWord;
  struct Word {
    RankMasks masks;
    uint32_t removed;
    int32_t index;
  };
  const auto load = [&](int64_t w) -> Word {
    const int64_t rank = (chunk.begin + w) * kWord + lane;
    return {RankMasks(scratch.masks + rank, stride, w),
            scratch.removed[rank / kWord], scratch.items[rank].index};
  };
  static_assert(kChunkWords == kWord);
  kept_words[lane] = 0;
  __syncwarp(kAllLanes);
  int64_t kept_count = *count;
  Word next = load(0);
  for (int64_t w = 0; w < chunk.count; ++w) {
    const Word word = next;
    // The loads take longer than this word.
    if (w + 1 < chunk.count) next = load(w + 1);
    const uint32_t removed =
        word.removed | __ballot_sync(kAllLanes, word.masks.Meet(kept_words));
    uint32_t bits = KeptOf(~removed, word.masks.of_last);
    const int64_t at = kept_count + BitsBefore(bits);
    const bool is_kept = ((bits >> lane) & 1) != 0 && at < chunk.most;
    if (is_kept) kept[at] = word.index;
    bits = __ballot_sync(kAllLanes, is_kept);
    kept_count += __popc(bits);
    __syncwarp(kAllLanes);  // the words before are read
    if (lane == 0) kept_words[w] = scratch.kept[w] = bits;
    __syncwarp(kAllLanes);
  }
  if (lane == 0) *count = static_cast<int32_t>(kept_count);
}

// Removes boxes after a whole chunk that it suppresses.
template <typename T, bool kRotated>
__global__ void __launch_bounds__(kThreads)
    RemoveSuppressed(const __grid_constant__ Scratch<T, kRotated> scratch,
                     const __grid_constant__ Chunk chunk) {
  if (chunk.IsFinished()) return;
  const int64_t stride = scratch.words * kWord;
  for (int64_t rank = (chunk.begin + kChunkWords) * kWord +
                      static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
       rank < stride; rank += static_cast<int64_t>(gridDim.x) * kThreads) {
    const uint32_t removed = __ballot_sync(
        kAllLanes, RankMasks(scratch.masks + rank, stride, kChunkWords - 1)
                       .Meet(scratch.kept));
    if (threadIdx.x % kWord == 0) scratch.removed[rank / kWord] |= removed;
  }
}

template <typename T, bool kRotated>
Error Run(const Gpu& gpu, const NmsArgs<T>& args) {
  const Scratch<T, kRotated> scratch(args, gpu.scratch);
  const int64_t most = args.max_outputs < 0 ? args.num_boxes : args.max_outputs;
  Error error = EnqueueZeros(gpu, args.count, sizeof(*args.count));
  if (error != nullptr || args.num_boxes == 0 || most == 0) return error;
  error = Launch(gpu, GridSize(scratch.num_items / kThreads), kThreads,
                 MakeItems<T>, args, KeyOfScore(args.score_threshold),
                 scratch.items, scratch.num_items);
  if (error != nullptr) return error;
  error = SortOnGpu<RanksBefore<Ranked<ScoreKey<T>>>>(gpu, scratch.items,
                                                      scratch.num_items);
  if (error != nullptr) return error;
  const auto blocks_of = [](int64_t words) {
    return GridSize(DivideUp(words * kWord, kThreads));
  };
  error = Launch(gpu, blocks_of(scratch.words), kThreads,
                 ReadBoxes<T, kRotated>, args, scratch);
  for (int64_t word = 0; word < scratch.words && error == nullptr;
       word += kChunkWords) {
    const int64_t left = scratch.words - word;
    const Chunk chunk = {word, left < kChunkWords ? left : kChunkWords, most,
                         args.count};
    // Below 2^31 blocks, since there are fewer boxes.
    error = Launch(gpu, GridSize(chunk.count * blocks_of(left)), kThreads,
                   CompareChunk<T, kRotated>, args, scratch, chunk);
    if (error != nullptr) break;
    error = Launch(gpu, 1, kWord, SweepChunk<T, kRotated>, scratch, chunk,
                   args.kept, args.count);
    if (error != nullptr || left == chunk.count) break;
    error = Launch(gpu, blocks_of(left - chunk.count), kThreads,
                   RemoveSuppressed<T, kRotated>, scratch, chunk);
  }
  return error;
}

}  // namespace

template <typename T>
Error Nms(const Gpu& gpu, const NmsArgs<T>& args) {
  return WithRotated(args.format, [&](auto rotated) {
    return Run<T, rotated.value>(gpu, args);
  });
}

template <typename T>
int64_t NmsScratchBytes(const NmsArgs<T>& args) {
  return WithRotated(args.format, [&](auto rotated) {
    return Scratch<T, rotated.value>(args, nullptr).layout.bytes();
  });
}

TFO_INSTANTIATE_WIDE_ALGORITHM(Nms, Gpu, NmsArgs);
TFO_INSTANTIATE_WIDE_FUNCTION(NmsScratchBytes);

}  // namespace tfo
