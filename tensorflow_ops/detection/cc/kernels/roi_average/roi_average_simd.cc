// The averages and their transpose.
#include "tensorflow_ops/detection/cc/kernels/roi_average/roi_average_simd.h"

#include "tensorflow_ops/core/cc/simd.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {
namespace {

template <typename T>
using Vector = typename Lanes<T>::Vector;
template <typename T>
using Sum = Accumulator<T>;

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
          const Vector<T> w = Broadcast<Vector<T>>(weight);
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
          sums = MulAdd(Broadcast<Vector<T>>(weight), LoadFirst(pixel + c, n),
                        sums);
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
            values[i] =
                Load(from + c + i * kCount) * Broadcast<Vector<T>>(weight);
            __builtin_prefetch(from + c + i * kCount + ahead);
          }
          for (auto x = bin.begin; x < bin.end; ++x) {
            const Vector<T> w = Broadcast<Vector<T>>(x->weight);
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
              LoadFirst(from + c, n) * Broadcast<Vector<T>>(weight);
          for (auto x = bin.begin; x < bin.end; ++x) {
            Sum<T>* const pixel = to + x->pixel * channels + c;
            StoreFirst(MulAdd(Broadcast<Vector<T>>(x->weight), values,
                              LoadFirst(pixel, n)),
                       pixel, n);
          }
        });
  }
}

TFO_INSTANTIATE_FUNCTION(AverageBinRow);
TFO_INSTANTIATE_FUNCTION(AddBinRow);

}  // namespace TFO_CPU_NAMESPACE
}  // namespace tfo
