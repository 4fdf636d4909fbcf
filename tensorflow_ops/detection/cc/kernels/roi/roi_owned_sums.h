// Gradients to features on the host by owners: one thread sums each pixel, in
// one order, whatever the number of threads. For ops whose rows of bins know
// the pixel rows that they add to (roi_pool).
#ifndef TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_ROI_OWNED_SUMS_H_
#define TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_ROI_OWNED_SUMS_H_

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <vector>

#include "tensorflow_ops/core/cc/device.h"
#include "tensorflow_ops/core/cc/simd/convert_simd.h"
#include "tensorflow_ops/detection/cc/kernels/roi/roi_bin_rows.h"

namespace tfo {

// The costs that decide how the gradient is partitioned.
struct GradCost {
  double cycles_per_bin_row;
  int64_t tensor_bytes;  // of the op's inputs and outputs
};

// How the gradient is shared out. A unit is some channels of a band of rows of
// one image; one thread owns it and goes down its bin rows, so each pixel's sum
// has one order whatever the number of threads.
struct GradUnits {
  int64_t channels;       // of a unit
  int64_t blocks;         // of channels
  int64_t bands;          // of rows
  int64_t window_height;  // rows that SumWindow holds
};

template <typename T>
GradUnits PartitionGradient(const Cpu& cpu, const FeatureShape& shape,
                            const std::vector<BinRow>& bin_rows,
                            int64_t tensor_bytes) {
  const auto divide_up = [](int64_t a, int64_t b) { return (a + b - 1) / b; };
  int64_t tallest = 1;
  double all_rows = 1;
  for (const BinRow& row : bin_rows) {
    const int64_t rows = row.rows.end - row.rows.begin;
    tallest = std::max(tallest, rows);
    all_rows += rows;
  }
  GradUnits units;
  // Splits by rows unless many bins would straddle two bands; otherwise by
  // channels.
  const double max_bands = shape.height * bin_rows.size() / (2 * all_rows);
  units.bands = std::clamp<int64_t>(divide_up(cpu.num_threads, shape.batch), 1,
                                    std::max<int64_t>(max_bands, 1));
  // All channels of a pixel at once, which memory delivers fastest, or whole
  // cache lines.
  constexpr int64_t line = 64 / sizeof(T);
  units.channels = divide_up(
      shape.channels, divide_up(cpu.num_threads, shape.batch * units.bands));
  // Taller than the tallest bin, so that the window moves only now and then.
  units.window_height =
      std::min(shape.height, tallest + std::max<int64_t>(8, tallest / 2));
  if (sizeof(T) == 2) {
    // All threads' windows together stay small compared to the tensors.
    const int64_t window_bytes =
        std::max<int64_t>(tensor_bytes / 12 / cpu.num_threads, 256 << 10);
    const int64_t channel_bytes =
        units.window_height * shape.width * sizeof(float);
    units.channels = std::min(units.channels, window_bytes / channel_bytes);
  }
  // Blocks of about the same size.
  units.channels = std::max(units.channels, line);
  units.blocks = divide_up(shape.channels, units.channels);
  units.channels =
      std::min(divide_up(divide_up(shape.channels, units.blocks), line) * line,
               shape.channels);
  units.blocks = divide_up(shape.channels, units.channels);
  return units;
}

// The part of a bin row that lies in a unit's rows.
struct BinRowPart {
  const BinRow* whole;
  const BinRow* next;  // the one after it, or itself
  PixelRange rows;
};

// The sums that a part of a bin row adds to, from its first row and the unit's
// first channel on.
template <typename Sum>
struct PartSums {
  Sum* sums;
  int64_t pixel;  // the step to the next one
  int64_t first_channel, channels;
};

// Sums in d_features itself, which is zeroed as the bin rows reach it.
template <typename T>
class SumsInPlace {
 public:
  SumsInPlace(const FeatureShape& shape, const GradUnits&)
      : shape_(shape), strides_(shape.Strides()) {}

  // Starts at a unit's first row.
  void Start(T* image, int64_t row, int64_t first_channel, int64_t channels) {
    image_ = image;
    first_channel_ = first_channel;
    channels_ = channels;
    zeroed_ = row;
  }

  // `rows` do not lie above those finished.
  PartSums<T> At(PixelRange rows) {
    ZeroUntil(rows.end);
    return {image_ + rows.begin * strides_.row + first_channel_,
            strides_.column, first_channel_, channels_};
  }

  // No later bin row adds above `row`.
  void FinishAbove(int64_t row) { ZeroUntil(row); }

 private:
  void ZeroUntil(int64_t row) {
    if (row <= zeroed_) return;
    const int64_t count = (row - zeroed_) * shape_.width;
    T* const first = image_ + zeroed_ * strides_.row + first_channel_;
    if (channels_ == shape_.channels) {
      std::memset(first, 0, count * channels_ * sizeof(T));
    } else {
      for (int64_t i = 0; i < count; ++i) {
        std::memset(first + i * strides_.column, 0, channels_ * sizeof(T));
      }
    }
    zeroed_ = row;
  }

  const FeatureShape& shape_;
  const FeatureStrides strides_;
  T* image_;
  int64_t first_channel_, channels_;
  int64_t zeroed_;  // the first row that is not
};

// Sums of some rows in a wider type, moving down an image: rows above it are
// complete and rounded to d_features, rows below have no sums yet.
template <typename T>
class SumWindow {
 public:
  using Sum = Accumulator<T>;

  SumWindow(const FeatureShape& shape, const GradUnits& units)
      : shape_(shape),
        strides_(shape.Strides()),
        height_(units.window_height),
        pixels_(units.window_height * shape.width),
        sums_(pixels_ * units.channels) {}

  // Starts at a unit's first row.
  void Start(T* image, int64_t row, int64_t first_channel, int64_t channels) {
    image_ = image;
    first_channel_ = first_channel;
    channels_ = channels;
    top_ = done_ = row;
    std::fill(sums_.begin(), sums_.end(), Sum{0});
  }

  // Writes the rows above `row` to d_features: no later bin row adds to them.
  void FinishAbove(int64_t row) {
    while (done_ < row) {
      const int64_t rows = std::min(row, top_ + height_) - done_;
      Write(done_, rows);
      done_ += rows;
      if (done_ == top_ + height_) MoveTo(done_);
    }
  }

  // `rows` do not lie above those finished, nor more than the window's height
  // below.
  PartSums<Sum> At(PixelRange rows) {
    if (rows.end > top_ + height_) MoveTo(done_);
    const int64_t offset = (rows.begin - top_) * shape_.width;
    return {&sums_[offset * channels_], channels_, first_channel_, channels_};
  }

 private:
  void Write(int64_t row, int64_t rows) {
    const int64_t offset = (row - top_) * shape_.width;
    const int64_t count = rows * shape_.width;
    T* const to = image_ + row * strides_.row + first_channel_;
    for (int64_t i = 0; i < count; ++i) {
      narrow_(&sums_[(offset + i) * channels_], to + i * strides_.column,
              channels_);
    }
  }

  // Makes `row`, which lies in the window or just below, its first.
  void MoveTo(int64_t row) {
    const int64_t gone = (row - top_) * shape_.width * channels_;
    const int64_t kept = pixels_ * channels_ - gone;
    std::memmove(sums_.data(), sums_.data() + gone, kept * sizeof(Sum));
    std::memset(sums_.data() + kept, 0, gone * sizeof(Sum));
    top_ = row;
  }

  const FeatureShape& shape_;
  const FeatureStrides strides_;
  const decltype(TFO_DISPATCH(NarrowArray<T>)) narrow_ =
      TFO_DISPATCH(NarrowArray<T>);
  const int64_t height_, pixels_;  // of the window
  std::vector<Sum> sums_;          // [height, width, channels]
  T* image_;
  int64_t first_channel_, channels_;
  int64_t top_, done_;  // the window's first row; the first unfinished row
};

// Writes all of d_features, of `shape` with pixels and channels: zeros, and
// what add(sums, part) adds for each part of `bin_rows`, which go downward.
// make_add() makes an `add` for each thread.
template <typename T, typename MakeAdd>
void SumByOwners(const Cpu& cpu, const FeatureShape& shape,
                 std::vector<BinRow> bin_rows, const GradCost& cost,
                 T* d_features, const MakeAdd& make_add) {
  bin_rows.erase(
      std::remove_if(bin_rows.begin(), bin_rows.end(),
                     [](const BinRow& row) { return row.rows.empty(); }),
      bin_rows.end());
  // Where each image's bin rows begin.
  std::vector<int64_t> image_begin(shape.batch + 1, 0);
  for (const BinRow& row : bin_rows) ++image_begin[row.image + 1];
  for (int64_t n = 0; n < shape.batch; ++n) {
    image_begin[n + 1] += image_begin[n];
  }

  using Sums = std::conditional_t<sizeof(T) == 2, SumWindow<T>, SumsInPlace<T>>;
  const GradUnits units =
      PartitionGradient<T>(cpu, shape, bin_rows, cost.tensor_bytes);
  const int64_t all = shape.batch * units.blocks * units.bands;
  // Bands of equally many bin rows, where the image has some.
  const auto band_begin = [&](int64_t image, int64_t band) -> int64_t {
    const int64_t begin = image_begin[image], end = image_begin[image + 1];
    if (band == 0) return 0;
    if (band == units.bands) return shape.height;
    if (begin == end) return shape.height * band / units.bands;
    return bin_rows[begin + (end - begin) * band / units.bands].rows.begin;
  };
  const double cycles_per_unit =
      (cost.cycles_per_bin_row * bin_rows.size() + 1.0 * shape.Size()) / all;
  cpu.ParallelFor(all, cycles_per_unit, [&](int64_t begin, int64_t end) {
    Sums sums(shape, units);
    auto add = make_add();
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t image = unit / (units.blocks * units.bands);
      const int64_t c = unit / units.bands % units.blocks * units.channels;
      const int64_t y0 = band_begin(image, unit % units.bands);
      const int64_t y1 = band_begin(image, unit % units.bands + 1);
      if (y0 == y1) continue;
      sums.Start(d_features + image * shape.ImageSize(), y0, c,
                 std::min(units.channels, shape.channels - c));
      const int64_t last = image_begin[image + 1] - 1;
      for (int64_t i = image_begin[image]; i <= last; ++i) {
        const BinRow& row = bin_rows[i];
        const PixelRange rows = {
            static_cast<int32_t>(std::max<int64_t>(row.rows.begin, y0)),
            static_cast<int32_t>(std::min<int64_t>(row.rows.end, y1))};
        if (rows.empty()) continue;
        sums.FinishAbove(rows.begin);
        add(sums.At(rows), {&row, &bin_rows[std::min(i + 1, last)], rows});
      }
      sums.FinishAbove(y1);
    }
  });
}

}  // namespace tfo

#endif  // TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_ROI_OWNED_SUMS_H_
