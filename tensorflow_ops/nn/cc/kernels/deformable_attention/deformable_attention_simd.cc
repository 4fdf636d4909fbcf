#include "tensorflow_ops/nn/cc/kernels/deformable_attention/deformable_attention_corners.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {
namespace {

// `part` has `kVectors` vectors, each at a multiple of kCount.
template <int kVectors, typename T, typename C, typename Part>
TFO_INLINE void SumPoints(const AttentionPoints<C>& points, const Part& part,
                          int64_t at, const AttentionScratch<C>& scratch,
                          T* output) {
  constexpr int kCount = Lanes<C>::kCount;
  // Of every second corner, so that additions wait less for each other.
  Vector<C> sums[2][kVectors] = {};
  for (int64_t p = 0; p < points.count; ++p) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const T* const row =
          reinterpret_cast<const T*>(scratch.rows[i * points.padded + p]) + at;
      const Vector<C> weight = Splat(scratch.corners[i * points.padded + p]);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        sums[i % 2][v] =
            MulAdd(weight, part.Load(row + v * kCount, 0), sums[i % 2][v]);
      }
    }
  }
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) {
    part.Store(sums[0][v] + sums[1][v], output + at + v * kCount);
  }
}

template <typename T, typename C>
void AttendQueries(const DeformableAttentionArgs<T>& args,
                   const AttentionPoints<C>& points, AttentionRows rows,
                   HeadView<const T> values,
                   const AttentionScratch<C>& scratch) {
  constexpr int kCount = Lanes<T>::kCount;
  ForRows(
      rows,
      [&](RowPlace place) __attribute__((always_inline)) {
        const int64_t first = place.row * points.count;
        Prefetch<0>(args.locations + 2 * first, 2 * points.count);
        Prefetch<0>(args.weights + first, points.count);
      },
      [&](RowPlace place) {
        const int64_t first = place.row * points.count;
        FindCorners<false>(points, args.locations + 2 * first,
                           args.weights + first, scratch);
        FindRows(points, scratch.pixels,
                 HeadView<const T>{values.data + place.head * args.channels,
                                   values.stride},
                 static_cast<const T*>(scratch.zeros), scratch.rows);
        T* const out = args.output + place.row * args.channels;
        ForVectorGroups<4, kCount>(
            args.channels, 0,
            [&](auto vectors, int64_t at) {
              SumPoints<decltype(vectors)::kValue>(points, Whole<T>(), at,
                                                   scratch, out);
            },
            [&](int64_t at, int64_t n) {
              SumPoints<1>(points, First<T>{n}, at, scratch, out);
            });
      });
}

}  // namespace

template <typename T>
Error DeformableAttention(const Cpu& cpu,
                          const DeformableAttentionArgs<T>& args) {
  if (args.channels == 0) return nullptr;
  const AttentionPoints<Accumulator<T>> points(args);
  ForQueries<T>(cpu, args, points, CyclesPerQuery(args),
                [&](int64_t image, int64_t head, const AttentionRows& rows,
                    ThreadMemory<T>& memory) {
                  AttendQueries(args, points, rows,
                                memory.Values(args.values, image, head),
                                memory.Scratch());
                });
  return nullptr;
}

}  // namespace TFO_CPU_NAMESPACE

TFO_INSTANTIATE_ALGORITHM_PER_LEVEL(DeformableAttention,
                                    DeformableAttentionArgs);

}  // namespace tfo
