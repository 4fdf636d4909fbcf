// Sums over taps. Their transposes are in grid_sample_grad_simd.cc.
#include "tensorflow_ops/image/cc/kernels/grid_sample/grid_sample_simd.h"

#include "tensorflow_ops/core/cc/simd.h"
#include "tensorflow_ops/image/cc/kernels/grid_sample/sample_block.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {
namespace {

// The pixels of a sample that count.
template <typename T, int kMax = kMaxSampleTaps>
struct CountedTaps {
  int count;
  const T* at[kMax];
  Sum<T> weight[kMax];
};

template <typename T>
TFO_INLINE CountedTaps<T> CountTaps(const SampleTaps<Sum<T>>& taps, int64_t i,
                                    const T* image, int64_t channels) {
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
template <typename T, int kMax>
TFO_INLINE void SampleTapsOf(const CountedTaps<T, kMax>& taps, int64_t channels,
                             T* output) {
  constexpr int kCount = Lanes<T>::kCount;
  const int count = kMax == 4 ? 4 : taps.count;
  ForVectorGroups<4, kCount>(
      channels, 0,
      [&](auto vectors, int64_t c) {
        constexpr int kVectors = decltype(vectors)::kValue;
        Vector<T> sums[kVectors] = {};
#pragma GCC unroll 4
        for (int t = 0; t < count; ++t) {
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
            for (int t = 0; t < count; ++t) {
              sum =
                  MulAdd(taps.weight[t], Sum<T>(LoadOne(taps.at[t] + j)), sum);
            }
            output[j] = Narrow<T>(sum);
          }
          return;
        }
        Vector<T> sums = {};
        for (int t = 0; t < count; ++t) {
          sums = MulAdd(Vector<T>{} + taps.weight[t],
                        LoadFirst(taps.at[t] + c, n), sums);
        }
        StoreFirst(sums, output + c, n);
      });
}

// One sample from its taps that count. Not inlined, so that loops over samples
// whose taps are known keep their numbers in registers.
template <typename T>
__attribute__((noinline)) void SampleAnyTaps(const SampleTaps<Sum<T>>& taps,
                                             int64_t i, const T* image,
                                             int64_t channels, T* output) {
  if (taps.nan[i] != taps.nan[i]) return FillNan(output, channels);
  SampleTapsOf(CountTaps(taps, i, image, channels), channels, output);
}

// Bilinear samples of at most kLanes float channels, each in one short vector.
// Its lanes beyond the channels belong to the pixels and samples that follow;
// the next sample overwrites them.
template <int kLanes>
struct ShortVector {
  typedef float Vector __attribute__((vector_size(4 * kLanes)));

  static TFO_INLINE Vector Fused(float weight, const float* at, Vector sum) {
    Vector pixel;
    memcpy(&pixel, at, sizeof(pixel));
#ifdef __FMA__
    if constexpr (kLanes == 4) {
      return reinterpret_cast<Vector>(
          _mm_fmadd_ps(_mm_set1_ps(weight), reinterpret_cast<__m128>(pixel),
                       reinterpret_cast<__m128>(sum)));
    }
    if constexpr (kLanes == 8) {
      return reinterpret_cast<Vector>(_mm256_fmadd_ps(
          _mm256_set1_ps(weight), reinterpret_cast<__m256>(pixel),
          reinterpret_cast<__m256>(sum)));
    }
#endif
#ifdef __AVX512F__
    if constexpr (kLanes == 16) {
      return reinterpret_cast<Vector>(_mm512_fmadd_ps(
          _mm512_set1_ps(weight), reinterpret_cast<__m512>(pixel),
          reinterpret_cast<__m512>(sum)));
    }
#endif
    return weight * pixel + sum;
  }
};

template <int kLanes>
__attribute__((noinline)) void SampleFewChannels(const SampleTaps<float>& taps,
                                                 int64_t count,
                                                 const float* image,
                                                 const GridSampleSpec& args,
                                                 float* output) {
  const int64_t channels = args.channels;
  const int64_t row = args.width * channels;
  int32_t simple[kSampleBlock];
  const int32_t last_pixel =
      static_cast<int32_t>((args.Pixels() * channels - kLanes) / channels);
  const bool all = AllTapsInside(taps, 0, last_pixel, count, simple);
  const auto sample = [&](int64_t i) {
    const float* const at = image + taps.pixel[0][i] * channels;
    const float* const below = at + row;
    typename ShortVector<kLanes>::Vector sum = {};
    sum = ShortVector<kLanes>::Fused(taps.weight[0][i], at, sum);
    sum = ShortVector<kLanes>::Fused(taps.weight[1][i], at + channels, sum);
    sum = ShortVector<kLanes>::Fused(taps.weight[2][i], below, sum);
    return ShortVector<kLanes>::Fused(taps.weight[3][i], below + channels, sum);
  };
  // Samples whose vectors end in the block's output.
  int64_t whole = count - (kLanes + channels - 1) / channels + 1;
  int64_t i = 0;
  if (all) {
    for (; i < whole; ++i) {
      const auto sum = sample(i);
      memcpy(output + i * channels, &sum, sizeof(sum));
    }
  } else {
    for (; i < whole; ++i) {
      if (simple[i]) {
        const auto sum = sample(i);
        memcpy(output + i * channels, &sum, sizeof(sum));
      } else {
        SampleAnyTaps(taps, i, image, channels, output + i * channels);
      }
    }
  }
  for (; i < count; ++i) {
    if (simple[i]) {
      const auto sum = sample(i);
      memcpy(output + i * channels, &sum, channels * sizeof(float));
    } else {
      SampleAnyTaps(taps, i, image, channels, output + i * channels);
    }
  }
}

// A vector of samples at a time.
template <typename T>
void SampleOneChannel(const SampleTaps<Sum<T>>& taps, int64_t count,
                      const T* image, T* output) {
  constexpr int kCount = Lanes<T>::kCount;
  for (int64_t i = 0; i < count; i += kCount) {
    Vector<T> sum = Load(taps.nan + i);
    for (int t = 0; t < taps.count; ++t) {
      const Vector<T> weight = Load(taps.weight[t] + i);
      sum = MulAdd(weight, Gather(image, taps.pixel[t] + i, weight), sum);
    }
    if (i + kCount <= count) {
      Store(sum, output + i);
    } else {
      StoreFirst(sum, output + i, count - i);
    }
  }
}

template <typename T>
void SampleManyChannels(const SampleTaps<Sum<T>>& taps, int64_t count,
                        const T* image, const GridSampleSpec& args, T* output) {
  const int64_t channels = args.channels, row = args.width * channels;
  int32_t simple[kSampleBlock] = {};
  if (taps.count == 4) {
    AllTapsInside(taps, 0, static_cast<int32_t>(args.Pixels() - 1), count,
                  simple);
  }
  for (int64_t i = 0; i < count; ++i) {
    T* const to = output + i * channels;
    if (simple[i]) {
      const T* const at = image + taps.pixel[0][i] * channels;
      SampleTapsOf(CountedTaps<T, 4>{4,
                                     {at, at + channels, at + row,
                                      at + row + channels},
                                     {taps.weight[0][i], taps.weight[1][i],
                                      taps.weight[2][i], taps.weight[3][i]}},
                   channels, to);
    } else {
      SampleAnyTaps(taps, i, image, channels, to);
    }
  }
}

}  // namespace

template <typename T>
void FetchPixels(const SampleTaps<Sum<T>>& taps, int64_t count, int new_tap,
                 const T* image, int64_t channels) {
  constexpr int64_t kLine = 64, kMostBytes = 512;
  const int64_t bytes = channels * sizeof(T);
  const int64_t fetched = bytes <= kMostBytes ? bytes : kLine;
  const char* const from = reinterpret_cast<const char*>(image);
  const int32_t* const pixel = taps.pixel[new_tap];
  for (int64_t i = 0; i < count; ++i) {
    const char* const at = from + pixel[i] * bytes;
    // Unrolled, it is up to a tenth slower.
#pragma GCC unroll 1
    for (int64_t line = 0; line < fetched; line += kLine) {
      __builtin_prefetch(at + line, 0, 3);
    }
  }
}

template <typename T>
void SamplePixels(const SampleTaps<Sum<T>>& taps, int64_t count, const T* image,
                  const GridSampleSpec& args, T* output) {
  const int64_t channels = args.channels;
  if (channels == 1) return SampleOneChannel(taps, count, image, output);
  if constexpr (sizeof(T) == 4) {
    if (taps.count == 4 && channels <= 4 && args.Pixels() * channels >= 4) {
      return SampleFewChannels<4>(taps, count, image, args, output);
    }
    if (taps.count == 4 && channels <= 8 && args.Pixels() * channels >= 8) {
      return SampleFewChannels<8>(taps, count, image, args, output);
    }
    if constexpr (kFloats == 16) {
      if (taps.count == 4 && channels < 16 && args.Pixels() * channels >= 16) {
        return SampleFewChannels<16>(taps, count, image, args, output);
      }
    }
  }
  SampleManyChannels(taps, count, image, args, output);
}

TFO_INSTANTIATE_FUNCTION(FetchPixels);
TFO_INSTANTIATE_FUNCTION(SamplePixels);

}  // namespace TFO_CPU_NAMESPACE
}  // namespace tfo
