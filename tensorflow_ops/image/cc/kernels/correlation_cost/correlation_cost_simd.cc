#include "tensorflow_ops/image/cc/kernels/correlation_cost/correlation_cost_simd.h"

#include "tensorflow_ops/core/cc/simd.h"

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

// The vector, in a register from here on: GCC would load it from memory again
// for each use.
template <typename V>
TFO_INLINE V InRegister(V v) {
#if defined(__AVX512F__)
  asm("" : "+v"(v));
#elif defined(__AVX__)
  asm("" : "+x"(v));
#endif
  return v;
}

template <int kRows, int kCount, typename V>
TFO_INLINE void AddSomeDots(const PlaneRow<const V>* a,
                            const PlaneRow<const V>& b, const int64_t* offsets,
                            int64_t channels, int64_t width, int64_t first,
                            const Prefetch& prefetch, const PlaneRow<V>* sums) {
  constexpr int kLanes = Lanes<V>::kCount;
  const int64_t step = b.step, end = channels * step;
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
    const char* ahead = static_cast<const char*>(prefetch.first);
    for (int64_t from = 0; from < end; from += step) {
      __builtin_prefetch(ahead, 0, 2);
      ahead += prefetch.step;
      Vector<V> value[kRows];
#pragma GCC unroll 3
      for (int r = 0; r < kRows; ++r) value[r] = Load(from_a[r] + from);
#pragma GCC unroll 9
      for (int n = 0; n < kCount; ++n) {
        Vector<V> other = Load(at[n] + from);
        if constexpr (kRows > 1) other = InRegister(other);
#pragma GCC unroll 3
        for (int r = 0; r < kRows; ++r) {
          sum[r][n] = MulAdd(value[r], other, sum[r][n]);
        }
      }
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

// to(x, n) = scale from(n, x) for n < rows and x < columns: element (n, x) of
// the source is from[n * from_step + x], of the result to[x * to_step + n].
// kPadded: writes zeros after the rows, to the end of a vector.
template <bool kPadded, typename From, typename To>
TFO_INLINE void TransposeTo(const From* from, int64_t from_step, int64_t rows,
                            int64_t columns, Accumulator<To> scale, To* to,
                            int64_t to_step) {
  using V = Vector<To>;
  constexpr int kLanes = Lanes<To>::kCount;
  for (int64_t n = 0; n < rows; n += kLanes) {
    const int64_t some = rows - n < kLanes ? rows - n : kLanes;
    for (int64_t x = 0; x < columns; x += kLanes) {
      const int64_t count = columns - x < kLanes ? columns - x : kLanes;
      const From* const at = from + n * from_step + x;
      V v[kLanes];
      if (some == kLanes && count == kLanes) {
#pragma GCC unroll 16
        for (int i = 0; i < kLanes; ++i) {
          v[i] = scale * Load(at + i * from_step);
        }
      } else {
#pragma GCC unroll 16
        for (int i = 0; i < kLanes; ++i) {
          v[i] = V{};
          if (i < some) {
            v[i] =
                scale * (count < kLanes ? LoadFirst(at + i * from_step, count)
                                        : Load(at + i * from_step));
          }
        }
      }
      Transpose(v);
      To* const out = to + x * to_step + n;
      if ((kPadded || some == kLanes) && count == kLanes) {
#pragma GCC unroll 16
        for (int i = 0; i < kLanes; ++i) Store(v[i], out + i * to_step);
      } else {
#pragma GCC unroll 16
        for (int i = 0; i < kLanes; ++i) {
          if (i >= count) break;
          if (kPadded || some == kLanes) {
            Store(v[i], out + i * to_step);
          } else {
            StoreFirst(v[i], out + i * to_step, some);
          }
        }
      }
    }
  }
}

}  // namespace

template <typename T>
void PackRow(const TensorRow<const T>& from, int64_t count, int64_t width,
             int64_t x0, int64_t phases, int64_t phase_step,
             const PlaneRow<Accumulator<T>>& to) {
  const T* const data = from.data;
  const int64_t pixel_step = from.pixel_step;
  if (phases == 1) {
    TransposeTo<true>(data, pixel_step, width, count, Accumulator<T>(1),
                      to.data + x0, to.step);
    return;
  }
  ForTiles(count, width, [&](int64_t n, int64_t x) {
    to.data[n * to.step + (x0 + x) % phases * phase_step + (x0 + x) / phases] =
        LoadOne(data + x * pixel_step + n);
  });
}

template <typename T>
void UnpackRow(const PlaneRow<const Accumulator<T>>& from, int64_t count,
               int64_t width, Accumulator<T> scale, const TensorRow<T>& to) {
  TransposeTo<false>(from.data, from.step, count, width, scale, to.data,
                     to.pixel_step);
}

template <typename V>
void AddDots(const PlaneRow<const V>* a, int64_t rows,
             const PlaneRow<const V>& b, const int64_t* offsets, int64_t count,
             int64_t channels, int64_t width, const Prefetch& prefetch,
             const PlaneRow<V>* sums) {
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
            a, b, offsets + n, channels, width, n, prefetch, sums);
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

// Stores scaled sums of pixels that are `pixel_step` apart; with `some` > 0,
// the first values of one vector.
template <int kPixels, int kVectors, typename V>
TFO_INLINE void StoreSums(const Vector<V> (&sums)[kPixels][kVectors], V scale,
                          int64_t some, int64_t pixel_step, V* to) {
#pragma GCC unroll 6
  for (int p = 0; p < kPixels; ++p) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      const Vector<V> values = scale * sums[p][v];
      if (some > 0) {
        StoreFirst(values, to + p * pixel_step, some);
      } else {
        Store(values, to + p * pixel_step + v * Lanes<V>::kCount);
      }
    }
  }
}

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
            Broadcast<Vector<V>>(weights[weight + p * layout.weight_pixel]);
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
  StoreSums<kPixels, kVectors>(sums, scale, some, channels,
                               gradient + x * channels + c);
}

// Calls visit(Constant<n>) for n in [kBegin, kEnd).
template <int kBegin, int kEnd, typename Visit>
TFO_INLINE void ForConstants(const Visit& visit) {
  if constexpr (kBegin < kEnd) {
    visit(Constant<kBegin>{});
    ForConstants<kBegin + 1, kEnd>(visit);
  }
}

// As SumTile, for at least kPixels - 1 steps, each to a neighboring pixel of
// the source: loads a vector of the source once for all pixels. Needs a
// register for each vector of the source, too. Pixel j is the j-th in the
// direction of the steps, so that at step k it reads pixel j + k.
template <int kPixels, int kVectors, typename V>
TFO_INLINE void SumNeighbors(const StepRow* rows, int64_t count,
                             const StepLayout& layout, const V* weights,
                             const V* source, V scale, int64_t x, int64_t c,
                             int64_t some, V* gradient) {
  constexpr int kLanes = Lanes<V>::kCount;
  const int64_t begin = layout.begin[x], steps = layout.end[x] - begin;
  const int64_t weight_step = layout.weight_step, step = layout.source_step;
  const int64_t first = step < 0 ? x + kPixels - 1 : x;
  const int64_t weight_pixel =
      (step < 0 ? -layout.weight_pixel : layout.weight_pixel) - weight_step;
  Vector<V> sums[kPixels][kVectors] = {};
  for (int64_t r = 0; r < count; ++r) {
    const V* weight = weights + rows[r].weight + first * layout.weight_pixel +
                      begin * weight_step;
    const V* from =
        source + rows[r].source + first * layout.channels + begin * step + c;
    // Adds the next pixel to the sums of pixels [low, high).
    const auto add = [&](auto low, auto high) __attribute__((always_inline)) {
      Vector<V> values[kVectors];
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        values[v] = some > 0 ? LoadFirst(from, some) : Load(from + v * kLanes);
      }
#pragma GCC unroll 6
      for (int j = decltype(low)::kValue; j < decltype(high)::kValue; ++j) {
        const Vector<V> factor = Broadcast<Vector<V>>(weight[j * weight_pixel]);
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) {
          sums[j][v] = MulAdd(factor, values[v], sums[j][v]);
        }
      }
      weight += weight_step;
      from += step;
    };
    constexpr Constant<kPixels> kAll;
    ForConstants<1, kPixels>([&](auto n) { add(Constant<0>{}, n); });
    for (int64_t s = kPixels - 1; s < steps; ++s) add(Constant<0>{}, kAll);
    ForConstants<1, kPixels>([&](auto n) { add(n, kAll); });
  }
  StoreSums<kPixels, kVectors>(sums, scale, some, step,
                               gradient + first * layout.channels + c);
}

}  // namespace

template <typename V>
void SumSteps(const StepRow* rows, int64_t count, const StepLayout& layout,
              const V* weights, const V* source, V scale, V* gradient) {
  const bool to_neighbors = layout.source_step == layout.channels ||
                            layout.source_step == -layout.channels;
  const auto sum = [&](auto pixels, int64_t x) {
    constexpr int kSome = decltype(pixels)::kValue;
    // Inline, for the constant n.
    const auto tile = [&](auto vectors, int64_t c,
                          int64_t n) __attribute__((always_inline)) {
      constexpr int kVectors = decltype(vectors)::kValue;
      if constexpr (kManyRegisters && kSome > 1) {
        if (to_neighbors && layout.end[x] - layout.begin[x] >= kSome - 1) {
          return SumNeighbors<kSome, kVectors, V>(
              rows, count, layout, weights, source, scale, x, c, n, gradient);
        }
      }
      SumTile<kSome, kVectors, V>(rows, count, layout, weights, source, scale,
                                  x, c, n, gradient);
    };
    ForVectorGroups<4, Lanes<V>::kCount>(
        layout.channels, 0,
        [&](auto vectors, int64_t c) { tile(vectors, c, 0); },
        [&](int64_t c, int64_t n) { tile(Constant<1>{}, c, n); });
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

TFO_INSTANTIATE_FUNCTION(PackRow);
TFO_INSTANTIATE_FUNCTION(UnpackRow);
TFO_INSTANTIATE_WIDE_FUNCTION(AddDots);
TFO_INSTANTIATE_WIDE_FUNCTION(AddWeighted);
TFO_INSTANTIATE_WIDE_FUNCTION(SumSteps);

}  // namespace TFO_CPU_NAMESPACE
}  // namespace tfo
