// Weighted sums. Their gradients are in deformable_attention_grad_simd.cc.
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

}  // namespace

template <typename T, typename C>
void AttendQueries(const AttentionPoints<C>& points, AttentionRows rows,
                   int64_t channels, HeadView<const T> values,
                   const C* locations, const C* weights, T* output,
                   const AttentionScratch<C>& scratch) {
  constexpr int kCount = Lanes<T>::kCount;
  ForRows(
      rows,
      [&](RowPlace place) __attribute__((always_inline)) {
        const int64_t first = place.row * points.count;
        Prefetch<0>(locations + 2 * first, 2 * points.count);
        Prefetch<0>(weights + first, points.count);
      },
      [&](RowPlace place) {
        const int64_t first = place.row * points.count;
        FindCorners<false>(points, locations + 2 * first, weights + first,
                           scratch);
        FindRows(points, scratch.pixels,
                 HeadView<const T>{values.data + place.head * channels,
                                   values.stride},
                 static_cast<const T*>(scratch.zeros), scratch.rows);
        T* const out = output + place.row * channels;
        ForVectorGroups<4, kCount>(
            channels, 0,
            [&](auto vectors, int64_t at) {
              SumPoints<decltype(vectors)::kValue>(points, Whole<T>(), at,
                                                   scratch, out);
            },
            [&](int64_t at, int64_t n) {
              SumPoints<1>(points, First<T>{n}, at, scratch, out);
            });
      });
}

#define TFO_INSTANTIATE(T)                                                     \
  template void AttendQueries<T>(const AttentionPoints<Accumulator<T>>&,       \
                                 AttentionRows, int64_t, HeadView<const T>,    \
                                 const Accumulator<T>*, const Accumulator<T>*, \
                                 T*, const AttentionScratch<Accumulator<T>>&)
TFO_FOR_EACH_FLOAT(TFO_INSTANTIATE);
#undef TFO_INSTANTIATE

}  // namespace TFO_CPU_NAMESPACE
}  // namespace tfo
