// nms on a GPU: sorts, compares a chunk of boxes with all later ones into bit
// masks, and goes through the chunk's masks in one block; then the next chunk.
// So scratch memory grows with the number of boxes, not with its square.
#include "tensorflow_ops/detection/cc/kernels/nms/nms_gpu.h"

#include "tensorflow_ops/core/cc/sort_gpu.h"
#include "tensorflow_ops/detection/cc/kernels/nms/nms.h"

namespace tfo {
namespace {

constexpr int kThreads = 256;
constexpr int kWord = 64;  // boxes in a word of a mask
constexpr int kChunkWords = 16;
constexpr int kChunk = kWord * kChunkWords;

template <typename T, bool kRotated>
struct Scratch {
  using Compared = scalar::ComparedBox<T, kRotated>;

  explicit Scratch(const NmsArgs<T>& args, void* memory) : arrays(memory) {
    num_items = PaddedForSort(args.num_boxes);
    words = (args.num_boxes + kWord - 1) / kWord;
    items = arrays.template Add<Ranked<ScoreKey<T>>>(num_items);
    boxes = arrays.template Add<Compared>(args.num_boxes);
    groups =
        arrays.template Add<int64_t>(args.groups.exist() ? args.num_boxes : 0);
    removed = arrays.template Add<uint64_t>(words);
    masks = arrays.template Add<uint64_t>(kChunk * words);
  }

  ScratchArrays arrays;
  int64_t num_items, words;
  Ranked<ScoreKey<T>>* items;
  Compared* boxes;    // by rank, as all that follow
  int64_t* groups;    // read if the arguments have groups
  uint64_t* removed;  // suppressed, or no candidate
  uint64_t* masks;    // of the chunk's boxes: [kChunk, words]
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

// Reads the boxes in the order of their ranks. A thread has a word of ranks.
template <typename T, bool kRotated>
__global__ void __launch_bounds__(kThreads)
    ReadBoxes(const __grid_constant__ NmsArgs<T> args,
              const __grid_constant__ Scratch<T, kRotated> scratch) {
  for (int64_t w = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
       w < scratch.words; w += static_cast<int64_t>(gridDim.x) * kThreads) {
    uint64_t removed = 0;
    for (int b = 0; b < kWord; ++b) {
      const int64_t rank = w * kWord + b;
      if (rank >= args.num_boxes || scratch.items[rank].key == NoScore<T>()) {
        removed |= uint64_t{1} << b;
        continue;
      }
      const int64_t i = scratch.items[rank].index;
      scratch.boxes[rank] =
          scalar::ReadCompared<T, kRotated>(args.boxes, i, args.format);
      if (args.groups.exist()) scratch.groups[rank] = args.groups[i];
    }
    scratch.removed[w] = removed;
  }
}

// masks[r][w]: which boxes of word w the chunk's rth box would suppress. A
// thread has a row of 64 x 64 boxes.
template <typename T, bool kRotated>
__global__ void __launch_bounds__(kWord)
    CompareChunk(const __grid_constant__ NmsArgs<T> args,
                 const __grid_constant__ Scratch<T, kRotated> scratch,
                 int64_t chunk_word, int64_t chunk_words) {
  const int64_t columns = scratch.words - chunk_word;
  const int64_t row_word = blockIdx.x / columns;
  const int64_t column_word = chunk_word + blockIdx.x % columns;
  if (row_word >= chunk_words || column_word < chunk_word + row_word) return;
  const int64_t row = row_word * kWord + threadIdx.x;
  const int64_t rank = chunk_word * kWord + row;
  const uint64_t gone = scratch.removed[chunk_word + row_word];
  uint64_t mask = 0;
  if (((gone >> threadIdx.x) & 1) == 0 &&
      scalar::CanSuppress(scratch.boxes[rank], args.iou_threshold)) {
    const auto box = scratch.boxes[rank];
    const uint64_t gone_columns = scratch.removed[column_word];
    for (int b = 0; b < kWord; ++b) {
      const int64_t other = column_word * kWord + b;
      if (other <= rank || ((gone_columns >> b) & 1) != 0) continue;
      if (args.groups.exist() &&
          scratch.groups[other] != scratch.groups[rank]) {
        continue;
      }
      const auto candidate = scratch.boxes[other];
      if (scalar::CanOverlap(candidate) &&
          scalar::Suppresses(box, candidate, args.iou_threshold)) {
        mask |= uint64_t{1} << b;
      }
    }
  }
  scratch.masks[row * scratch.words + column_word] = mask;
}

// One block: goes through the chunk's boxes, appends those that are kept, and
// removes what they suppress.
template <typename T, bool kRotated>
__global__ void __launch_bounds__(kThreads)
    SweepChunk(const __grid_constant__ Scratch<T, kRotated> scratch,
               int64_t chunk_word, int64_t chunk_words, int64_t most,
               int32_t* kept, int32_t* count) {
  __shared__ uint64_t diagonal[kWord];
  __shared__ uint64_t kept_bits;
  for (int64_t w = 0; w < chunk_words; ++w) {
    const int64_t word = chunk_word + w;
    const uint64_t* const rows = scratch.masks + w * kWord * scratch.words;
    __syncthreads();  // the word before is finished
    for (int b = threadIdx.x; b < kWord; b += blockDim.x) {
      diagonal[b] = rows[b * scratch.words + word];
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      uint64_t removed = scratch.removed[word], bits = 0;
      int32_t kept_count = *count;
      for (int b = 0; b < kWord && kept_count < most; ++b) {
        if (((removed >> b) & 1) != 0) continue;
        bits |= uint64_t{1} << b;
        removed |= diagonal[b];
        kept[kept_count++] = scratch.items[word * kWord + b].index;
      }
      *count = kept_count;
      kept_bits = bits;
    }
    __syncthreads();
    const uint64_t bits = kept_bits;
    for (int64_t later = word + 1 + threadIdx.x; later < scratch.words;
         later += blockDim.x) {
      uint64_t removed = scratch.removed[later];
      for (int b = 0; b < kWord; ++b) {
        if (((bits >> b) & 1) != 0) {
          removed |= rows[b * scratch.words + later];
        }
      }
      scratch.removed[later] = removed;
    }
  }
}

template <typename T, bool kRotated>
Error Run(const Gpu& gpu, const NmsArgs<T>& args) {
  const Scratch<T, kRotated> scratch(args, gpu.scratch);
  const int64_t most = args.max_outputs < 0 ? args.num_boxes : args.max_outputs;
  Error error = EnqueueZeros(gpu, args.count, sizeof(*args.count));
  if (error != nullptr || args.num_boxes == 0 || most == 0) return error;
  error = Launch(gpu, GridSize(scratch.num_items / kThreads), kThreads,
                 MakeItems<T>, args, KeyOfThreshold(args.score_threshold),
                 scratch.items, scratch.num_items);
  if (error != nullptr) return error;
  error = SortOnGpu<RanksBefore<Ranked<ScoreKey<T>>>>(gpu, scratch.items,
                                                      scratch.num_items);
  if (error != nullptr) return error;
  error = Launch(gpu, GridSize((scratch.words + kThreads - 1) / kThreads),
                 kThreads, ReadBoxes<T, kRotated>, args, scratch);
  for (int64_t word = 0; word < scratch.words && error == nullptr;
       word += kChunkWords) {
    const int64_t words =
        scratch.words - word < kChunkWords ? scratch.words - word : kChunkWords;
    error = Launch(gpu, GridSize(words * (scratch.words - word)), kWord,
                   CompareChunk<T, kRotated>, args, scratch, word, words);
    if (error != nullptr) break;
    error = Launch(gpu, 1, kThreads, SweepChunk<T, kRotated>, scratch, word,
                   words, most, args.kept, args.count);
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
    return Scratch<T, rotated.value>(args, nullptr).arrays.bytes();
  });
}

TFO_INSTANTIATE_WIDE_ALGORITHM(Nms, Gpu, NmsArgs);
TFO_INSTANTIATE_WIDE_FUNCTION(NmsScratchBytes);

}  // namespace tfo
