#include "tensorflow_ops/sampling/cc/kernels/correlation_cost_simd.h"

#include "tensorflow_ops/core/cc/simd.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {
namespace {

template <typename T>
using Vector = typename Lanes<T>::Vector;

// Vectors of positions and displacements or channels at a time: their sums, and
// what is read once for all, fit the registers.
constexpr int kWide = kVectorBytes == 64 ? 2 : 1;
constexpr int kTogether = kVectorBytes == 64 ? 12 : 11;
constexpr int kChannels = kVectorBytes == 64 ? 12 : 10;

template <int kCount, typename V>
TFO_INLINE void AddSomeDots(const PlaneRow<const V>& a,
                            const PlaneRow<const V>& b, const int64_t* offsets,
                            int64_t channels, int64_t width,
                            const PlaneRow<V>& sums) {
  constexpr int kLanes = Lanes<V>::kCount;
  int64_t at[kCount];
  for (int n = 0; n < kCount; ++n) at[n] = offsets[n];
  for (int64_t x = 0; x < width; x += kWide * kLanes) {
    Vector<V> sum[kCount][kWide];
#pragma GCC unroll 12
    for (int n = 0; n < kCount; ++n) {
#pragma GCC unroll 2
      for (int w = 0; w < kWide; ++w) {
        sum[n][w] = Load(sums.data + n * sums.step + x + w * kLanes);
      }
    }
    const V* from_a = a.data + x;
    const V* from_b = b.data + x;
    for (int64_t c = 0; c < channels; ++c) {
      Vector<V> value[kWide];
#pragma GCC unroll 2
      for (int w = 0; w < kWide; ++w) value[w] = Load(from_a + w * kLanes);
#pragma GCC unroll 12
      for (int n = 0; n < kCount; ++n) {
#pragma GCC unroll 2
        for (int w = 0; w < kWide; ++w) {
          sum[n][w] =
              MulAdd(value[w], Load(from_b + at[n] + w * kLanes), sum[n][w]);
        }
      }
      from_a += a.step;
      from_b += b.step;
    }
#pragma GCC unroll 12
    for (int n = 0; n < kCount; ++n) {
#pragma GCC unroll 2
      for (int w = 0; w < kWide; ++w) {
        Store(sum[n][w], sums.data + n * sums.step + x + w * kLanes);
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

typedef float Four __attribute__((vector_size(16)));

TFO_INLINE Four LoadFour(const float* from) {
  Four v;
  memcpy(&v, from, sizeof(v));
  return v;
}
TFO_INLINE void StoreFour(Four v, float* to) { memcpy(to, &v, sizeof(v)); }

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
    for (int64_t x = 0; x < whole_columns; x += 4) {
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
void AddDots(const PlaneRow<const V>& a, const PlaneRow<const V>& b,
             const int64_t* offsets, int64_t count, int64_t channels,
             int64_t width, const PlaneRow<V>& sums) {
  // Groups of about one size.
  const int64_t groups = (count + kTogether - 1) / kTogether;
  for (int64_t g = 0, n = 0; g < groups; ++g) {
    const int64_t some = (count - n + groups - g - 1) / (groups - g);
    WithCount<kTogether>(some, [&](auto constant) {
      AddSomeDots<decltype(constant)::kValue, V>(
          a, b, offsets + n, channels, width,
          {sums.data + n * sums.step, sums.step});
    });
    n += some;
  }
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
  template void AddDots<V>(const PlaneRow<const V>&, const PlaneRow<const V>&, \
                           const int64_t*, int64_t, int64_t, int64_t,          \
                           const PlaneRow<V>&);                                \
  template void AddWeighted<V>(const PlaneRow<const V>&, const int64_t*,       \
                               const PlaneRow<const V>&, const int64_t*,       \
                               int64_t, int64_t, int64_t, const PlaneRow<V>&)
TFO_INSTANTIATE(float);
TFO_INSTANTIATE(double);
#undef TFO_INSTANTIATE

}  // namespace TFO_CPU_NAMESPACE
}  // namespace tfo
