#include "tensorflow_ops/core/cc/cuda/cuda_launch.h"
#include "tensorflow_ops/core/cc/int_math.h"
#include "tensorflow_ops/detection/cc/kernels/boxes/box_iou.h"
#include "tensorflow_ops/detection/cc/kernels/boxes/box_metric.h"
#include "tensorflow_ops/detection/cc/kernels/boxes/rotated_box.h"

namespace tfo {
namespace {

using scalar::Box;
using scalar::BoxPair;
using scalar::MeasuredBox;

constexpr int kThreads = 256;
// Rows of a block's tile of pairs; a thread has one column.
constexpr int kRows = 32;
// Columns of a block in the gradient to columns, and the threads of each.
constexpr int kColumns = 32, kThreadsPerColumn = kThreads / kColumns;

TFO_HOST_DEVICE constexpr bool HasAngles(BoxMetric metric) {
  return metric == BoxMetric::kCiou;
}

template <BoxMetric kMetric, typename C>
__device__ MeasuredBox<C> ReadMeasured(const C* from, bool yxyx) {
  const Box<C> box = scalar::ReadCorners(from, yxyx);
  C angle = 0;
  if constexpr (HasAngles(kMetric)) angle = scalar::DiagonalAngle(box);
  return {box, scalar::AreaOrNan(box), angle};
}

// Tiles of pairs of one launch: of kRows rows and kThreads columns.
struct Tiles {
  int64_t rows, columns, count;

  explicit Tiles(const BoxIouSpec& args)
      : rows(DivideUp(args.rows, kRows)),
        columns(DivideUp(args.columns, kThreads)),
        count(args.batch * rows * columns) {}
};

// A tile's place: its batch and its first pair.
struct Tile {
  int64_t batch, row, column;
};
__device__ inline Tile TileAt(const Tiles& tiles, int64_t i) {
  return {i / tiles.columns / tiles.rows,
          i / tiles.columns % tiles.rows * kRows, i % tiles.columns * kThreads};
}

template <BoxMetric kMetric, bool kRotated, typename C>
__device__ auto ReadBox(const C* from, [[maybe_unused]] bool yxyx) {
  if constexpr (kRotated) {
    return scalar::ReadRotated(from);
  } else {
    return ReadMeasured<kMetric>(from, yxyx);
  }
}

// kRotated: kMetric is kIou.
template <BoxMetric kMetric, bool kRotated, typename C>
__global__ void IouKernel(BoxIouArgs<C> args, Tiles tiles) {
  constexpr int kSize = kRotated ? 5 : 4;
  using Box = decltype(ReadBox<kMetric, kRotated>(args.boxes1, true));
  __shared__ Box rows[kRows];
  const bool yxyx = args.format == BoxFormat::kYxyx;
  for (int64_t i = blockIdx.x; i < tiles.count; i += gridDim.x) {
    const Tile tile = TileAt(tiles, i);
    const int64_t first = tile.batch * args.rows + tile.row;
    const int64_t num_rows =
        args.rows - tile.row < kRows ? args.rows - tile.row : kRows;
    __syncthreads();
    if (threadIdx.x < num_rows) {
      rows[threadIdx.x] = ReadBox<kMetric, kRotated>(
          args.boxes1 + kSize * (first + threadIdx.x), yxyx);
    }
    __syncthreads();
    const int64_t column = tile.column + threadIdx.x;
    if (column >= args.columns) continue;
    const Box mine = ReadBox<kMetric, kRotated>(
        args.boxes2 + kSize * (tile.batch * args.columns + column), yxyx);
    C* const to = args.iou + first * args.columns + column;
    for (int64_t r = 0; r < num_rows; ++r) {
      if constexpr (kRotated) {
        to[r * args.columns] = scalar::RotatedIou(rows[r], mine);
      } else {
        to[r * args.columns] = scalar::MetricOf<kMetric>(
            rows[r], mine, rows[r].angle - mine.angle);
      }
    }
  }
}

template <typename C>
__device__ void AddTo(const Box<C>& d, Box<C>* sum) {
  sum->x1 += d.x1;
  sum->y1 += d.y1;
  sum->x2 += d.x2;
  sum->y2 += d.y2;
}

template <typename C>
__device__ void WriteBox(const Box<C>& box, bool yxyx, C* to) {
  to[0] = yxyx ? box.y1 : box.x1;
  to[1] = yxyx ? box.x1 : box.y1;
  to[2] = yxyx ? box.y2 : box.x2;
  to[3] = yxyx ? box.x2 : box.y2;
}

// Adds the boxes of kCount threads that are kStride apart, in an order that
// does not depend on timing; the first has the sum. All threads call.
template <int kCount, int kStride, typename C>
__device__ Box<C> SumOverThreads(Box<C> mine, int index, Box<C>* shared) {
  shared[threadIdx.x] = mine;
  for (int half = kCount / 2; half > 0; half /= 2) {
    __syncthreads();
    if (index < half) {
      AddTo(shared[threadIdx.x + half * kStride], &shared[threadIdx.x]);
    }
  }
  __syncthreads();
  return shared[threadIdx.x];
}

// A block has a row.
template <BoxMetric kMetric, typename C>
__global__ void GradToRowsKernel(BoxIouGradArgs<C> args) {
  __shared__ Box<C> sums[kThreads];
  const bool yxyx = args.format == BoxFormat::kYxyx;
  for (int64_t row = blockIdx.x; row < args.batch * args.rows;
       row += gridDim.x) {
    const auto mine = ReadMeasured<kMetric>(args.boxes1 + 4 * row, yxyx);
    const C* const others = args.boxes2 + 4 * (row / args.rows * args.columns);
    Box<C> sum = {};
    for (int64_t j = threadIdx.x; j < args.columns; j += kThreads) {
      const C d = args.d_iou[row * args.columns + j];
      if (d == 0) continue;
      const auto other = ReadMeasured<kMetric>(others + 4 * j, yxyx);
      AddTo(scalar::GradOfMetric<kMetric>(mine, other, mine.angle - other.angle,
                                          d)
                .a,
            &sum);
    }
    sum = SumOverThreads<kThreads, 1>(sum, threadIdx.x, sums);
    if (threadIdx.x == 0) WriteBox(sum, yxyx, args.d_boxes1 + 4 * row);
    __syncthreads();
  }
}

// A block has kColumns columns, and kThreadsPerColumn threads share the rows.
template <BoxMetric kMetric, typename C>
__global__ void GradToColumnsKernel(BoxIouGradArgs<C> args, int64_t groups) {
  __shared__ Box<C> sums[kThreads];
  const bool yxyx = args.format == BoxFormat::kYxyx;
  const int64_t per_batch = DivideUp(args.columns, kColumns);
  const int share = threadIdx.x / kColumns;
  for (int64_t group = blockIdx.x; group < groups; group += gridDim.x) {
    const int64_t batch = group / per_batch;
    const int64_t column =
        group % per_batch * kColumns + threadIdx.x % kColumns;
    Box<C> sum = {};
    if (column < args.columns) {
      const auto mine = ReadMeasured<kMetric>(
          args.boxes2 + 4 * (batch * args.columns + column), yxyx);
      for (int64_t i = share; i < args.rows; i += kThreadsPerColumn) {
        const int64_t row = batch * args.rows + i;
        const C d = args.d_iou[row * args.columns + column];
        if (d == 0) continue;
        const auto other = ReadMeasured<kMetric>(args.boxes1 + 4 * row, yxyx);
        AddTo(scalar::GradOfMetric<kMetric>(other, mine,
                                            other.angle - mine.angle, d)
                  .b,
              &sum);
      }
    }
    sum = SumOverThreads<kThreadsPerColumn, kColumns>(sum, share, sums);
    if (share == 0 && column < args.columns) {
      WriteBox(sum, yxyx, args.d_boxes2 + 4 * (batch * args.columns + column));
    }
    __syncthreads();
  }
}

// The box at `from`, in packs if they are aligned.
template <typename C>
__device__ Box<C> ReadPair(const C* from, bool aligned, bool yxyx) {
  if (aligned) {
    const Pack<C, 4> pack = LoadPack<4>(from);
    return scalar::ReadCorners(pack.values, yxyx);
  }
  return scalar::ReadCorners(from, yxyx);
}
template <typename C>
__device__ void WritePair(const Box<C>& box, bool aligned, bool yxyx, C* to) {
  if (aligned) {
    Pack<C, 4> pack;
    WriteBox(box, yxyx, pack.values);
    StorePack(pack, to);
  } else {
    WriteBox(box, yxyx, to);
  }
}

template <typename C>
__device__ MeasuredBox<C> Measure(const Box<C>& box) {
  return {box, scalar::AreaOrNan(box), C(0)};
}

template <BoxMetric kMetric, typename C>
__device__ C AngleOf(const Box<C>& a, const Box<C>& b) {
  if constexpr (HasAngles(kMetric)) return scalar::AngleBetween(a, b);
  return 0;
}

// Calls body(i, a, b, angle between them) for all pairs.
template <BoxMetric kMetric, typename C, typename Args, typename Body>
__device__ void ForPairs(const Args& args, bool aligned, const Body& body) {
  const bool yxyx = args.format == BoxFormat::kYxyx;
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < args.count;
       i += step) {
    const Box<C> a = ReadPair(args.boxes1 + 4 * i, aligned, yxyx);
    const Box<C> b = ReadPair(args.boxes2 + 4 * i, aligned, yxyx);
    body(i, Measure(a), Measure(b), AngleOf<kMetric>(a, b));
  }
}

template <BoxMetric kMetric, typename C>
__global__ void LossKernel(BoxIouLossArgs<C> args, bool aligned) {
  ForPairs<kMetric, C>(
      args, aligned, [&](int64_t i, const auto& a, const auto& b, C angle) {
        args.loss[i] = 1 - scalar::MetricOf<kMetric>(a, b, angle);
      });
}

template <BoxMetric kMetric, typename C>
__global__ void LossGradKernel(BoxIouLossGradArgs<C> args, bool aligned) {
  const bool yxyx = args.format == BoxFormat::kYxyx;
  ForPairs<kMetric, C>(
      args, aligned, [&](int64_t i, const auto& a, const auto& b, C angle) {
        const BoxPair<C> grad =
            scalar::GradOfMetric<kMetric>(a, b, angle, -args.d_loss[i]);
        WritePair(grad.a, aligned, yxyx, args.d_boxes1 + 4 * i);
        WritePair(grad.b, aligned, yxyx, args.d_boxes2 + 4 * i);
      });
}

// Calls run(kMetric as an integral_constant).
template <typename Run>
Error WithMetric(BoxMetric metric, const Run& run) {
  switch (metric) {
    case BoxMetric::kIou:
      return run(std::integral_constant<BoxMetric, BoxMetric::kIou>());
    case BoxMetric::kGiou:
      return run(std::integral_constant<BoxMetric, BoxMetric::kGiou>());
    case BoxMetric::kDiou:
      return run(std::integral_constant<BoxMetric, BoxMetric::kDiou>());
    case BoxMetric::kCiou:
      return run(std::integral_constant<BoxMetric, BoxMetric::kCiou>());
  }
  return "no kernel for this metric";
}

unsigned BlocksFor(int64_t pairs) {
  return GridSize(DivideUp(pairs, kThreads));
}

}  // namespace

template <typename C>
Error BoxIou(const Gpu& gpu, const BoxIouArgs<C>& args) {
  const Tiles tiles(args);
  if (args.format == BoxFormat::kRotated) {
    return Launch(gpu, GridSize(tiles.count), kThreads,
                  IouKernel<BoxMetric::kIou, true, C>, args, tiles);
  }
  return WithMetric(args.metric, [&](auto metric) {
    return Launch(gpu, GridSize(tiles.count), kThreads,
                  IouKernel<decltype(metric)::value, false, C>, args, tiles);
  });
}

template <typename C>
Error BoxIouGrad(const Gpu& gpu, const BoxIouGradArgs<C>& args) {
  return WithMetric(args.metric, [&](auto metric) {
    constexpr BoxMetric kMetric = decltype(metric)::value;
    const Error error = Launch(gpu, GridSize(args.batch * args.rows), kThreads,
                               GradToRowsKernel<kMetric, C>, args);
    if (error != nullptr) return error;
    const int64_t groups = args.batch * DivideUp(args.columns, kColumns);
    return Launch(gpu, GridSize(groups), kThreads,
                  GradToColumnsKernel<kMetric, C>, args, groups);
  });
}

template <typename C>
Error BoxIouLoss(const Gpu& gpu, const BoxIouLossArgs<C>& args) {
  const bool aligned = FitsPacks<4>(4 * args.count, args.boxes1, args.boxes2);
  return WithMetric(args.metric, [&](auto metric) {
    return Launch(gpu, BlocksFor(args.count), kThreads,
                  LossKernel<decltype(metric)::value, C>, args, aligned);
  });
}

template <typename C>
Error BoxIouLossGrad(const Gpu& gpu, const BoxIouLossGradArgs<C>& args) {
  const bool aligned = FitsPacks<4>(4 * args.count, args.boxes1, args.boxes2,
                                    args.d_boxes1, args.d_boxes2);
  return WithMetric(args.metric, [&](auto metric) {
    return Launch(gpu, BlocksFor(args.count), kThreads,
                  LossGradKernel<decltype(metric)::value, C>, args, aligned);
  });
}

TFO_INSTANTIATE_WIDE_ALGORITHM(BoxIou, Gpu, BoxIouArgs);
TFO_INSTANTIATE_WIDE_ALGORITHM(BoxIouGrad, Gpu, BoxIouGradArgs);
TFO_INSTANTIATE_WIDE_ALGORITHM(BoxIouLoss, Gpu, BoxIouLossArgs);
TFO_INSTANTIATE_WIDE_ALGORITHM(BoxIouLossGrad, Gpu, BoxIouLossGradArgs);

}  // namespace tfo
