// RoIAlign's maximum and its gradients on the CPU.
#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "tensorflow_ops/detection/cc/kernels/roi/roi_box_sums.h"
#include "tensorflow_ops/detection/cc/kernels/roi/roi_owned_sums.h"
#include "tensorflow_ops/detection/cc/kernels/roi_align_max/roi_align_max.h"
#include "tensorflow_ops/detection/cc/kernels/roi_align_max/roi_align_max_simd.h"

namespace tfo {
namespace {

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
  // Whether some of the bin's samples are outside of the map.
  bool Outside(int64_t i) const { return outside_[i]; }

  // Of all bins.
  int64_t size() const { return samples_.size(); }
  // The index of a bin's first sample.
  int64_t First(int64_t i) const { return begin_[i]; }
  // Adds to the derivatives to the box's beginning and end, given `sums`: the
  // derivatives to each sample's position.
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

// The samples of a row of bins.
template <typename C, bool kMotion = false>
class RowSamples {
 public:
  void Fill(const Roi<C>& roi, int64_t p) {
    row_.Fill(roi.y, p, 1);
    columns_.Fill(roi.x, 0, roi.x.bins);
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
std::vector<BinRow> SampledBinRows(const RoiAlignMaxSpec& args,
                                   const Boxes<C>& boxes) {
  std::vector<BinRow> result;
  result.reserve(boxes.count * args.grid.height);
  AxisSamples<C> samples;
  for (int64_t k = 0; k < boxes.count; ++k) {
    const Roi<C> roi = ReadRoi(args, boxes, k);
    for (int32_t p = 0; p < args.grid.height; ++p) {
      PixelRange rows = {0, 0};
      if (roi.valid) {
        samples.Fill(roi.y, p, 1);
        const auto [begin, end] = samples.Bin(0);
        if (begin < end) {
          rows = {begin->low, end[-1].low + (end[-1].fraction != 0) + 1};
        }
      }
      result.push_back({k, p, static_cast<int32_t>(roi.image), rows});
    }
  }
  SortDownward(result);
  return result;
}

// Cycles of a bin and channel: its samples, of four pixels each.
double CyclesPerBin(const RoiAlignMaxSpec& args,
                    const std::vector<BinRow>& bin_rows) {
  double samples = 1.0 * args.sampling.ratio * args.sampling.ratio;
  if (args.sampling.ratio <= 0) {  // about one per pixel, and bins are square
    double rows = 0;
    for (const BinRow& row : bin_rows) rows += row.rows.end - row.rows.begin;
    rows /= std::max<size_t>(bin_rows.size(), 1);
    samples = rows * rows;
  }
  return 2 + samples * 1.5;
}

// Values that the vector functions may read beyond the channels' samples.
constexpr int64_t kPadding = 16;

// The units of work of a pass over rows of bins: a row of bins in a block of
// channels, so that the pixel rows in use fit the caches.
template <typename C>
class BinRowUnits {
 public:
  BinRowUnits(const RoiAlignMaxSpec& args, const Boxes<C>& boxes,
              int64_t element_size)
      : bin_rows_(SampledBinRows(args, boxes)),
        channels_(args.map.channels),
        block_(std::min<int64_t>(channels_, 1024 / element_size)),
        blocks_((channels_ + block_ - 1) / block_),
        cycles_(CyclesPerBin(args, bin_rows_) * args.grid.width * block_) {}

  struct Unit {
    BinRow bins;
    int64_t block, first_channel, channels;
  };
  Unit operator[](int64_t i) const {
    const int64_t block = i / static_cast<int64_t>(bin_rows_.size());
    const int64_t first = block * block_;
    return {bin_rows_[i % bin_rows_.size()], block, first,
            std::min(block_, channels_ - first)};
  }
  int64_t size() const { return blocks_ * bin_rows_.size(); }
  int64_t block() const { return block_; }  // channels
  int64_t blocks() const { return blocks_; }
  double cycles() const { return cycles_; }  // of a unit

 private:
  const std::vector<BinRow> bin_rows_;
  const int64_t channels_, block_, blocks_;
  const double cycles_;
};

// Writes all of `output`: zeros, and what pool_bin(from, channels, samples, to)
// writes for each bin that has samples, to `to`, in some channels. `from` is
// the offset of the bin's image and first channel in the features.
// make_pool_bin(max_channels) makes a pool_bin for each thread.
template <typename T, typename Args, typename MakePoolBin>
Error PoolBins(const Cpu& cpu, const Args& args, T* output,
               const MakePoolBin& make_pool_bin) {
  const FeatureShape pooled = args.Pooled(args.boxes.count);
  if (pooled.Size() == 0) return nullptr;
  const BinRowUnits units(args, args.boxes, sizeof(T));
  cpu.ParallelFor(
      units.size(), units.cycles(), [&](int64_t begin, int64_t end) {
        RowSamples<Coordinate<T>> samples;
        auto pool_bin = make_pool_bin(units.block());
        for (int64_t i = begin; i < end; ++i) {
          const auto [bins, block, c0, channels] = units[i];
          const int64_t from = args.map.Offset(bins.image, 0, 0, c0);
          const bool empty = bins.rows.empty();
          if (!empty) samples.Fill(ReadRoi(args, args.boxes, bins.box), bins.p);
          for (int64_t q = 0; q < pooled.width; ++q) {
            T* const to = output + pooled.Offset(bins.box, bins.p, q, c0);
            if (empty) {
              std::memset(to, 0, channels * sizeof(T));
            } else {
              pool_bin(from, channels, samples.Bin(q), to);
            }
          }
        }
      });
  return nullptr;
}

}  // namespace

template <typename T>
Error RoiAlignMax(const Cpu& cpu, const RoiAlignMaxArgs<T>& args) {
  const auto largest_samples = TFO_DISPATCH(LargestSamples<T>);
  const FeatureShape& shape = args.map;
  return PoolBins(cpu, args, args.output, [&](int64_t) {
    return [&](int64_t from, int64_t channels,
               const BinSamples<Coordinate<T>>& bin, T* to) {
      largest_samples({args.features + from, shape.width, shape.channels},
                      channels, bin, to, nullptr);
    };
  });
}

template <typename T>
Error RoiAlignMaxGradGrad(const Cpu& cpu,
                          const RoiAlignMaxGradGradArgs<T>& args) {
  const auto largest_samples = TFO_DISPATCH(LargestSamples<T>);
  const auto read_samples = TFO_DISPATCH(ReadSamples<T>);
  const FeatureShape& shape = args.map;
  return PoolBins(cpu, args, args.dd_output, [&](int64_t block) {
    return [&, largest = std::vector<int32_t>(block + kPadding)](
               int64_t from, int64_t channels,
               const BinSamples<Coordinate<T>>& bin, T* to) mutable {
      largest_samples({args.features + from, shape.width, shape.channels},
                      channels, bin, nullptr, largest.data());
      read_samples({args.dd_features + from, shape.width, shape.channels},
                   channels, bin, largest.data(), to);
    };
  });
}

template <typename T>
Error RoiAlignMaxGrad(const Cpu& cpu, const RoiAlignMaxGradArgs<T>& args) {
  using Sum = Accumulator<T>;
  const FeatureShape& shape = args.map;
  if (shape.Size() == 0) return nullptr;
  const auto largest_samples = TFO_DISPATCH(LargestSamples<T>);
  const auto add_to_samples = TFO_DISPATCH(AddToSamples<T>);
  const FeatureShape pooled = args.Pooled(args.boxes.count);
  std::vector<BinRow> bin_rows = SampledBinRows(args, args.boxes);
  GradCost cost;
  cost.cycles_per_bin_row =
      2 * CyclesPerBin(args, bin_rows) * pooled.width * pooled.channels;
  cost.tensor_bytes = (2 * shape.Size() + pooled.Size()) * sizeof(T);
  SumByOwners(cpu, shape, std::move(bin_rows), cost, args.d_features, [&] {
    return [&, samples = RowSamples<Sum>(),
            largest = std::vector<int32_t>(shape.channels + kPadding)](
               const PartSums<Sum>& to, const BinRowPart& part) mutable {
      const auto& [k, p, image, rows] = *part.whole;
      samples.Fill(ReadRoi(args, args.boxes, k), p);
      const int64_t from = shape.Offset(image, 0, 0, to.first_channel);
      const ImageView<Sum> sums = {to.sums, shape.width, to.pixel};
      for (int64_t q = 0; q < pooled.width; ++q) {
        largest_samples({args.features + from, shape.width, shape.channels},
                        to.channels, samples.Bin(q), nullptr, largest.data());
        add_to_samples(args.d_output + pooled.Offset(k, p, q, to.first_channel),
                       largest.data(), to.channels, samples.Bin(q), part.rows,
                       sums);
      }
    };
  });
  return nullptr;
}

template <typename T>
Error RoiAlignMaxBoxesGrad(const Cpu& cpu,
                           const RoiAlignMaxBoxesGradArgs<T>& args) {
  const FeatureShape pooled = args.Pooled(args.boxes.count);
  if (pooled.Size() == 0) {
    std::fill_n(args.d_boxes, 4 * args.boxes.count, Coordinate<T>(0));
    return nullptr;
  }
  const auto largest_samples = TFO_DISPATCH(LargestSamples<T>);
  const auto add_slopes = TFO_DISPATCH(AddSlopes<T>);
  const FeatureShape& shape = args.map;
  const BinRowUnits units(args, args.boxes, sizeof(T));
  // A box's parts are its rows of bins, each by blocks of channels.
  const int64_t parts_of_box = pooled.height * units.blocks();
  std::vector<double> parts(4 * args.boxes.count * parts_of_box, 0.0);
  cpu.ParallelFor(
      units.size(), 2 * units.cycles(), [&](int64_t begin, int64_t end) {
        RowSamples<Coordinate<T>, /*kMotion=*/true> samples;
        std::vector<int32_t> largest(units.block() + kPadding);
        std::vector<double> row_sums, column_sums;
        for (int64_t i = begin; i < end; ++i) {
          const auto [bins, block, c0, channels] = units[i];
          if (bins.rows.empty()) continue;
          const int64_t k = bins.box, p = bins.p;
          const int64_t from = shape.Offset(bins.image, 0, 0, c0);
          samples.Fill(ReadRoi(args, args.boxes, k), p);
          row_sums.assign(samples.row().size(), 0.0);
          column_sums.assign(samples.columns().size(), 0.0);
          for (int64_t q = 0; q < pooled.width; ++q) {
            largest_samples({args.features + from, shape.width, shape.channels},
                            channels, samples.Bin(q), nullptr, largest.data());
            add_slopes(args.d_output + pooled.Offset(k, p, q, c0),
                       largest.data(),
                       {args.values + from, shape.width, shape.channels},
                       channels, samples.Bin(q), row_sums.data(),
                       column_sums.data() + samples.columns().First(q));
          }
          double* const part =
              &parts[4 * (k * parts_of_box + p * units.blocks() + block)];
          samples.row().AddMotions(row_sums, &part[0], &part[2]);
          samples.columns().AddMotions(column_sums, &part[1], &part[3]);
        }
      });
  SumBoxParts(args.boxes, parts, {parts_of_box, parts_of_box, 1}, args.d_boxes);
  return nullptr;
}

TFO_INSTANTIATE_ALGORITHM(RoiAlignMax, Cpu, RoiAlignMaxArgs);
TFO_INSTANTIATE_ALGORITHM(RoiAlignMaxGrad, Cpu, RoiAlignMaxGradArgs);
TFO_INSTANTIATE_ALGORITHM(RoiAlignMaxGradGrad, Cpu, RoiAlignMaxGradGradArgs);
TFO_INSTANTIATE_ALGORITHM(RoiAlignMaxBoxesGrad, Cpu, RoiAlignMaxBoxesGradArgs);

}  // namespace tfo
