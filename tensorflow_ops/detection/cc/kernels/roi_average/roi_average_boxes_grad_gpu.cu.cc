// The gradient to boxes on a GPU.
#include "tensorflow_ops/core/cc/cuda/cuda_launch.h"
#include "tensorflow_ops/detection/cc/kernels/roi/roi_box_sums_gpu.h"
#include "tensorflow_ops/detection/cc/kernels/roi_average/roi_average.h"
#include "tensorflow_ops/detection/cc/kernels/roi_average/roi_average_gpu.h"

namespace tfo {
namespace {

// A block takes a box, a thread some channels of a bin.
template <typename T, int N>
__global__ void __launch_bounds__(kRowThreads)
    BoxesGrad(const __grid_constant__ RoiAverageBoxesGradArgs<T> args) {
  using Sum = Accumulator<T>;
  using Kind = SlopedWeights<Sum>;
  using Tap = typename Kind::Tap;
  __shared__ SharedBinRow<Kind> row;
  __shared__ Sum parts[4][kRowThreads];
  const BinChannels of = args.ChannelsOfBins();
  const int64_t packs = of.count / N;
  for (int64_t k = blockIdx.x; k < args.boxes.count; k += gridDim.x) {
    BoxSums<Sum> sums;
    for (int64_t p = 0; p < args.grid.height; ++p) {
      VisitBinRow(
          args, k, p, packs, row,
          [&](const BinOfRow<Kind>& bin, int64_t q, int64_t pack) {
            const FeatureStrides strides = args.Features(row.level).Strides();
            const BinOffsets offsets = OffsetsOf(args, of, k, p, q, pack * N);
            const auto gradients = LoadPack<N>(args.d_output + offsets.output);
            VisitPixels<N>(
                bin,
                ImageOf(args, args.features, row.level, row.image) +
                    offsets.map,
                strides,
                [&](const Tap& y, const Tap& x, const Pack<T, N>& values) {
                  Sum product = 0;
#pragma unroll
                  for (int i = 0; i < N; ++i) {
                    product +=
                        Widen(gradients.values[i]) * Widen(values.values[i]);
                  }
                  sums.Add(y.slopes, x.weight * product, x.slopes,
                           y.weight * product);
                });
          });
    }
    WriteBoxSums(args.boxes.yxyx, sums, parts, /*add=*/false,
                 args.d_boxes + 4 * k);
  }
}

// Adds the bins that BoxesGrad leaves out.
template <typename T>
__global__ void __launch_bounds__(kRowThreads)
    BoxesGradFallback(const __grid_constant__ RoiAverageBoxesGradArgs<T> args) {
  using Sum = Accumulator<T>;
  using Kind = SlopedWeights<Sum>;
  using Tap = typename Kind::Tap;
  __shared__ SharedBinRow<Kind> row;
  __shared__ Sum parts[4][kRowThreads];
  const BinChannels of = args.ChannelsOfBins();
  for (int64_t k = blockIdx.x; k < args.boxes.count; k += gridDim.x) {
    BoxSums<Sum> sums;
    VisitFallbackBins(
        args, k, of.count, row,
        [&](const Roi<Sum>& roi, int64_t p, int64_t q, int64_t c) {
          const FeatureStrides strides = args.Features(roi.level).Strides();
          const BinOffsets offsets = OffsetsOf(args, of, k, p, q, c);
          const T* const map =
              ImageOf(args, args.features, roi.level, roi.image) + offsets.map;
          const Sum gradient = Widen(args.d_output[offsets.output]);
          VisitTapPairs<Kind>(roi, p, q, [&](const Tap& y, const Tap& x) {
            const Sum product =
                gradient *
                Widen(map[y.pixel * strides.row + x.pixel * strides.column]);
            sums.Add(y.slopes, x.weight * product, x.slopes,
                     y.weight * product);
          });
        });
    WriteBoxSums(args.boxes.yxyx, sums, parts, /*add=*/true,
                 args.d_boxes + 4 * k);
  }
}

}  // namespace

template <typename T>
Error RoiAverageBoxesGrad(const Gpu& gpu,
                          const RoiAverageBoxesGradArgs<T>& args) {
  const int64_t count = args.boxes.count;
  if (args.Pooled(count).Size() == 0) {
    return EnqueueZeros(gpu, args.d_boxes, sizeof(*args.d_boxes) * 4 * count);
  }
  const auto launch = [&](auto kernel) {
    return Launch(gpu, GridSize(count), kRowThreads, kernel, args);
  };
  const Error error =
      WithPacks(args, args.features, args.d_output, [&](auto n, unsigned) {
        return launch(BoxesGrad<T, decltype(n)::value>);
      });
  if (error != nullptr || !NeedsFallback<SlopedWeights<Coordinate<T>>>(
                              args.grid, MaxTapsOf(args))) {
    return error;
  }
  return launch(BoxesGradFallback<T>);
}

TFO_INSTANTIATE_ALGORITHM(RoiAverageBoxesGrad, Gpu, RoiAverageBoxesGradArgs);

}  // namespace tfo
