// Shared by correlation_cost and its gradients on the CPU: rows as planes, and
// how many to work on.
#ifndef TENSORFLOW_OPS_IMAGE_CC_KERNELS_CORRELATION_COST_CORRELATION_ROWS_H_
#define TENSORFLOW_OPS_IMAGE_CC_KERNELS_CORRELATION_COST_CORRELATION_ROWS_H_

#include <algorithm>
#include <cstring>
#include <vector>

#include "tensorflow_ops/core/cc/int_math.h"
#include "tensorflow_ops/image/cc/kernels/correlation_cost/correlation_cost.h"
#include "tensorflow_ops/image/cc/kernels/correlation_cost/correlation_cost_simd.h"

namespace tfo {

// Elements of a thread's packed rows, and of its sums: together they fit into
// a level-2 cache.
inline constexpr int64_t kPackedElements = 160 << 10, kSumElements = 96 << 10;

// Positions of a row modulo its phases: neighboring windows read neighbors of a
// phase.
inline int64_t PhasesOf(const CorrelationSpec& args) {
  return args.OutputWidth() == 1 ? 1 : args.stride_1;
}

// Values in whole cache lines, zero at first.
template <typename V>
class AlignedValues {
 public:
  static constexpr int64_t kLine = 64 / sizeof(V);

  explicit AlignedValues(int64_t count) : lines_(DivideUp(count, kLine)) {}
  V* data() { return lines_.data()->values; }
  const V* data() const { return lines_.data()->values; }
  void Clear() { memset(lines_.data(), 0, lines_.size() * sizeof(Line)); }

 private:
  struct alignas(64) Line {
    V values[kLine];
  };
  std::vector<Line> lines_;
};

// A row of a plane: `positions` pixels with the padding, the first `margin`
// before it, in `phases`, and room for accesses of the loops after the last.
struct RowLayout {
  int64_t phases, margin, positions, slack;

  // An odd number of cache lines; else planes would share sets of a cache.
  template <typename V>
  int64_t Elements() const {
    const int64_t line = AlignedValues<V>::kLine;
    return (DivideUp(RoundUp(positions, phases) + slack, line) | 1) * line;
  }
};

// Some channels of some rows of a map, padded with zeros, as planes of
// positions. Position x of the padded row is at Index(x): neighboring windows
// are neighbors there, `phases` pixels apart.
template <typename T>
class PackedRows {
 public:
  using Sum = Accumulator<T>;

  // Holds `rows` rows of `channels` channels: those of the rows that are in the
  // image.
  PackedRows(const CorrelationSpec& args, int64_t rows, int64_t channels,
             const RowLayout& layout)
      : args_(args),
        layout_(layout),
        phase_step_(DivideUp(layout.positions, layout.phases)),
        step_(layout.Elements<Sum>()),
        row_step_(channels * step_),
        rows_(std::min(rows, args.height)),
        values_(rows_ * row_step_) {}

  // Reads channels [c, c + count) of rows [first, end) of an image. Skips rows
  // outside, and rows that the last call has read.
  void Read(const T* image, int64_t c, int64_t count, int64_t first,
            int64_t end) {
    const ImageSteps steps = FeatureSteps(args_);
    const T* const from = image + c;
    first = std::max<int64_t>(first, 0);
    end = std::min(end, args_.height);
    for (int64_t y = first; y < end; ++y) {
      if (from == from_ && y >= first_ && y < end_) continue;
      TFO_DISPATCH(PackRow<T>)
      ({from + y * steps.row, steps.pixel}, count, args_.width,
       layout_.margin + args_.padding, layout_.phases, phase_step_,
       {values_.data() + Place(y), step_});
    }
    from_ = from;
    first_ = first;
    end_ = end;
  }

  int64_t Index(int64_t position) const {
    const int64_t x = layout_.margin + position;
    if (layout_.phases == 1) return x;
    return x % layout_.phases * phase_step_ + x / layout_.phases;
  }

  // Row y of the image, from `position` on.
  PlaneRow<const Sum> Row(int64_t y, int64_t position) const {
    return {values_.data() + Place(y) + Index(position), step_};
  }
  PlaneRow<const Sum> Row(int64_t y) const {
    return {values_.data() + Place(y), step_};
  }

 private:
  int64_t Place(int64_t y) const { return y % rows_ * row_step_; }

  const CorrelationSpec& args_;
  const RowLayout layout_;
  const int64_t phase_step_, step_, row_step_, rows_;
  const T* from_ = nullptr;
  int64_t first_ = 0, end_ = 0;
  AlignedValues<Sum> values_;
};

// How many rows and channels to work on at once. Depends on sizes only, because
// it decides the order of sums.
struct Tile {
  int64_t rows, channels;
};

// `row_sums`: sums of a row of the result; `few_sums`: the number to keep if
// all channels are read at once. `rows_of(n)`: the rows that n rows of the
// result read.
template <typename RowsOf>
Tile TileOf(int64_t rows, int64_t channels, int64_t row_sums, int64_t few_sums,
            int64_t row_elements, const RowsOf& rows_of) {
  Tile tile;
  tile.rows = std::clamp<int64_t>(kSumElements / std::max<int64_t>(row_sums, 1),
                                  1, std::min<int64_t>(rows, 8));
  // With all channels of few rows at once, the next rows share what was packed.
  const int64_t few = std::min<int64_t>(rows, kDotRows);
  if (few * few_sums <= kSumElements &&
      rows_of(few) * row_elements * channels <= kPackedElements) {
    return {few, channels};
  }
  tile.channels = std::clamp<int64_t>(
      kPackedElements / std::max<int64_t>(rows_of(tile.rows) * row_elements, 1),
      std::min<int64_t>(channels, 8), channels);
  return tile;
}

// Estimates the cycles of a row of costs of an image.
inline double CyclesPerRow(const CorrelationSpec& args) {
  return 0.1 * args.OutputWidth() * args.Displacements() * args.Terms();
}

}  // namespace tfo

#endif  // TENSORFLOW_OPS_IMAGE_CC_KERNELS_CORRELATION_COST_CORRELATION_ROWS_H_
