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

template <typename C>
void RotatedIou(const Cpu& cpu, const BoxIouArgs<C>& args) {
  constexpr int64_t kRows = 64, kColumns = 256;
  const GroupsOf rows(args.rows, kRows), columns(args.columns, kColumns);
  const int64_t tiles = args.batch * rows.per_batch * columns.per_batch;
  cpu.ParallelFor(
      tiles, kRotatedCycles * kRows * kColumns,
      [&](int64_t begin, int64_t end) {
        using scalar::ReadRotated;
        scalar::RotatedBox<C> of_columns[kColumns];
        for (int64_t tile = begin; tile < end; ++tile) {
          const int64_t group = tile / columns.per_batch;
          const int64_t batch = rows.Batch(group), row = rows.Begin(group);
          const int64_t part = tile % columns.per_batch;
          const int64_t column = columns.Begin(part);
          const int64_t num_rows = rows.Size(group);
          const int64_t num_columns = columns.Size(part);
          const C* const from1 = args.boxes1 + 5 * (batch * args.rows + row);
          const C* const from2 =
              args.boxes2 + 5 * (batch * args.columns + column);
          C* const to =
              args.iou + (batch * args.rows + row) * args.columns + column;
          for (int64_t j = 0; j < num_columns; ++j) {
            of_columns[j] = ReadRotated(from2 + 5 * j);
          }
          for (int64_t i = 0; i < num_rows; ++i) {
            const auto of_row = ReadRotated(from1 + 5 * i);
            for (int64_t j = 0; j < num_columns; ++j) {
              to[i * args.columns + j] =
                  scalar::RotatedIou(of_row, of_columns[j]);
            }
          }
        }
      });
}

}  // namespace

template <typename C>
Error BoxIou(const Cpu& cpu, const BoxIouArgs<C>& args) {
  if (args.batch == 0 || args.rows == 0 || args.columns == 0) return nullptr;
  if (args.format == BoxFormat::kRotated) {
    RotatedIou(cpu, args);
    return nullptr;
  }
  const auto iou_of_tile = TFO_DISPATCH(IouOfTile<C>);
  const GroupsOf rows(args.rows, kTileRows);
  const GroupsOf columns(args.columns, kTileColumns);
  const int64_t pairs = args.batch * args.rows * args.columns;
  const int64_t tiles = args.batch * rows.per_batch * columns.per_batch;
  const bool streams = pairs * int64_t{sizeof(C)} >= kStreamBytes;
  cpu.ParallelFor(
      tiles, kIouCycles * pairs / tiles, [&](int64_t begin, int64_t end) {
        for (int64_t tile = begin; tile < end; ++tile) {
          const int64_t group = tile / columns.per_batch;
          const int64_t part = tile % columns.per_batch;
          const int64_t row = rows.Batch(group) * args.rows + rows.Begin(group);
          const int64_t column = columns.Begin(part);
          const int64_t column_of_all =
              rows.Batch(group) * args.columns + column;
          iou_of_tile({args.metric,
                       args.format == BoxFormat::kYxyx,
                       {args.boxes1 + 4 * row, rows.Size(group)},
                       {args.boxes2 + 4 * column_of_all, columns.Size(part)},
                       args.columns},
                      streams, args.iou + row * args.columns + column);
        }
      });
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
