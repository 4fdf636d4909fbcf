// The gradient to features on the CPU, by owners: one thread sums each pixel,
// in one order.
#include <cstring>

#include "tensorflow_ops/core/cc/simd/convert_simd.h"
#include "tensorflow_ops/detection/cc/kernels/roi_average/roi_average_simd.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {
namespace {

// The transpose of AverageBinRow in one row of pixels, whose tap has
// `weight`: adds to `sums`, which begin at the first bin's first channel.
// Prefetches d_output `ahead` elements further, where the caller continues.
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

// 16-bit types are summed in a buffer of floats, the others in place.
template <typename T>
constexpr bool kSumsInPlace = sizeof(T) == sizeof(Accumulator<T>);

// The pixel rows of all maps, numbered map by map.
struct PixelRows {
  template <typename T>
  explicit PixelRows(const std::vector<FeatureMap<T>>& maps)
      : first(maps.size() + 1, 0) {
    for (size_t m = 0; m < maps.size(); ++m) {
      first[m + 1] = first[m] + maps[m].height;
    }
  }
  int64_t count() const { return first.back(); }
  int64_t MapOf(int64_t row) const {
    return std::upper_bound(first.begin(), first.end(), row) - first.begin() -
           1;
  }

  std::vector<int64_t> first;  // of each map
};

// Some channels of a row of pixels, which one thread owns.
template <typename T>
class RowSums {
 public:
  using Sum = Accumulator<T>;

  RowSums(int64_t widest, int64_t block)
      : buffer_(kSumsInPlace<T> ? 0 : widest * block) {}

  // Returns zeros for `count` channels of each pixel of `row`.
  RowView<Sum> Start(RowView<T> row, int64_t width, int64_t count) {
    RowView<Sum> sums;
    if constexpr (kSumsInPlace<T>) {
      sums = row;
    } else {
      sums = {buffer_.data(), count};
    }
    if (sums.channels == count) {
      std::memset(sums.data, 0, width * count * sizeof(Sum));
    } else {
      for (int64_t x = 0; x < width; ++x) {
        std::memset(sums.data + x * sums.channels, 0, count * sizeof(Sum));
      }
    }
    return sums;
  }

  // Writes the sums to `row`.
  void Finish(RowView<T> row, int64_t width, int64_t count) const {
    if constexpr (!kSumsInPlace<T>) {
      if (count == row.channels) {
        NarrowArray<T>(buffer_.data(), row.data, width * count);
      } else {
        for (int64_t x = 0; x < width; ++x) {
          NarrowArray<T>(buffer_.data() + x * count,
                         row.data + x * row.channels, count);
        }
      }
    }
  }

 private:
  std::vector<Sum> buffer_;
};

}  // namespace

template <typename T>
Error RoiAverageGrad(const Cpu& cpu, const RoiAverageGradArgs<T>& args) {
  using Sum = Accumulator<T>;
  if (args.batch * args.channels == 0) return nullptr;
  const FeatureShape pooled = args.Pooled(args.boxes.count);
  const auto maps = MapsOf(args, args.d_features);
  const BoxTaps<T> taps(cpu, args, args.boxes);
  const int64_t channels = args.channels, ph = pooled.height;
  const BinChannels of = args.ChannelsOfBins();
  const bool all_channels = args.order == RoiChannels::kAll;
  const PixelRows pixel_rows(maps);
  const int64_t rows = pixel_rows.count();
  const Buckets bin_rows(rows, [&](const auto& add) {
    for (int64_t k = 0; k < pooled.batch; ++k) {
      for (int64_t p = 0; p < ph; ++p) {
        const auto bin = TapsOf(taps.Rows(k), p);
        for (const auto* tap = bin.begin; tap < bin.end; ++tap) {
          add(pixel_rows.first[taps.Map(k)] + tap->pixel, k * ph + p);
        }
      }
    }
  });

  // A unit is some channels of a row of pixels, and all rows of bins that have
  // a tap on it, in order. Its sums stay in the cache. Bins with channels of
  // their own need all.
  constexpr int64_t kSumsBytes = 512 << 10;
  int64_t widest = 0;
  for (const FeatureMap<T>& map : maps) widest = std::max(widest, map.width);
  const int64_t fit = kSumsBytes / sizeof(Sum) / std::max<int64_t>(widest, 1);
  const int64_t block =
      all_channels ? std::min(std::max<int64_t>(fit / 64 * 64, 64), channels)
                   : channels;
  const int64_t blocks = (channels + block - 1) / block;
  const double cycles =
      (60 + 2.0 * of.count) * bin_rows.size() * pooled.width / (rows * blocks) +
      0.2 * widest * block;
  cpu.ParallelFor(rows * blocks, cycles, [&](int64_t begin, int64_t end) {
    RowSums<T> row_sums(widest, block);
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t row = unit / blocks, c = unit % blocks * block;
      const int64_t count = std::min(block, channels - c);
      const int64_t m = pixel_rows.MapOf(row);
      const int64_t y = row - pixel_rows.first[m], width = maps[m].width;
      const RowView<T> to = {maps[m].data + y * width * channels + c, channels};
      const RowView<Sum> sums = row_sums.Start(to, width, count);
      for (auto i = bin_rows.begin(row); i < bin_rows.end(row); ++i) {
        const int64_t k = *i / ph, p = *i % ph;
        const Tap<Sum>* tap = TapsOf(taps.Rows(k), p).begin;
        while (tap->pixel != y) ++tap;
        const int64_t next = i + 1 < bin_rows.end(row) ? i[1] : *i;
        const int64_t ahead = (next - *i) * pooled.width * of.count;
        AddBinRow<T>(
            {args.d_output + pooled.Offset(k, p, 0, c), of.count}, tap->weight,
            taps.Columns(k),
            {all_channels ? count : of.count, of.step, of.next_bin}, ahead,
            {sums.data + p * pooled.width * of.next_bin, sums.channels});
      }
      row_sums.Finish(to, width, count);
    }
  });
  return nullptr;
}

}  // namespace TFO_CPU_NAMESPACE

TFO_INSTANTIATE_ALGORITHM_PER_LEVEL(RoiAverageGrad, RoiAverageGradArgs);

}  // namespace tfo
