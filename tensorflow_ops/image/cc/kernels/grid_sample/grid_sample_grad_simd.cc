// The transposes of sums over taps.
#include "tensorflow_ops/core/cc/simd/simd.h"
#include "tensorflow_ops/image/cc/kernels/grid_sample/four_simd.h"
#include "tensorflow_ops/image/cc/kernels/grid_sample/grid_sample_simd.h"
#include "tensorflow_ops/image/cc/kernels/grid_sample/sample_block.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {
namespace {

// Adds weight times n values to sums.
template <typename T>
TFO_INLINE void AddScaled(Sum<T> weight, const T* from, int64_t n, Sum<T>* to) {
  constexpr int kCount = Lanes<T>::kCount;
  int64_t c = 0;
  for (; c + kCount <= n; c += kCount) {
    Store(MulAdd(Broadcast<Vector<T>>(weight), Load(from + c), Load(to + c)),
          to + c);
  }
  for (; c < n; ++c) to[c] = MulAdd(weight, Sum<T>(LoadOne(from + c)), to[c]);
}

// The gradient of one sample of a band's pixels: the taps that are in it.
template <typename T>
TFO_INLINE void AddSample(const SampleTaps<Sum<T>>& taps, int64_t i,
                          const T* from, int64_t channels,
                          const PixelBand& band, Sum<T>* sums) {
  for (int t = 0; t < taps.count; ++t) {
    const Sum<T> weight = taps.weight[t][i];
    const int64_t pixel = taps.pixel[t][i];
    if (weight == 0 || pixel < band.begin || pixel >= band.end) continue;
    AddScaled(weight, from, channels, sums + (pixel - band.begin) * channels);
  }
}

// Bilinear samples. kChannels: args.channels, or 0 for any number.
template <int kChannels, typename T>
__attribute__((noinline)) void AddBilinear(
    const SampleTaps<Sum<T>>& taps, const SampleSpan& span, const T* d_output,
    const GridSampleSpec& args, const PixelBand& band, Sum<T>* sums) {
  const int64_t channels = kChannels == 0 ? args.channels : kChannels;
  const int64_t row = args.width * channels;
  int32_t simple[kSampleBlock];
  AllTapsInside(taps, args, static_cast<int32_t>(band.begin),
                static_cast<int32_t>(band.end - 1), span.count, simple);
  for (int64_t i = 0; i < span.count; ++i) {
    const int64_t sample = span.list == nullptr ? span.first + i : span.list[i];
    const T* const from = d_output + sample * channels;
    if (!simple[i]) {
      AddSample(taps, i, from, channels, band, sums);
      continue;
    }
    Sum<T>* const to = sums + (taps.pixel[0][i] - band.begin) * channels;
    Sum<T>* const below = to + row;
    const Sum<T> w0 = taps.weight[0][i], w1 = taps.weight[1][i],
                 w2 = taps.weight[2][i], w3 = taps.weight[3][i];
    if constexpr (kChannels == 0) {
      AddScaled(w0, from, channels, to);
      AddScaled(w2, from, channels, below);
      AddScaled(w1, from, channels, to + channels);
      AddScaled(w3, from, channels, below + channels);
    } else {
#pragma GCC unroll 4
      for (int c = 0; c < kChannels; ++c) {
        const Sum<T> up = LoadOne(from + c);
        to[c] = MulAdd(w0, up, to[c]);
        below[c] = MulAdd(w2, up, below[c]);
        to[c + kChannels] = MulAdd(w1, up, to[c + kChannels]);
        below[c + kChannels] = MulAdd(w3, up, below[c + kChannels]);
      }
    }
  }
}

// The sums of a pixel and of the one below it.
struct PixelPair {
  Four top, low;
  float* at;  // the upper one's sums; null: none
};

// The same for three float channels, whose sums are in a vector of four lanes
// each. The last lane is the next pixel's: it adds -0 and writes what was
// there. Of neighboring samples, most share two pixels, which stay in
// registers. Rows of at least three pixels do not overlap.
__attribute__((noinline)) void AddThreeChannels(const SampleTaps<float>& taps,
                                                const SampleSpan& span,
                                                const float* d_output,
                                                const GridSampleSpec& args,
                                                const PixelBand& band,
                                                float* sums) {
  constexpr int kChannels = 3;
  constexpr Four kNothing = {-0.f, -0.f, -0.f, -0.f};
  const int64_t row = args.width * kChannels;
  int32_t simple[kSampleBlock];
  // The last pixel's fourth lane may be another thread's.
  AllTapsInside(taps, args, static_cast<int32_t>(band.begin),
                static_cast<int32_t>(band.end - 2), span.count, simple);
  PixelPair kept = {};
  const auto store = [&](const PixelPair& pair) {
    StoreFour(pair.top, pair.at);
    StoreFour(pair.low, pair.at + row);
  };
  for (int64_t i = 0; i < span.count; ++i) {
    const int64_t sample = span.list == nullptr ? span.first + i : span.list[i];
    const float* const from = d_output + sample * kChannels;
    // Nothing follows the last sample.
    if (!simple[i] || sample == args.samples - 1) {
      if (kept.at != nullptr) store(kept);
      kept.at = nullptr;
      AddSample(taps, i, from, kChannels, band, sums);
      continue;
    }
    float* const to = sums + (taps.pixel[0][i] - band.begin) * kChannels;
    const Four up =
        __builtin_shufflevector(LoadFour(from), kNothing, 0, 1, 2, 7);
    if (to != kept.at) {
      if (kept.at != nullptr) store(kept);
      kept = {LoadFour(to), LoadFour(to + row), to};
    }
    kept.top = MulAddFour(taps.weight[0][i], up, kept.top);
    kept.low = MulAddFour(taps.weight[2][i], up, kept.low);
    float* const right = to + kChannels;
    const PixelPair next = {
        MulAddFour(taps.weight[1][i], up, LoadFour(right)),
        MulAddFour(taps.weight[3][i], up, LoadFour(right + row)), right};
    store(kept);
    kept = next;
  }
  if (kept.at != nullptr) store(kept);
}

// Lane j of the result is the sum of the lanes of vectors[j]; overwrites them.
template <typename V>
TFO_INLINE V SumsOfVectors(V* vectors) {
  constexpr int kCount = sizeof(V) / sizeof(V{}[0]);
  ForHalves<kCount>([&](auto half) {
    constexpr int kHalf = half.kValue;
#pragma GCC unroll 8
    for (int j = 0; j < kHalf; ++j) {
      const V a = vectors[j], b = vectors[j + kHalf];
      vectors[j] =
          Shuffle(a, b,
                  [](int l) { return l & kHalf ? kCount + l - kHalf : l; }) +
          Shuffle(a, b,
                  [](int l) { return l & kHalf ? kCount + l : l + kHalf; });
    }
  });
  return vectors[0];
}

// Vectors of products of a sample's upstream gradient and a pixel. Lanes are
// summed later.
template <typename T>
TFO_INLINE Vector<T> Products(const T* from, const T* at, int64_t channels) {
  constexpr int kCount = Lanes<T>::kCount;
  Vector<T> sum = {};
  int64_t c = 0;
  for (; c + kCount <= channels; c += kCount) {
    sum = MulAdd(Load(from + c), Load(at + c), sum);
  }
  if (c < channels) {
    const int64_t n = channels - c;
    sum = MulAdd(LoadFirst(from + c, n), LoadFirst(at + c, n), sum);
  }
  return sum;
}

// The same for the four pixels of a bilinear sample.
template <typename T>
TFO_INLINE void FourProducts(const T* from, const T* at, int64_t row,
                             int64_t channels, int step, Vector<T>* sums) {
  constexpr int kCount = Lanes<T>::kCount;
  const T* const p[4] = {at, at + channels, at + row, at + row + channels};
  Vector<T> sum[4] = {};
  int64_t c = 0;
  for (; c + kCount <= channels; c += kCount) {
    const Vector<T> up = Load(from + c);
#pragma GCC unroll 4
    for (int t = 0; t < 4; ++t) sum[t] = MulAdd(up, Load(p[t] + c), sum[t]);
  }
  if (c < channels) {
    const int64_t n = channels - c;
    const Vector<T> up = LoadFirst(from + c, n);
#pragma GCC unroll 4
    for (int t = 0; t < 4; ++t) {
      sum[t] = MulAdd(up, LoadFirst(p[t] + c, n), sum[t]);
    }
  }
#pragma GCC unroll 4
  for (int t = 0; t < 4; ++t) sums[t * step] = sum[t];
}

template <typename C>
TFO_INLINE bool IsUsed(const SampleSlopes<C>& slopes, int t, int64_t i) {
  return slopes.y[t][i] != 0 || slopes.x[t][i] != 0;
}

template <typename T>
TFO_INLINE Sum<T> ScalarDot(const SampleTaps<Sum<T>>& taps,
                            const SampleSlopes<Sum<T>>& slopes, int t,
                            int64_t i, const T* d_output, const T* image,
                            int64_t channels) {
  Sum<T> dot = 0;
  if (!IsUsed(slopes, t, i)) return dot;
  const T* const from = d_output + i * channels;
  const T* const at = image + taps.pixel[t][i] * channels;
  for (int64_t c = 0; c < channels; ++c) {
    dot = MulAdd(Sum<T>(LoadOne(from + c)), Sum<T>(LoadOne(at + c)), dot);
  }
  return dot;
}

// A vector of samples at a time.
template <typename T>
void DotOneChannel(const SampleTaps<Sum<T>>& taps,
                   const SampleSlopes<Sum<T>>& slopes, int64_t count,
                   const T* d_output, const T* image,
                   SampleDots<Sum<T>>* dots) {
  constexpr int kCount = Lanes<T>::kCount;
  for (int64_t i = 0; i < count; i += kCount) {
    const Vector<T> up = i + kCount <= count
                             ? Load(d_output + i)
                             : LoadFirst(d_output + i, count - i);
    for (int t = 0; t < taps.count; ++t) {
      const Vector<T> y = Load(slopes.y[t] + i), x = Load(slopes.x[t] + i);
      const Vector<T> used =
          (y != 0) | (x != 0) ? Broadcast<Vector<T>>(1) : Vector<T>{};
      Store(MulAdd(up, Gather(image, taps.pixel[t] + i, used), Vector<T>{}),
            dots->values[t] + i);
    }
  }
}

#ifdef __AVX__
typedef float Eight __attribute__((vector_size(32)));

TFO_INLINE Eight Join(Four low, Four high) {
  return reinterpret_cast<Eight>(_mm256_insertf128_ps(
      _mm256_castps128_ps256(reinterpret_cast<__m128>(low)),
      reinterpret_cast<__m128>(high), 1));
}
template <int kHalf>
TFO_INLINE Four HalfOf(Eight v) {
  return reinterpret_cast<Four>(
      _mm256_extractf128_ps(reinterpret_cast<__m256>(v), kHalf));
}

// Writes the dots of four samples with a row's left and right pixels. Lanes of
// p are three products of the left one, three of the right one, and others.
TFO_INLINE void StoreDotsOfRow(const Eight (&p)[4], float* left, float* right) {
  // Transposes 4 x 4 floats in each half.
  const auto get01 = [](Eight a, Eight b) {
    return __builtin_shufflevector(a, b, 0, 8, 1, 9, 4, 12, 5, 13);
  };
  const auto get23 = [](Eight a, Eight b) {
    return __builtin_shufflevector(a, b, 2, 10, 3, 11, 6, 14, 7, 15);
  };
  const auto get_first = [](Eight a, Eight b) {
    return __builtin_shufflevector(a, b, 0, 1, 8, 9, 4, 5, 12, 13);
  };
  const auto get_second = [](Eight a, Eight b) {
    return __builtin_shufflevector(a, b, 2, 3, 10, 11, 6, 7, 14, 15);
  };
  const Eight low01 = get01(p[0], p[1]), low23 = get23(p[0], p[1]);
  const Eight high01 = get01(p[2], p[3]), high23 = get23(p[2], p[3]);
  const Eight at04 = get_first(low01, high01);
  const Eight at15 = get_second(low01, high01);
  const Eight at2 = get_first(low23, high23);
  const Eight at3 = get_second(low23, high23);
  StoreFour(HalfOf<0>(at04) + HalfOf<0>(at2) + HalfOf<0>(at15), left);
  StoreFour(HalfOf<0>(at3) + HalfOf<1>(at15) + HalfOf<1>(at04), right);
}

// Bilinear samples of three float channels: four at a time, two pixels of a row
// in a vector.
__attribute__((noinline)) void DotThreeChannels(
    const SampleTaps<float>& taps, const SampleSlopes<float>& slopes,
    int64_t count, const float* d_output, const float* image,
    const GridSampleSpec& args, SampleDots<float>* dots) {
  constexpr int kChannels = 3;
  const int64_t row = args.width * kChannels;
  int32_t simple[kSampleBlock];  // a vector ends in the pixel that follows
  AllTapsInside(taps, args, 0, static_cast<int32_t>(args.Pixels() - 2), count,
                simple);
  int64_t i = 0;
  const auto dot_one = [&](int64_t j) {
    for (int t = 0; t < 4; ++t) {
      dots->values[t][j] =
          ScalarDot<float>(taps, slopes, t, j, d_output, image, kChannels);
    }
  };
  // The last vector of upstream gradients, too, ends in the block.
  for (; (count - i - 3) * kChannels >= 4; i += 4) {
    if (!(simple[i] & simple[i + 1] & simple[i + 2] & simple[i + 3])) {
      for (int j = 0; j < 4; ++j) dot_one(i + j);
      continue;
    }
    Eight top[4], low[4];
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      const Four up = LoadFour(d_output + (i + j) * kChannels);
      const Eight twice = Join(__builtin_shufflevector(up, up, 0, 1, 2, 0),
                               __builtin_shufflevector(up, up, 1, 2, 3, 3));
      const float* const at = image + taps.pixel[0][i + j] * kChannels;
      memcpy(&top[j], at, sizeof(Eight));
      memcpy(&low[j], at + row, sizeof(Eight));
      top[j] *= twice;
      low[j] *= twice;
    }
    StoreDotsOfRow(top, dots->values[0] + i, dots->values[1] + i);
    StoreDotsOfRow(low, dots->values[2] + i, dots->values[3] + i);
  }
  for (; i < count; ++i) dot_one(i);
}
#endif

}  // namespace

template <typename T>
void AddToPixels(const SampleTaps<Sum<T>>& taps, const SampleSpan& span,
                 const T* d_output, const GridSampleSpec& args,
                 const PixelBand& band, Sum<T>* sums) {
  if (taps.count == 4) {
    if constexpr (sizeof(T) == 4) {
      if (args.channels == 3 && args.width >= 3) {
        return AddThreeChannels(taps, span, d_output, args, band, sums);
      }
    }
    switch (args.channels) {
      case 1:
        return AddBilinear<1, T>(taps, span, d_output, args, band, sums);
      case 3:
        return AddBilinear<3, T>(taps, span, d_output, args, band, sums);
      default:
        return AddBilinear<0, T>(taps, span, d_output, args, band, sums);
    }
  }
  for (int64_t i = 0; i < span.count; ++i) {
    const int64_t sample = span.list == nullptr ? span.first + i : span.list[i];
    AddSample(taps, i, d_output + sample * args.channels, args.channels, band,
              sums);
  }
}

template <typename T>
void DotPixels(const SampleTaps<Sum<T>>& taps,
               const SampleSlopes<Sum<T>>& slopes, int64_t count,
               const T* d_output, const T* image, const GridSampleSpec& args,
               SampleDots<Sum<T>>* dots) {
  constexpr int kCount = Lanes<T>::kCount;
  const int64_t channels = args.channels, row = args.width * channels;
  if (channels == 1) {
    return DotOneChannel(taps, slopes, count, d_output, image, dots);
  }
#ifdef __AVX__
  if constexpr (sizeof(T) == 4) {
    if (taps.count == 4 && channels == 3) {
      return DotThreeChannels(taps, slopes, count, d_output, image, args, dots);
    }
  }
#endif
  if (channels < kCount) {
    for (int t = 0; t < taps.count; ++t) {
      for (int64_t i = 0; i < count; ++i) {
        dots->values[t][i] =
            ScalarDot<T>(taps, slopes, t, i, d_output, image, channels);
      }
    }
    return;
  }
  int32_t simple[kSampleBlock] = {};
  if (taps.count == 4) {
    AllTapsInside(taps, args, 0, static_cast<int32_t>(args.Pixels() - 1), count,
                  simple);
  }
  Vector<T> products[kMaxSampleTaps][kCount];
  for (int64_t first = 0; first < count; first += kCount) {
    const int64_t n = count - first < kCount ? count - first : kCount;
    for (int64_t j = 0; j < n; ++j) {
      const int64_t i = first + j;
      const T* const from = d_output + i * channels;
      if (simple[i]) {
        FourProducts(from, image + taps.pixel[0][i] * channels, row, channels,
                     kCount, &products[0][j]);
        continue;
      }
      for (int t = 0; t < taps.count; ++t) {
        products[t][j] =
            IsUsed(slopes, t, i)
                ? Products(from, image + taps.pixel[t][i] * channels, channels)
                : Vector<T>{};
      }
    }
    for (int t = 0; t < taps.count; ++t) {
      for (int64_t j = n; j < kCount; ++j) products[t][j] = Vector<T>{};
      Store(SumsOfVectors(products[t]), dots->values[t] + first);
    }
  }
}

template <typename C>
void SumSlopes(int taps, const SampleSlopes<C>& slopes,
               const SampleDots<C>& dots, int64_t count, C* y, C* x) {
  using V = Vector<C>;
  constexpr int kCount = Lanes<C>::kCount;
  for (int64_t i = 0; i < count; i += kCount) {
    V sum_y = {}, sum_x = {};
    for (int t = 0; t < taps; ++t) {
      const V slope_y = Load(slopes.y[t] + i), slope_x = Load(slopes.x[t] + i);
      const V dot = Load(dots.values[t] + i);
      // Zero times infinity is NaN.
      sum_y += slope_y != 0 ? slope_y * dot : V{};
      sum_x += slope_x != 0 ? slope_x * dot : V{};
    }
    Store(sum_y, y + i);
    Store(sum_x, x + i);
  }
}

TFO_INSTANTIATE_FUNCTION(AddToPixels);
TFO_INSTANTIATE_FUNCTION(DotPixels);
template void SumSlopes<float>(int, const SampleSlopes<float>&,
                               const SampleDots<float>&, int64_t, float*,
                               float*);
template void SumSlopes<double>(int, const SampleSlopes<double>&,
                                const SampleDots<double>&, int64_t, double*,
                                double*);

}  // namespace TFO_CPU_NAMESPACE
}  // namespace tfo
