// What deformable attention and its gradients share. A unit of work is an
// image, some of its heads and some queries. Many queries read a copy of one
// head's values, which stays in the cache; a few take all heads in turn, which
// are side by side in memory.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_DEFORMABLE_ATTENTION_DEFORMABLE_ATTENTION_SIMD_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_DEFORMABLE_ATTENTION_DEFORMABLE_ATTENTION_SIMD_H_

#include <algorithm>
#include <vector>

#include "tensorflow_ops/core/cc/int_math.h"
#include "tensorflow_ops/core/cc/simd/cpu_dispatch.h"
#include "tensorflow_ops/core/cc/simd/simd.h"
#include "tensorflow_ops/nn/cc/kernels/deformable_attention/deformable_attention.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {

// Arrays of points are padded to whole vectors of any level.
inline constexpr int64_t kPointsPadding = 16;

// Each point's level, for all queries, in arrays of `padded` values.
template <typename C>
class AttentionPoints {
 public:
  explicit AttentionPoints(const AttentionShape& args)
      : count(args.points),
        padded(RoundUp(args.points, kPointsPadding)),
        sizes_(2 * padded),
        first_pixels_(padded),
        height(sizes_.data()),
        width(height + padded),
        first_pixel(first_pixels_.data()) {
    int64_t p = 0;
    for (int l = 0; l < args.num_levels; ++l) {
      const AttentionLevel& level = args.levels[l];
      for (int64_t i = 0; i < level.points; ++i, ++p) {
        sizes_[p] = static_cast<C>(level.height);
        sizes_[padded + p] = static_cast<C>(level.width);
        first_pixels_[p] = level.first_pixel;
      }
    }
  }
  AttentionPoints(const AttentionPoints&) = delete;

  const int64_t count, padded;

 private:
  std::vector<C> sizes_;
  std::vector<int64_t> first_pixels_;

 public:
  const C *const height, *const width;
  const int64_t* const first_pixel;
};

// Memory for one query and head, of a thread.
template <typename C>
struct AttentionScratch {
  // [4, padded]: corners, in the level; -1: outside, or nothing to add.
  int32_t *pixels, *added_pixels;
  uintptr_t *rows, *added_rows;  // [4, padded]: their addresses
  C* corners;                    // [4, padded]: their weights
  C* numbers;                    // [kPointNumbers, padded]
  C* upstream;                   // [channels], rounded up to whole vectors
  C* discarded;                  // [channels]: receives sums for pixels outside
  void* zeros;  // [channels] of T: read in place of pixels outside
};
inline constexpr int kPointNumbers = 7;

// The pixels of an image, a row of `stride` for each, at some of its heads.
template <typename T>
struct HeadView {
  T* data;
  int64_t stride;
};

// Queries of an image and some of its heads: their rows in [batch * queries,
// heads], the heads of a query first.
struct AttentionRows {
  int64_t first, count;  // queries
  int64_t heads;         // of an image
  int64_t first_head, my_heads;
};

// For each point: finding corners, and four corners for each channel.
inline constexpr double kCyclesPerPoint = 8, kCyclesPerSample = 0.5;

// The values of an image from a head on.
template <typename T>
HeadView<T> ViewOf(const AttentionShape& args, T* values, int64_t image,
                   int64_t head) {
  const int64_t stride = args.heads * args.channels;
  return {values + image * args.pixels * stride + head * args.channels, stride};
}

// Whether the queries read the values of a head more than twice. Then a copy
// without the other heads between the pixels pays: these are a power of two
// apart and share few sets of the caches (encoder of 4484 queries: 24 instead
// of 80 ns a point).
inline bool ReadsOften(const AttentionShape& args) {
  return 4 * args.queries * args.points >= 2 * args.pixels;
}

// Numbers from a multiple of 64 bytes on, so that vectors of most channels are
// whole lines of the cache.
template <typename T>
class AlignedNumbers {
 public:
  // Their former values are lost.
  T* Resize(int64_t count) {
    memory_.resize(count + kLineBytes / sizeof(T));
    const auto address = reinterpret_cast<uintptr_t>(memory_.data());
    data_ = memory_.data() +
            (kLineBytes - address % kLineBytes) % kLineBytes / sizeof(T);
    return data_;
  }
  T* data() const { return data_; }

 private:
  static constexpr int64_t kLineBytes = 64;
  std::vector<T> memory_;
  T* data_ = nullptr;
};

// A thread's memory.
template <typename T>
class ThreadMemory {
 public:
  using C = Accumulator<T>;
  ThreadMemory(const AttentionShape& args, const AttentionPoints<C>& points)
      : args_(args),
        pixels_(8 * points.padded),
        rows_(8 * points.padded),
        numbers_((4 + kPointNumbers) * points.padded + 2 * args.channels +
                 kPointsPadding),
        zeros_(args.channels) {
    scratch_.pixels = pixels_.data();
    scratch_.added_pixels = pixels_.data() + 4 * points.padded;
    scratch_.rows = rows_.data();
    scratch_.added_rows = rows_.data() + 4 * points.padded;
    scratch_.corners = numbers_.data();
    scratch_.numbers = scratch_.corners + 4 * points.padded;
    scratch_.discarded = scratch_.numbers + kPointNumbers * points.padded;
    scratch_.upstream = scratch_.discarded + args.channels;
    scratch_.zeros = zeros_.data();
  }
  ThreadMemory(const ThreadMemory&) = delete;
  const AttentionScratch<C>& Scratch() const { return scratch_; }

  // The values of an image from a head on, or a copy of the head.
  HeadView<const T> Values(const T* values, int64_t image, int64_t head) {
    const HeadView<const T> view = ViewOf(args_, values, image, head);
    if (!ReadsOften(args_)) return view;
    const int64_t unit = image * args_.heads + head;
    if (unit != copied_) {
      T* const copy = copy_.Resize(args_.pixels * args_.channels);
      for (int64_t i = 0; i < args_.pixels; ++i) {
        std::copy_n(view.data + i * view.stride, args_.channels,
                    copy + i * args_.channels);
      }
      copied_ = unit;
    }
    return {copy_.data(), args_.channels};
  }

 private:
  const AttentionShape& args_;
  std::vector<int32_t> pixels_;
  std::vector<uintptr_t> rows_;
  std::vector<C> numbers_;
  std::vector<T> zeros_;
  AttentionScratch<C> scratch_;
  AlignedNumbers<T> copy_;
  int64_t copied_ = -1;
};

// Calls run(image, first head, rows, memory) for blocks of queries.
template <typename T, typename Run>
void ForQueries(const Cpu& cpu, const AttentionShape& args,
                const AttentionPoints<Accumulator<T>>& points, double cycles,
                const Run& run) {
  const bool copies = ReadsOften(args);
  const int64_t my_heads = copies ? 1 : args.heads;
  const int64_t owners = args.batch * (copies ? args.heads : 1);
  // Large blocks if each copies values.
  const int64_t parts =
      DivideUp(2 * int64_t{cpu.num_threads}, std::max<int64_t>(owners, 1));
  const int64_t block =
      copies ? std::max<int64_t>(DivideUp(args.queries, parts), 1) : 8;
  const int64_t blocks = DivideUp(args.queries, block);
  cpu.ParallelFor(owners * blocks, cycles * block * my_heads,
                  [&](int64_t begin, int64_t end) {
                    ThreadMemory<T> memory(args, points);
                    for (int64_t unit = begin; unit < end; ++unit) {
                      const int64_t first = unit % blocks * block;
                      const int64_t owner = unit / blocks;
                      const int64_t image = copies ? owner / args.heads : owner;
                      const int64_t head = copies ? owner % args.heads : 0;
                      run(image, head,
                          AttentionRows{image * args.queries + first,
                                        std::min(block, args.queries - first),
                                        args.heads, head, my_heads},
                          memory);
                    }
                  });
}

inline double CyclesPerQuery(const AttentionShape& args) {
  return args.points * (kCyclesPerPoint + kCyclesPerSample * args.channels);
}

}  // namespace TFO_CPU_NAMESPACE
}  // namespace tfo

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_DEFORMABLE_ATTENTION_DEFORMABLE_ATTENTION_SIMD_H_
