#include "tensorflow_ops/detection/cc/kernels/roi_align_max/roi_align_max_simd.h"

#include "tensorflow_ops/core/cc/simd.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {
namespace {

template <typename T>
using Vector = typename Lanes<T>::Vector;
template <typename T>
using Index = typename Lanes<T>::Index;

// Calls visit(row, column, weight) for each pixel with a weight in a sample.
template <typename C, typename Visit>
TFO_INLINE void VisitCorners(const LineSample<C>& y, const LineSample<C>& x,
                             const Visit& visit) {
  visit(y.low, x.low, (1 - y.fraction) * (1 - x.fraction));
  if (x.fraction != 0) {
    visit(y.low, x.low + 1, (1 - y.fraction) * x.fraction);
  }
  if (y.fraction == 0) return;
  visit(y.low + 1, x.low, y.fraction * (1 - x.fraction));
  if (x.fraction != 0) {
    visit(y.low + 1, x.low + 1, y.fraction * x.fraction);
  }
}

template <typename C>
int64_t NumSamples(const BinSamples<C>& bin) {
  return (bin.rows.end - bin.rows.begin) *
         (bin.columns.end - bin.columns.begin);
}
// Calls visit(i, y, x) for sample i of a bin, in order.
template <typename C, typename Visit>
TFO_INLINE void ForSamples(const BinSamples<C>& bin, const Visit& visit) {
  int32_t i = 0;
  for (auto y = bin.rows.begin; y < bin.rows.end; ++y) {
    for (auto x = bin.columns.begin; x < bin.columns.end; ++x)
      visit(i++, *y, *x);
  }
}

// Calls visit(c, y, x) with the sample of each channel that has one.
template <typename C, typename Visit>
TFO_INLINE void ForChannelSamples(const BinSamples<C>& bin,
                                  const int32_t* samples, int64_t channels,
                                  const Visit& visit) {
  const int64_t on_x = bin.columns.end - bin.columns.begin;
  for (int64_t c = 0; c < channels; ++c) {
    if (samples[c] < 0) continue;
    visit(c, bin.rows.begin[samples[c] / on_x],
          bin.columns.begin[samples[c] % on_x]);
  }
}

// kVectors vectors of channels at a sample; load(pixel, i) loads the i-th.
template <int kVectors, typename T, typename LoadVector>
TFO_INLINE void Interpolate(const ImageView<const T>& map,
                            const LineSample<Accumulator<T>>& y,
                            const LineSample<Accumulator<T>>& x,
                            const LoadVector& load,
                            Vector<T> (&values)[kVectors]) {
  for (int i = 0; i < kVectors; ++i) values[i] = Vector<T>{};
  VisitCorners(y, x, [&](int64_t row, int64_t column, Accumulator<T> weight) {
    const Vector<T> w = Vector<T>{} + weight;
    const T* const pixel = map.data + (row * map.width + column) * map.channels;
#pragma GCC unroll 8
    for (int i = 0; i < kVectors; ++i) {
      values[i] = MulAdd(w, load(pixel, i), values[i]);
    }
  });
}

template <int kVectors, typename T, typename LoadVector>
TFO_INLINE void Largest(const ImageView<const T>& map,
                        const BinSamples<Accumulator<T>>& bin,
                        const LoadVector& load, Vector<T> (&best)[kVectors],
                        Index<T> (&at)[kVectors]) {
  using Integer = typename Lanes<T>::Integer;
  for (int i = 0; i < kVectors; ++i) {
    best[i] = Vector<T>{};
    at[i] = Index<T>{} - 1;
  }
  ForSamples(bin, [&](Integer sample, const auto& y, const auto& x) {
    Vector<T> values[kVectors];
    Interpolate(map, y, x, load, values);
#pragma GCC unroll 8
    for (int i = 0; i < kVectors; ++i) {
      if (sample == 0) {
        best[i] = values[i];
        at[i] = Index<T>{};
      } else {
        TakeGreater(values[i], sample, best[i], at[i]);
      }
    }
  });
  if (!bin.outside) return;
  for (int i = 0; i < kVectors; ++i) {
    // Without samples this changes nothing.
    TakeGreater(Vector<T>{}, Integer{-1}, best[i], at[i]);
  }
}

// Loads a vector of a pixel's channels, or its first n.
template <typename T>
struct ChannelLoader {
  int64_t n;
  TFO_INLINE Vector<T> operator()(const T* pixel, int) const {
    return n < Lanes<T>::kCount ? LoadFirst(pixel, n) : Load(pixel);
  }
};

template <typename T>
TFO_INLINE void StoreChannels(Vector<T> v, T* to, int64_t n) {
  if (n < Lanes<T>::kCount) {
    StoreFirst(v, to, n);
  } else {
    Store(v, to);
  }
}

// If samples are few, some channel of a vector took most of them: a pass per
// sample is then faster than a pass per channel.
constexpr int64_t kFewSamples = 16;

// The slope along an axis of the values that load(along, across) returns,
// `fraction` of the way across. Pixels of no weight are not read.
template <typename V, typename C, typename LoadPixel>
TFO_INLINE V SlopeAlong(C fraction, const LoadPixel& load) {
  V slope = (V{} + (1 - fraction)) * (load(1, 0) - load(0, 0));
  if (fraction != 0) {
    slope = MulAdd(V{} + fraction, load(1, 1) - load(0, 1), slope);
  }
  return slope;
}

// Calls down(slope) and across(slope) with the slopes of the values that
// load(row, column) returns for the pixels around a sample, if it moves.
template <typename V, typename C, typename LoadPixel, typename Down,
          typename Across>
TFO_INLINE void VisitSlopes(const LineSample<C>& y, const LineSample<C>& x,
                            const LoadPixel& load, const Down& down,
                            const Across& across) {
  if (y.moves) down(SlopeAlong<V>(x.fraction, load));
  if (x.moves) {
    across(SlopeAlong<V>(y.fraction, [&](int64_t column, int64_t row) {
      return load(row, column);
    }));
  }
}

}  // namespace

template <typename T>
void LargestSamples(const ImageView<const T>& map, int64_t channels,
                    BinSamples<Accumulator<T>> bin, T* values,
                    int32_t* samples) {
  constexpr int kCount = Lanes<T>::kCount;
  // The registers hold a maximum, an index and a value for each.
  constexpr int kVectors = kVectorBytes == 64 ? 8 : 4;
  ForVectorGroups<kVectors, kCount>(
      channels, 0,
      [&](auto vectors, int64_t c) {
        constexpr int kNumber = decltype(vectors)::kValue;
        Vector<T> best[kNumber];
        Index<T> at[kNumber];
        Largest<kNumber, T>(
            {map.data + c, map.width, map.channels}, bin,
            [&](const T* pixel, int i) { return Load(pixel + i * kCount); },
            best, at);
#pragma GCC unroll 8
        for (int i = 0; i < kNumber; ++i) {
          if (values != nullptr) Store(best[i], values + c + i * kCount);
          if (samples != nullptr) StoreIndex(at[i], samples + c + i * kCount);
        }
      },
      [&](int64_t c, int64_t n) {
        Vector<T> best[1];
        Index<T> at[1];
        Largest<1, T>({map.data + c, map.width, map.channels}, bin,
                      ChannelLoader<T>{n}, best, at);
        if (values != nullptr) StoreFirst(best[0], values + c, n);
        if (samples == nullptr) return;
        int32_t indices[kCount];
        StoreIndex(at[0], indices);
        for (int64_t i = 0; i < n; ++i) samples[c + i] = indices[i];
      });
}

template <typename T>
void ReadSamples(const ImageView<const T>& map, int64_t channels,
                 BinSamples<Accumulator<T>> bin, const int32_t* samples,
                 T* values) {
  constexpr int kCount = Lanes<T>::kCount;
  for (int64_t c = 0; c < channels; c += kCount) {
    const int64_t n = channels - c < kCount ? channels - c : kCount;
    const Index<T> at = LoadIndex<T>(samples + c);
    Vector<T> out = {};
    ForSamples(bin, [&](int32_t sample, const auto& y, const auto& x) {
      const Index<T> taken = at == (Index<T>{} + sample);
      if (!AnyLane(taken)) return;
      Vector<T> read[1];
      Interpolate<1, T>({map.data + c, map.width, map.channels}, y, x,
                        ChannelLoader<T>{n}, read);
      out = taken ? read[0] : out;
    });
    StoreChannels(out, values + c, n);
  }
}

template <typename T>
void AddToSamples(const T* d_values, const int32_t* samples, int64_t channels,
                  BinSamples<Accumulator<T>> bin, PixelRange rows,
                  const ImageView<Accumulator<T>>& sums) {
  using Sum = Accumulator<T>;
  constexpr int kCount = Lanes<T>::kCount;
  // Copied, since the compiler cannot know that the sums are not in `sums`.
  Sum* const first_sum = sums.data;
  const int64_t column_step = sums.channels;
  const int64_t row_step = sums.width * column_step;
  const auto owned = [&](int64_t row) {
    return row >= rows.begin && row < rows.end;
  };
  const auto offset = [&](int64_t row, int64_t column) {
    return (row - rows.begin) * row_step + column * column_step;
  };
  if (NumSamples(bin) > kFewSamples) {
    ForChannelSamples(
        bin, samples, channels, [&](int64_t c, const auto& y, const auto& x) {
          const Sum value = LoadOne(d_values + c);
          VisitCorners(y, x, [&](int64_t row, int64_t column, Sum weight) {
            if (!owned(row)) return;
            Sum& sum = first_sum[offset(row, column) + c];
            sum = MulAdd(weight, value, sum);
          });
        });
    return;
  }
  // A sample at a time, in the channels whose maximum it is.
  ForSamples(bin, [&](int32_t sample, const auto& y, const auto& x) {
    Sum* pixels[4];
    Vector<T> weights[4];
    int count = 0;
    VisitCorners(y, x, [&](int64_t row, int64_t column, Sum weight) {
      if (!owned(row)) return;
      pixels[count] = first_sum + offset(row, column);
      weights[count++] = Vector<T>{} + weight;
    });
    if (count == 0) return;
    int64_t c = 0;
    for (; c + kCount <= channels; c += kCount) {
      const Index<T> taken = LoadIndex<T>(samples + c) == (Index<T>{} + sample);
      if (!AnyLane(taken)) continue;
      const Vector<T> value = taken ? Load(d_values + c) : Vector<T>{};
      for (int i = 0; i < count; ++i) {
        Store(MulAdd(weights[i], value, Load(pixels[i] + c)), pixels[i] + c);
      }
    }
    if (c < channels) {
      const int64_t n = channels - c;
      const Index<T> taken = LoadIndex<T>(samples + c) == (Index<T>{} + sample);
      const Vector<T> value = taken ? LoadFirst(d_values + c, n) : Vector<T>{};
      for (int i = 0; i < count; ++i) {
        StoreFirst(MulAdd(weights[i], value, LoadFirst(pixels[i] + c, n)),
                   pixels[i] + c, n);
      }
    }
  });
}

template <typename T>
void AddSlopes(const T* d_values, const int32_t* samples,
               const ImageView<const T>& map, int64_t channels,
               BinSamples<Accumulator<T>> bin, double* row_sums,
               double* column_sums) {
  using Sum = Accumulator<T>;
  constexpr int kCount = Lanes<T>::kCount;
  const int64_t column_step = map.channels;
  const int64_t row_step = map.width * column_step;
  const auto first_pixel = [&](const auto& y, const auto& x) {
    return map.data + y.low * row_step + x.low * column_step;
  };
  const auto row_sum = [&](const auto& y) -> double& {
    return row_sums[&y - bin.rows.begin];
  };
  const auto column_sum = [&](const auto& x) -> double& {
    return column_sums[&x - bin.columns.begin];
  };
  if (NumSamples(bin) > kFewSamples) {
    ForChannelSamples(
        bin, samples, channels, [&](int64_t c, const auto& y, const auto& x) {
          const T* const pixel = first_pixel(y, x) + c;
          const Sum d_value = LoadOne(d_values + c);
          VisitSlopes<Sum>(
              y, x,
              [&](int64_t row, int64_t column) {
                return LoadOne(pixel + row * row_step + column * column_step);
              },
              [&](Sum slope) { row_sum(y) += d_value * slope; },
              [&](Sum slope) { column_sum(x) += d_value * slope; });
        });
    return;
  }
  // A sample at a time, in the channels whose maximum it is.
  ForSamples(bin, [&](int32_t sample, const auto& y, const auto& x) {
    if (!y.moves && !x.moves) return;
    Vector<T> down = {}, across = {};
    for (int64_t c = 0; c < channels; c += kCount) {
      const Index<T> taken = LoadIndex<T>(samples + c) == (Index<T>{} + sample);
      if (!AnyLane(taken)) continue;
      const ChannelLoader<T> load = {channels - c};
      const T* const pixel = first_pixel(y, x) + c;
      const Vector<T> d_value = load(d_values + c, 0);
      // Other channels may hold NaN: their lanes stay as they are.
      VisitSlopes<Vector<T>>(
          y, x,
          [&](int64_t row, int64_t column) {
            return load(pixel + row * row_step + column * column_step, 0);
          },
          [&](const Vector<T>& slope) {
            down = taken ? MulAdd(d_value, slope, down) : down;
          },
          [&](const Vector<T>& slope) {
            across = taken ? MulAdd(d_value, slope, across) : across;
          });
    }
    row_sum(y) += SumLanes(down);
    column_sum(x) += SumLanes(across);
  });
}

TFO_INSTANTIATE_FUNCTION(LargestSamples);
TFO_INSTANTIATE_FUNCTION(ReadSamples);
TFO_INSTANTIATE_FUNCTION(AddToSamples);
TFO_INSTANTIATE_FUNCTION(AddSlopes);

}  // namespace TFO_CPU_NAMESPACE
}  // namespace tfo
