// The gradient of roi_pool.
#include <algorithm>
#include <cstring>
#include <type_traits>
#include <vector>

#include "tensorflow_ops/core/cc/convert_simd.h"
#include "tensorflow_ops/detection/cc/kernels/roi_pool.h"
#include "tensorflow_ops/detection/cc/kernels/roi_pool_bin_rows.h"
#include "tensorflow_ops/detection/cc/kernels/roi_pool_simd.h"

namespace tfo {
namespace {

// How the gradient is shared out. A unit is some channels of a band of rows of
// one image; one thread owns it and goes down its bin rows, so each pixel's sum
// has one order whatever the number of threads.
struct GradUnits {
  int64_t channels, blocks;  // of a unit; units beside each other
  int64_t bands;             // units below each other
  int64_t window_height;     // rows that SumWindow holds
};

template <typename T>
GradUnits CutGradient(const Cpu& cpu, const RoiArgs& args,
                      const std::vector<BinRow>& bin_rows) {
  constexpr int64_t kLine = 64 / sizeof(T);  // a cache line
  const int64_t channels = std::max(args.channels, kLine);
  GradUnits units;
  // NHWC: all channels of a bin in one piece, which memory delivers fastest.
  // NCHW: planes are apart anyway, and a few stay in the cache.
  units.channels =
      args.channels_first ? std::min<int64_t>(32, args.channels) : channels;
  int64_t tallest = 1;
  for (const BinRow& row : bin_rows) {
    tallest = std::max<int64_t>(tallest, row.rows.end - row.rows.begin);
  }
  // Some rows more than a bin has, so that the window moves now and then only.
  units.window_height =
      std::min(args.height, tallest + std::max<int64_t>(8, tallest / 2));
  if (sizeof(T) == 2) {
    // All threads' windows together stay small beside the tensors.
    const int64_t bins = args.pooled_height * args.pooled_width;
    const int64_t tensor_bytes =
        args.channels * (sizeof(T) * args.height * args.width * args.batch +
                         6 * bins * args.num_boxes);
    const int64_t window_bytes =
        std::max<int64_t>(tensor_bytes / 20 / cpu.num_threads, 256 << 10);
    const int64_t channel_bytes =
        units.window_height * args.width * sizeof(float);
    units.channels = std::min(units.channels, window_bytes / channel_bytes);
  }
  units.channels = std::clamp(units.channels, kLine, channels);
  units.blocks = (args.channels + units.channels - 1) / units.channels;
  units.channels = (args.channels + units.blocks - 1) / units.blocks;
  units.channels = (units.channels + kLine - 1) / kLine * kLine;
  units.blocks = (args.channels + units.channels - 1) / units.channels;
  units.bands = (cpu.num_threads + args.batch * units.blocks - 1) /
                (args.batch * units.blocks);
  return units;
}

// The part of a bin row that lies in a unit's rows.
struct BinRowPart {
  int64_t box, p;
  PixelRange rows;
  int64_t ahead;  // from its values to the next part's
};

// What the two kinds of sums below share: a unit's place, and how a bin row is
// added to sums that lie somewhere.
template <typename T>
class UnitSums {
 public:
  using Sum = Accumulator<T>;

  explicit UnitSums(const RoiArgs& args)
      : args_(args), scatter_add_(TFO_DISPATCH(ScatterAdd<T>)) {}

 protected:
  void StartUnit(T* image, int64_t first_channel, int64_t channels) {
    image_ = image;
    first_channel_ = first_channel;
    channels_ = channels;
  }

  // Adds the part of a bin row to the sums, of which the first is of its first
  // row and the unit's first channel; from a pixel to the next it is `pixel`,
  // from a channel to the next `channel`.
  void AddTo(Sum* sums, int64_t pixel, int64_t channel, const T* d_output,
             const int32_t* argmax, const BinRowPart& part) {
    const auto& [k, p, rows, ahead] = part;
    const int64_t first = rows.begin * args_.width;
    const int64_t count = (rows.end - rows.begin) * args_.width;
    const int64_t height = args_.pooled_height, width = args_.pooled_width;
    if (args_.channels_first) {
      for (int64_t c = 0; c < channels_; ++c) {
        const int64_t at =
            ((k * args_.channels + first_channel_ + c) * height + p) * width;
        scatter_add_(d_output + at, argmax + at, width, first, count, pixel, 0,
                     ahead, sums + c * channel);
      }
    } else {
      for (int64_t q = 0; q < width; ++q) {
        const int64_t at =
            ((k * height + p) * width + q) * args_.channels + first_channel_;
        scatter_add_(d_output + at, argmax + at, channels_, first, count, pixel,
                     channel, ahead, sums);
      }
    }
  }

  const RoiArgs& args_;
  T* image_;
  int64_t first_channel_, channels_;

 private:
  decltype(TFO_DISPATCH(ScatterAdd<T>)) scatter_add_;
};

// Sums in d_features itself, which is zeroed as the bin rows come to it.
template <typename T>
class SumsInPlace : public UnitSums<T> {
 public:
  SumsInPlace(const RoiArgs& args, const GradUnits&) : UnitSums<T>(args) {}

  // Starts at a unit's first row.
  void Start(T* image, int64_t row, int64_t first_channel, int64_t channels) {
    this->StartUnit(image, first_channel, channels);
    zeroed_ = row;
  }

  void Add(const T* d_output, const int32_t* argmax, const BinRowPart& part) {
    ZeroUntil(part.rows.end);
    const RoiArgs& args = this->args_;
    const int64_t pixel = part.rows.begin * args.width,
                  plane = args.height * args.width;
    const int64_t c = this->first_channel_;
    if (args.channels_first) {
      this->AddTo(this->image_ + c * plane + pixel, 1, plane, d_output, argmax,
                  part);
    } else {
      this->AddTo(this->image_ + pixel * args.channels + c, args.channels, 1,
                  d_output, argmax, part);
    }
  }

  // No bin row after this one adds above `row`.
  void FinishAbove(int64_t row) { ZeroUntil(row); }

 private:
  void ZeroUntil(int64_t row) {
    if (row <= zeroed_) return;
    const RoiArgs& args = this->args_;
    const int64_t pixel = zeroed_ * args.width;
    const int64_t count = (row - zeroed_) * args.width;
    const int64_t plane = args.height * args.width;
    const int64_t first = this->first_channel_, channels = this->channels_;
    if (args.channels_first) {
      for (int64_t c = first; c < first + channels; ++c) {
        std::memset(this->image_ + c * plane + pixel, 0, count * sizeof(T));
      }
    } else if (channels == args.channels) {
      std::memset(this->image_ + pixel * channels, 0,
                  count * channels * sizeof(T));
    } else {
      for (int64_t i = pixel; i < pixel + count; ++i) {
        std::memset(this->image_ + i * args.channels + first, 0,
                    channels * sizeof(T));
      }
    }
    zeroed_ = row;
  }

  int64_t zeroed_;  // the first row that is not
};

// Sums of some rows in a wider type, moving down an image: rows above are
// complete and rounded to d_features, rows below are not begun.
template <typename T>
class SumWindow : public UnitSums<T> {
 public:
  using Sum = Accumulator<T>;

  SumWindow(const RoiArgs& args, const GradUnits& units)
      : UnitSums<T>(args),
        narrow_(TFO_DISPATCH(NarrowArray<T>)),
        height_(units.window_height),
        plane_(units.window_height * args.width),
        sums_(plane_ * units.channels) {}

  // Starts at a unit's first row.
  void Start(T* image, int64_t row, int64_t first_channel, int64_t channels) {
    this->StartUnit(image, first_channel, channels);
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

  // No row of the part lies above those finished, and none more than the
  // window's height below.
  void Add(const T* d_output, const int32_t* argmax, const BinRowPart& part) {
    const PixelRange rows = part.rows;
    if (rows.end > top_ + height_) MoveTo(done_);
    const int64_t offset = (rows.begin - top_) * this->args_.width;
    if (this->args_.channels_first) {
      this->AddTo(&sums_[offset], 1, plane_, d_output, argmax, part);
    } else {
      this->AddTo(&sums_[offset * this->channels_], this->channels_, 1,
                  d_output, argmax, part);
    }
  }

 private:
  void Write(int64_t row, int64_t rows) {
    const RoiArgs& args = this->args_;
    const int64_t offset = (row - top_) * args.width, count = rows * args.width;
    const int64_t pixel = row * args.width, channels = this->channels_;
    if (args.channels_first) {
      for (int64_t c = 0; c < channels; ++c) {
        T* const plane = this->image_ +
                         (this->first_channel_ + c) * args.height * args.width;
        narrow_(&sums_[c * plane_ + offset], plane + pixel, count);
      }
    } else {
      for (int64_t i = 0; i < count; ++i) {
        narrow_(
            &sums_[(offset + i) * channels],
            this->image_ + (pixel + i) * args.channels + this->first_channel_,
            channels);
      }
    }
  }

  // Makes `row`, which lies in the window or just below, its first.
  void MoveTo(int64_t row) {
    const int64_t gone = (row - top_) * this->args_.width, kept = plane_ - gone;
    const int64_t planes = this->args_.channels_first ? this->channels_ : 1;
    const int64_t each = this->args_.channels_first ? 1 : this->channels_;
    for (int64_t c = 0; c < planes; ++c) {
      Sum* const plane = sums_.data() + c * plane_;
      std::memmove(plane, plane + gone * each, kept * each * sizeof(Sum));
      std::memset(plane + kept * each, 0, gone * each * sizeof(Sum));
    }
    top_ = row;
  }

  decltype(TFO_DISPATCH(NarrowArray<T>)) narrow_;
  const int64_t height_, plane_;  // rows; pixels of the window
  // [height, width, channels], or [channels, height, width].
  std::vector<Sum> sums_;
  int64_t top_, done_;  // the window's first row; the first unfinished row
};

}  // namespace

template <typename T>
Error RoiPoolGrad(const Cpu& cpu, const RoiArgs& args, const T* d_output,
                  const int32_t* argmax, const Coordinate<T>* boxes,
                  const int32_t* box_indices, T* d_features) {
  if (args.batch * args.height * args.width * args.channels == 0)
    return nullptr;
  const std::vector<PooledBox> read = ReadBoxes(args, boxes, box_indices);
  const std::vector<BinRow> bin_rows = BinRowsDownward(args, read);
  // Where each image's bin rows begin.
  std::vector<int64_t> image_begin(args.batch + 1, 0);
  for (const BinRow& row : bin_rows) ++image_begin[read[row.box].image + 1];
  for (int64_t n = 0; n < args.batch; ++n) image_begin[n + 1] += image_begin[n];

  using Sums = std::conditional_t<sizeof(T) == 2, SumWindow<T>, SumsInPlace<T>>;
  const GradUnits units = CutGradient<T>(cpu, args, bin_rows);
  const int64_t all = args.batch * units.blocks * units.bands;
  // Bands with as many bin rows each, where the image has some.
  const auto band_begin = [&](int64_t image, int64_t band) -> int64_t {
    const int64_t begin = image_begin[image], end = image_begin[image + 1];
    if (band == 0) return 0;
    if (band == units.bands) return args.height;
    if (begin == end) return args.height * band / units.bands;
    return bin_rows[begin + (end - begin) * band / units.bands].rows.begin;
  };
  const double cycles =
      (3.0 * bin_rows.size() * args.pooled_width * args.channels +
       1.0 * args.batch * args.height * args.width * args.channels) /
      all;
  // From a bin row's values to the next one's.
  const int64_t row_step =
      args.pooled_width * (args.channels_first ? 1 : args.channels);
  const int64_t box_step =
      args.pooled_height * args.pooled_width * args.channels;
  cpu.ParallelFor(all, cycles, [&](int64_t begin, int64_t end) {
    Sums sums(args, units);
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t image = unit / (units.blocks * units.bands);
      const int64_t c = unit / units.bands % units.blocks * units.channels;
      const int64_t y0 = band_begin(image, unit % units.bands);
      const int64_t y1 = band_begin(image, unit % units.bands + 1);
      sums.Start(d_features + image * args.height * args.width * args.channels,
                 y0, c, std::min(units.channels, args.channels - c));
      const int64_t last = image_begin[image + 1] - 1;
      for (int64_t i = image_begin[image]; i <= last; ++i) {
        const auto& [k, p, rows] = bin_rows[i];
        const PixelRange part = {
            static_cast<int32_t>(std::max<int64_t>(rows.begin, y0)),
            static_cast<int32_t>(std::min<int64_t>(rows.end, y1))};
        if (part.empty()) continue;
        const BinRow& next = bin_rows[std::min<int64_t>(i + 1, last)];
        const int64_t ahead =
            (next.box - k) * box_step + (next.p - p) * row_step;
        sums.FinishAbove(part.begin);
        sums.Add(d_output, argmax, {k, p, part, ahead});
      }
      sums.FinishAbove(y1);
    }
  });
  return nullptr;
}

#define TFO_INSTANTIATE(T)                                            \
  template Error RoiPoolGrad<T>(const Cpu&, const RoiArgs&, const T*, \
                                const int32_t*, const Coordinate<T>*, \
                                const int32_t*, T*)
TFO_INSTANTIATE(float);
TFO_INSTANTIATE(double);
TFO_INSTANTIATE(Half);
TFO_INSTANTIATE(BFloat16);
#undef TFO_INSTANTIATE

}  // namespace tfo
