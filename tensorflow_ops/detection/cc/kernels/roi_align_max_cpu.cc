#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "tensorflow_ops/detection/cc/kernels/roi_align_max.h"
#include "tensorflow_ops/detection/cc/kernels/roi_align_max_simd.h"
#include "tensorflow_ops/detection/cc/kernels/roi_box_sums.h"
#include "tensorflow_ops/detection/cc/kernels/roi_owned_sums.h"

namespace tfo {
namespace {

// The two axes of a box.
template <typename C>
struct SampledBox {
  bool valid;
  int64_t image;
  RoiAxis<C> y, x;
};
template <typename C>
SampledBox<C> ReadSampledBox(const RoiArgs& args, const RoiSampling& sampling,
                             const C* boxes, const int32_t* box_indices,
                             int64_t k) {
  const ScaledBox<C> box = ReadBox(args, boxes, box_indices, k);
  if (!box.valid) return {};
  const C scale = args.spatial_scale;
  return {true, box.image,
          SampledAxis(box.y1, box.y2, scale, args.height, args.pooled_height,
                      sampling),
          SampledAxis(box.x1, box.x2, scale, args.width, args.pooled_width,
                      sampling)};
}

// The samples of some bins on an axis; with kMotion also how they move.
template <typename C, bool kMotion = false>
class AxisSamples {
 public:
  // Bins [first, first + count).
  void Fill(const RoiAxis<C>& axis, int64_t first, int64_t count) {
    samples_.clear();
    outside_.clear();
    motions_.clear();
    begin_.assign(1, 0);
    for (int64_t p = first; p < first + count; ++p) {
      VisitSamples(axis, p, [&](const AxisSample<C>& sample) {
        samples_.push_back({sample.low, sample.fraction, sample.moves});
        if constexpr (kMotion) motions_.push_back(MotionOf(axis, sample));
      });
      outside_.push_back(static_cast<C>(samples_.size() - begin_.back()) <
                         axis.grid);
      begin_.push_back(samples_.size());
    }
  }
  LineSamples<C> Bin(int64_t i) const {
    return {samples_.data() + begin_[i], samples_.data() + begin_[i + 1]};
  }
  // Are some of the bin's samples outside of the map?
  bool Outside(int64_t i) const { return outside_[i]; }

  // Of all bins; a bin's begin at First().
  int64_t size() const { return samples_.size(); }
  int64_t First(int64_t i) const { return begin_[i]; }
  // Adds to the derivatives to the box's beginning and end, from `sums`: those
  // to each sample's place.
  void AddMotions(const std::vector<double>& sums, double* low,
                  double* high) const {
    for (int64_t i = 0; i < size(); ++i) {
      *low += sums[i] * motions_[i].low;
      *high += sums[i] * motions_[i].high;
    }
  }

 private:
  std::vector<LineSample<C>> samples_;
  std::vector<BoxSlopes<C>> motions_;
  std::vector<int64_t> begin_;
  std::vector<bool> outside_;
};

// A row of bins.
template <typename C, bool kMotion = false>
class RowSamples {
 public:
  void Fill(const SampledBox<C>& box, int64_t p) {
    row_.Fill(box.y, p, 1);
    columns_.Fill(box.x, 0, box.x.bins);
  }
  BinSamples<C> Bin(int64_t q) const {
    return {row_.Bin(0), columns_.Bin(q),
            row_.Outside(0) || columns_.Outside(q)};
  }
  const AxisSamples<C, kMotion>& row() const { return row_; }
  const AxisSamples<C, kMotion>& columns() const { return columns_; }

 private:
  AxisSamples<C, kMotion> row_, columns_;
};

template <typename C>
std::vector<BinRow> BinRowsDownward(const RoiArgs& args,
                                    const RoiSampling& sampling, const C* boxes,
                                    const int32_t* box_indices) {
  return BinRowsDownward(args, [&](const auto& add) {
    AxisSamples<C> samples;
    for (int64_t k = 0; k < args.num_boxes; ++k) {
      const SampledBox<C> box =
          ReadSampledBox(args, sampling, boxes, box_indices, k);
      for (int32_t p = 0; p < args.pooled_height; ++p) {
        PixelRange rows = {0, 0};
        if (box.valid) {
          samples.Fill(box.y, p, 1);
          const auto [begin, end] = samples.Bin(0);
          if (begin < end) {
            rows = {begin->low, end[-1].low + (end[-1].fraction != 0) + 1};
          }
        }
        add(BinRow{k, p, static_cast<int32_t>(box.image), rows});
      }
    }
  });
}

struct Layout {
  explicit Layout(const RoiArgs& args)
      : map(args.channels_first
                ? MapStrides{args.width, 1, args.height * args.width}
                : MapStrides{args.width * args.channels, args.channels, 1}),
        image(args.channels * args.height * args.width),
        bins(args.channels_first
                 ? MapStrides{args.pooled_width, 1,
                              args.pooled_height * args.pooled_width}
                 : MapStrides{args.pooled_width * args.channels, args.channels,
                              1}),
        box(args.channels * args.pooled_height * args.pooled_width) {}
  int64_t Bin(int64_t k, int64_t p, int64_t q, int64_t c) const {
    return k * box + p * bins.row + q * bins.column + c * bins.channel;
  }
  MapStrides map;
  int64_t image;  // elements of one
  MapStrides bins;
  int64_t box;
};

// Cycles of a bin and channel: its samples, of four pixels each.
double CyclesPerBin(const RoiArgs& args, const RoiSampling& sampling,
                    const std::vector<BinRow>& bin_rows) {
  double samples = 1.0 * sampling.ratio * sampling.ratio;
  if (sampling.ratio <= 0) {  // about one for each pixel, and bins are square
    double rows = 0;
    for (const BinRow& row : bin_rows) rows += row.rows.end - row.rows.begin;
    rows /= std::max<size_t>(bin_rows.size(), 1);
    samples = rows * rows;
  }
  return 2 + samples * (args.channels_first ? 12 : 1.5);
}

// Some channels at a time: the rows in use, of those, fit the caches.
struct ChannelBlocks {
  ChannelBlocks(const RoiArgs& args, int64_t element_size)
      : size(std::min<int64_t>(args.channels,
                               args.channels_first ? 16 : 1024 / element_size)),
        count((args.channels + size - 1) / size) {}
  int64_t size, count;
};

// What the vector functions may read beyond the channels' samples.
constexpr int64_t kPadding = 16;

}  // namespace

template <typename T>
Error RoiAlignMax(const Cpu& cpu, const RoiArgs& args,
                  const RoiSampling& sampling, const T* features,
                  const T* values, const Coordinate<T>* boxes,
                  const int32_t* box_indices, T* output) {
  if (args.num_boxes == 0 || args.channels == 0) return nullptr;
  const auto largest_samples = TFO_DISPATCH(LargestSamples<T>);
  const auto read_samples = TFO_DISPATCH(ReadSamples<T>);
  const Layout layout(args);
  const std::vector<BinRow> bin_rows =
      BinRowsDownward(args, sampling, boxes, box_indices);
  const ChannelBlocks blocks(args, sizeof(T));
  const int64_t units = bin_rows.size();
  cpu.ParallelFor(
      blocks.count * units,
      CyclesPerBin(args, sampling, bin_rows) * args.pooled_width * blocks.size,
      [&](int64_t begin, int64_t end) {
        RowSamples<Coordinate<T>> samples;
        std::vector<T> apart(args.channels_first ? blocks.size : 0);
        std::vector<int32_t> which(blocks.size + kPadding);
        for (int64_t unit = begin; unit < end; ++unit) {
          const auto& [k, p, image, rows] = bin_rows[unit % units];
          const int64_t c0 = unit / units * blocks.size;
          const int64_t count = std::min(blocks.size, args.channels - c0);
          const int64_t from = image * layout.image + c0 * layout.map.channel;
          if (!rows.empty()) {
            samples.Fill(ReadSampledBox(args, sampling, boxes, box_indices, k),
                         p);
          }
          for (int64_t q = 0; q < args.pooled_width; ++q) {
            T* const bin = output + layout.Bin(k, p, q, c0);
            T* const to = args.channels_first ? apart.data() : bin;
            if (rows.empty()) {
              std::memset(to, 0, count * sizeof(T));
            } else if (values == features) {
              largest_samples(features + from, layout.map, count,
                              samples.Bin(q), to, nullptr);
            } else {
              largest_samples(features + from, layout.map, count,
                              samples.Bin(q), nullptr, which.data());
              read_samples(values + from, layout.map, count, samples.Bin(q),
                           which.data(), to);
            }
            if (!args.channels_first) continue;
            for (int64_t c = 0; c < count; ++c) {
              bin[c * layout.bins.channel] = to[c];
            }
          }
        }
      });
  return nullptr;
}

template <typename T>
Error RoiAlignMaxGrad(const Cpu& cpu, const RoiArgs& args,
                      const RoiSampling& sampling, const T* d_output,
                      const T* features, const Coordinate<T>* boxes,
                      const int32_t* box_indices, T* d_features) {
  using Sum = Accumulator<T>;
  if (args.batch * args.channels * args.height * args.width == 0) {
    return nullptr;
  }
  const auto largest_samples = TFO_DISPATCH(LargestSamples<T>);
  const auto add_to_samples = TFO_DISPATCH(AddToSamples<T>);
  const Layout layout(args);
  const int64_t tensor_bytes =
      (2 * args.batch * layout.image + args.num_boxes * layout.box) * sizeof(T);
  std::vector<BinRow> bin_rows =
      BinRowsDownward(args, sampling, boxes, box_indices);
  const double cycles = 2 * CyclesPerBin(args, sampling, bin_rows);
  SumByOwners(
      cpu, args, std::move(bin_rows), cycles, tensor_bytes, d_features, [&] {
        return [&, samples = RowSamples<Sum>(),
                which = std::vector<int32_t>(args.channels + kPadding)](
                   const PartSums<Sum>& to, const BinRowPart& part) mutable {
          const auto& [k, p, image, rows] = *part.whole;
          samples.Fill(ReadSampledBox(args, sampling, boxes, box_indices, k),
                       p);
          const T* const map = features + image * layout.image +
                               to.first_channel * layout.map.channel;
          const MapStrides own = {to.pixel * args.width, to.pixel, to.channel};
          for (int64_t q = 0; q < args.pooled_width; ++q) {
            largest_samples(map, layout.map, to.channels, samples.Bin(q),
                            nullptr, which.data());
            add_to_samples(d_output + layout.Bin(k, p, q, to.first_channel),
                           layout.bins.channel, which.data(), to.channels,
                           samples.Bin(q), part.rows, own, to.sums);
          }
        };
      });
  return nullptr;
}

template <typename T>
Error RoiAlignMaxBoxesGrad(const Cpu& cpu, const RoiArgs& args,
                           const RoiSampling& sampling, const T* d_output,
                           const T* features, const T* values,
                           const Coordinate<T>* boxes,
                           const int32_t* box_indices, Coordinate<T>* d_boxes) {
  const Layout layout(args);
  if (args.num_boxes == 0 || layout.box == 0) {
    std::fill(d_boxes, d_boxes + 4 * args.num_boxes, Coordinate<T>(0));
    return nullptr;
  }
  const auto largest_samples = TFO_DISPATCH(LargestSamples<T>);
  const auto add_slopes = TFO_DISPATCH(AddSlopes<T>);
  const std::vector<BinRow> bin_rows =
      BinRowsDownward(args, sampling, boxes, box_indices);
  const ChannelBlocks blocks(args, sizeof(T));
  const int64_t units = bin_rows.size();
  // A box's are those of its rows of bins, each by blocks.
  const int64_t of_box = args.pooled_height * blocks.count;
  std::vector<double> parts(4 * args.num_boxes * of_box, 0.0);
  cpu.ParallelFor(
      blocks.count * units,
      2 * CyclesPerBin(args, sampling, bin_rows) * args.pooled_width *
          blocks.size,
      [&](int64_t begin, int64_t end) {
        RowSamples<Coordinate<T>, /*kMotion=*/true> samples;
        std::vector<int32_t> which(blocks.size + kPadding);
        std::vector<double> row_sums, column_sums;
        for (int64_t unit = begin; unit < end; ++unit) {
          const auto& [k, p, image, rows] = bin_rows[unit % units];
          if (rows.empty()) continue;
          const int64_t block = unit / units, c0 = block * blocks.size;
          const int64_t count = std::min(blocks.size, args.channels - c0);
          const int64_t from = image * layout.image + c0 * layout.map.channel;
          samples.Fill(ReadSampledBox(args, sampling, boxes, box_indices, k),
                       p);
          row_sums.assign(samples.row().size(), 0.0);
          column_sums.assign(samples.columns().size(), 0.0);
          for (int64_t q = 0; q < args.pooled_width; ++q) {
            largest_samples(features + from, layout.map, count, samples.Bin(q),
                            nullptr, which.data());
            add_slopes(d_output + layout.Bin(k, p, q, c0), layout.bins.channel,
                       which.data(), values + from, layout.map, count,
                       samples.Bin(q), row_sums.data(),
                       column_sums.data() + samples.columns().First(q));
          }
          double* const part =
              &parts[4 * (k * of_box + p * blocks.count + block)];
          samples.row().AddMotions(row_sums, &part[0], &part[2]);
          samples.columns().AddMotions(column_sums, &part[1], &part[3]);
        }
      });
  SumParts(args, parts, of_box, 1, of_box, d_boxes);
  return nullptr;
}

#define TFO_INSTANTIATE(T)                                                     \
  template Error RoiAlignMax<T>(const Cpu&, const RoiArgs&,                    \
                                const RoiSampling&, const T*, const T*,        \
                                const Coordinate<T>*, const int32_t*, T*);     \
  template Error RoiAlignMaxGrad<T>(const Cpu&, const RoiArgs&,                \
                                    const RoiSampling&, const T*, const T*,    \
                                    const Coordinate<T>*, const int32_t*, T*); \
  template Error RoiAlignMaxBoxesGrad<T>(                                      \
      const Cpu&, const RoiArgs&, const RoiSampling&, const T*, const T*,      \
      const T*, const Coordinate<T>*, const int32_t*, Coordinate<T>*)
TFO_INSTANTIATE(float);
TFO_INSTANTIATE(double);
TFO_INSTANTIATE(Half);
TFO_INSTANTIATE(BFloat16);
#undef TFO_INSTANTIATE

}  // namespace tfo
