#include "tensorflow_ops/detection/cc/kernels/roi_align_max_simd.h"

#include "tensorflow_ops/core/cc/simd.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {
namespace {

// kVectors vectors of channels, of which load(pixel, i) loads one.
template <int kVectors, typename T, typename LoadVector>
inline __attribute__((always_inline)) void Largest(
    const T* map, const MapStrides& strides, LineSamples<Accumulator<T>> rows,
    LineSamples<Accumulator<T>> columns, bool outside, const LoadVector& load,
    typename Lanes<T>::Vector (&best)[kVectors],
    typename Lanes<T>::Index (&at)[kVectors]) {
  using Vector = typename Lanes<T>::Vector;
  using Integer = typename Lanes<T>::Integer;
  Integer sample = 0;
  for (auto y = rows.begin; y < rows.end; ++y) {
    for (auto x = columns.begin; x < columns.end; ++x, ++sample) {
      Vector values[kVectors] = {};
      VisitCorners(*y, *x, strides, [&](int64_t offset, Accumulator<T> weight) {
        const Vector w = Vector{} + weight;
#pragma GCC unroll 4
        for (int i = 0; i < kVectors; ++i) {
          values[i] = MulAdd(w, load(map + offset, i), values[i]);
        }
      });
#pragma GCC unroll 4
      for (int i = 0; i < kVectors; ++i) {
        if (sample == 0) {
          best[i] = values[i];
          at[i] = typename Lanes<T>::Index{};
        } else {
          TakeGreater(values[i], sample, best[i], at[i]);
        }
      }
    }
  }
  for (int i = 0; i < kVectors; ++i) {
    if (sample == 0) {
      best[i] = Vector{};
      at[i] = typename Lanes<T>::Index{} - 1;
    } else if (outside) {
      TakeGreater(Vector{}, Integer{-1}, best[i], at[i]);
    }
  }
}

}  // namespace

template <typename T>
void LargestSamples(const T* map, MapStrides strides, int64_t channels,
                    LineSamples<Accumulator<T>> rows,
                    LineSamples<Accumulator<T>> columns, bool outside,
                    Accumulator<T>* values, int32_t* samples) {
  using Vector = typename Lanes<T>::Vector;
  constexpr int kCount = Lanes<T>::kCount;
  constexpr int kVectors = 4;
  int64_t c = 0;
  if (strides.channel == 1) {
    for (; c + kVectors * kCount <= channels; c += kVectors * kCount) {
      Vector best[kVectors];
      typename Lanes<T>::Index at[kVectors];
      Largest<kVectors>(
          map + c, strides, rows, columns, outside,
          [](const T* pixel, int i) { return Load(pixel + i * kCount); }, best,
          at);
      for (int i = 0; i < kVectors; ++i) {
        Store(best[i], values + c + i * kCount);
        StoreIndex(at[i], samples + c + i * kCount);
      }
    }
  }
  // What remains, and channels that are apart.
  for (; c < channels; c += kCount) {
    const int64_t n = channels - c < kCount ? channels - c : kCount;
    Vector best[1];
    typename Lanes<T>::Index at[1];
    Largest<1>(
        map + c * strides.channel, strides, rows, columns, outside,
        [&](const T* pixel, int) {
          if (strides.channel == 1) {
            return n < kCount ? LoadFirst(pixel, n) : Load(pixel);
          }
          Accumulator<T> lanes[kCount] = {};
          for (int64_t i = 0; i < n; ++i) {
            lanes[i] = LoadOne(pixel + i * strides.channel);
          }
          return Load(lanes);
        },
        best, at);
    Accumulator<T> lanes[kCount];
    int32_t indices[kCount];
    Store(best[0], lanes);
    StoreIndex(at[0], indices);
    for (int64_t i = 0; i < n; ++i) {
      values[c + i] = lanes[i];
      samples[c + i] = indices[i];
    }
  }
}

#define TFO_INSTANTIATE(T)                                        \
  template void LargestSamples<T>(                                \
      const T*, MapStrides, int64_t, LineSamples<Accumulator<T>>, \
      LineSamples<Accumulator<T>>, bool, Accumulator<T>*, int32_t*)
TFO_INSTANTIATE(float);
TFO_INSTANTIATE(double);
TFO_INSTANTIATE(Half);
TFO_INSTANTIATE(BFloat16);
#undef TFO_INSTANTIATE

}  // namespace TFO_CPU_NAMESPACE
}  // namespace tfo
