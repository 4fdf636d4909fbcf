// Deformable attention on the CPU. A unit of work is an image, a head and some
// queries, so that the reads stay in one head's part of the values.
#include <algorithm>
#include <vector>

#include "tensorflow_ops/core/cc/convert_simd.h"
#include "tensorflow_ops/sampling/cc/kernels/deformable_attention.h"
#include "tensorflow_ops/sampling/cc/kernels/deformable_attention_simd.h"

namespace tfo {
namespace {

// For each point: finding corners, and four corners for each channel.
constexpr double kCyclesPerPoint = 8, kCyclesPerSample = 0.5;

int64_t DivideUp(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Each point's level, for all queries.
template <typename C>
class PointTables {
 public:
  explicit PointTables(const AttentionArgs& args)
      : count_(args.points),
        padded_(DivideUp(args.points, kPointsPadding) * kPointsPadding),
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

// A thread's memory.
template <typename T>
class ThreadMemory {
 public:
  using C = Accumulator<T>;
  ThreadMemory(const AttentionPoints<C>& points, int64_t channels)
      : pixels_(4 * points.padded),
        numbers_((4 + kPointNumbers) * points.padded + 2 * channels +
                 kPointsPadding),
        zeros_(channels) {
    scratch_ = {
        pixels_.data(), numbers_.data(), numbers_.data() + 4 * points.padded,
        numbers_.data() + (4 + kPointNumbers) * points.padded, zeros_.data()};
  }
  ThreadMemory(const ThreadMemory&) = delete;
  const AttentionScratch<C>& Scratch() const { return scratch_; }

 private:
  std::vector<int32_t> pixels_;
  std::vector<C> numbers_;
  std::vector<T> zeros_;
  AttentionScratch<C> scratch_;
};

// Calls run(image, head, first query, number of queries, memory) for blocks of
// queries.
template <typename T, typename Run>
void ForQueries(const Cpu& cpu, const AttentionArgs& args,
                const AttentionPoints<Accumulator<T>>& points, double cycles,
                const Run& run) {
  constexpr int64_t kBlock = 32;
  const int64_t blocks = DivideUp(args.queries, kBlock);
  cpu.ParallelFor(
      args.batch * args.heads * blocks, cycles * kBlock,
      [&](int64_t begin, int64_t end) {
        const ThreadMemory<T> memory(points, args.channels);
        for (int64_t unit = begin; unit < end; ++unit) {
          const int64_t first = unit % blocks * kBlock;
          run(unit / blocks / args.heads, unit / blocks % args.heads, first,
              std::min(kBlock, args.queries - first), memory.Scratch());
        }
      });
}

double CyclesPerQuery(const AttentionArgs& args) {
  return args.points * (kCyclesPerPoint + kCyclesPerSample * args.channels);
}

// The values of an image and head.
template <typename T>
HeadView<T> ViewOf(const AttentionArgs& args, T* values, int64_t image,
                   int64_t head) {
  const int64_t stride = args.heads * args.channels;
  return {values + image * args.pixels * stride + head * args.channels, stride};
}

// Gradients to values: sums of an owner, in d_values itself or in the type of
// computation.
template <typename T>
class OwnedValues {
 public:
  using C = Accumulator<T>;
  static constexpr bool kInPlace = sizeof(C) == sizeof(T);

  explicit OwnedValues(const AttentionArgs& args) : args_(args) {}

  // Zeroes the sums of the pixels [begin, end); pixel 0 is at the view's data.
  HeadView<C> Start(HeadView<T> d_values, int64_t begin, int64_t end) {
    d_values_ = d_values;
    begin_ = begin;
    end_ = end;
    if constexpr (kInPlace) {
      for (int64_t i = begin; i < end; ++i) {
        std::fill_n(d_values.data + i * d_values.stride, args_.channels, T{0});
      }
      return d_values;
    } else {
      sums_.assign((end - begin) * args_.channels, C{0});
      return {sums_.data() - begin * args_.channels, args_.channels};
    }
  }
  void Finish() {
    if constexpr (!kInPlace) {
      for (int64_t i = begin_; i < end_; ++i) {
        narrow_(&sums_[(i - begin_) * args_.channels],
                d_values_.data + i * d_values_.stride, args_.channels);
      }
    }
  }

 private:
  const AttentionArgs& args_;
  const decltype(TFO_DISPATCH(NarrowArray<T>)) narrow_ =
      TFO_DISPATCH(NarrowArray<T>);
  std::vector<C> sums_;
  HeadView<T> d_values_;
  int64_t begin_, end_;
};

}  // namespace

template <typename T, typename C>
Error DeformableAttention(const Cpu& cpu, const AttentionArgs& args,
                          const T* values, const C* locations, const C* weights,
                          T* output) {
  if (args.channels == 0) return nullptr;
  const PointTables<C> tables(args);
  const AttentionPoints<C> points = tables.View();
  const auto attend = TFO_DISPATCH(AttendQueries<T>);
  ForQueries<T>(
      cpu, args, points, CyclesPerQuery(args),
      [&](int64_t image, int64_t head, int64_t first, int64_t count,
          const AttentionScratch<C>& scratch) {
        attend(points, {image * args.queries + first, count, args.heads, head},
               args.channels, ViewOf(args, values, image, head), locations,
               weights, output, scratch);
      });
  return nullptr;
}

template <typename T, typename C>
Error DeformableAttentionGrad(const Cpu& cpu, const AttentionArgs& args,
                              const T* d_output, const T* values,
                              const C* locations, const C* weights, T* d_values,
                              C* d_locations, C* d_weights) {
  const PointTables<C> tables(args);
  const AttentionPoints<C> points = tables.View();
  const auto grad = TFO_DISPATCH(AttendQueriesGrad<T>);
  // An owner of an image and head computes everything. Too few of them for all
  // threads: owners of bands of pixels, after the other gradients.
  const int64_t owners = args.batch * args.heads;
  const bool at_once = owners >= cpu.num_threads;
  if (!at_once) {
    ForQueries<T>(
        cpu, args, points, 2 * CyclesPerQuery(args),
        [&](int64_t image, int64_t head, int64_t first, int64_t count,
            const AttentionScratch<C>& scratch) {
          grad(points, {image * args.queries + first, count, args.heads, head},
               args.channels, d_output, ViewOf(args, values, image, head),
               locations, weights, HeadView<C>{nullptr, 0}, 0, 0, d_locations,
               d_weights, scratch);
        });
  }
  const int64_t bands =
      at_once ? 1 : DivideUp(cpu.num_threads, std::max<int64_t>(owners, 1));
  cpu.ParallelFor(
      owners * bands,
      (2 * CyclesPerQuery(args) * args.queries +
       0.5 * args.pixels * args.channels) /
          bands,
      [&](int64_t begin, int64_t end) {
        const ThreadMemory<T> memory(points, args.channels);
        OwnedValues<T> owned(args);
        for (int64_t unit = begin; unit < end; ++unit) {
          const int64_t image = unit / bands / args.heads;
          const int64_t head = unit / bands % args.heads;
          const int64_t first = args.pixels * (unit % bands) / bands;
          const int64_t last = args.pixels * (unit % bands + 1) / bands;
          const HeadView<C> sums =
              owned.Start(ViewOf(args, d_values, image, head), first, last);
          grad(points, {image * args.queries, args.queries, args.heads, head},
               args.channels, d_output, ViewOf(args, values, image, head),
               locations, weights, sums, first, last,
               at_once ? d_locations : nullptr, d_weights, memory.Scratch());
          owned.Finish();
        }
      });
  return nullptr;
}

#define TFO_INSTANTIATE(T)                                                \
  template Error DeformableAttention<T>(const Cpu&, const AttentionArgs&, \
                                        const T*, const Accumulator<T>*,  \
                                        const Accumulator<T>*, T*);       \
  template Error DeformableAttentionGrad<T>(                              \
      const Cpu&, const AttentionArgs&, const T*, const T*,               \
      const Accumulator<T>*, const Accumulator<T>*, T*, Accumulator<T>*,  \
      Accumulator<T>*)
TFO_INSTANTIATE(float);
TFO_INSTANTIATE(double);
TFO_INSTANTIATE(Half);
TFO_INSTANTIATE(BFloat16);
#undef TFO_INSTANTIATE

}  // namespace tfo
