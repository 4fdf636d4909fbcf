// Sums over taps, and their transposes.
#include "tensorflow_ops/sampling/cc/kernels/grid_sample_simd.h"

#include "tensorflow_ops/core/cc/simd.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {
namespace {

template <typename T>
using Vector = typename Lanes<T>::Vector;
template <typename T>
using Sum = Accumulator<T>;

// The pixels of a sample that count.
template <typename T>
struct CountedTaps {
  int count;
  const T* at[kMaxSampleTaps];
  Sum<T> weight[kMaxSampleTaps];
};

template <typename T, typename Index>
TFO_INLINE CountedTaps<T> CountTaps(const SampleTaps<Sum<T>, Index>& taps,
                                    int64_t i, const T* image,
                                    int64_t channels) {
  CountedTaps<T> counted;
  counted.count = 0;
  for (int t = 0; t < taps.count; ++t) {
    const Sum<T> weight = taps.weight[t][i];
    if (weight == 0) continue;
    counted.at[counted.count] = image + taps.pixel[t][i] * channels;
    counted.weight[counted.count++] = weight;
  }
  return counted;
}

template <typename T>
void FillNan(T* to, int64_t n) {
  const T nan = Narrow<T>(static_cast<Sum<T>>(__builtin_nanf("")));
  for (int64_t c = 0; c < n; ++c) to[c] = nan;
}

// All channels of a sample.
template <typename T>
TFO_INLINE void SampleTapsOf(const CountedTaps<T>& taps, int64_t channels,
                             T* output) {
  constexpr int kCount = Lanes<T>::kCount;
  ForVectorGroups<4, kCount>(
      channels, 0,
      [&](auto vectors, int64_t c) {
        constexpr int kVectors = decltype(vectors)::kValue;
        Vector<T> sums[kVectors] = {};
        for (int t = 0; t < taps.count; ++t) {
          const Vector<T> weight = Vector<T>{} + taps.weight[t];
          const T* const at = taps.at[t] + c;
#pragma GCC unroll 4
          for (int v = 0; v < kVectors; ++v) {
            sums[v] = MulAdd(weight, Load(at + v * kCount), sums[v]);
          }
        }
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) {
          Store(sums[v], output + c + v * kCount);
        }
      },
      [&](int64_t c, int64_t n) {
        if (n <= 4) {
          for (int64_t j = c; j < c + n; ++j) {
            Sum<T> sum = 0;
            for (int t = 0; t < taps.count; ++t) {
              sum =
                  MulAdd(taps.weight[t], Sum<T>(LoadOne(taps.at[t] + j)), sum);
            }
            output[j] = Narrow<T>(sum);
          }
          return;
        }
        Vector<T> sums = {};
        for (int t = 0; t < taps.count; ++t) {
          sums = MulAdd(Vector<T>{} + taps.weight[t],
                        LoadFirst(taps.at[t] + c, n), sums);
        }
        StoreFirst(sums, output + c, n);
      });
}

// Bilinear samples of at most kLanes float channels, each in one short vector.
// Lanes beyond the channels belong to the pixels and samples that follow: the
// next sample overwrites them.
template <int kLanes, typename Index>
void SampleFewChannels(const SampleTaps<float, Index>& taps, int64_t count,
                       const float* image, const SampledPlanes& of,
                       float* output) {
  typedef float Few __attribute__((vector_size(4 * kLanes)));
  const int64_t channels = of.channels;
  const int64_t last_start = of.pixels * channels - kLanes;
  for (int64_t i = 0; i < count; ++i) {
    float* const to = output + i * channels;
    const float weights[4] = {taps.weight[0][i], taps.weight[1][i],
                              taps.weight[2][i], taps.weight[3][i]};
    const bool all = weights[0] * weights[1] * weights[2] * weights[3] != 0;
    if (all && taps.pixel[3][i] * channels <= last_start &&
        (count - 1 - i) * channels >= kLanes) {
      Few sum = {};
#pragma GCC unroll 4
      for (int t = 0; t < 4; ++t) {
        Few pixel;
        memcpy(&pixel, image + taps.pixel[t][i] * channels, sizeof(pixel));
        if constexpr (kLanes == kFloats) {
          sum = reinterpret_cast<Few>(MulAdd(
              FloatVector{} + weights[t], reinterpret_cast<FloatVector>(pixel),
              reinterpret_cast<FloatVector>(sum)));
        } else {
          sum += weights[t] * pixel;
        }
      }
      memcpy(to, &sum, sizeof(sum));
    } else if (taps.nan[i] != taps.nan[i]) {
      FillNan(to, channels);
    } else {
      const auto counted = CountTaps(taps, i, image, channels);
      for (int64_t c = 0; c < channels; ++c) {
        float sum = 0;
        for (int t = 0; t < counted.count; ++t) {
          if constexpr (kLanes == kFloats) {
            sum = MulAdd(counted.weight[t], counted.at[t][c], sum);
          } else {
            sum += counted.weight[t] * counted.at[t][c];
          }
        }
        to[c] = sum;
      }
    }
  }
}

// A vector of pixels of a plane; 0 where the weight is 0.
template <typename T, typename Index>
TFO_INLINE Vector<T> Gather(const T* plane, const Index* pixel,
                            Vector<T> weight) {
#ifdef __AVX512F__
  if constexpr (sizeof(T) == 4 && sizeof(Index) == 4) {
    const __m512 w = reinterpret_cast<__m512>(weight);
    return reinterpret_cast<Vector<T>>(_mm512_mask_i32gather_ps(
        _mm512_setzero_ps(),
        _mm512_cmp_ps_mask(w, _mm512_setzero_ps(), _CMP_NEQ_UQ),
        _mm512_loadu_si512(pixel), plane, 4));
  }
#endif
  Vector<T> values;
  for (int i = 0; i < Lanes<T>::kCount; ++i)
    values[i] = LoadOne(plane + pixel[i]);
  return weight != 0 ? values : Vector<T>{};
}

}  // namespace

template <typename T, typename Index>
void SampleChannelsLast(const SampleTaps<Sum<T>, Index>& taps, int64_t count,
                        const T* image, const SampledPlanes& of, T* output) {
  const int64_t channels = of.channels;
  if constexpr (sizeof(T) == 4) {
    if (taps.count == 4 && channels <= 4) {
      return SampleFewChannels<4>(taps, count, image, of, output);
    }
    if (taps.count == 4 && channels <= 8) {
      return SampleFewChannels<8>(taps, count, image, of, output);
    }
    if (taps.count == 4 && channels < 16 && kFloats == 16) {
      return SampleFewChannels<16>(taps, count, image, of, output);
    }
  }
  for (int64_t i = 0; i < count; ++i) {
    T* const to = output + i * channels;
    if (taps.nan[i] != taps.nan[i]) {
      FillNan(to, channels);
    } else {
      SampleTapsOf(CountTaps(taps, i, image, channels), channels, to);
    }
  }
}

template <typename T, typename Index>
void SamplePlanes(const SampleTaps<Sum<T>, Index>& taps, int64_t count,
                  const T* image, const SampledPlanes& of, T* output) {
  constexpr int kCount = Lanes<T>::kCount;
  for (int64_t c = 0; c < of.channels; ++c) {
    const T* const plane = image + c * of.pixels;
    T* const to = output + c * of.samples;
    for (int64_t i = 0; i < count; i += kCount) {
      Vector<T> sum = Load(taps.nan + i);
      for (int t = 0; t < taps.count; ++t) {
        const Vector<T> weight = Load(taps.weight[t] + i);
        sum = MulAdd(weight, Gather(plane, taps.pixel[t] + i, weight), sum);
      }
      if (i + kCount <= count) {
        Store(sum, to + i);
      } else {
        StoreFirst(sum, to + i, count - i);
      }
    }
  }
}

template <typename T, typename Index>
void AddChannelsLast(const SampleTaps<Sum<T>, Index>& taps,
                     const SampleSpan& span, const T* d_output,
                     const SampledPlanes& of, const PixelBand& band,
                     Sum<T>* sums) {
  constexpr int kCount = Lanes<T>::kCount;
  const int64_t channels = of.channels;
  for (int64_t i = 0; i < span.count; ++i) {
    const int64_t sample = span.list == nullptr ? span.first + i : span.list[i];
    const T* const from = d_output + sample * channels;
    for (int t = 0; t < taps.count; ++t) {
      const Sum<T> weight = taps.weight[t][i];
      const int64_t pixel = taps.pixel[t][i];
      if (weight == 0 || pixel < band.begin || pixel >= band.end) continue;
      Sum<T>* const to = sums + (pixel - band.begin) * channels;
      int64_t c = 0;
      for (; c + kCount <= channels; c += kCount) {
        Store(MulAdd(Vector<T>{} + weight, Load(from + c), Load(to + c)),
              to + c);
      }
      for (; c < channels; ++c) {
        to[c] = MulAdd(weight, Sum<T>(LoadOne(from + c)), to[c]);
      }
    }
  }
}

template <typename T, typename Index>
void AddToPlane(const SampleTaps<Sum<T>, Index>& taps, const SampleSpan& span,
                const T* d_output, const PixelBand& band, Sum<T>* sums) {
  for (int64_t i = 0; i < span.count; ++i) {
    const int64_t sample = span.list == nullptr ? span.first + i : span.list[i];
    const Sum<T> from = LoadOne(d_output + sample);
    for (int t = 0; t < taps.count; ++t) {
      const Sum<T> weight = taps.weight[t][i];
      const int64_t pixel = taps.pixel[t][i];
      if (weight == 0 || pixel < band.begin || pixel >= band.end) continue;
      Sum<T>* const to = sums + (pixel - band.begin);
      *to = MulAdd(weight, from, *to);
    }
  }
}

template <typename T, typename Index>
void DotChannelsLast(const SampleTaps<Sum<T>, Index>& taps,
                     const SampleSlopes<Sum<T>>& slopes, int64_t count,
                     const T* d_output, const T* image, const SampledPlanes& of,
                     SampleDots<Sum<T>>* dots) {
  constexpr int kCount = Lanes<T>::kCount;
  const int64_t channels = of.channels;
  for (int64_t i = 0; i < count; ++i) {
    const T* const from = d_output + i * channels;
    for (int t = 0; t < taps.count; ++t) {
      Sum<T> dot = 0;
      if (slopes.y[t][i] != 0 || slopes.x[t][i] != 0) {
        const T* const at = image + taps.pixel[t][i] * channels;
        int64_t c = 0;
        if (channels >= kCount) {
          Vector<T> sum = {};
          for (; c + kCount <= channels; c += kCount) {
            sum = MulAdd(Load(from + c), Load(at + c), sum);
          }
          dot = SumLanes(sum);
        }
        for (; c < channels; ++c) {
          dot = MulAdd(Sum<T>(LoadOne(from + c)), Sum<T>(LoadOne(at + c)), dot);
        }
      }
      dots->values[t][i] = dot;
    }
  }
}

template <typename T, typename Index>
void DotPlanes(const SampleTaps<Sum<T>, Index>& taps,
               const SampleSlopes<Sum<T>>& slopes, int64_t count,
               const T* d_output, const T* image, const SampledPlanes& of,
               SampleDots<Sum<T>>* dots) {
  constexpr int kCount = Lanes<T>::kCount;
  for (int t = 0; t < taps.count; ++t) {
    for (int64_t i = 0; i < kSampleBlock; ++i) dots->values[t][i] = 0;
  }
  for (int64_t c = 0; c < of.channels; ++c) {
    const T* const plane = image + c * of.pixels;
    const T* const from = d_output + c * of.samples;
    for (int64_t i = 0; i < count; i += kCount) {
      const Vector<T> up =
          i + kCount <= count ? Load(from + i) : LoadFirst(from + i, count - i);
      for (int t = 0; t < taps.count; ++t) {
        const Vector<T> y = Load(slopes.y[t] + i), x = Load(slopes.x[t] + i);
        const Vector<T> used =
            (y != 0) | (x != 0) ? Vector<T>{} + 1 : Vector<T>{};
        Sum<T>* const dot = dots->values[t] + i;
        Store(MulAdd(up, Gather(plane, taps.pixel[t] + i, used), Load(dot)),
              dot);
      }
    }
  }
}

#define TFO_INSTANTIATE(T, Index)                                              \
  template void SampleChannelsLast<T, Index>(const SampleTaps<Sum<T>, Index>&, \
                                             int64_t, const T*,                \
                                             const SampledPlanes&, T*);        \
  template void SamplePlanes<T, Index>(const SampleTaps<Sum<T>, Index>&,       \
                                       int64_t, const T*,                      \
                                       const SampledPlanes&, T*);              \
  template void AddChannelsLast<T, Index>(                                     \
      const SampleTaps<Sum<T>, Index>&, const SampleSpan&, const T*,           \
      const SampledPlanes&, const PixelBand&, Sum<T>*);                        \
  template void AddToPlane<T, Index>(const SampleTaps<Sum<T>, Index>&,         \
                                     const SampleSpan&, const T*,              \
                                     const PixelBand&, Sum<T>*);               \
  template void DotChannelsLast<T, Index>(                                     \
      const SampleTaps<Sum<T>, Index>&, const SampleSlopes<Sum<T>>&, int64_t,  \
      const T*, const T*, const SampledPlanes&, SampleDots<Sum<T>>*);          \
  template void DotPlanes<T, Index>(                                           \
      const SampleTaps<Sum<T>, Index>&, const SampleSlopes<Sum<T>>&, int64_t,  \
      const T*, const T*, const SampledPlanes&, SampleDots<Sum<T>>*)
#define TFO_INSTANTIATE_BOTH(T) \
  TFO_INSTANTIATE(T, int32_t);  \
  TFO_INSTANTIATE(T, int64_t)
TFO_INSTANTIATE_BOTH(float);
TFO_INSTANTIATE_BOTH(double);
TFO_INSTANTIATE_BOTH(Half);
TFO_INSTANTIATE_BOTH(BFloat16);
#undef TFO_INSTANTIATE_BOTH
#undef TFO_INSTANTIATE

}  // namespace TFO_CPU_NAMESPACE
}  // namespace tfo
