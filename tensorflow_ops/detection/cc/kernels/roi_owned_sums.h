// Gradients to features on the host by owners: each pixel's sum has one thread
// and one order, whatever the number of threads. For ops whose rows of bins
// know where they add (roi_pool, roi_align's maximum).
#ifndef TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_OWNED_SUMS_H_
#define TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_OWNED_SUMS_H_

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <vector>

#include "tensorflow_ops/core/cc/convert_simd.h"
#include "tensorflow_ops/core/cc/device.h"
#include "tensorflow_ops/detection/cc/kernels/roi_bin_rows.h"

namespace tfo {

// How the gradient is shared out. A unit is some channels of a band of rows of
// one image; one thread owns it and goes down its bin rows, so each pixel's sum
// has one order whatever the number of threads.
struct GradUnits {
  int64_t channels, blocks;  // of a unit; units beside each other
  int64_t bands;             // units below each other
  int64_t window_height;     // rows that SumWindow holds
};

// `bin_rows` are not empty.
template <typename T>
GradUnits CutGradient(const Cpu& cpu, const RoiArgs& args,
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
  // Units below each other as far as few bins reach over two; else beside.
  const double bands_most = args.height * bin_rows.size() / (2 * all_rows);
  units.bands = std::clamp<int64_t>(divide_up(cpu.num_threads, args.batch), 1,
                                    std::max<int64_t>(bands_most, 1));
  // NHWC: channels of a pixel in one piece, which memory delivers fastest, of
  // whole cache lines. NCHW: planes are apart anyway, and a few stay in the
  // cache.
  const int64_t line = args.channels_first ? 1 : 64 / sizeof(T);
  units.channels = args.channels_first ? std::min<int64_t>(32, args.channels)
                                       : args.channels;
  units.channels =
      std::min(units.channels,
               divide_up(args.channels,
                         divide_up(cpu.num_threads, args.batch * units.bands)));
  // Some rows more than a bin has, so that the window moves now and then only.
  units.window_height =
      std::min(args.height, tallest + std::max<int64_t>(8, tallest / 2));
  if (sizeof(T) == 2) {
    // All threads' windows together stay small beside the tensors.
    const int64_t window_bytes =
        std::max<int64_t>(tensor_bytes / 12 / cpu.num_threads, 256 << 10);
    const int64_t channel_bytes =
        units.window_height * args.width * sizeof(float);
    units.channels = std::min(units.channels, window_bytes / channel_bytes);
  }
  // Blocks of about the same size.
  units.channels = std::max(units.channels, line);
  units.blocks = divide_up(args.channels, units.channels);
  units.channels =
      std::min(divide_up(divide_up(args.channels, units.blocks), line) * line,
               args.channels);
  units.blocks = divide_up(args.channels, units.channels);
  return units;
}

// The part of a bin row that lies in a unit's rows.
struct BinRowPart {
  const BinRow* whole;
  const BinRow* next;  // the one after it, or itself
  PixelRange rows;
};

// Where a part of a bin row is added: the first sum is of its first row and the
// unit's first channel.
template <typename Sum>
struct PartSums {
  Sum* sums;
  int64_t pixel, channel;  // from one to the next
  int64_t first_channel, channels;
};

// Sums in d_features itself, which is zeroed as the bin rows come to it.
template <typename T>
class SumsInPlace {
 public:
  SumsInPlace(const RoiArgs& args, const GradUnits&) : args_(args) {}

  // Starts at a unit's first row.
  void Start(T* image, int64_t row, int64_t first_channel, int64_t channels) {
    image_ = image;
    first_channel_ = first_channel;
    channels_ = channels;
    zeroed_ = row;
  }

  // No row lies above those finished.
  PartSums<T> At(PixelRange rows) {
    ZeroUntil(rows.end);
    const int64_t pixel = rows.begin * args_.width;
    const int64_t plane = args_.height * args_.width, c = first_channel_;
    if (args_.channels_first) {
      return {image_ + c * plane + pixel, 1, plane, c, channels_};
    }
    return {image_ + pixel * args_.channels + c, args_.channels, 1, c,
            channels_};
  }

  // No bin row after this one adds above `row`.
  void FinishAbove(int64_t row) { ZeroUntil(row); }

 private:
  void ZeroUntil(int64_t row) {
    if (row <= zeroed_) return;
    const int64_t pixel = zeroed_ * args_.width;
    const int64_t count = (row - zeroed_) * args_.width;
    const int64_t plane = args_.height * args_.width;
    if (args_.channels_first) {
      for (int64_t c = first_channel_; c < first_channel_ + channels_; ++c) {
        std::memset(image_ + c * plane + pixel, 0, count * sizeof(T));
      }
    } else if (channels_ == args_.channels) {
      std::memset(image_ + pixel * channels_, 0, count * channels_ * sizeof(T));
    } else {
      for (int64_t i = pixel; i < pixel + count; ++i) {
        std::memset(image_ + i * args_.channels + first_channel_, 0,
                    channels_ * sizeof(T));
      }
    }
    zeroed_ = row;
  }

  const RoiArgs& args_;
  T* image_;
  int64_t first_channel_, channels_;
  int64_t zeroed_;  // the first row that is not
};

// Sums of some rows in a wider type, moving down an image: rows above are
// complete and rounded to d_features, rows below are not begun.
template <typename T>
class SumWindow {
 public:
  using Sum = Accumulator<T>;

  SumWindow(const RoiArgs& args, const GradUnits& units)
      : args_(args),
        narrow_(TFO_DISPATCH(NarrowArray<T>)),
        height_(units.window_height),
        plane_(units.window_height * args.width),
        sums_(plane_ * units.channels) {}

  // Starts at a unit's first row.
  void Start(T* image, int64_t row, int64_t first_channel, int64_t channels) {
    image_ = image;
    first_channel_ = first_channel;
    channels_ = channels;
    top_ = done_ = row;
    std::fill(sums_.begin(), sums_.end(), Sum{0});
  }

  // Writes the rows above `row` to d_features: no bin row after adds to them.
  void FinishAbove(int64_t row) {
    while (done_ < row) {
      const int64_t rows = std::min(row, top_ + height_) - done_;
      Write(done_, rows);
      done_ += rows;
      if (done_ == top_ + height_) MoveTo(done_);
    }
  }

  // No row lies above those finished, and none more than the window's height
  // below.
  PartSums<Sum> At(PixelRange rows) {
    if (rows.end > top_ + height_) MoveTo(done_);
    const int64_t offset = (rows.begin - top_) * args_.width;
    if (args_.channels_first) {
      return {&sums_[offset], 1, plane_, first_channel_, channels_};
    }
    return {&sums_[offset * channels_], channels_, 1, first_channel_,
            channels_};
  }

 private:
  void Write(int64_t row, int64_t rows) {
    const int64_t offset = (row - top_) * args_.width;
    const int64_t count = rows * args_.width, pixel = row * args_.width;
    if (args_.channels_first) {
      for (int64_t c = 0; c < channels_; ++c) {
        T* const plane =
            image_ + (first_channel_ + c) * args_.height * args_.width;
        narrow_(&sums_[c * plane_ + offset], plane + pixel, count);
      }
    } else {
      for (int64_t i = 0; i < count; ++i) {
        narrow_(&sums_[(offset + i) * channels_],
                image_ + (pixel + i) * args_.channels + first_channel_,
                channels_);
      }
    }
  }

  // Makes `row`, which lies in the window or just below, its first.
  void MoveTo(int64_t row) {
    const int64_t gone = (row - top_) * args_.width, kept = plane_ - gone;
    const int64_t planes = args_.channels_first ? channels_ : 1;
    const int64_t each = args_.channels_first ? 1 : channels_;
    for (int64_t c = 0; c < planes; ++c) {
      Sum* const plane = sums_.data() + c * plane_;
      std::memmove(plane, plane + gone * each, kept * each * sizeof(Sum));
      std::memset(plane + kept * each, 0, gone * each * sizeof(Sum));
    }
    top_ = row;
  }

  const RoiArgs& args_;
  decltype(TFO_DISPATCH(NarrowArray<T>)) narrow_;
  const int64_t height_, plane_;  // rows; pixels of the window
  // [height, width, channels], or [channels, height, width].
  std::vector<Sum> sums_;
  T* image_;
  int64_t first_channel_, channels_;
  int64_t top_, done_;  // the window's first row; the first unfinished row
};

// Writes all of d_features: zeros, and what add(sums, part), which make_add()
// makes for a thread, adds for each part of `bin_rows`. These go downward.
// `cycles` is what a bin and channel costs; the op's inputs and outputs have
// `tensor_bytes`.
template <typename T, typename MakeAdd>
void SumByOwners(const Cpu& cpu, const RoiArgs& args,
                 std::vector<BinRow> bin_rows, double cycles,
                 int64_t tensor_bytes, T* d_features, const MakeAdd& make_add) {
  bin_rows.erase(
      std::remove_if(bin_rows.begin(), bin_rows.end(),
                     [](const BinRow& row) { return row.rows.empty(); }),
      bin_rows.end());
  // Where each image's bin rows begin.
  std::vector<int64_t> image_begin(args.batch + 1, 0);
  for (const BinRow& row : bin_rows) ++image_begin[row.image + 1];
  for (int64_t n = 0; n < args.batch; ++n) image_begin[n + 1] += image_begin[n];

  using Sums = std::conditional_t<sizeof(T) == 2, SumWindow<T>, SumsInPlace<T>>;
  const GradUnits units = CutGradient<T>(cpu, args, bin_rows, tensor_bytes);
  const int64_t all = args.batch * units.blocks * units.bands;
  // Bands with as many bin rows each, where the image has some.
  const auto band_begin = [&](int64_t image, int64_t band) -> int64_t {
    const int64_t begin = image_begin[image], end = image_begin[image + 1];
    if (band == 0) return 0;
    if (band == units.bands) return args.height;
    if (begin == end) return args.height * band / units.bands;
    return bin_rows[begin + (end - begin) * band / units.bands].rows.begin;
  };
  const double cycles_per_unit =
      (cycles * bin_rows.size() * args.pooled_width * args.channels +
       1.0 * args.batch * args.height * args.width * args.channels) /
      all;
  cpu.ParallelFor(all, cycles_per_unit, [&](int64_t begin, int64_t end) {
    Sums sums(args, units);
    auto add = make_add();
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t image = unit / (units.blocks * units.bands);
      const int64_t c = unit / units.bands % units.blocks * units.channels;
      const int64_t y0 = band_begin(image, unit % units.bands);
      const int64_t y1 = band_begin(image, unit % units.bands + 1);
      if (y0 == y1) continue;
      sums.Start(d_features + image * args.height * args.width * args.channels,
                 y0, c, std::min(units.channels, args.channels - c));
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

#endif  // TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_OWNED_SUMS_H_
