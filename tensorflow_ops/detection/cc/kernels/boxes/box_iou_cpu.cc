#include <algorithm>

#include "tensorflow_ops/detection/cc/kernels/boxes/box_iou.h"
#include "tensorflow_ops/detection/cc/kernels/boxes/box_iou_simd.h"
#include "tensorflow_ops/detection/cc/kernels/boxes/rotated_box.h"

namespace tfo {
namespace {

// Cycles of a pair in a vector of 8: the metric, and its gradient.
constexpr double kIouCycles = 2, kGradCycles = 16, kRotatedCycles = 40;

int64_t Groups(int64_t count, int64_t size) {
  return (count + size - 1) / size;
}

// Rows of a matrix of pairs in groups, of all batches.
struct GroupsOf {
  int64_t per_batch, size, count;

  GroupsOf(int64_t boxes, int64_t group_size)
      : per_batch(Groups(boxes, group_size)), size(group_size), count(boxes) {}
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
  scalar::RotatedBox<C> columns[kRotatedColumns];
  for (int64_t j = 0; j < tile.columns.count; ++j) {
    columns[j] = scalar::ReadRotated(tile.columns.boxes + 5 * j);
  }
  for (int64_t i = 0; i < tile.rows.count; ++i) {
    const auto row = scalar::ReadRotated(tile.rows.boxes + 5 * i);
    for (int64_t j = 0; j < tile.columns.count; ++j) {
      iou[i * tile.stride + j] = scalar::RotatedIou(row, columns[j]);
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
  const auto iou_of_tile = TFO_DISPATCH(IouOfTile<C>);
  const bool streams = pairs * int64_t{sizeof(C)} >= kStreamBytes;
  ForTiles(
      cpu, args, kTileRows, kTileColumns, kIouCycles,
      [&](const BoxTile<C>& tile, C* iou) { iou_of_tile(tile, streams, iou); });
  return nullptr;
}

template <typename C>
Error BoxIouGrad(const Cpu& cpu, const BoxIouGradArgs<C>& args) {
  const auto grad_to_rows = TFO_DISPATCH(IouGradToRows<C>);
  const auto grad_to_columns = TFO_DISPATCH(IouGradToColumns<C>);
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
          grad_to_rows(tile(batch, row, rows.Size(group), 0, args.columns),
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
          grad_to_columns(
              tile(batch, 0, args.rows, column, columns.Size(group)),
              args.d_iou + batch * args.rows * args.columns + column,
              args.d_boxes2 + 4 * (batch * args.columns + column));
        }
      });
  return nullptr;
}

namespace {

// Pairs of a task; a multiple of every vector's lanes.
constexpr int64_t kPairs = 512;

// Calls body(pairs, first) with ranges of pairs, from pair `first` on.
template <typename C, typename Args, typename Body>
void ForPairs(const Cpu& cpu, const Args& args, double cycles,
              const Body& body) {
  cpu.ParallelFor(
      Groups(args.count, kPairs), cycles * kPairs,
      [&](int64_t begin, int64_t end) {
        const int64_t first = begin * kPairs;
        body(BoxPairs<C>{args.metric, args.format == BoxFormat::kYxyx,
                         args.boxes1 + 4 * first, args.boxes2 + 4 * first,
                         std::min(end * kPairs, args.count) - first},
             first);
      });
}

}  // namespace

template <typename C>
Error BoxIouLoss(const Cpu& cpu, const BoxIouLossArgs<C>& args) {
  const auto run = TFO_DISPATCH(IouLoss<C>);
  ForPairs<C>(cpu, args, /*cycles=*/8,
              [&](const BoxPairs<C>& pairs, int64_t first) {
                run(pairs, args.loss + first);
              });
  return nullptr;
}

template <typename C>
Error BoxIouLossGrad(const Cpu& cpu, const BoxIouLossGradArgs<C>& args) {
  const auto run = TFO_DISPATCH(IouLossGrad<C>);
  ForPairs<C>(cpu, args, kGradCycles,
              [&](const BoxPairs<C>& pairs, int64_t first) {
                run(pairs, args.d_loss + first, args.d_boxes1 + 4 * first,
                    args.d_boxes2 + 4 * first);
              });
  return nullptr;
}

TFO_INSTANTIATE_WIDE_ALGORITHM(BoxIou, Cpu, BoxIouArgs);
TFO_INSTANTIATE_WIDE_ALGORITHM(BoxIouGrad, Cpu, BoxIouGradArgs);
TFO_INSTANTIATE_WIDE_ALGORITHM(BoxIouLoss, Cpu, BoxIouLossArgs);
TFO_INSTANTIATE_WIDE_ALGORITHM(BoxIouLossGrad, Cpu, BoxIouLossGradArgs);

}  // namespace tfo
