// The averages and their transpose.
#include "tensorflow_ops/detection/cc/kernels/roi_average/roi_average_simd.h"

#include "tensorflow_ops/core/cc/simd.h"
#include "tensorflow_ops/detection/cc/kernels/roi_average/roi_average_plane_simd.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {
namespace {

// Accumulators that fit the registers.
constexpr int kMaxVectors = kVectorBytes == 64 ? 16 : 8;

// Calls piece(Constant<n>, c) for groups of n channels that are not contiguous:
// kPiece of them while there are as many, then half as many, and so on.
template <int kPiece, typename Piece>
TFO_INLINE void ForChannels(int64_t count, int64_t c, const Piece& piece) {
  for (; c + kPiece <= count; c += kPiece) piece(Constant<kPiece>{}, c);
  if constexpr (kPiece > 1) ForChannels<kPiece / 2>(count, c, piece);
}

template <bool kStream, typename T>
void AverageBin(const T* image, int64_t row, int64_t channels,
                TapSpan<Tap<Sum<T>>> rows, TapSpan<Tap<Sum<T>>> columns,
                const BinChannels& of, T* output) {
  constexpr int kCount = Lanes<T>::kCount;
  const int64_t count = of.count, step = of.step;
  // Calls add(weight, pixel) for each pixel of the bin.
  const auto for_pixels = [&](const auto& add) __attribute__((always_inline)) {
    for (auto y = rows.begin; y < rows.end; ++y) {
      const T* const at = image + y->pixel * row;
      for (auto x = columns.begin; x < columns.end; ++x) {
        add(y->weight * x->weight, at + x->pixel * channels);
      }
    }
  };
  if (step != 1) {
    ForChannels<8>(count, 0, [&](auto piece, int64_t c) {
      constexpr int kPiece = decltype(piece)::kValue;
      Sum<T> sums[kPiece] = {};
      for_pixels([&](Sum<T> weight, const T* pixel) {
#pragma GCC unroll 8
        for (int i = 0; i < kPiece; ++i) {
          sums[i] = MulAdd(weight, LoadOne(pixel + (c + i) * step), sums[i]);
        }
      });
      T* const to = output + c;
      for (int i = 0; i < kPiece; ++i) to[i] = Narrow<T>(sums[i]);
    });
    return;
  }
  ForVectorGroups<kMaxVectors, kCount>(
      count, 0,
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

}  // namespace

template <typename T>
void AverageBinRow(const ImageView<const T>& image, TapSpan<Tap<Sum<T>>> rows,
                   const BinTaps<Tap<Sum<T>>>& columns, const BinChannels& of,
                   RowView<T> output, bool stream) {
  constexpr int64_t kBytes = Lanes<T>::kCount * sizeof(T);
  stream = stream && reinterpret_cast<uintptr_t>(output.data) % kBytes == 0 &&
           output.channels * sizeof(T) % kBytes == 0;
  const auto average_bin = stream ? AverageBin<true, T> : AverageBin<false, T>;
  for (int64_t q = 0; q < columns.count; ++q) {
    average_bin(image.data + q * of.next_bin, image.width * image.channels,
                image.channels, rows, TapsOf(columns, q), of,
                output.data + q * output.channels);
  }
  if (stream) FinishStreaming();
}

template <typename T>
void AveragePlane(const PlaneView<const T>& plane,
                  const BinTaps<Tap<Sum<T>>>& rows,
                  const BinTaps<Tap<Sum<T>>>& columns, Sum<T>* scratch,
                  T* output) {
  constexpr int kCount = Lanes<T>::kCount;
  const int64_t width = plane.width, bins_x = columns.count;
  if (IsFewPixels(rows, columns)) {
    Sum<T> average = 0;
    const auto bin_rows = TapsOf(rows, 0), bin = TapsOf(columns, 0);
    for (auto y = bin_rows.begin; y < bin_rows.end; ++y) {
      const T* const from = plane.data + y->pixel * width;
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
  const ColumnRange used = ColumnsOf(columns);
  for (int64_t p = 0; p < rows.count; ++p) {
    const auto bin_rows = TapsOf(rows, p);
    // Rows first, a vector of columns at a time ...
    for (int64_t x = used.begin; x < used.end; x += kCount) {
      Vector<T> sum = {};
      for (auto y = bin_rows.begin; y < bin_rows.end; ++y) {
        sum = MulAdd(Vector<T>{} + y->weight,
                     LoadRow(plane, y->pixel * width + x), sum);
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
void AddBinRow(RowView<const T> d_output, Sum<T> weight,
               const BinTaps<Tap<Sum<T>>>& columns, const BinChannels& of,
               int64_t ahead, RowView<Sum<T>> sums) {
  constexpr int kCount = Lanes<T>::kCount;
  const int64_t channels = sums.channels;
  const int64_t count = of.count, step = of.step;
  for (int64_t q = 0; q < columns.count; ++q) {
    const T* const from = d_output.data + q * d_output.channels;
    Sum<T>* const to = sums.data + q * of.next_bin;
    const auto bin = TapsOf(columns, q);
    if (step != 1) {
      ForChannels<8>(count, 0, [&](auto piece, int64_t c) {
        constexpr int kPiece = decltype(piece)::kValue;
        Sum<T> values[kPiece];
        for (int i = 0; i < kPiece; ++i) {
          values[i] = weight * LoadOne(from + c + i);
        }
        for (auto x = bin.begin; x < bin.end; ++x) {
          Sum<T>* const pixel = to + x->pixel * channels + c * step;
#pragma GCC unroll 8
          for (int i = 0; i < kPiece; ++i) {
            pixel[i * step] = MulAdd(x->weight, values[i], pixel[i * step]);
          }
        }
      });
      continue;
    }
    ForVectorGroups<kMaxVectors, kCount>(
        count, 0,
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
void AddPlane(const T* d_output, const BinTaps<Tap<Sum<T>>>& rows,
              const BinTaps<Tap<Sum<T>>>& columns, int64_t width,
              Sum<T>* scratch, Sum<T>* sums) {
  constexpr int kCount = Lanes<T>::kCount;
  const int64_t bins_x = columns.count;
  if (IsFewPixels(rows, columns)) {
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
  const ColumnRange used = ColumnsOf(columns);
  for (int64_t p = 0; p < rows.count; ++p) {
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

#define TFO_INSTANTIATE(T)                                                    \
  template void AverageBinRow<T>(                                             \
      const ImageView<const T>&, TapSpan<Tap<Sum<T>>>,                        \
      const BinTaps<Tap<Sum<T>>>&, const BinChannels&, RowView<T>, bool);     \
  template void AveragePlane<T>(const PlaneView<const T>&,                    \
                                const BinTaps<Tap<Sum<T>>>&,                  \
                                const BinTaps<Tap<Sum<T>>>&, Sum<T>*, T*);    \
  template void AddBinRow<T>(RowView<const T>, Sum<T>,                        \
                             const BinTaps<Tap<Sum<T>>>&, const BinChannels&, \
                             int64_t, RowView<Sum<T>>);                       \
  template void AddPlane<T>(const T*, const BinTaps<Tap<Sum<T>>>&,            \
                            const BinTaps<Tap<Sum<T>>>&, int64_t, Sum<T>*,    \
                            Sum<T>*)
TFO_FOR_EACH_FLOAT(TFO_INSTANTIATE);
#undef TFO_INSTANTIATE

}  // namespace TFO_CPU_NAMESPACE
}  // namespace tfo
