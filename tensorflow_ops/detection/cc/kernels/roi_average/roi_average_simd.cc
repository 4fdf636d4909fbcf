// The averages on the CPU.
#include "tensorflow_ops/detection/cc/kernels/roi_average/roi_average_simd.h"

#include <cstring>

namespace tfo {
namespace TFO_CPU_NAMESPACE {
namespace {

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

// A row of bins. `image` begins at the first bin's first channel;
// `rows` are the taps of the row of bins. Writes of.count channels of
// each bin of `output`; past the caches if `stream`, which is for outputs
// larger than them.
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

}  // namespace

template <typename T>
Error RoiAverage(const Cpu& cpu, const RoiAverageArgs<T>& args) {
  const FeatureShape pooled = args.Pooled(args.boxes.count);
  if (pooled.Size() == 0) return nullptr;
  const auto maps = MapsOf(args, args.features);
  const BoxTaps<T> taps(cpu, args, args.boxes);
  const std::vector<int64_t> bin_rows = BinRowsByBand(pooled, taps, maps);
  const BinChannels of = args.ChannelsOfBins();
  // Blocks of channels: the pixel rows in use, of a block, fit the caches.
  constexpr int64_t kBlock = 1024 / sizeof(T);
  const int64_t blocks = (of.count + kBlock - 1) / kBlock;
  const int64_t units = bin_rows.size();
  const bool stream = pooled.Size() * int64_t{sizeof(T)} >= kStreamBytes;
  cpu.ParallelFor(
      blocks * units, Cycles(pooled, taps, args.channels) / (blocks * units),
      [&](int64_t begin, int64_t end) {
        for (int64_t unit = begin; unit < end; ++unit) {
          const int64_t c = unit / units * kBlock;
          const int64_t k = bin_rows[unit % units] / pooled.height;
          const int64_t p = bin_rows[unit % units] % pooled.height;
          const int64_t count = std::min(kBlock, of.count - c);
          T* const to = args.output + pooled.Offset(k, p, 0, c);
          const auto rows = TapsOf(taps.Rows(k), p);
          if (rows.begin == rows.end) {
            for (int64_t q = 0; q < pooled.width; ++q) {
              std::memset(to + q * of.count, 0, count * sizeof(T));
            }
            continue;
          }
          const auto& map = maps[taps.Map(k)];
          const int64_t first = p * pooled.width * of.next_bin + c * of.step;
          AverageBinRow<T>({map.data + first, map.width, args.channels}, rows,
                           taps.Columns(k), {count, of.step, of.next_bin},
                           {to, of.count}, stream);
        }
      });
  return nullptr;
}

}  // namespace TFO_CPU_NAMESPACE

TFO_INSTANTIATE_ALGORITHM_PER_LEVEL(RoiAverage, RoiAverageArgs);

}  // namespace tfo
