// The gradient of RoIAlign's maximum to boxes on a GPU.
#include "tensorflow_ops/core/cc/cuda_launch.h"
#include "tensorflow_ops/detection/cc/kernels/roi/roi_box_sums_gpu.h"
#include "tensorflow_ops/detection/cc/kernels/roi_align_max/roi_align_max.h"
#include "tensorflow_ops/detection/cc/kernels/roi_align_max/roi_align_max_gpu.h"

namespace tfo {
namespace {

// Samples, and how they move with the box.
template <typename C>
struct MovingSamples {
  using Coordinate = C;
  struct Tap {
    int32_t low;
    C fraction;
    BoxSlopes<C> motion;
    __device__ bool Moves() const {
      return motion.low != 0 || motion.high != 0;
    }
  };
  template <typename Add>
  __device__ static void Visit(const RoiAxis<C>& axis, int64_t p,
                               const Add& add) {
    VisitSamples(axis, p, [&](const AxisSample<C>& sample) {
      add(Tap{sample.low, sample.fraction, MotionOf(axis, sample)});
    });
  }
};

// The slope of the map `along` an axis from the pixel at `from`, `fraction` of
// the way `across` to the next. Pixels of no weight are not read.
template <typename T>
__device__ Accumulator<T> SlopeAlong(const T* from, int64_t along,
                                     int64_t across, Accumulator<T> fraction) {
  Accumulator<T> slope = (1 - fraction) * (Widen(from[along]) - Widen(from[0]));
  if (fraction != 0) {
    slope += fraction * (Widen(from[across + along]) - Widen(from[across]));
  }
  return slope;
}

// Adds the derivatives of a bin's sample in one channel of `map`, times
// d_value. A sample held at an edge passes none on, not even NaN.
template <typename T, typename Sum>
__device__ void AddSample(const Sample<MovingSamples<Sum>>& at, const T* map,
                          const FeatureStrides& strides, Sum d_value,
                          BoxSums<Sum>& sums) {
  const T* const from =
      map + at.y.low * strides.row + at.x.low * strides.column;
  const Sum d_y = at.y.Moves()
                      ? d_value * SlopeAlong(from, strides.row, strides.column,
                                             at.x.fraction)
                      : Sum(0);
  const Sum d_x = at.x.Moves()
                      ? d_value * SlopeAlong(from, strides.column, strides.row,
                                             at.y.fraction)
                      : Sum(0);
  sums.Add(at.y.motion, d_y, at.x.motion, d_x);
}

// A block takes a box, a thread one channel of a bin.
template <typename T>
__global__ void __launch_bounds__(kRowThreads)
    MaxBoxesGrad(const __grid_constant__ RoiAlignMaxBoxesGradArgs<T> args) {
  using Sum = Accumulator<T>;
  using Kind = MovingSamples<Sum>;
  __shared__ SharedBinRow<Kind> row;
  __shared__ Sum parts[4][kRowThreads];
  const FeatureStrides strides = args.map.Strides();
  for (int64_t k = blockIdx.x; k < args.boxes.count; k += gridDim.x) {
    BoxSums<Sum> sums;
    for (int64_t p = 0; p < args.grid.height; ++p) {
      VisitBinRow(
          args, k, p, args.map.channels, row,
          [&](const BinOfRow<Kind>& bin, int64_t q, int64_t c) {
            const BinOffsets offsets = OffsetsOf(args, row.image, k, p, q, c);
            const auto largest =
                LargestOf(args.features + offsets.map, strides, bin);
            if (largest.IsOutside(row.grid_y, row.grid_x)) return;
            AddSample(largest.sample, args.values + offsets.map, strides,
                      Widen(args.d_output[offsets.output]), sums);
          });
    }
    WriteBoxSums(args.boxes.yxyx, sums, parts, /*add=*/false,
                 args.d_boxes + 4 * k);
  }
}

// Adds the bins that MaxBoxesGrad leaves out.
template <typename T>
__global__ void __launch_bounds__(kRowThreads) MaxBoxesGradFallback(
    const __grid_constant__ RoiAlignMaxBoxesGradArgs<T> args) {
  using Sum = Accumulator<T>;
  using Kind = MovingSamples<Sum>;
  __shared__ SharedBinRow<Kind> row;
  __shared__ Sum parts[4][kRowThreads];
  const FeatureStrides strides = args.map.Strides();
  for (int64_t k = blockIdx.x; k < args.boxes.count; k += gridDim.x) {
    BoxSums<Sum> sums;
    VisitFallbackBins(
        args, k, args.map.channels, row,
        [&](const Roi<Sum>& roi, int64_t p, int64_t q, int64_t c) {
          const BinOffsets offsets = OffsetsOf(args, roi.image, k, p, q, c);
          const auto largest = LargestOfFallback<Kind>(
              args.features + offsets.map, strides, roi, p, q);
          if (largest.IsOutside(roi.y.grid, roi.x.grid)) return;
          AddSample(largest.sample, args.values + offsets.map, strides,
                    Widen(args.d_output[offsets.output]), sums);
        });
    WriteBoxSums(args.boxes.yxyx, sums, parts, /*add=*/true,
                 args.d_boxes + 4 * k);
  }
}

}  // namespace

template <typename T>
Error RoiAlignMaxBoxesGrad(const Gpu& gpu,
                           const RoiAlignMaxBoxesGradArgs<T>& args) {
  const int64_t count = args.boxes.count;
  if (args.Pooled(count).Size() == 0) {
    return EnqueueZeros(gpu, args.d_boxes, sizeof(*args.d_boxes) * 4 * count);
  }
  const auto launch = [&](auto kernel) {
    return Launch(gpu, GridSize(count), kRowThreads, kernel, args);
  };
  const Error error = launch(MaxBoxesGrad<T>);
  if (error != nullptr || !NeedsFallback<MovingSamples<Coordinate<T>>>(
                              args.grid, MaxTapsOf(args))) {
    return error;
  }
  return launch(MaxBoxesGradFallback<T>);
}

TFO_INSTANTIATE_ALGORITHM(RoiAlignMaxBoxesGrad, Gpu, RoiAlignMaxBoxesGradArgs);

}  // namespace tfo
