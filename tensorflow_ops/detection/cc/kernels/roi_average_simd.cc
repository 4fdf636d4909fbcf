#include "tensorflow_ops/detection/cc/kernels/roi_average_simd.h"

#include "tensorflow_ops/core/cc/simd.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {
namespace {

template <typename T>
using Vector = typename Lanes<T>::Vector;
template <typename T>
using Sum = Accumulator<T>;

// Accumulators that fit the registers.
constexpr int kMostVectors = kVectorBytes == 64 ? 16 : 8;

// A bin's taps on the two axes.
template <typename Tap>
struct Taps {
  const Tap *begin, *end;
};
template <typename Tap>
TFO_INLINE Taps<Tap> TapsOf(BinTaps<Tap> bins, int64_t i) {
  return {bins.taps + bins.begin[i], bins.taps + bins.begin[i + 1]};
}

// Channels that are apart, a few at a time: piece(kPiece, c).
template <int kPiece, typename Piece>
TFO_INLINE void ForChannels(int64_t count, int64_t c, const Piece& piece) {
  for (; c + kPiece <= count; c += kPiece) piece(Constant<kPiece>{}, c);
  if constexpr (kPiece > 1) ForChannels<kPiece / 2>(count, c, piece);
}

template <bool kStream, typename T>
void AverageBin(const T* image, int64_t row, int64_t channels,
                Taps<Tap<Sum<T>>> rows, Taps<Tap<Sum<T>>> columns,
                BinChannels of, T* output) {
  constexpr int kCount = Lanes<T>::kCount;
  // Calls add(weight, pixel) for each pixel of the bin.
  const auto for_pixels = [&](const auto& add) __attribute__((always_inline)) {
    for (auto y = rows.begin; y < rows.end; ++y) {
      const T* const at = image + y->pixel * row;
      for (auto x = columns.begin; x < columns.end; ++x) {
        add(y->weight * x->weight, at + x->pixel * channels);
      }
    }
  };
  if (of.step != 1) {
    ForChannels<8>(of.count, 0, [&](auto piece, int64_t c) {
      constexpr int kPiece = decltype(piece)::kValue;
      Sum<T> sums[kPiece] = {};
      for_pixels([&](Sum<T> weight, const T* pixel) {
#pragma GCC unroll 8
        for (int i = 0; i < kPiece; ++i) {
          sums[i] = MulAdd(weight, LoadOne(pixel + (c + i) * of.step), sums[i]);
        }
      });
      T* const to = output + c;
      for (int i = 0; i < kPiece; ++i) to[i] = Narrow<T>(sums[i]);
    });
    return;
  }
  ForVectorGroups<kMostVectors, kCount>(
      of.count, 0,
      [&](auto vectors, int64_t c) {
        constexpr int kVectors = decltype(vectors)::kValue;
        Vector<T> sums[kVectors] = {};
        for_pixels([&](Sum<T> weight, const T* pixel) {
          const Vector<T> w = Vector<T>{} + weight;
#pragma GCC unroll 16
          for (int i = 0; i < kVectors; ++i) {
            sums[i] = MulAdd(w, Load(pixel + c + i * kCount), sums[i]);
          }
        });
#pragma GCC unroll 16
        for (int i = 0; i < kVectors; ++i) {
          T* const to = output + c + i * kCount;
          if constexpr (kStream) {
            Stream<T>(sums[i], to);
          } else {
            Store(sums[i], to);
          }
        }
      },
      [&](int64_t c, int64_t n) {
        Vector<T> sums = {};
        for_pixels([&](Sum<T> weight, const T* pixel) {
          sums = MulAdd(Vector<T>{} + weight, LoadFirst(pixel + c, n), sums);
        });
        StoreFirst(sums, output + c, n);
      });
}

// One bin, and so narrow that a row of vectors' sums is not worth its while.
template <typename Tap>
TFO_INLINE bool IsFewPixels(int64_t bins_y, int64_t bins_x,
                            BinTaps<Tap> columns) {
  return bins_y == 1 && bins_x == 1 && columns.begin[1] - columns.begin[0] <= 8;
}

// The columns that bins touch; none: begin >= end.
struct Columns {
  int64_t begin, end;
};
template <typename Tap>
Columns ColumnsOf(BinTaps<Tap> columns, int64_t bins) {
  const Taps<Tap> all = {columns.taps + columns.begin[0],
                         columns.taps + columns.begin[bins]};
  if (all.begin == all.end) return {0, 0};
  // Rounding may let neighbouring bins' samples change places by a pixel.
  Columns result = {all.begin->pixel, all.end[-1].pixel + 1};
  for (int64_t q = 0; q < bins; ++q) {
    const Taps<Tap> bin = TapsOf(columns, q);
    if (bin.begin == bin.end) continue;
    if (bin.begin->pixel < result.begin) result.begin = bin.begin->pixel;
    if (bin.end[-1].pixel >= result.end) result.end = bin.end[-1].pixel + 1;
  }
  return result;
}

// A vector of a row of a plane; lanes beyond the row hold anything.
template <typename T>
TFO_INLINE Vector<T> LoadRow(const T* plane, int64_t readable, int64_t at) {
  return at + Lanes<T>::kCount <= readable
             ? Load(plane + at)
             : LoadFirst(plane + at, readable - at);
}

// Adds to d_box (y1, x1, y2, x2) `scale` times what a bin's pixels give:
// product_of(y, x), a number or a vector of summands, times how their weights
// change.
template <typename Product, typename Tap, typename ProductOf>
TFO_INLINE void AddSlopes(Taps<Tap> rows, Taps<Tap> columns,
                          const ProductOf& product_of, double scale,
                          double* d_box) {
  Product sums[4] = {};
  for (auto y = rows.begin; y < rows.end; ++y) {
    Product sum = {}, low = {}, high = {};  // over columns
    for (auto x = columns.begin; x < columns.end; ++x) {
      const Product product = product_of(y, x);
      sum = MulAdd(Product{} + x->weight, product, sum);
      low = MulAdd(Product{} + x->low, product, low);
      high = MulAdd(Product{} + x->high, product, high);
    }
    sums[0] = MulAdd(Product{} + y->low, sum, sums[0]);
    sums[1] = MulAdd(Product{} + y->weight, low, sums[1]);
    sums[2] = MulAdd(Product{} + y->high, sum, sums[2]);
    sums[3] = MulAdd(Product{} + y->weight, high, sums[3]);
  }
  for (int i = 0; i < 4; ++i) d_box[i] += scale * SumLanes(sums[i]);
}

}  // namespace

template <typename T>
void AverageBinRow(const T* image, int64_t width, int64_t channels,
                   const Tap<Sum<T>>* rows_begin, const Tap<Sum<T>>* rows_end,
                   BinTaps<Tap<Sum<T>>> columns, int64_t bins, BinChannels of,
                   int64_t output_channels, bool stream, T* output) {
  constexpr int64_t kBytes = Lanes<T>::kCount * sizeof(T);
  stream = stream && reinterpret_cast<uintptr_t>(output) % kBytes == 0 &&
           output_channels * sizeof(T) % kBytes == 0;
  const auto average_bin = stream ? AverageBin<true, T> : AverageBin<false, T>;
  for (int64_t q = 0; q < bins; ++q) {
    average_bin(image + q * of.next_bin, width * channels, channels,
                {rows_begin, rows_end}, TapsOf(columns, q), of,
                output + q * output_channels);
  }
  if (stream) FinishStreaming();
}

template <typename T>
void AveragePlane(const T* plane, int64_t readable, int64_t width,
                  BinTaps<Tap<Sum<T>>> rows, int64_t bins_y,
                  BinTaps<Tap<Sum<T>>> columns, int64_t bins_x, Sum<T>* scratch,
                  T* output) {
  constexpr int kCount = Lanes<T>::kCount;
  if (IsFewPixels(bins_y, bins_x, columns)) {
    Sum<T> average = 0;
    const auto bin_rows = TapsOf(rows, 0), bin = TapsOf(columns, 0);
    for (auto y = bin_rows.begin; y < bin_rows.end; ++y) {
      const T* const from = plane + y->pixel * width;
      Sum<T> sum = 0;
      for (auto x = bin.begin; x < bin.end; ++x) {
        sum = MulAdd(x->weight, LoadOne(from + x->pixel), sum);
      }
      average = MulAdd(y->weight, sum, average);
    }
    *output = Narrow<T>(average);
    return;
  }
  Sum<T>* const row = scratch;
  Sum<T>* const pooled = scratch + width + 16;
  const Columns used = ColumnsOf(columns, bins_x);
  for (int64_t p = 0; p < bins_y; ++p) {
    const auto bin_rows = TapsOf(rows, p);
    // Rows first, a vector of columns at a time ...
    for (int64_t x = used.begin; x < used.end; x += kCount) {
      Vector<T> sum = {};
      for (auto y = bin_rows.begin; y < bin_rows.end; ++y) {
        sum = MulAdd(Vector<T>{} + y->weight,
                     LoadRow(plane, readable, y->pixel * width + x), sum);
      }
      Store(sum, row + x);
    }
    // ... then each bin's columns.
    for (int64_t q = 0; q < bins_x; ++q) {
      const auto bin = TapsOf(columns, q);
      Sum<T> sum = 0;
      for (auto x = bin.begin; x < bin.end; ++x) {
        sum = MulAdd(x->weight, row[x->pixel], sum);
      }
      pooled[q] = sum;
    }
    T* const to = output + p * bins_x;
    int64_t q = 0;
    for (; q + kCount <= bins_x; q += kCount) {
      Store(Load(pooled + q), to + q);
    }
    if (q < bins_x) {
      StoreFirst(LoadFirst(pooled + q, bins_x - q), to + q, bins_x - q);
    }
  }
}

template <typename T>
void AddBinRow(const T* d_output, int64_t output_channels, Sum<T> weight,
               BinTaps<Tap<Sum<T>>> columns, int64_t bins, BinChannels of,
               int64_t channels, int64_t ahead, Sum<T>* sums) {
  constexpr int kCount = Lanes<T>::kCount;
  for (int64_t q = 0; q < bins; ++q) {
    const T* const from = d_output + q * output_channels;
    Sum<T>* const to = sums + q * of.next_bin;
    const auto bin = TapsOf(columns, q);
    if (of.step != 1) {
      ForChannels<8>(of.count, 0, [&](auto piece, int64_t c) {
        constexpr int kPiece = decltype(piece)::kValue;
        Sum<T> values[kPiece];
        for (int i = 0; i < kPiece; ++i) {
          values[i] = weight * LoadOne(from + c + i);
        }
        for (auto x = bin.begin; x < bin.end; ++x) {
          Sum<T>* const pixel = to + x->pixel * channels + c * of.step;
#pragma GCC unroll 8
          for (int i = 0; i < kPiece; ++i) {
            pixel[i * of.step] =
                MulAdd(x->weight, values[i], pixel[i * of.step]);
          }
        }
      });
      continue;
    }
    ForVectorGroups<kMostVectors, kCount>(
        of.count, 0,
        [&](auto vectors, int64_t c) {
          constexpr int kVectors = decltype(vectors)::kValue;
          Vector<T> values[kVectors];
#pragma GCC unroll 16
          for (int i = 0; i < kVectors; ++i) {
            values[i] = Load(from + c + i * kCount) * (Vector<T>{} + weight);
            __builtin_prefetch(from + c + i * kCount + ahead);
          }
          for (auto x = bin.begin; x < bin.end; ++x) {
            const Vector<T> w = Vector<T>{} + x->weight;
            Sum<T>* const pixel = to + x->pixel * channels + c;
#pragma GCC unroll 16
            for (int i = 0; i < kVectors; ++i) {
              Store(MulAdd(w, values[i], Load(pixel + i * kCount)),
                    pixel + i * kCount);
            }
          }
        },
        [&](int64_t c, int64_t n) {
          const Vector<T> values =
              LoadFirst(from + c, n) * (Vector<T>{} + weight);
          for (auto x = bin.begin; x < bin.end; ++x) {
            Sum<T>* const pixel = to + x->pixel * channels + c;
            StoreFirst(
                MulAdd(Vector<T>{} + x->weight, values, LoadFirst(pixel, n)),
                pixel, n);
          }
        });
  }
}

template <typename T>
void AddPlane(const T* d_output, BinTaps<Tap<Sum<T>>> rows, int64_t bins_y,
              BinTaps<Tap<Sum<T>>> columns, int64_t bins_x, int64_t width,
              Sum<T>* scratch, Sum<T>* sums) {
  constexpr int kCount = Lanes<T>::kCount;
  if (IsFewPixels(bins_y, bins_x, columns)) {
    const Sum<T> value = LoadOne(d_output);
    const auto bin_rows = TapsOf(rows, 0), bin = TapsOf(columns, 0);
    for (auto y = bin_rows.begin; y < bin_rows.end; ++y) {
      Sum<T>* const to = sums + y->pixel * width;
      const Sum<T> of_row = y->weight * value;
      for (auto x = bin.begin; x < bin.end; ++x) {
        to[x->pixel] = MulAdd(x->weight, of_row, to[x->pixel]);
      }
    }
    return;
  }
  const Columns used = ColumnsOf(columns, bins_x);
  for (int64_t p = 0; p < bins_y; ++p) {
    const auto bin_rows = TapsOf(rows, p);
    if (bin_rows.begin == bin_rows.end || used.begin >= used.end) continue;
    memset(scratch + used.begin, 0, (used.end - used.begin) * sizeof(Sum<T>));
    for (int64_t q = 0; q < bins_x; ++q) {
      const Sum<T> value = LoadOne(d_output + p * bins_x + q);
      const auto bin = TapsOf(columns, q);
      for (auto x = bin.begin; x < bin.end; ++x) {
        scratch[x->pixel] = MulAdd(x->weight, value, scratch[x->pixel]);
      }
    }
    for (auto y = bin_rows.begin; y < bin_rows.end; ++y) {
      Sum<T>* const row = sums + y->pixel * width;
      const Vector<T> w = Vector<T>{} + y->weight;
      int64_t x = used.begin;
      for (; x + kCount <= used.end; x += kCount) {
        Store(MulAdd(w, Load(scratch + x), Load(row + x)), row + x);
      }
      if (x < used.end) {
        const int64_t n = used.end - x;
        StoreFirst(MulAdd(w, LoadFirst(scratch + x, n), LoadFirst(row + x, n)),
                   row + x, n);
      }
    }
  }
}

template <typename T>
void AddBoxGradOfBinRow(const T* d_output, int64_t output_channels,
                        const T* image, int64_t width, int64_t channels,
                        const SlopedTap<Sum<T>>* rows_begin,
                        const SlopedTap<Sum<T>>* rows_end,
                        BinTaps<SlopedTap<Sum<T>>> columns, int64_t bins,
                        BinChannels of, double* d_box) {
  constexpr int kCount = Lanes<T>::kCount;
  for (int64_t q = 0; q < bins; ++q) {
    const T* const gradient = d_output + q * output_channels;
    const T* const first = image + q * of.next_bin;
    const auto bin = TapsOf(columns, q);
    const auto pixel = [&](const auto* y, const auto* x) {
      return first + (int64_t{y->pixel} * width + x->pixel) * channels;
    };
    if (of.step != 1) {
      AddSlopes<Sum<T>>(
          {rows_begin, rows_end}, bin,
          [&](const auto* y, const auto* x) {
            const T* const from = pixel(y, x);
            Sum<T> product = 0;
            for (int64_t c = 0; c < of.count; ++c) {
              product = MulAdd(LoadOne(gradient + c),
                               LoadOne(from + c * of.step), product);
            }
            return product;
          },
          1, d_box);
      continue;
    }
    // Lanes are summed at the end only: some channels' products in each.
    AddSlopes<Vector<T>>(
        {rows_begin, rows_end}, bin,
        [&](const auto* y, const auto* x) {
          const T* const from = pixel(y, x);
          Vector<T> products[4] = {};
          ForVectorGroups<4, kCount>(
              of.count, 0,
              [&](auto vectors, int64_t c) {
#pragma GCC unroll 4
                for (int i = 0; i < decltype(vectors)::kValue; ++i) {
                  products[i] =
                      MulAdd(Load(gradient + c + i * kCount),
                             Load(from + c + i * kCount), products[i]);
                }
              },
              [&](int64_t c, int64_t n) {
                products[0] = MulAdd(LoadFirst(gradient + c, n),
                                     LoadFirst(from + c, n), products[0]);
              });
          return (products[0] + products[1]) + (products[2] + products[3]);
        },
        1, d_box);
  }
}

template <typename T>
void AddBoxGradOfPlane(const T* d_output, const T* plane, int64_t readable,
                       int64_t width, BinTaps<SlopedTap<Sum<T>>> rows,
                       int64_t bins_y, BinTaps<SlopedTap<Sum<T>>> columns,
                       int64_t bins_x, Sum<T>* scratch, double* d_box) {
  constexpr int kCount = Lanes<T>::kCount;
  if (IsFewPixels(bins_y, bins_x, columns)) {
    const auto bin_rows = TapsOf(rows, 0), bin = TapsOf(columns, 0);
    // Whatever comes in, even NaN, a bin without pixels passes nothing on.
    if (bin_rows.begin == bin_rows.end || bin.begin == bin.end) return;
    AddSlopes<Sum<T>>(
        bin_rows, bin,
        [&](const auto* y, const auto* x) {
          return LoadOne(plane + y->pixel * width + x->pixel);
        },
        LoadOne(d_output), d_box);
    return;
  }
  const Columns used = ColumnsOf(columns, bins_x);
  Sum<T>* const averages = scratch;
  Sum<T>* const lows = averages + width + 16;
  Sum<T>* const highs = lows + width + 16;
  for (int64_t p = 0; p < bins_y; ++p) {
    const auto bin_rows = TapsOf(rows, p);
    if (bin_rows.begin == bin_rows.end) continue;
    for (int64_t x = used.begin; x < used.end; x += kCount) {
      Vector<T> average = {}, low = {}, high = {};
      for (auto y = bin_rows.begin; y < bin_rows.end; ++y) {
        const Vector<T> value = LoadRow(plane, readable, y->pixel * width + x);
        average = MulAdd(Vector<T>{} + y->weight, value, average);
        low = MulAdd(Vector<T>{} + y->low, value, low);
        high = MulAdd(Vector<T>{} + y->high, value, high);
      }
      Store(average, averages + x);
      Store(low, lows + x);
      Store(high, highs + x);
    }
    for (int64_t q = 0; q < bins_x; ++q) {
      const auto bin = TapsOf(columns, q);
      // Whatever comes in, even NaN, a bin without pixels passes nothing on.
      if (bin.begin == bin.end) continue;
      Sum<T> sums[4] = {};
      for (auto x = bin.begin; x < bin.end; ++x) {
        sums[0] = MulAdd(x->weight, lows[x->pixel], sums[0]);
        sums[1] = MulAdd(x->low, averages[x->pixel], sums[1]);
        sums[2] = MulAdd(x->weight, highs[x->pixel], sums[2]);
        sums[3] = MulAdd(x->high, averages[x->pixel], sums[3]);
      }
      const double gradient = LoadOne(d_output + p * bins_x + q);
      for (int i = 0; i < 4; ++i) d_box[i] += gradient * sums[i];
    }
  }
}

#define TFO_INSTANTIATE(T)                                                     \
  template void AverageBinRow<T>(                                              \
      const T*, int64_t, int64_t, const Tap<Sum<T>>*, const Tap<Sum<T>>*,      \
      BinTaps<Tap<Sum<T>>>, int64_t, BinChannels, int64_t, bool, T*);          \
  template void AveragePlane<T>(const T*, int64_t, int64_t,                    \
                                BinTaps<Tap<Sum<T>>>, int64_t,                 \
                                BinTaps<Tap<Sum<T>>>, int64_t, Sum<T>*, T*);   \
  template void AddBinRow<T>(const T*, int64_t, Sum<T>, BinTaps<Tap<Sum<T>>>,  \
                             int64_t, BinChannels, int64_t, int64_t, Sum<T>*); \
  template void AddPlane<T>(const T*, BinTaps<Tap<Sum<T>>>, int64_t,           \
                            BinTaps<Tap<Sum<T>>>, int64_t, int64_t, Sum<T>*,   \
                            Sum<T>*);                                          \
  template void AddBoxGradOfBinRow<T>(                                         \
      const T*, int64_t, const T*, int64_t, int64_t, const SlopedTap<Sum<T>>*, \
      const SlopedTap<Sum<T>>*, BinTaps<SlopedTap<Sum<T>>>, int64_t,           \
      BinChannels, double*);                                                   \
  template void AddBoxGradOfPlane<T>(                                          \
      const T*, const T*, int64_t, int64_t, BinTaps<SlopedTap<Sum<T>>>,        \
      int64_t, BinTaps<SlopedTap<Sum<T>>>, int64_t, Sum<T>*, double*)
TFO_INSTANTIATE(float);
TFO_INSTANTIATE(double);
TFO_INSTANTIATE(Half);
TFO_INSTANTIATE(BFloat16);
#undef TFO_INSTANTIATE

}  // namespace TFO_CPU_NAMESPACE
}  // namespace tfo
