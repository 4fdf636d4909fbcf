// What correlation_cost and its gradients share on the CPU: rows as planes, and
// how many to work on.
#ifndef TENSORFLOW_OPS_SAMPLING_CC_KERNELS_CORRELATION_ROWS_H_
#define TENSORFLOW_OPS_SAMPLING_CC_KERNELS_CORRELATION_ROWS_H_

#include <algorithm>
#include <vector>

#include "tensorflow_ops/core/cc/int_math.h"
#include "tensorflow_ops/sampling/cc/kernels/correlation_cost.h"
#include "tensorflow_ops/sampling/cc/kernels/correlation_cost_simd.h"

namespace tfo {

// Elements of a thread's packed rows, and of its sums: together they fit into
// a level-2 cache.
inline constexpr int64_t kPackedElements = 160 << 10, kSumElements = 96 << 10;

// Positions of a row modulo its phases: neighboring windows read neighbors of a
// phase.
inline int64_t PhasesOf(const CorrelationArgs& args) {
  return args.OutputWidth() == 1 ? 1 : args.stride_1;
}

// Some channels of some rows of a map, padded with zeros, as planes of
// positions. Position x of the padded row is at Index(x): neighboring windows
// are neighbors there, `phases` pixels apart.
template <typename T>
class PackedRows {
 public:
  using Sum = Accumulator<T>;

  // Holds `rows` rows of `channels` channels, with positions from -margin on:
  // those of the rows that are in the image.
  PackedRows(const CorrelationArgs& args, int64_t rows, int64_t channels,
             int64_t phases, int64_t margin)
      : args_(args),
        phases_(phases),
        margin_(margin),
        phase_step_(
            DivideUp(args.width + 2 * args.padding + 2 * margin, phases)),
        step_(RowElements(args, phases, margin)),
        row_step_(channels * step_),
        rows_(std::min(rows, args.height)),
        // Slack behind the last row, too.
        values_(rows_ * row_step_ + kRowSlack) {}

  static int64_t RowElements(const CorrelationArgs& args, int64_t phases,
                             int64_t margin) {
    const int64_t positions = args.width + 2 * args.padding + 2 * margin;
    return RoundUp(positions, phases) + kRowSlack;
  }

  // Reads channels [c, c + count) of rows [first, end) of an image; those
  // outside are not read, nor those that the last call has read.
  void Read(const T* image, int64_t c, int64_t count, int64_t first,
            int64_t end) {
    const ImageSteps steps = FeatureSteps(args_);
    const T* const from = image + c * steps.channel;
    first = std::max<int64_t>(first, 0);
    end = std::min(end, args_.height);
    for (int64_t y = first; y < end; ++y) {
      if (from == from_ && y >= first_ && y < end_) continue;
      TFO_DISPATCH(PackRow<T>)
      ({from + y * steps.row, steps.channel, steps.pixel}, count, args_.width,
       margin_ + args_.padding, phases_, phase_step_,
       {&values_[Place(y)], step_});
    }
    from_ = from;
    first_ = first;
    end_ = end;
  }

  int64_t Index(int64_t position) const {
    const int64_t x = margin_ + position;
    return x % phases_ * phase_step_ + x / phases_;
  }

  // Row y of the image, from `position` on.
  PlaneRow<const Sum> Row(int64_t y, int64_t position) const {
    return {&values_[Place(y) + Index(position)], step_};
  }
  PlaneRow<const Sum> Row(int64_t y) const {
    return {&values_[Place(y)], step_};
  }

 private:
  int64_t Place(int64_t y) const { return y % rows_ * row_step_; }

  const CorrelationArgs& args_;
  const int64_t phases_, margin_, phase_step_, step_, row_step_, rows_;
  const T* from_ = nullptr;
  int64_t first_ = 0, end_ = 0;
  std::vector<Sum> values_;
};

// How many rows and channels to work on at once. Depends on sizes only, because
// it decides the order of sums.
struct Tile {
  int64_t rows, channels;
};

// `rows_of(n)`: the rows that n rows of the result read.
template <typename RowsOf>
Tile TileOf(int64_t rows, int64_t channels, int64_t row_sums,
            int64_t row_elements, const RowsOf& rows_of) {
  Tile tile;
  tile.rows = std::clamp<int64_t>(kSumElements / std::max<int64_t>(row_sums, 1),
                                  1, std::min<int64_t>(rows, 8));
  // With all channels of few rows at once, the next rows share what was packed.
  const int64_t few = std::min<int64_t>(rows, kDotRows);
  if (few * row_sums <= kSumElements &&
      rows_of(few) * row_elements * channels <= kPackedElements) {
    return {few, channels};
  }
  tile.channels = std::clamp<int64_t>(
      kPackedElements / std::max<int64_t>(rows_of(tile.rows) * row_elements, 1),
      std::min<int64_t>(channels, 8), channels);
  return tile;
}

// Estimates the cycles of a row of costs of an image.
inline double CyclesPerRow(const CorrelationArgs& args) {
  return 0.1 * args.OutputWidth() * args.Displacements() * args.Terms();
}

}  // namespace tfo

#endif  // TENSORFLOW_OPS_SAMPLING_CC_KERNELS_CORRELATION_ROWS_H_
