// The gradient to features on the CPU, by owners: one thread sums each pixel,
// in one order.
#include <cstring>

#include "tensorflow_ops/core/cc/convert_simd.h"
#include "tensorflow_ops/detection/cc/kernels/roi_average/roi_average_cpu.h"

namespace tfo {
namespace {

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
        narrow_(buffer_.data(), row.data, width * count);
      } else {
        for (int64_t x = 0; x < width; ++x) {
          narrow_(buffer_.data() + x * count, row.data + x * row.channels,
                  count);
        }
      }
    }
  }

 private:
  std::vector<Sum> buffer_;
  decltype(TFO_DISPATCH(NarrowArray<T>)) narrow_ = TFO_DISPATCH(NarrowArray<T>);
};

}  // namespace

template <typename T>
Error RoiAverageGrad(const Cpu& cpu, const RoiAverageGradArgs<T>& args) {
  using Sum = Accumulator<T>;
  if (args.batch * args.channels == 0) return nullptr;
  const FeatureShape pooled = args.Pooled(args.boxes.count);
  const auto maps = MapsOf(args, args.d_features);
  const BoxTaps<T> taps(cpu, args, args.boxes);
  const auto add_bin_row = TFO_DISPATCH(AddBinRow<T>);
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
        add_bin_row(
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

TFO_INSTANTIATE_ALGORITHM(RoiAverageGrad, Cpu, RoiAverageGradArgs);

}  // namespace tfo
