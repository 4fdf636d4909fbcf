#include "tensorflow_ops/nn/cc/kernels/deform_conv/deform_conv_simd.h"

#include "tensorflow_ops/core/cc/gemm_simd.h"
#include "tensorflow_ops/core/cc/simd.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {
namespace {

template <typename T, typename C>
TFO_INLINE const T* CornerOf(const DeformTap<C>& tap, int i,
                             const ChannelsView<T>& features) {
  return tap.pixels[i] < 0
             ? features.zeros
             : features.data + tap.pixels[i] * features.pixel_stride;
}

}  // namespace

template <typename T, typename C>
void SampleColumns(const TapRows<C>& taps, const ChannelsView<T>& features,
                   C* columns) {
  using Vector = typename Lanes<C>::Vector;
  for (int64_t m = 0; m < taps.rows; ++m, columns += kGemmStride) {
    const DeformTap<C>& tap = taps.taps[m * taps.stride];
    const T* corners[4];
    Vector weights[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      corners[i] = CornerOf(tap, i, features);
      weights[i] = Broadcast<Vector>(tap.mask * tap.weights[i]);
    }
    if (tap.pixels[1] < 0 && tap.pixels[2] < 0 && tap.pixels[3] < 0) {
      // A whole pixel, or nothing: as training starts, all taps.
      ForVectors<T>(features.count, [&](auto part, int64_t c) {
        Store(weights[0] * part.Load(corners[0] + c, 0), columns + c);
      });
      continue;
    }
    ForVectors<T>(features.count, [&](auto part, int64_t c) {
      Vector sum = weights[0] * part.Load(corners[0] + c, 0);
#pragma GCC unroll 4
      for (int i = 1; i < 4; ++i) {
        sum = MulAdd(weights[i], part.Load(corners[i] + c, 0), sum);
      }
      Store(sum, columns + c);
    });
  }
}

template <typename T, typename C>
void DotColumns(const TapRows<C>& taps, const ChannelsView<T>& features,
                const C* d_columns, int64_t d_stride, C* dots) {
  using Vector = typename Lanes<C>::Vector;
  for (int64_t m = 0; m < taps.rows; ++m, d_columns += d_stride) {
    const DeformTap<C>& tap = taps.taps[m * taps.stride];
    const T* corners[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) corners[i] = CornerOf(tap, i, features);
    Vector sums[4] = {};
    ForVectors<T>(features.count, [&](auto part, int64_t c) {
      // Beyond the last channel the corner's zeros count.
      const Vector d = Load(d_columns + c);
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        sums[i] = MulAdd(part.Keep(d), part.Load(corners[i] + c, 0), sums[i]);
      }
    });
    C* const to = dots + 4 * m * taps.stride;
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) to[i] += SumLanes(sums[i]);
  }
}

template <typename C>
void ScatterColumns(const TapRows<C>& taps, int64_t num_taps, int64_t tap_step,
                    const C* d_columns, int64_t d_stride, int64_t tap_stride,
                    int64_t count, int64_t begin, int64_t end, C* sums,
                    int64_t pixel_stride) {
  using Vector = typename Lanes<C>::Vector;
  for (int64_t m = 0; m < taps.rows; ++m) {
    for (int64_t t = 0; t < num_taps; ++t) {
      const DeformTap<C>& tap = taps.taps[m * taps.stride + t * tap_step];
      const C* const from = d_columns + m * d_stride + t * tap_stride;
      for (int i = 0; i < 4; ++i) {
        const int64_t pixel = tap.pixels[i];
        if (pixel < begin || pixel >= end || tap.weights[i] == 0) continue;
        C* const to = sums + pixel * pixel_stride;
        const Vector weight = Broadcast<Vector>(tap.mask * tap.weights[i]);
        ForVectors<C>(count, [&](auto part, int64_t c) {
          part.Store(
              MulAdd(weight, part.Load(from + c, 0), part.Load(to + c, 0)),
              to + c);
        });
      }
    }
  }
}

#define TFO_INSTANTIATE(T)                                                   \
  template void SampleColumns<T>(const TapRows<Accumulator<T>>&,             \
                                 const ChannelsView<T>&, Accumulator<T>*);   \
  template void DotColumns<T>(const TapRows<Accumulator<T>>&,                \
                              const ChannelsView<T>&, const Accumulator<T>*, \
                              int64_t, Accumulator<T>*)
TFO_FOR_EACH_FLOAT(TFO_INSTANTIATE);
#undef TFO_INSTANTIATE
#define TFO_INSTANTIATE(C)                                             \
  template void ScatterColumns<C>(const TapRows<C>&, int64_t, int64_t, \
                                  const C*, int64_t, int64_t, int64_t, \
                                  int64_t, int64_t, C*, int64_t)
TFO_INSTANTIATE(float);
TFO_INSTANTIATE(double);
#undef TFO_INSTANTIATE

}  // namespace TFO_CPU_NAMESPACE
}  // namespace tfo
