// box_iou on the CPU: a box of the rows with a vector of columns at a time.
#include <algorithm>

#include "tensorflow_ops/core/cc/simd/cpu_dispatch.h"
#include "tensorflow_ops/core/cc/simd/math_simd.h"
#include "tensorflow_ops/detection/cc/kernels/boxes/box_iou.h"
#include "tensorflow_ops/detection/cc/kernels/boxes/box_lanes_simd.h"
#include "tensorflow_ops/detection/cc/kernels/boxes/rotated_box.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {
namespace {

// The most boxes in a tile of pairs: of boxes1 and of boxes2.
constexpr int64_t kTileRows = 64, kTileColumns = 512;

// Boxes [count, 4].
template <typename C>
struct BoxRange {
  const C* boxes;
  int64_t count;
};

// Pairs of two ranges; element (row, column) of a matrix of pairs is at row *
// stride + column.
template <typename C>
struct BoxTile {
  BoxMetric metric;
  bool yxyx;
  BoxRange<C> rows, columns;
  int64_t stride;
};

template <typename C>
using VectorOf = typename Lanes<C>::Vector;

// The boxes of a range, an array for each number. Behind the last box are
// zeros, enough for a vector that starts at any box.
template <typename C, int64_t kMax>
struct MeasuredBoxes {
  static constexpr int kCount = Lanes<C>::kCount;
  static constexpr int64_t kSize = kMax + 2 * kCount;
  alignas(kVectorBytes) C x1[kSize], y1[kSize], x2[kSize], y2[kSize],
      area[kSize], angle[kSize];

  template <bool kAngles>
  TFO_INLINE void Read(const BoxRange<C>& range, bool yxyx) {
    int64_t at = 0;
    for (; at + kCount <= range.count; at += kCount) {
      Set<kAngles>(at, LoadBoxes(range.boxes + 4 * at, yxyx));
    }
    const int64_t rest = range.count - at;
    Set<kAngles>(at, LoadFirstBoxes(range.boxes + 4 * at, rest, yxyx));
    Set<kAngles>(at + kCount, Box<VectorOf<C>>{});
    have_areas_ = true;
    for (int64_t i = 0; i < range.count; ++i) {
      have_areas_ &= area[i] >= OrdinarySizes<C>::kMinArea;
    }
  }

  // Returns whether each box has at least the smallest ordinary area.
  TFO_INLINE bool HaveAreas() const { return have_areas_; }
  TFO_INLINE bool HaveOrdinaryPlaces() const {
    return InAllLanes(have_ordinary_places_);
  }

  // A vector of boxes.
  TFO_INLINE MeasuredBox<VectorOf<C>> operator[](int64_t i) const {
    return {{Load(x1 + i), Load(y1 + i), Load(x2 + i), Load(y2 + i)},
            Load(area + i),
            Load(angle + i)};
  }
  // One box in all lanes.
  TFO_INLINE MeasuredBox<VectorOf<C>> InAllLanesOf(int64_t i) const {
    const VectorOf<C> v{};
    return {{v + x1[i], v + y1[i], v + x2[i], v + y2[i]},
            v + area[i],
            v + angle[i]};
  }

 private:
  template <bool kAngles>
  TFO_INLINE void Set(int64_t i, const Box<VectorOf<C>>& box) {
    Store(box.x1, x1 + i);
    Store(box.y1, y1 + i);
    Store(box.x2, x2 + i);
    Store(box.y2, y2 + i);
    have_ordinary_places_ &= HasOrdinaryPlace(box);
    Store(AreaOrNan(box), area + i);
    Store(kAngles ? DiagonalAngle(box) : VectorOf<C>{}, angle + i);
  }

  decltype(VectorOf<C>{} == VectorOf<C>{}) have_ordinary_places_ =
      VectorOf<C>{} == VectorOf<C>{};
  bool have_areas_ = false;
};

// The gradients of a vector of pairs, added up.
template <typename V>
TFO_INLINE void AddTo(const Box<V>& d, Box<V>& sum) {
  sum.x1 += d.x1;
  sum.y1 += d.y1;
  sum.x2 += d.x2;
  sum.y2 += d.y2;
}

template <typename C>
TFO_INLINE BoxRange<C> Part(const BoxRange<C>& range, int64_t begin,
                            int64_t most) {
  const int64_t rest = range.count - begin;
  return {range.boxes + 4 * begin, rest < most ? rest : most};
}

template <BoxMetric kMetric, typename C>
TFO_INLINE BoxPair<VectorOf<C>> GradOfPairs(
    const MeasuredBox<VectorOf<C>>& row, const MeasuredBox<VectorOf<C>>& column,
    VectorOf<C> d) {
  return GradOfMetric<kMetric>(row, column, row.angle - column.angle, d);
}

// d of a vector of pairs, 0 beyond n.
template <typename C>
TFO_INLINE VectorOf<C> LoadUpTo(const C* from, int64_t n) {
  return n >= Lanes<C>::kCount ? Load(from) : LoadFirst(from, n);
}

template <typename V>
TFO_INLINE bool IsZero(V d) {
  return InAllLanes(d == V{});
}

// Writes the metrics of a tile, past the caches if `streams`.
template <typename C>
void IouOfTile(const BoxTile<C>& tile, bool streams, C* iou) {
  constexpr int kCount = Lanes<C>::kCount;
  WithMetric(tile.metric, [&](auto constant) {
    constexpr auto kMetric = static_cast<BoxMetric>(constant.kValue);
    constexpr bool kAngles = kMetric == BoxMetric::kCiou;
    MeasuredBoxes<C, kTileRows> rows;
    MeasuredBoxes<C, kTileColumns> columns;
    rows.template Read<kAngles>(tile.rows, tile.yxyx);
    columns.template Read<kAngles>(tile.columns, tile.yxyx);
    const int64_t count = tile.columns.count;
    const auto write_rows = [&](auto any_size) {
      for (int64_t i = 0; i < tile.rows.count; ++i) {
        const auto row = rows.InAllLanesOf(i);
        C* const to = iou + i * tile.stride;
        const auto metric = [&](int64_t at) {
          const auto column = columns[at];
          return MetricOf<kMetric, any_size.kValue>(row, column,
                                                    row.angle - column.angle);
        };
        int64_t at = 0;
        if (streams) {
          // To the first whole vector of memory.
          const auto past = reinterpret_cast<uintptr_t>(to) % kVectorBytes;
          const int64_t head =
              past == 0 ? 0 : (kVectorBytes - past) / sizeof(C);
          at = head < count ? head : count;
          if (at > 0) StoreFirst(metric(0), to, at);
          for (; at + kCount <= count; at += kCount) {
            Stream(metric(at), to + at);
          }
        } else {
          for (; at + kCount <= count; at += kCount) Store(metric(at), to + at);
        }
        if (at < count) StoreFirst(metric(at), to + at, count - at);
      }
    };
    const bool are_ordinary = (rows.HaveAreas() || columns.HaveAreas()) &&
                              rows.HaveOrdinaryPlaces() &&
                              columns.HaveOrdinaryPlaces();
    if (are_ordinary) {
      write_rows(Constant<false>());
    } else {
      write_rows(Constant<true>());
    }
    if (streams) FinishStreaming();
  });
}

// Writes the gradient to at most kTileRows rows, summed over any number of
// columns.
template <typename C>
void IouGradToRows(const BoxTile<C>& tile, const C* d_iou, C* d_boxes) {
  constexpr int kCount = Lanes<C>::kCount;
  WithMetric(tile.metric, [&](auto constant) {
    constexpr auto kMetric = static_cast<BoxMetric>(constant.kValue);
    constexpr bool kAngles = kMetric == BoxMetric::kCiou;
    MeasuredBoxes<C, kTileRows> rows;
    MeasuredBoxes<C, kTileColumns> columns;
    Box<VectorOf<C>> sums[kTileRows] = {};
    rows.template Read<kAngles>(tile.rows, tile.yxyx);
    for (int64_t first = 0; first < tile.columns.count; first += kTileColumns) {
      const auto part = Part(tile.columns, first, kTileColumns);
      columns.template Read<kAngles>(part, tile.yxyx);
      for (int64_t i = 0; i < tile.rows.count; ++i) {
        const auto row = rows.InAllLanesOf(i);
        const C* const from = d_iou + i * tile.stride + first;
        auto sum = sums[i];
        for (int64_t at = 0; at < part.count; at += kCount) {
          const auto d = LoadUpTo(from + at, part.count - at);
          if (IsZero(d)) continue;
          AddTo(GradOfPairs<kMetric, C>(row, columns[at], d).a, sum);
        }
        sums[i] = sum;
      }
    }
    for (int64_t i = 0; i < tile.rows.count; ++i) {
      const C x1 = SumLanes(sums[i].x1), y1 = SumLanes(sums[i].y1);
      const C x2 = SumLanes(sums[i].x2), y2 = SumLanes(sums[i].y2);
      C* const to = d_boxes + 4 * i;
      to[0] = tile.yxyx ? y1 : x1;
      to[1] = tile.yxyx ? x1 : y1;
      to[2] = tile.yxyx ? y2 : x2;
      to[3] = tile.yxyx ? x2 : y2;
    }
  });
}

// Writes the gradient to at most kTileColumns columns, summed over any number
// of rows.
template <typename C>
void IouGradToColumns(const BoxTile<C>& tile, const C* d_iou, C* d_boxes) {
  constexpr int kCount = Lanes<C>::kCount;
  WithMetric(tile.metric, [&](auto constant) {
    constexpr auto kMetric = static_cast<BoxMetric>(constant.kValue);
    constexpr bool kAngles = kMetric == BoxMetric::kCiou;
    MeasuredBoxes<C, kTileRows> rows;
    MeasuredBoxes<C, kTileColumns> columns;
    Box<VectorOf<C>> sums[kTileColumns / kCount] = {};
    columns.template Read<kAngles>(tile.columns, tile.yxyx);
    const int64_t count = tile.columns.count;
    for (int64_t first = 0; first < tile.rows.count; first += kTileRows) {
      const auto part = Part(tile.rows, first, kTileRows);
      rows.template Read<kAngles>(part, tile.yxyx);
      for (int64_t i = 0; i < part.count; ++i) {
        const auto row = rows.InAllLanesOf(i);
        const C* const from = d_iou + (first + i) * tile.stride;
        for (int64_t at = 0; at < count; at += kCount) {
          const auto d = LoadUpTo(from + at, count - at);
          if (IsZero(d)) continue;
          AddTo(GradOfPairs<kMetric, C>(row, columns[at], d).b,
                sums[at / kCount]);
        }
      }
    }
    for (int64_t at = 0; at < count; at += kCount) {
      const auto& sum = sums[at / kCount];
      if (at + kCount <= count) {
        StoreBoxes(sum, tile.yxyx, d_boxes + 4 * at);
      } else {
        StoreFirstBoxes(sum, count - at, tile.yxyx, d_boxes + 4 * at);
      }
    }
  });
}

// Cycles of a pair in a vector of 8: the metric, and its gradient.
constexpr double kIouCycles = 2, kGradCycles = 16, kRotatedCycles = 40;

// Rows of a matrix of pairs in groups, of all batches.
struct GroupsOf {
  int64_t per_batch, size, count;

  GroupsOf(int64_t boxes, int64_t group_size)
      : per_batch((boxes + group_size - 1) / group_size),
        size(group_size),
        count(boxes) {}
  int64_t Batch(int64_t group) const { return group / per_batch; }
  int64_t Begin(int64_t group) const { return group % per_batch * size; }
  int64_t Size(int64_t group) const {
    return std::min(size, count - Begin(group));
  }
};

// Calls body(tile, iou) for tiles of all pairs and where to write their
// metrics.
template <typename C, typename Body>
void ForTiles(const Cpu& cpu, const BoxIouArgs<C>& args, int64_t tile_rows,
              int64_t tile_columns, double cycles, const Body& body) {
  const int64_t size = BoxSize(args.format);
  const bool yxyx = args.format == BoxFormat::kYxyx;
  const GroupsOf rows(args.rows, tile_rows);
  const GroupsOf columns(args.columns, tile_columns);
  const int64_t pairs = args.batch * args.rows * args.columns;
  const int64_t tiles = args.batch * rows.per_batch * columns.per_batch;
  cpu.ParallelFor(
      tiles, cycles * pairs / tiles, [&](int64_t begin, int64_t end) {
        for (int64_t tile = begin; tile < end; ++tile) {
          const int64_t group = tile / columns.per_batch;
          const int64_t part = tile % columns.per_batch;
          const int64_t row = rows.Batch(group) * args.rows + rows.Begin(group);
          const int64_t column = columns.Begin(part);
          const int64_t column_of_all =
              rows.Batch(group) * args.columns + column;
          const BoxTile<C> of_pairs = {
              args.metric,
              yxyx,
              {args.boxes1 + size * row, rows.Size(group)},
              {args.boxes2 + size * column_of_all, columns.Size(part)},
              args.columns};
          body(of_pairs, args.iou + row * args.columns + column);
        }
      });
}

constexpr int64_t kRotatedRows = 64, kRotatedColumns = 256;  // of a tile

template <typename C>
void RotatedIouOfTile(const BoxTile<C>& tile, C* iou) {
  RotatedBox<C> columns[kRotatedColumns];
  for (int64_t j = 0; j < tile.columns.count; ++j) {
    columns[j] = ReadRotated(tile.columns.boxes + 5 * j);
  }
  for (int64_t i = 0; i < tile.rows.count; ++i) {
    const auto row = ReadRotated(tile.rows.boxes + 5 * i);
    for (int64_t j = 0; j < tile.columns.count; ++j) {
      iou[i * tile.stride + j] = RotatedIou(row, columns[j]);
    }
  }
}

}  // namespace

template <typename C>
Error BoxIou(const Cpu& cpu, const BoxIouArgs<C>& args) {
  const int64_t pairs = args.batch * args.rows * args.columns;
  if (pairs == 0) return nullptr;
  if (args.format == BoxFormat::kRotated) {
    ForTiles(cpu, args, kRotatedRows, kRotatedColumns, kRotatedCycles,
             RotatedIouOfTile<C>);
    return nullptr;
  }
  const bool streams = pairs * int64_t{sizeof(C)} >= kStreamBytes;
  ForTiles(
      cpu, args, kTileRows, kTileColumns, kIouCycles,
      [&](const BoxTile<C>& tile, C* iou) { IouOfTile(tile, streams, iou); });
  return nullptr;
}

template <typename C>
Error BoxIouGrad(const Cpu& cpu, const BoxIouGradArgs<C>& args) {
  // A group's gradient is one thread's. Small groups, for many threads; columns
  // in whole vectors.
  const GroupsOf rows(args.rows, 8), columns(args.columns, 64);
  const bool yxyx = args.format == BoxFormat::kYxyx;
  const auto tile = [&](int64_t batch, int64_t row, int64_t num_rows,
                        int64_t column, int64_t num_columns) {
    return BoxTile<C>{
        args.metric,
        yxyx,
        {args.boxes1 + 4 * (batch * args.rows + row), num_rows},
        {args.boxes2 + 4 * (batch * args.columns + column), num_columns},
        args.columns};
  };
  cpu.ParallelFor(
      args.batch * rows.per_batch,
      kGradCycles * std::min(rows.size, args.rows) * (args.columns + 1),
      [&](int64_t begin, int64_t end) {
        for (int64_t group = begin; group < end; ++group) {
          const int64_t batch = rows.Batch(group), row = rows.Begin(group);
          const int64_t first = batch * args.rows + row;
          IouGradToRows(tile(batch, row, rows.Size(group), 0, args.columns),
                        args.d_iou + first * args.columns,
                        args.d_boxes1 + 4 * first);
        }
      });
  cpu.ParallelFor(
      args.batch * columns.per_batch,
      kGradCycles * std::min(columns.size, args.columns) * (args.rows + 1),
      [&](int64_t begin, int64_t end) {
        for (int64_t group = begin; group < end; ++group) {
          const int64_t batch = columns.Batch(group);
          const int64_t column = columns.Begin(group);
          IouGradToColumns(
              tile(batch, 0, args.rows, column, columns.Size(group)),
              args.d_iou + batch * args.rows * args.columns + column,
              args.d_boxes2 + 4 * (batch * args.columns + column));
        }
      });
  return nullptr;
}

}  // namespace TFO_CPU_NAMESPACE

TFO_INSTANTIATE_WIDE_ALGORITHM_PER_LEVEL(BoxIou, BoxIouArgs);
TFO_INSTANTIATE_WIDE_ALGORITHM_PER_LEVEL(BoxIouGrad, BoxIouGradArgs);

}  // namespace tfo
