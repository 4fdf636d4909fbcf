#include "tensorflow_ops/core/cc/cuda_launch.h"
#include "tensorflow_ops/detection/cc/kernels/roi_align_max.h"
#include "tensorflow_ops/detection/cc/kernels/roi_align_max_gpu.h"
#include "tensorflow_ops/detection/cc/kernels/roi_box_sums_gpu.h"

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

// How the map changes `along` an axis from the pixel at `from`, `fraction` of
// the way `across` to the next. That one is not looked at if it has no weight.
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
// d_value. Whatever comes in, a sample that is held at an edge passes none on.
template <typename T, typename Sum>
__device__ void AddSample(const Sample<MovingSamples<Sum>>& at, const T* map,
                          const Strides& strides, Sum d_value,
                          BoxSums<Sum>& sums) {
  const T* const from = map + at.y.low * strides.row + at.x.low * strides.place;
  const Sum d_y = at.y.Moves()
                      ? d_value * SlopeAlong(from, strides.row, strides.place,
                                             at.x.fraction)
                      : Sum(0);
  const Sum d_x = at.x.Moves()
                      ? d_value * SlopeAlong(from, strides.place, strides.row,
                                             at.y.fraction)
                      : Sum(0);
  sums.Add(at.y.motion, d_y, at.x.motion, d_x);
}

// A block takes a box, a thread one channel of a bin.
template <typename T>
__global__ void __launch_bounds__(kRowThreads)
    MaxBoxesGrad(const __grid_constant__ RoiAverageArgs args, const T* d_output,
                 const T* features, const T* values, const Coordinate<T>* boxes,
                 const int32_t* box_indices, Coordinate<T>* d_boxes) {
  using Sum = Accumulator<T>;
  using Kind = MovingSamples<Sum>;
  __shared__ SharedBinRow<Kind> row;
  __shared__ Sum parts[4][kRowThreads];
  const Strides strides = StridesOfLevel(args, 0);
  for (int64_t k = blockIdx.x; k < args.roi.num_boxes; k += gridDim.x) {
    BoxSums<Sum> sums;
    for (int64_t p = 0; p < args.roi.pooled_height; ++p) {
      VisitBinRow(args, boxes, box_indices, k, p, args.roi.channels, row,
                  [&](const BinOfRow<Kind>& bin, int64_t q, int64_t c) {
                    const BinPlace place =
                        PlaceOf(args.roi, strides, row.image, k, p, q, c);
                    const auto largest =
                        LargestOf(features + place.map, strides, bin);
                    if (largest.IsOutside(row.grid_y, row.grid_x)) return;
                    AddSample(largest.sample, values + place.map, strides,
                              Widen(d_output[place.output]), sums);
                  });
    }
    WriteBoxSums(args.roi.yxyx, sums, parts, false, d_boxes + 4 * k);
  }
}

// Adds the bins that MaxBoxesGrad leaves out.
template <typename T>
__global__ void __launch_bounds__(kRowThreads)
    MaxBoxesGradOthers(const __grid_constant__ RoiAverageArgs args,
                       const T* d_output, const T* features, const T* values,
                       const Coordinate<T>* boxes, const int32_t* box_indices,
                       Coordinate<T>* d_boxes) {
  using Sum = Accumulator<T>;
  using Kind = MovingSamples<Sum>;
  __shared__ SharedBinRow<Kind> row;
  __shared__ Sum parts[4][kRowThreads];
  const Strides strides = StridesOfLevel(args, 0);
  for (int64_t k = blockIdx.x; k < args.roi.num_boxes; k += gridDim.x) {
    BoxSums<Sum> sums;
    VisitOthers(
        args, boxes, box_indices, k, args.roi.channels, row,
        [&](const RoiOnLevel<Sum>& roi, int64_t p, int64_t q, int64_t c) {
          const BinPlace place =
              PlaceOf(args.roi, strides, roi.image, k, p, q, c);
          const auto largest =
              LargestOfOther<Kind>(features + place.map, strides, roi, p, q);
          if (largest.IsOutside(roi.y.grid, roi.x.grid)) return;
          AddSample(largest.sample, values + place.map, strides,
                    Widen(d_output[place.output]), sums);
        });
    WriteBoxSums(args.roi.yxyx, sums, parts, true, d_boxes + 4 * k);
  }
}

}  // namespace

template <typename T>
Error RoiAlignMaxBoxesGrad(const Gpu& gpu, const RoiArgs& roi,
                           const RoiSampling& sampling, const T* d_output,
                           const T* features, const T* values,
                           const Coordinate<T>* boxes,
                           const int32_t* box_indices, Coordinate<T>* d_boxes) {
  if (IsEmpty(roi)) {
    return EnqueueZeros(gpu, d_boxes, sizeof(*d_boxes) * 4 * roi.num_boxes);
  }
  const RoiAverageArgs args = AsAverageArgs(roi, sampling);
  const auto launch = [&](auto kernel) {
    return Launch(gpu, GridSize(roi.num_boxes), kRowThreads, kernel, args,
                  d_output, features, values, boxes, box_indices, d_boxes);
  };
  const Error error = launch(MaxBoxesGrad<T>);
  if (error != nullptr || !MayHaveOthers<MovingSamples<Coordinate<T>>>(args)) {
    return error;
  }
  return launch(MaxBoxesGradOthers<T>);
}

#define TFO_INSTANTIATE(T)                                                \
  template Error RoiAlignMaxBoxesGrad<T>(                                 \
      const Gpu&, const RoiArgs&, const RoiSampling&, const T*, const T*, \
      const T*, const Coordinate<T>*, const int32_t*, Coordinate<T>*)
TFO_INSTANTIATE(float);
TFO_INSTANTIATE(double);
TFO_INSTANTIATE(Half);
TFO_INSTANTIATE(BFloat16);
#undef TFO_INSTANTIATE

}  // namespace tfo
