// The taps of blocks of samples.
#include "tensorflow_ops/core/cc/simd/simd.h"
#include "tensorflow_ops/image/cc/kernels/grid_sample/grid_sample_simd.h"
#include "tensorflow_ops/image/cc/kernels/grid_sample/sample_axis.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {
namespace {

// The coordinates of a block. Lanes beyond it hold zeros, which are places.
template <typename C>
struct alignas(64) Coordinates {
  C y[kSampleBlock], x[kSampleBlock];
  C own_y[kSampleBlock], own_x[kSampleBlock];  // kFlow
};

template <typename C>
TFO_INLINE int64_t PaddedCount(const SampleSpan& span) {
  constexpr int kCount = Lanes<C>::kCount;
  return (span.count + kCount - 1) / kCount * kCount;
}

// Splits pairs [n, 2].
template <typename C>
TFO_INLINE void SplitPairs(const C* pairs, int64_t n, C* first, C* second) {
  constexpr int kCount = Lanes<C>::kCount;
  int64_t i = 0;
  for (; i + kCount <= n; i += kCount) {
    const auto low = Load(pairs + 2 * i), high = Load(pairs + 2 * i + kCount);
    Store(EvenLanes(low, high), first + i);
    Store(OddLanes(low, high), second + i);
  }
  for (; i < n; ++i) {
    first[i] = pairs[2 * i];
    second[i] = pairs[2 * i + 1];
  }
}

// The own positions of `count` samples from `first` on.
template <typename C>
void CountPositions(int64_t first, int64_t count, int64_t columns,
                    Coordinates<C>* to) {
  int64_t row = first / columns, column = first % columns;
  for (int64_t i = 0; i < count; ++row, column = 0) {
    const int64_t left = columns - column;
    const int64_t end = left < count - i ? i + left : count;
    for (; i < end; ++i, ++column) {
      to->own_y[i] = static_cast<C>(row);
      to->own_x[i] = static_cast<C>(column);
    }
  }
}

template <typename C>
void ReadCoordinates(const GridSampleSpec& args, const C* grid,
                     const SampleSpan& span, Coordinates<C>* to) {
  const bool flow = args.coordinates == SampleCoordinates::kFlow;
  const bool y_first = YIsFirst(args.coordinates);
  C* const first = y_first ? to->y : to->x;
  C* const second = y_first ? to->x : to->y;
  if (span.list == nullptr) {
    SplitPairs(grid + 2 * span.first, span.count, first, second);
  } else {
    for (int64_t i = 0; i < span.count; ++i) {
      first[i] = grid[2 * span.list[i]];
      second[i] = grid[2 * span.list[i] + 1];
    }
  }
  const int64_t padded = PaddedCount<C>(span);
  for (int64_t i = span.count; i < padded; ++i) to->x[i] = to->y[i] = 0;
  if (!flow) return;
  if (span.list != nullptr) {
    for (int64_t i = 0; i < span.count; ++i) {
      to->own_y[i] = static_cast<C>(span.list[i] / args.flow_columns);
      to->own_x[i] = static_cast<C>(span.list[i] % args.flow_columns);
    }
  } else {
    CountPositions(span.first, span.count, args.flow_columns, to);
  }
  for (int64_t i = span.count; i < padded; ++i) {
    to->own_y[i] = to->own_x[i] = 0;
  }
}

// Pixels as integers. Above 2^24, the float of an axis' last pixel may be
// beyond it.
template <typename C>
TFO_INLINE typename Lanes<C>::Index PixelIndex(typename Lanes<C>::Vector pixel,
                                               int32_t size) {
  using Index = typename Lanes<C>::Index;
  const Index index = __builtin_convertvector(pixel, Index);
  const Index last = Broadcast<Index>(size - 1);
  return index > last ? last : index;
}

template <int kAxis, typename C>
void FindTapsOf(const GridSampleSpec& args, const C* grid,
                const SampleSpan& span, SampleTaps<C>* taps,
                SampleSlopes<C>* slopes) {
  using V = typename Lanes<C>::Vector;
  using Index = typename Lanes<C>::Index;
  constexpr int kCount = Lanes<C>::kCount;
  const ImageAxis<C> axis_y = AxisOf<C>(args, args.height);
  const ImageAxis<C> axis_x = AxisOf<C>(args, args.width);
  const C last_y = static_cast<C>(axis_y.size - 1);
  const C last_x = static_cast<C>(axis_x.size - 1);
  const auto width = static_cast<typename Lanes<C>::Integer>(args.width);
  Coordinates<C> at;
  ReadCoordinates(args, grid, span, &at);
  const bool flow = args.coordinates == SampleCoordinates::kFlow;
  taps->count = kAxis * kAxis;
  for (int64_t i = 0; i < PaddedCount<C>(span); i += kCount) {
    const V y =
        PlaceOf<V>(axis_y, Load(at.y + i), flow ? Load(at.own_y + i) : V{});
    const V x =
        PlaceOf<V>(axis_x, Load(at.x + i), flow ? Load(at.own_x + i) : V{});
    if constexpr (kAxis == 2) {
      const auto inside = (y > 0) & (y < last_y) & (x > 0) & (x < last_x);
      if (slopes == nullptr && !AnyLane(~inside)) {
        const V low_y = Floor(y), low_x = Floor(x);
        const V down = y - low_y, right = x - low_x;
        const V up = 1 - down, left = 1 - right;
        const Index pixel = __builtin_convertvector(low_y, Index) * width +
                            __builtin_convertvector(low_x, Index);
        Store(V{}, taps->start + i);
        Store(up * left, taps->weight[0] + i);
        Store(up * right, taps->weight[1] + i);
        Store(down * left, taps->weight[2] + i);
        Store(down * right, taps->weight[3] + i);
        StoreIndex(pixel, taps->pixel[0] + i);
        StoreIndex(pixel + 1, taps->pixel[1] + i);
        StoreIndex(pixel + width, taps->pixel[2] + i);
        StoreIndex(pixel + width + 1, taps->pixel[3] + i);
        continue;
      }
    }
    const auto rows = TapsAt<kAxis, V>(axis_y, y);
    const auto columns = TapsAt<kAxis, V>(axis_x, x);
    V start = rows.nan + columns.nan;
    if (axis_y.fills) {
      const auto fill = FillOf<kAxis, V>(args.fill_value, rows, columns);
      start += fill.value;
      if (slopes != nullptr) {
        Store(fill.y, slopes->start_y + i);
        Store(fill.x, slopes->start_x + i);
      }
    }
    Store(start, taps->start + i);
#pragma GCC unroll 4
    for (int k = 0; k < kAxis; ++k) {
      const Index row = PixelIndex<C>(rows.pixel[k], axis_y.size) * width;
#pragma GCC unroll 4
      for (int j = 0; j < kAxis; ++j) {
        const int t = k * kAxis + j;
        StoreIndex(row + PixelIndex<C>(columns.pixel[j], axis_x.size),
                   taps->pixel[t] + i);
        Store(rows.weight[k] * columns.weight[j], taps->weight[t] + i);
        if (slopes == nullptr) continue;
        Store(rows.slope[k] * columns.weight[j], slopes->y[t] + i);
        Store(rows.weight[k] * columns.slope[j], slopes->x[t] + i);
      }
    }
  }
}

template <int kAxis, typename C>
void FindRowsOf(const GridSampleSpec& args, const C* grid,
                const SampleSpan& span, int32_t* first, int32_t* last) {
  using V = typename Lanes<C>::Vector;
  constexpr int kCount = Lanes<C>::kCount;
  const ImageAxis<C> axis = AxisOf<C>(args, args.height);
  Coordinates<C> at;
  ReadCoordinates(args, grid, span, &at);
  const bool flow = args.coordinates == SampleCoordinates::kFlow;
  for (int64_t i = 0; i < PaddedCount<C>(span); i += kCount) {
    const auto y =
        TapsOf<kAxis, V>(axis, Load(at.y + i), flow ? Load(at.own_y + i) : V{});
    V low = Broadcast<V>(static_cast<C>(axis.size - 1)), high = V{} - 1;
#pragma GCC unroll 4
    for (int k = 0; k < kAxis; ++k) {
      const auto is_read = y.weight[k] != 0;
      low = is_read & (y.pixel[k] < low) ? y.pixel[k] : low;
      high = is_read & (y.pixel[k] > high) ? y.pixel[k] : high;
    }
    StoreIndex(PixelIndex<C>(low, axis.size), first + i);
    StoreIndex(PixelIndex<C>(high, axis.size), last + i);
  }
}

}  // namespace

template <typename C>
void FindTaps(const GridSampleSpec& args, const C* grid, const SampleSpan& span,
              SampleTaps<C>* taps, SampleSlopes<C>* slopes) {
  switch (args.mode) {
    case SampleMode::kNearest:
      return FindTapsOf<1>(args, grid, span, taps, slopes);
    case SampleMode::kBilinear:
      return FindTapsOf<2>(args, grid, span, taps, slopes);
    case SampleMode::kBicubic:
      return FindTapsOf<4>(args, grid, span, taps, slopes);
  }
}

template <typename C>
void FindRows(const GridSampleSpec& args, const C* grid, const SampleSpan& span,
              int32_t* first, int32_t* last) {
  switch (args.mode) {
    case SampleMode::kNearest:
      return FindRowsOf<1>(args, grid, span, first, last);
    case SampleMode::kBilinear:
      return FindRowsOf<2>(args, grid, span, first, last);
    case SampleMode::kBicubic:
      return FindRowsOf<4>(args, grid, span, first, last);
  }
}

TFO_INSTANTIATE_WIDE_FUNCTION(FindTaps);
TFO_INSTANTIATE_WIDE_FUNCTION(FindRows);

}  // namespace TFO_CPU_NAMESPACE
}  // namespace tfo
