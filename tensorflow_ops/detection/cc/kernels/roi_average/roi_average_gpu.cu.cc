// The averages on a GPU.
#include "tensorflow_ops/detection/cc/kernels/roi_average/roi_average_gpu.h"

#include "tensorflow_ops/core/cc/cuda/cuda_launch.h"
#include "tensorflow_ops/detection/cc/kernels/roi_average/roi_average.h"

namespace tfo {
namespace {

// A block takes a row of a box's bins, a thread some channels of a bin.
template <typename T, int N>
__global__ void __launch_bounds__(kRowThreads, sizeof(T) == 8 ? 4 : 6)
    Average(const __grid_constant__ RoiAverageArgs<T> args) {
  using Sum = Accumulator<T>;
  using Kind = Weights<Sum>;
  using Tap = typename Kind::Tap;
  __shared__ SharedBinRow<Kind> row;
  const BinChannels of = args.ChannelsOfBins();
  const int64_t packs = of.count / N;
  const int64_t units = args.boxes.count * args.grid.height;
  for (int64_t unit = blockIdx.x; unit < units; unit += gridDim.x) {
    const int64_t k = unit / args.grid.height;
    const int64_t p = unit % args.grid.height;
    VisitBinRow(
        args, k, p, packs, row,
        [&](const BinOfRow<Kind>& bin, int64_t q, int64_t pack) {
          const FeatureStrides strides = args.Features(row.level).Strides();
          const BinOffsets offsets = OffsetsOf(args, of, k, p, q, pack * N);
          Sum sums[N] = {};
          VisitPixels<N>(
              bin,
              ImageOf(args, args.features, row.level, row.image) + offsets.map,
              strides,
              [&](const Tap& y, const Tap& x, const Pack<T, N>& values) {
                const Sum weight = y.weight * x.weight;
#pragma unroll
                for (int i = 0; i < N; ++i) {
                  sums[i] += weight * Widen(values.values[i]);
                }
              });
          Pack<T, N> averages;
#pragma unroll
          for (int i = 0; i < N; ++i) averages.values[i] = Narrow<T>(sums[i]);
          StorePack(averages, args.output + offsets.output);
        });
  }
}

// The bins that Average leaves out: a block takes a box's, a thread a channel.
template <typename T>
__global__ void __launch_bounds__(kRowThreads)
    AverageFallback(const __grid_constant__ RoiAverageArgs<T> args) {
  using Sum = Accumulator<T>;
  using Kind = Weights<Sum>;
  using Tap = typename Kind::Tap;
  __shared__ SharedBinRow<Kind> row;
  const BinChannels of = args.ChannelsOfBins();
  for (int64_t k = blockIdx.x; k < args.boxes.count; k += gridDim.x) {
    VisitFallbackBins(
        args, k, of.count, row,
        [&](const Roi<Sum>& roi, int64_t p, int64_t q, int64_t c) {
          const FeatureStrides strides = args.Features(roi.level).Strides();
          const BinOffsets offsets = OffsetsOf(args, of, k, p, q, c);
          const T* const map =
              ImageOf(args, args.features, roi.level, roi.image) + offsets.map;
          Sum sum = 0;
          VisitTapPairs<Kind>(roi, p, q, [&](const Tap& y, const Tap& x) {
            sum += y.weight * x.weight *
                   Widen(map[y.pixel * strides.row + x.pixel * strides.column]);
          });
          args.output[offsets.output] = Narrow<T>(sum);
        });
  }
}

}  // namespace

template <typename T>
Error RoiAverage(const Gpu& gpu, const RoiAverageArgs<T>& args) {
  if (args.Pooled(args.boxes.count).Size() == 0) return nullptr;
  const unsigned grid = GridSize(args.boxes.count * args.grid.height);
  const Error error = WithPacks(
      args, args.features, args.output, [&](auto n, unsigned threads) {
        return Launch(gpu, grid, threads, Average<T, decltype(n)::value>, args);
      });
  if (error != nullptr ||
      !NeedsFallback<Weights<Coordinate<T>>>(args.grid, MaxTapsOf(args))) {
    return error;
  }
  return Launch(gpu, GridSize(args.boxes.count), kRowThreads,
                AverageFallback<T>, args);
}

TFO_INSTANTIATE_ALGORITHM(RoiAverage, Gpu, RoiAverageArgs);

}  // namespace tfo
