// Shared by correlation_cost and its gradients on the CPU: rows of planes,
// [channels or displacements, positions] in the type of sums, with room after
// the last position, and how many to work on.
#ifndef TENSORFLOW_OPS_IMAGE_CC_KERNELS_CORRELATION_COST_CORRELATION_ROWS_SIMD_H_
#define TENSORFLOW_OPS_IMAGE_CC_KERNELS_CORRELATION_COST_CORRELATION_ROWS_SIMD_H_

#include <algorithm>
#include <cstring>
#include <vector>

#include "tensorflow_ops/core/cc/int_math.h"
#include "tensorflow_ops/core/cc/simd/simd.h"
#include "tensorflow_ops/image/cc/kernels/correlation_cost/correlation_cost.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {

template <typename T>
using Vector = typename Lanes<T>::Vector;

// Whether there are 32 vector registers, not 16.
constexpr bool kManyRegisters = kVectorBytes != 32;

// The loops may access this many positions after the last.
inline constexpr int64_t kRowSlack = 32;

// A row of planes: element (n, x) is data[n * step + x].
template <typename V>
struct PlaneRow {
  V* data;
  int64_t step;
};

// A row of a tensor [pixels, channels]: channel n of pixel x is
// data[x * pixel_step + n].
template <typename T>
struct TensorRow {
  T* data;
  int64_t pixel_step;
};

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

// Rows of costs that AddDots works on at a time.
inline constexpr int64_t kDotRows = 3;

// Calls run(Constant<n>) for a count in [1, kMost].
template <int kMost, typename Run>
TFO_INLINE void WithCount(int64_t count, const Run& run) {
  if constexpr (kMost > 1) {
    if (count < kMost) return WithCount<kMost - 1>(count, run);
  }
  run(Constant<kMost>{});
}

// Calls visit(n, x) in tiles that keep both sides of a transpose in the cache.
template <typename Visit>
TFO_INLINE void ForTiles(int64_t count, int64_t width, const Visit& visit) {
  constexpr int64_t kTile = 16;
  for (int64_t x0 = 0; x0 < width; x0 += kTile) {
    const int64_t x1 = x0 + kTile < width ? x0 + kTile : width;
    for (int64_t n = 0; n < count; ++n) {
      for (int64_t x = x0; x < x1; ++x) visit(n, x);
    }
  }
}

// to(x, n) = scale from(n, x) for n < rows and x < columns: element (n, x) of
// the source is from[n * from_step + x], of the result to[x * to_step + n].
// kPadded: writes zeros after the rows, to the end of a vector.
template <bool kPadded, typename From, typename To>
TFO_INLINE void TransposeTo(const From* from, int64_t from_step, int64_t rows,
                            int64_t columns, Accumulator<To> scale, To* to,
                            int64_t to_step) {
  using V = Vector<To>;
  constexpr int kLanes = Lanes<To>::kCount;
  for (int64_t n = 0; n < rows; n += kLanes) {
    const int64_t some = rows - n < kLanes ? rows - n : kLanes;
    for (int64_t x = 0; x < columns; x += kLanes) {
      const int64_t count = columns - x < kLanes ? columns - x : kLanes;
      const From* const at = from + n * from_step + x;
      V v[kLanes];
      if (some == kLanes && count == kLanes) {
#pragma GCC unroll 16
        for (int i = 0; i < kLanes; ++i) {
          v[i] = scale * Load(at + i * from_step);
        }
      } else {
#pragma GCC unroll 16
        for (int i = 0; i < kLanes; ++i) {
          v[i] = V{};
          if (i < some) {
            v[i] =
                scale * (count < kLanes ? LoadFirst(at + i * from_step, count)
                                        : Load(at + i * from_step));
          }
        }
      }
      Transpose(v);
      To* const out = to + x * to_step + n;
      if ((kPadded || some == kLanes) && count == kLanes) {
#pragma GCC unroll 16
        for (int i = 0; i < kLanes; ++i) Store(v[i], out + i * to_step);
      } else {
#pragma GCC unroll 16
        for (int i = 0; i < kLanes; ++i) {
          if (i >= count) break;
          if (kPadded || some == kLanes) {
            Store(v[i], out + i * to_step);
          } else {
            StoreFirst(v[i], out + i * to_step, some);
          }
        }
      }
    }
  }
}

// Copies [count, width] elements. Element x goes to position (x0 + x) / phases
// of phase (x0 + x) % phases; phases are `phase_step` apart. Zeros may follow,
// to the end of a vector.
template <typename T>
void PackRow(const TensorRow<const T>& from, int64_t count, int64_t width,
             int64_t x0, int64_t phases, int64_t phase_step,
             const PlaneRow<Accumulator<T>>& to) {
  const T* const data = from.data;
  const int64_t pixel_step = from.pixel_step;
  if (phases == 1) {
    TransposeTo<true>(data, pixel_step, width, count, Accumulator<T>(1),
                      to.data + x0, to.step);
    return;
  }
  ForTiles(count, width, [&](int64_t n, int64_t x) {
    to.data[n * to.step + (x0 + x) % phases * phase_step + (x0 + x) / phases] =
        LoadOne(data + x * pixel_step + n);
  });
}

// Multiplies [count, width] elements by `scale` and stores them.
template <typename T>
void UnpackRow(const PlaneRow<const Accumulator<T>>& from, int64_t count,
               int64_t width, Accumulator<T> scale, const TensorRow<T>& to) {
  TransposeTo<false>(from.data, from.step, count, width, scale, to.data,
                     to.pixel_step);
}

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
      PackRow<T>({from + y * steps.row, steps.pixel}, count, args_.width,
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

}  // namespace TFO_CPU_NAMESPACE
}  // namespace tfo

#endif  // TENSORFLOW_OPS_IMAGE_CC_KERNELS_CORRELATION_COST_CORRELATION_ROWS_SIMD_H_
