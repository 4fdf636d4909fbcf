#include "tensorflow_ops/nn/cc/kernels/deform_conv/deform_conv_simd.h"

#include "tensorflow_ops/core/cc/bilinear.h"
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

// A tap whose four pixels are in the image: without conditions.
template <TapUse kUse, typename C>
TFO_INLINE void FindInside(C y, C x, int32_t width, DeformTap<C>* tap) {
  const auto low_y = static_cast<int32_t>(y), low_x = static_cast<int32_t>(x);
  tap->y_fraction = y - static_cast<C>(low_y);
  tap->x_fraction = x - static_cast<C>(low_x);
  const C up = 1 - tap->y_fraction, left = 1 - tap->x_fraction;
  const int32_t pixel = low_y * width + low_x;
  const C weights[] = {up * left, up * tap->x_fraction, tap->y_fraction * left,
                       tap->y_fraction * tap->x_fraction};
  const int32_t pixels[] = {pixel, pixel + 1, pixel + width, pixel + width + 1};
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const bool counts = kUse == TapUse::kSlopes || weights[i] != 0;
    tap->pixels[i] = counts ? pixels[i] : -1;
    tap->weights[i] = weights[i];
  }
}

template <TapUse kUse, typename C>
TFO_INLINE void FindTap(C y, C x, const DeformConvShape& shape,
                        DeformTap<C>* tap) {
  if (y >= 0 && y < static_cast<C>(shape.height - 1) && x >= 0 &&
      x < static_cast<C>(shape.width - 1)) {
    return FindInside<kUse>(y, x, static_cast<int32_t>(shape.width), tap);
  }
  *tap = {{-1, -1, -1, -1}, {0, 0, 0, 0}, 0, 0, tap->mask};
  BilinearCell<C> cell;
  if (!FindCell(y, x, shape.height, shape.width, &cell)) {
    if (kUse == TapUse::kOutput && (y != y || x != x)) tap->weights[0] = y + x;
    return;
  }
  tap->y_fraction = cell.y_fraction;
  tap->x_fraction = cell.x_fraction;
  for (int i = 0; i < 4; ++i) {
    const C weight = CornerWeight(cell, i);
    if (!HasCorner(cell, i, shape.height, shape.width)) continue;
    if (kUse != TapUse::kSlopes && weight == 0) continue;
    tap->pixels[i] = static_cast<int32_t>(CornerPixel(cell, i, shape.width));
    tap->weights[i] = weight;
  }
}

}  // namespace

template <TapUse kUse, typename T, typename C>
void FindTaps(const DeformConvShape& shape, const C* offsets, const T* mask,
              int64_t first, int64_t count, DeformTap<C>* taps) {
  const int64_t all = TapsOf(shape), groups = shape.offset_groups;
  int64_t p = first / shape.out_width, q = first % shape.out_width;
  for (int64_t m = 0; m < count; ++m) {
    const int64_t top = p * shape.stride_y - shape.top;
    const int64_t left = q * shape.stride_x - shape.left;
    int64_t t = 0;
    for (int64_t i = 0; i < shape.kernel_height; ++i) {
      const C base_y = static_cast<C>(top + i * shape.dilation_y);
      for (int64_t j = 0; j < shape.kernel_width; ++j, ++t) {
        const C base_x = static_cast<C>(left + j * shape.dilation_x);
        for (int64_t channel = t; channel < all * groups; channel += all) {
          DeformTap<C>* const tap = taps++;
          tap->mask = mask == nullptr ? C(1) : C(LoadOne(mask + channel));
          FindTap<kUse>(base_y + offsets[2 * channel],
                        base_x + offsets[2 * channel + 1], shape, tap);
        }
      }
    }
    offsets += 2 * all * groups;
    if (mask != nullptr) mask += all * groups;
    if (++q == shape.out_width) {
      q = 0;
      ++p;
    }
  }
}

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
      // Not all lanes: another thread may be writing the columns behind.
      const Vector d = part.Load(d_columns + c, 0);
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        sums[i] = MulAdd(d, part.Load(corners[i] + c, 0), sums[i]);
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

#define TFO_INSTANTIATE_USE(T, use)                                        \
  template void FindTaps<use, T>(const DeformConvShape&,                   \
                                 const Accumulator<T>*, const T*, int64_t, \
                                 int64_t, DeformTap<Accumulator<T>>*)
#define TFO_INSTANTIATE(T)                                                   \
  TFO_INSTANTIATE_USE(T, TapUse::kOutput);                                   \
  TFO_INSTANTIATE_USE(T, TapUse::kSlopes);                                   \
  TFO_INSTANTIATE_USE(T, TapUse::kFilters);                                  \
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
