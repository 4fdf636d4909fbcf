// Deformable attention on the CPU. A unit of work is an image, some of its
// heads and some queries. Many queries read a copy of one head's values, which
// stays in the cache; a few take all heads in turn, which are side by side in
// memory.
#include <algorithm>
#include <vector>

#include "tensorflow_ops/core/cc/convert_simd.h"
#include "tensorflow_ops/core/cc/int_math.h"
#include "tensorflow_ops/nn/cc/kernels/deformable_attention/deformable_attention.h"
#include "tensorflow_ops/nn/cc/kernels/deformable_attention/deformable_attention_simd.h"

namespace tfo {
namespace {

// For each point: finding corners, and four corners for each channel.
constexpr double kCyclesPerPoint = 8, kCyclesPerSample = 0.5;

// Each point's level, for all queries.
template <typename C>
class PointTables {
 public:
  explicit PointTables(const AttentionShape& args)
      : count_(args.points),
        padded_(RoundUp(args.points, kPointsPadding)),
        sizes_(2 * padded_),
        first_pixel_(padded_) {
    int64_t p = 0;
    for (int l = 0; l < args.num_levels; ++l) {
      const AttentionLevel& level = args.levels[l];
      for (int64_t i = 0; i < level.points; ++i, ++p) {
        sizes_[p] = static_cast<C>(level.height);
        sizes_[padded_ + p] = static_cast<C>(level.width);
        first_pixel_[p] = level.first_pixel;
      }
    }
  }
  AttentionPoints<C> View() const {
    return {count_, padded_, sizes_.data(), sizes_.data() + padded_,
            first_pixel_.data()};
  }

 private:
  const int64_t count_, padded_;
  std::vector<C> sizes_;
  std::vector<int64_t> first_pixel_;
};

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
bool ReadsOften(const AttentionShape& args) {
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

double CyclesPerQuery(const AttentionShape& args) {
  return args.points * (kCyclesPerPoint + kCyclesPerSample * args.channels);
}

// Gradients to values: sums of an owner, in d_values itself, or apart if they
// are of another type or often added to (ReadsOften).
template <typename T>
class OwnedValues {
 public:
  using C = Accumulator<T>;

  static bool AreInPlace(const AttentionShape& args) {
    return sizeof(C) == sizeof(T) && !ReadsOften(args);
  }

  explicit OwnedValues(const AttentionShape& args) : args_(args) {}

  // Sums of the pixels [begin, end), which are zero; pixel 0 is at the view's
  // data. Sums in place are zero already.
  HeadView<C> Start(HeadView<T> d_values, int64_t begin, int64_t end) {
    d_values_ = d_values;
    begin_ = begin;
    end_ = end;
    if constexpr (sizeof(C) == sizeof(T)) {
      if (AreInPlace(args_)) return d_values;
    }
    const int64_t count = (end - begin) * args_.channels;
    C* const sums = sums_.Resize(count);
    std::fill_n(sums, count, C{0});
    return {sums - begin * args_.channels, args_.channels};
  }
  void Finish() {
    if (AreInPlace(args_)) return;
    for (int64_t i = begin_; i < end_; ++i) {
      narrow_(sums_.data() + (i - begin_) * args_.channels,
              d_values_.data + i * d_values_.stride, args_.channels);
    }
  }

 private:
  const AttentionShape& args_;
  const decltype(TFO_DISPATCH(NarrowArray<T>)) narrow_ =
      TFO_DISPATCH(NarrowArray<T>);
  AlignedNumbers<C> sums_;
  HeadView<T> d_values_;
  int64_t begin_, end_;
};

}  // namespace

template <typename T>
Error DeformableAttention(const Cpu& cpu,
                          const DeformableAttentionArgs<T>& args) {
  using C = Accumulator<T>;
  if (args.channels == 0) return nullptr;
  const PointTables<C> tables(args);
  const AttentionPoints<C> points = tables.View();
  const auto attend = TFO_DISPATCH(AttendQueries<T>);
  ForQueries<T>(cpu, args, points, CyclesPerQuery(args),
                [&](int64_t image, int64_t head, const AttentionRows& rows,
                    ThreadMemory<T>& memory) {
                  attend(points, rows, args.channels,
                         memory.Values(args.values, image, head),
                         args.locations, args.weights, args.output,
                         memory.Scratch());
                });
  return nullptr;
}

template <typename T>
Error DeformableAttentionGrad(const Cpu& cpu,
                              const DeformableAttentionGradArgs<T>& args) {
  using C = Accumulator<T>;
  const PointTables<C> tables(args);
  const AttentionPoints<C> points = tables.View();
  const auto grad = TFO_DISPATCH(AttendQueriesGrad<T>);
  // An owner of an image and some heads computes everything. Too few of them
  // for all threads: owners of bands of pixels, after the other gradients.
  const bool at_once = args.batch * args.heads >= cpu.num_threads;
  if (!at_once) {
    ForQueries<T>(cpu, args, points, 2 * CyclesPerQuery(args),
                  [&](int64_t image, int64_t head, const AttentionRows& rows,
                      ThreadMemory<T>& memory) {
                    grad(points, rows, args.channels, args.d_output,
                         memory.Values(args.values, image, head),
                         args.locations, args.weights, HeadView<C>{nullptr, 0},
                         0, 0, args.d_locations, args.d_weights,
                         memory.Scratch());
                  });
  }
  const bool in_place = OwnedValues<T>::AreInPlace(args);
  if (in_place) {
    const int64_t row = args.heads * args.channels;
    cpu.ParallelFor(args.batch * args.pixels, 0.1 * row,
                    [&](int64_t begin, int64_t end) {
                      std::fill(args.d_values + begin * row,
                                args.d_values + end * row, T{});
                    });
  }
  // Groups of heads, if the sums of several are side by side.
  const int64_t groups =
      in_place
          ? std::min(args.heads, DivideUp(2 * int64_t{cpu.num_threads},
                                          std::max<int64_t>(args.batch, 1)))
          : args.heads;
  const int64_t owners = args.batch * groups;
  const int64_t bands =
      at_once ? 1 : DivideUp(cpu.num_threads, std::max<int64_t>(owners, 1));
  cpu.ParallelFor(
      owners * bands,
      (2 * CyclesPerQuery(args) * args.queries +
       0.5 * args.pixels * args.channels) *
          args.heads / std::max<int64_t>(groups * bands, 1),
      [&](int64_t begin, int64_t end) {
        ThreadMemory<T> memory(args, points);
        OwnedValues<T> owned(args);
        for (int64_t unit = begin; unit < end; ++unit) {
          const int64_t image = unit / bands / groups;
          const int64_t group = unit / bands % groups;
          const int64_t head = args.heads * group / groups;
          const int64_t my_heads = args.heads * (group + 1) / groups - head;
          const int64_t first = args.pixels * (unit % bands) / bands;
          const int64_t last = args.pixels * (unit % bands + 1) / bands;
          const HeadView<C> sums = owned.Start(
              ViewOf(args, args.d_values, image, head), first, last);
          grad(points,
               {image * args.queries, args.queries, args.heads, head, my_heads},
               args.channels, args.d_output,
               at_once ? memory.Values(args.values, image, head)
                       : ViewOf(args, args.values, image, head),
               args.locations, args.weights, sums, first,
               bands == 1 ? INT64_MAX : last,
               at_once ? args.d_locations : nullptr, args.d_weights,
               memory.Scratch());
          owned.Finish();
        }
      });
  return nullptr;
}

TFO_INSTANTIATE_ALGORITHM(DeformableAttention, Cpu, DeformableAttentionArgs);
TFO_INSTANTIATE_ALGORITHM(DeformableAttentionGrad, Cpu,
                          DeformableAttentionGradArgs);

}  // namespace tfo
