#include <algorithm>
#include <cstring>
#include <tuple>
#include <type_traits>
#include <vector>

#include "tensorflow_ops/core/cc/convert_simd.h"
#include "tensorflow_ops/detection/cc/kernels/roi_pool.h"
#include "tensorflow_ops/detection/cc/kernels/roi_pool_bins.h"
#include "tensorflow_ops/detection/cc/kernels/roi_pool_simd.h"

namespace tfo {
namespace {

// A box in whole pixels, and the part of it that lies in the image.
struct Box {
  bool valid;
  int64_t image;
  PooledSpan y, x;
  PixelRange rows, columns;
};

template <typename C>
std::vector<Box> ReadBoxes(const RoiArgs& args, const C* boxes,
                           const int32_t* box_indices) {
  std::vector<Box> result(args.num_boxes);
  for (int64_t k = 0; k < args.num_boxes; ++k) {
    const ScaledBox<C> scaled = ReadBox(args, boxes, box_indices, k);
    Box& box = result[k];
    box = {};
    box.valid = scaled.valid;
    if (!box.valid) continue;
    box.image = scaled.image;
    box.y = SpanOf(scaled.y1, scaled.y2);
    box.x = SpanOf(scaled.x1, scaled.x2);
    box.rows = Clip(box.y, args.height);
    box.columns = Clip(box.x, args.width);
  }
  return result;
}

// What a pixel and channel cost: a load, two comparisons, two selections, a
// quarter cycle at the full width.
constexpr double kCyclesPerValue = 0.25;

double CyclesPerBox(const RoiArgs& args, const std::vector<Box>& boxes) {
  double pixels = 0;
  for (const Box& box : boxes) {
    pixels += double(box.rows.end - box.rows.begin) *
              double(box.columns.end - box.columns.begin);
  }
  return kCyclesPerValue * args.channels *
         (pixels / boxes.size() + args.pooled_height * args.pooled_width);
}

void Bins(PooledSpan span, int64_t limit, int64_t count, PixelRange* bins) {
  for (int64_t p = 0; p < count; ++p) bins[p] = BinOf(span, p, count, limit);
}

// A row of a box's bins.
struct BinRow {
  int64_t box, p;
  PixelRange rows;
};

// All bin rows, from the top of the first image down: what one read, the next
// ones find in the cache, since a row of bins is a few pixels high and boxes
// are not.
std::vector<BinRow> BinRowsDownward(const RoiArgs& args,
                                    const std::vector<Box>& boxes) {
  std::vector<BinRow> result;
  result.reserve(args.num_boxes * args.pooled_height);
  for (int64_t k = 0; k < args.num_boxes; ++k) {
    for (int64_t p = 0; p < args.pooled_height; ++p) {
      result.push_back(
          {k, p, BinOf(boxes[k].y, p, args.pooled_height, args.height)});
    }
  }
  std::sort(result.begin(), result.end(),
            [&](const BinRow& a, const BinRow& b) {
              return std::tuple(boxes[a.box].image, a.rows.begin, a.box, a.p) <
                     std::tuple(boxes[b.box].image, b.rows.begin, b.box, b.p);
            });
  return result;
}

template <typename T>
void PoolChannelsLast(const Cpu& cpu, const RoiArgs& args, const T* features,
                      const std::vector<Box>& boxes, T* output,
                      int32_t* argmax) {
  const auto pool_bin_row = TFO_DISPATCH(PoolBinRow<T>);
  const std::vector<BinRow> bin_rows = BinRowsDownward(args, boxes);
  std::vector<PixelRange> columns(args.num_boxes * args.pooled_width);
  for (int64_t k = 0; k < args.num_boxes; ++k) {
    Bins(boxes[k].x, args.width, args.pooled_width,
         &columns[k * args.pooled_width]);
  }
  // Some channels at a time: the rows in use, of those, fit the caches.
  constexpr int64_t kBlock = 1024 / sizeof(T);
  const int64_t blocks = (args.channels + kBlock - 1) / kBlock;
  const int64_t units = bin_rows.size();
  cpu.ParallelFor(
      blocks * units, CyclesPerBox(args, boxes) / (blocks * args.pooled_height),
      [&](int64_t begin, int64_t end) {
        for (int64_t unit = begin; unit < end; ++unit) {
          const int64_t c = unit / units * kBlock;
          const auto& [k, p, rows] = bin_rows[unit % units];
          const int64_t at =
              (k * args.pooled_height + p) * args.pooled_width * args.channels +
              c;
          pool_bin_row(
              features +
                  boxes[k].image * args.height * args.width * args.channels + c,
              args.width, args.channels, std::min(kBlock, args.channels - c),
              rows, &columns[k * args.pooled_width], args.pooled_width,
              output + at, argmax == nullptr ? nullptr : argmax + at);
        }
      });
}

template <typename T>
void PoolChannelsFirst(const Cpu& cpu, const RoiArgs& args, const T* features,
                       const std::vector<Box>& boxes, T* output,
                       int32_t* argmax) {
  const auto pool_plane = TFO_DISPATCH(PoolPlane<T>);
  const int64_t bins = args.pooled_height * args.pooled_width;
  const int64_t plane = args.height * args.width;
  const int64_t size = args.batch * args.channels * plane;
  // A unit is a plane of a box. Boxes vary fastest: they meet in their plane.
  cpu.ParallelFor(
      args.channels * args.num_boxes, CyclesPerBox(args, boxes) / args.channels,
      [&](int64_t begin, int64_t end) {
        std::vector<PixelRange> rows(args.pooled_height);
        std::vector<PixelRange> columns(args.pooled_width);
        std::vector<Accumulator<T>> best(args.width + 16);
        std::vector<int32_t> best_row(args.width + 16);
        for (int64_t unit = begin; unit < end; ++unit) {
          const int64_t c = unit / args.num_boxes;
          const int64_t k = unit % args.num_boxes;
          const Box& box = boxes[k];
          Bins(box.y, args.height, args.pooled_height, rows.data());
          Bins(box.x, args.width, args.pooled_width, columns.data());
          const int64_t from = (box.image * args.channels + c) * plane;
          const int64_t to = (k * args.channels + c) * bins;
          pool_plane(features + from, size - from, args.width, rows.data(),
                     args.pooled_height, columns.data(), args.pooled_width,
                     best.data(), best_row.data(), output + to,
                     argmax == nullptr ? nullptr : argmax + to);
        }
      });
}

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

  // Adds the part of a bin row in `rows` to the sums, of which the first is of
  // rows.begin and the unit's first channel; from a pixel to the next it is
  // `pixel`, from a channel to the next `channel`.
  void AddTo(Sum* sums, int64_t pixel, int64_t channel, const T* d_output,
             const int32_t* argmax, int64_t k, int64_t p, PixelRange rows) {
    const int64_t first = rows.begin * args_.width;
    const int64_t count = (rows.end - rows.begin) * args_.width;
    const int64_t height = args_.pooled_height, width = args_.pooled_width;
    if (args_.channels_first) {
      for (int64_t c = 0; c < channels_; ++c) {
        const int64_t at =
            ((k * args_.channels + first_channel_ + c) * height + p) * width;
        scatter_add_(d_output + at, argmax + at, width, first, count, pixel, 0,
                     sums + c * channel);
      }
    } else {
      for (int64_t q = 0; q < width; ++q) {
        const int64_t at =
            ((k * height + p) * width + q) * args_.channels + first_channel_;
        scatter_add_(d_output + at, argmax + at, channels_, first, count, pixel,
                     channel, sums);
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

  // Adds the part of a bin row that lies in `rows`.
  void Add(const T* d_output, const int32_t* argmax, int64_t k, int64_t p,
           PixelRange rows) {
    ZeroUntil(rows.end);
    const RoiArgs& args = this->args_;
    const int64_t pixel = rows.begin * args.width,
                  plane = args.height * args.width;
    const int64_t c = this->first_channel_;
    if (args.channels_first) {
      this->AddTo(this->image_ + c * plane + pixel, 1, plane, d_output, argmax,
                  k, p, rows);
    } else {
      this->AddTo(this->image_ + pixel * args.channels + c, args.channels, 1,
                  d_output, argmax, k, p, rows);
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

  // Adds the part of a bin row that lies in `rows`. No row lies above those
  // finished, and none more than the window's height below.
  void Add(const T* d_output, const int32_t* argmax, int64_t k, int64_t p,
           PixelRange rows) {
    if (rows.end > top_ + height_) MoveTo(done_);
    const int64_t offset = (rows.begin - top_) * this->args_.width;
    if (this->args_.channels_first) {
      this->AddTo(&sums_[offset], 1, plane_, d_output, argmax, k, p, rows);
    } else {
      this->AddTo(&sums_[offset * this->channels_], this->channels_, 1,
                  d_output, argmax, k, p, rows);
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
Error RoiPool(const Cpu& cpu, const RoiArgs& args, const T* features,
              const Coordinate<T>* boxes, const int32_t* box_indices, T* output,
              int32_t* argmax) {
  if (args.num_boxes == 0 || args.channels == 0) return nullptr;
  const std::vector<Box> read = ReadBoxes(args, boxes, box_indices);
  if (args.channels_first) {
    PoolChannelsFirst(cpu, args, features, read, output, argmax);
  } else {
    PoolChannelsLast(cpu, args, features, read, output, argmax);
  }
  return nullptr;
}

template <typename T>
Error RoiPoolGrad(const Cpu& cpu, const RoiArgs& args, const T* d_output,
                  const int32_t* argmax, const Coordinate<T>* boxes,
                  const int32_t* box_indices, T* d_features) {
  if (args.batch * args.height * args.width * args.channels == 0)
    return nullptr;
  const std::vector<Box> read = ReadBoxes(args, boxes, box_indices);
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
  cpu.ParallelFor(all, cycles, [&](int64_t begin, int64_t end) {
    Sums sums(args, units);
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t image = unit / (units.blocks * units.bands);
      const int64_t c = unit / units.bands % units.blocks * units.channels;
      const int64_t y0 = band_begin(image, unit % units.bands);
      const int64_t y1 = band_begin(image, unit % units.bands + 1);
      sums.Start(d_features + image * args.height * args.width * args.channels,
                 y0, c, std::min(units.channels, args.channels - c));
      for (int64_t i = image_begin[image]; i < image_begin[image + 1]; ++i) {
        const auto& [k, p, rows] = bin_rows[i];
        const PixelRange part = {
            static_cast<int32_t>(std::max<int64_t>(rows.begin, y0)),
            static_cast<int32_t>(std::min<int64_t>(rows.end, y1))};
        if (part.empty()) continue;
        sums.FinishAbove(part.begin);
        sums.Add(d_output, argmax, k, p, part);
      }
      sums.FinishAbove(y1);
    }
  });
  return nullptr;
}

template <typename T>
Error RoiPoolGradGrad(const Cpu& cpu, const RoiArgs& args, const T* dd_features,
                      const int32_t* argmax, const Coordinate<T>* boxes,
                      const int32_t* box_indices, T* dd_output) {
  const std::vector<Box> read = ReadBoxes(args, boxes, box_indices);
  const int64_t plane = args.height * args.width;
  const int64_t row = args.pooled_width * args.channels;
  cpu.ParallelFor(
      args.num_boxes * args.pooled_height, 4.0 * row,
      [&](int64_t begin, int64_t end) {
        for (int64_t unit = begin; unit < end; ++unit) {
          const int64_t k = unit / args.pooled_height,
                        p = unit % args.pooled_height;
          const Box& box = read[k];
          const PixelRange rows =
              BinOf(box.y, p, args.pooled_height, args.height);
          const int64_t from = rows.begin * args.width;
          const uint64_t size = rows.empty() ? 0 : rows.end * args.width - from;
          const T* image = dd_features + box.image * plane * args.channels;
          for (int64_t c = 0; c < args.channels; ++c) {
            for (int64_t q = 0; q < args.pooled_width; ++q) {
              const int64_t at =
                  args.channels_first
                      ? ((k * args.channels + c) * args.pooled_height + p) *
                                args.pooled_width +
                            q
                      : unit * row + q * args.channels + c;
              const int64_t pixel = argmax[at];
              const bool counts = static_cast<uint64_t>(pixel - from) < size;
              dd_output[at] = !counts ? T{}
                              : args.channels_first
                                  ? image[c * plane + pixel]
                                  : image[pixel * args.channels + c];
            }
          }
        }
      });
  return nullptr;
}

#define TFO_INSTANTIATE(T)                                                \
  template Error RoiPool<T>(const Cpu&, const RoiArgs&, const T*,         \
                            const Coordinate<T>*, const int32_t*, T*,     \
                            int32_t*);                                    \
  template Error RoiPoolGrad<T>(const Cpu&, const RoiArgs&, const T*,     \
                                const int32_t*, const Coordinate<T>*,     \
                                const int32_t*, T*);                      \
  template Error RoiPoolGradGrad<T>(const Cpu&, const RoiArgs&, const T*, \
                                    const int32_t*, const Coordinate<T>*, \
                                    const int32_t*, T*)
TFO_INSTANTIATE(float);
TFO_INSTANTIATE(double);
TFO_INSTANTIATE(Half);
TFO_INSTANTIATE(BFloat16);
#undef TFO_INSTANTIATE

}  // namespace tfo
