#include "tensorflow_ops/sampling/cc/kernels/correlation_cost_simd.h"

#include "tensorflow_ops/core/cc/simd.h"
#include "tensorflow_ops/sampling/cc/kernels/four_simd.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {
namespace {

template <typename T>
using Vector = typename Lanes<T>::Vector;

// Vectors of positions, and channels at a time: their sums, and what is read
// once for all, fit the registers.
constexpr int kWide = kVectorBytes == 64 ? 2 : 1;
constexpr int kChannels = kVectorBytes == 64 ? 12 : 10;

// Displacements at a time, for kRows rows of costs: their sums, kRows vectors
// of a and one of b fit the registers.
constexpr bool kManyRegisters = kVectorBytes != 32;
constexpr int Together(int rows) {
  return kManyRegisters ? 9 : rows == 3 ? 4 : rows == 2 ? 6 : 9;
}

template <int kRows, int kCount, typename V>
TFO_INLINE void AddSomeDots(const PlaneRow<const V>* a,
                            const PlaneRow<const V>& b, const int64_t* offsets,
                            int64_t channels, int64_t width, int64_t first,
                            const PlaneRow<V>* sums) {
  constexpr int kLanes = Lanes<V>::kCount;
  const int64_t a_step = a[0].step;
  V* to[kRows];
#pragma GCC unroll 3
  for (int r = 0; r < kRows; ++r) to[r] = sums[r].data + first * sums[r].step;
  for (int64_t x = 0; x < width; x += kLanes) {
    Vector<V> sum[kRows][kCount];
    const V* from_a[kRows];
#pragma GCC unroll 3
    for (int r = 0; r < kRows; ++r) {
      from_a[r] = a[r].data + x;
#pragma GCC unroll 9
      for (int n = 0; n < kCount; ++n) {
        sum[r][n] = Load(to[r] + n * sums[r].step + x);
      }
    }
    const V* at[kCount];
#pragma GCC unroll 9
    for (int n = 0; n < kCount; ++n) at[n] = b.data + x + offsets[n];
    int64_t from_b = 0;
    for (int64_t c = 0; c < channels; ++c) {
      Vector<V> value[kRows];
#pragma GCC unroll 3
      for (int r = 0; r < kRows; ++r) {
        value[r] = Load(from_a[r]);
        from_a[r] += a_step;
      }
#pragma GCC unroll 9
      for (int n = 0; n < kCount; ++n) {
        const Vector<V> other = Load(at[n] + from_b);
#pragma GCC unroll 3
        for (int r = 0; r < kRows; ++r) {
          sum[r][n] = MulAdd(value[r], other, sum[r][n]);
        }
      }
      from_b += b.step;
    }
#pragma GCC unroll 3
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 9
      for (int n = 0; n < kCount; ++n) {
        Store(sum[r][n], to[r] + n * sums[r].step + x);
      }
    }
  }
}

// Calls run(Constant<n>) for a count in [1, kMost].
template <int kMost, typename Run>
TFO_INLINE void WithCount(int64_t count, const Run& run) {
  if constexpr (kMost > 1) {
    if (count < kMost) return WithCount<kMost - 1>(count, run);
  }
  run(Constant<kMost>{});
}

template <int kCount, typename V>
TFO_INLINE void AddToChannels(const PlaneRow<const V>& weights,
                              const int64_t* weight_offsets,
                              const PlaneRow<const V>& b,
                              const int64_t* offsets, int64_t count,
                              int64_t width, const PlaneRow<V>& sums) {
  constexpr int kLanes = Lanes<V>::kCount;
  for (int64_t x = 0; x < width; x += kWide * kLanes) {
    Vector<V> sum[kCount][kWide];
#pragma GCC unroll 12
    for (int c = 0; c < kCount; ++c) {
#pragma GCC unroll 2
      for (int w = 0; w < kWide; ++w) {
        sum[c][w] = Load(sums.data + c * sums.step + x + w * kLanes);
      }
    }
    for (int64_t n = 0; n < count; ++n) {
      const V* const from =
          weights.data + n * weights.step + weight_offsets[n] + x;
      const V* const from_b = b.data + offsets[n] + x;
      Vector<V> weight[kWide];
#pragma GCC unroll 2
      for (int w = 0; w < kWide; ++w) weight[w] = Load(from + w * kLanes);
#pragma GCC unroll 12
      for (int c = 0; c < kCount; ++c) {
#pragma GCC unroll 2
        for (int w = 0; w < kWide; ++w) {
          sum[c][w] = MulAdd(weight[w], Load(from_b + c * b.step + w * kLanes),
                             sum[c][w]);
        }
      }
    }
#pragma GCC unroll 12
    for (int c = 0; c < kCount; ++c) {
#pragma GCC unroll 2
      for (int w = 0; w < kWide; ++w) {
        Store(sum[c][w], sums.data + c * sums.step + x + w * kLanes);
      }
    }
  }
}

// Calls visit(n, x) in tiles that keep both sides of a transpose in the cache.
template <typename Visit>
TFO_INLINE void ForTiles(int64_t count, int64_t width, const Visit& visit) {
  constexpr int64_t kTile = 16;
  for (int64_t x0 = 0; x0 < width; x0 += kTile) {
    const int64_t x1 = x0 + kTile < width ? x0 + kTile : width;
    for (int64_t n = 0; n < count; ++n) {
      for (int64_t x = x0; x < x1; ++x) visit(n, x);
    }
  }
}

#ifdef __AVX__
// to(x, n) = scale from(n, x) of 8 x 8 floats.
TFO_INLINE void TransposeEight(const float* from, int64_t from_step,
                               float scale, float* to, int64_t to_step) {
  const __m256 factor = _mm256_set1_ps(scale);
  __m256 rows[8], pairs[8], fours[8];
  // Rows n and n + 4 in the halves of a vector.
#pragma GCC unroll 4
  for (int n = 0; n < 4; ++n) {
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      const float* const at = from + n * from_step + 4 * half;
      rows[n + 4 * half] = _mm256_mul_ps(
          factor, _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(at)),
                                       _mm_loadu_ps(at + 4 * from_step), 1));
    }
  }
#pragma GCC unroll 2
  for (int half = 0; half < 8; half += 4) {
#pragma GCC unroll 2
    for (int n = 0; n < 4; n += 2) {
      pairs[half + n] = _mm256_unpacklo_ps(rows[half + n], rows[half + n + 1]);
      pairs[half + n + 1] =
          _mm256_unpackhi_ps(rows[half + n], rows[half + n + 1]);
    }
    fours[half] = _mm256_shuffle_ps(pairs[half], pairs[half + 2], 0x44);
    fours[half + 1] = _mm256_shuffle_ps(pairs[half], pairs[half + 2], 0xEE);
    fours[half + 2] = _mm256_shuffle_ps(pairs[half + 1], pairs[half + 3], 0x44);
    fours[half + 3] = _mm256_shuffle_ps(pairs[half + 1], pairs[half + 3], 0xEE);
  }
#pragma GCC unroll 8
  for (int x = 0; x < 8; ++x) _mm256_storeu_ps(to + x * to_step, fours[x]);
}
#endif

// to(x, n) = scale from(n, x) of floats, in tiles of 4 x 4: element (n, x) of
// the source is from[n * from_step + x], of the result to[x * to_step + n].
TFO_INLINE void Transpose(const float* from, int64_t from_step, int64_t rows,
                          int64_t columns, float scale, float* to,
                          int64_t to_step) {
  constexpr int64_t kBlock = 16;
  typedef int32_t Places __attribute__((vector_size(16)));
  constexpr Places kLow = {0, 4, 1, 5}, kHigh = {2, 6, 3, 7};
  constexpr Places kFirst = {0, 1, 4, 5}, kSecond = {2, 3, 6, 7};
  const int64_t whole_rows = rows / 4 * 4, whole_columns = columns / 4 * 4;
  for (int64_t n0 = 0; n0 < whole_rows; n0 += kBlock) {
    const int64_t n1 = n0 + kBlock < whole_rows ? n0 + kBlock : whole_rows;
    int64_t x0 = 0;
#ifdef __AVX__
    if ((n1 - n0) % 8 == 0) {
      for (; x0 + 8 <= whole_columns; x0 += 8) {
        for (int64_t n = n0; n < n1; n += 8) {
          TransposeEight(from + n * from_step + x0, from_step, scale,
                         to + x0 * to_step + n, to_step);
        }
      }
    }
#endif
    for (int64_t x = x0; x < whole_columns; x += 4) {
      for (int64_t n = n0; n < n1; n += 4) {
        const float* const at = from + n * from_step + x;
        const Four a = scale * LoadFour(at);
        const Four b = scale * LoadFour(at + from_step);
        const Four c = scale * LoadFour(at + 2 * from_step);
        const Four d = scale * LoadFour(at + 3 * from_step);
        const Four low_ab = __builtin_shuffle(a, b, kLow);
        const Four low_cd = __builtin_shuffle(c, d, kLow);
        const Four high_ab = __builtin_shuffle(a, b, kHigh);
        const Four high_cd = __builtin_shuffle(c, d, kHigh);
        float* const out = to + x * to_step + n;
        StoreFour(__builtin_shuffle(low_ab, low_cd, kFirst), out);
        StoreFour(__builtin_shuffle(low_ab, low_cd, kSecond), out + to_step);
        StoreFour(__builtin_shuffle(high_ab, high_cd, kFirst),
                  out + 2 * to_step);
        StoreFour(__builtin_shuffle(high_ab, high_cd, kSecond),
                  out + 3 * to_step);
      }
    }
  }
  const auto rest = [&](int64_t first_row, int64_t x0, int64_t x1) {
    for (int64_t n = first_row; n < rows; ++n) {
      for (int64_t x = x0; x < x1; ++x) {
        to[x * to_step + n] = scale * from[n * from_step + x];
      }
    }
  };
  rest(whole_rows, 0, whole_columns);
  rest(0, whole_columns, columns);
}

}  // namespace

template <typename T>
void PackRow(const TensorRow<const T>& from, int64_t count, int64_t width,
             int64_t x0, int64_t phases, int64_t phase_step,
             const PlaneRow<Accumulator<T>>& to) {
  const T* const data = from.data;
  const int64_t step = from.step, pixel_step = from.pixel_step;
  if (phases == 1) {
    Accumulator<T>* const out = to.data + x0;
    const int64_t out_step = to.step;
    if constexpr (std::is_same_v<T, float>) {
      if (step == 1) {
        return Transpose(data, pixel_step, width, count, 1, out, out_step);
      }
    }
    ForTiles(count, width, [&](int64_t n, int64_t x) {
      out[n * out_step + x] = LoadOne(data + n * step + x * pixel_step);
    });
    return;
  }
  ForTiles(count, width, [&](int64_t n, int64_t x) {
    to.data[n * to.step + (x0 + x) % phases * phase_step + (x0 + x) / phases] =
        LoadOne(data + n * step + x * pixel_step);
  });
}

template <typename T>
void UnpackRow(const PlaneRow<const Accumulator<T>>& from, int64_t count,
               int64_t width, Accumulator<T> scale, const TensorRow<T>& to) {
  const int64_t step = to.step, pixel_step = to.pixel_step;
  T* const out = to.data;
  if constexpr (std::is_same_v<T, float>) {
    if (step == 1 && pixel_step != 1) {
      return Transpose(from.data, from.step, count, width, scale, out,
                       pixel_step);
    }
  }
  if (pixel_step == 1) {
    ForTiles(count, width, [&](int64_t n, int64_t x) {
      out[n * step + x] = Narrow<T>(scale * from.data[n * from.step + x]);
    });
    return;
  }
  // Writes along the row's pixels.
  constexpr int64_t kTile = 16;
  for (int64_t n0 = 0; n0 < count; n0 += kTile) {
    const int64_t n1 = n0 + kTile < count ? n0 + kTile : count;
    for (int64_t x = 0; x < width; ++x) {
      for (int64_t n = n0; n < n1; ++n) {
        out[n * step + x * pixel_step] =
            Narrow<T>(scale * from.data[n * from.step + x]);
      }
    }
  }
}

template <typename V>
void AddDots(const PlaneRow<const V>* a, int64_t rows,
             const PlaneRow<const V>& b, const int64_t* offsets, int64_t count,
             int64_t channels, int64_t width, const PlaneRow<V>* sums) {
  static_assert(kDotRows == 3);
  WithCount<3>(rows, [&](auto of_rows) {
    constexpr int kRows = decltype(of_rows)::kValue;
    constexpr int kTogether = Together(kRows);
    // Groups of about one size.
    const int64_t groups = (count + kTogether - 1) / kTogether;
    for (int64_t g = 0, n = 0; g < groups; ++g) {
      const int64_t some = (count - n + groups - g - 1) / (groups - g);
      WithCount<kTogether>(some, [&](auto constant) {
        AddSomeDots<kRows, decltype(constant)::kValue, V>(
            a, b, offsets + n, channels, width, n, sums);
      });
      n += some;
    }
  });
}

template <typename V>
void AddWeighted(const PlaneRow<const V>& weights,
                 const int64_t* weight_offsets, const PlaneRow<const V>& b,
                 const int64_t* offsets, int64_t count, int64_t channels,
                 int64_t width, const PlaneRow<V>& sums) {
  const int64_t groups = (channels + kChannels - 1) / kChannels;
  for (int64_t g = 0, c = 0; g < groups; ++g) {
    const int64_t some = (channels - c + groups - g - 1) / (groups - g);
    WithCount<kChannels>(some, [&](auto constant) {
      AddToChannels<decltype(constant)::kValue, V>(
          weights, weight_offsets, {b.data + c * b.step, b.step}, offsets,
          count, width, {sums.data + c * sums.step, sums.step});
    });
    c += some;
  }
}

namespace {

// Pixels at a time: with four vectors of channels each, their sums fit the
// registers.
constexpr int kPixels = kManyRegisters ? 6 : 3;

// kPixels pixels from x on, with common steps, and kVectors vectors of channels
// from c on; with `some` > 0, the first values of one vector.
template <int kPixels, int kVectors, typename V>
TFO_INLINE void SumTile(const StepRow* rows, int64_t count,
                        const StepLayout& layout, const V* weights,
                        const V* source, V scale, int64_t x, int64_t c,
                        int64_t some, V* gradient) {
  constexpr int kLanes = Lanes<V>::kCount;
  const int64_t channels = layout.channels, begin = layout.begin[x];
  const auto load = [&](const V* at) {
    return some > 0 ? LoadFirst(at, some) : Load(at);
  };
  Vector<V> sums[kPixels][kVectors] = {};
  for (int64_t r = 0; r < count; ++r) {
    int64_t weight =
        rows[r].weight + x * layout.weight_pixel + begin * layout.weight_step;
    int64_t from =
        rows[r].source + x * channels + begin * layout.source_step + c;
    for (int64_t k = begin; k < layout.end[x]; ++k) {
#pragma GCC unroll 6
      for (int p = 0; p < kPixels; ++p) {
        const Vector<V> factor =
            Vector<V>{} + weights[weight + p * layout.weight_pixel];
        const V* const at = source + from + p * channels;
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) {
          sums[p][v] = MulAdd(factor, load(at + v * kLanes), sums[p][v]);
        }
      }
      weight += layout.weight_step;
      from += layout.source_step;
    }
  }
#pragma GCC unroll 6
  for (int p = 0; p < kPixels; ++p) {
    V* const to = gradient + (x + p) * channels + c;
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      const Vector<V> values = scale * sums[p][v];
      if (some > 0) {
        StoreFirst(values, to, some);
      } else {
        Store(values, to + v * kLanes);
      }
    }
  }
}

}  // namespace

template <typename V>
void SumSteps(const StepRow* rows, int64_t count, const StepLayout& layout,
              const V* weights, const V* source, V scale, V* gradient) {
  const auto sum = [&](auto pixels, int64_t x) {
    constexpr int kSome = decltype(pixels)::kValue;
    ForVectorGroups<4, Lanes<V>::kCount>(
        layout.channels, 0,
        [&](auto vectors, int64_t c) {
          SumTile<kSome, decltype(vectors)::kValue, V>(
              rows, count, layout, weights, source, scale, x, c, 0, gradient);
        },
        [&](int64_t c, int64_t n) {
          SumTile<kSome, 1, V>(rows, count, layout, weights, source, scale, x,
                               c, n, gradient);
        });
  };
  for (int64_t x = 0; x < layout.width;) {
    int64_t n = 1;
    while (n < kPixels && x + n < layout.width &&
           layout.begin[x + n] == layout.begin[x] &&
           layout.end[x + n] == layout.end[x]) {
      ++n;
    }
    if (n == kPixels) {
      sum(Constant<kPixels>{}, x);
      x += kPixels;
    } else {
      sum(Constant<1>{}, x++);
    }
  }
}

#define TFO_INSTANTIATE(T)                                                   \
  template void PackRow<T>(const TensorRow<const T>&, int64_t, int64_t,      \
                           int64_t, int64_t, int64_t,                        \
                           const PlaneRow<Accumulator<T>>&);                 \
  template void UnpackRow<T>(const PlaneRow<const Accumulator<T>>&, int64_t, \
                             int64_t, Accumulator<T>, const TensorRow<T>&)
TFO_INSTANTIATE(float);
TFO_INSTANTIATE(double);
TFO_INSTANTIATE(Half);
TFO_INSTANTIATE(BFloat16);
#undef TFO_INSTANTIATE
#define TFO_INSTANTIATE(V)                                                     \
  template void AddDots<V>(const PlaneRow<const V>*, int64_t,                  \
                           const PlaneRow<const V>&, const int64_t*, int64_t,  \
                           int64_t, int64_t, const PlaneRow<V>*);              \
  template void AddWeighted<V>(const PlaneRow<const V>&, const int64_t*,       \
                               const PlaneRow<const V>&, const int64_t*,       \
                               int64_t, int64_t, int64_t, const PlaneRow<V>&); \
  template void SumSteps<V>(const StepRow*, int64_t, const StepLayout&,        \
                            const V*, const V*, V, V*)
TFO_INSTANTIATE(float);
TFO_INSTANTIATE(double);
#undef TFO_INSTANTIATE

}  // namespace TFO_CPU_NAMESPACE
}  // namespace tfo
