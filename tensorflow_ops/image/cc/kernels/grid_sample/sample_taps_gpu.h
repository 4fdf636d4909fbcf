// A sample's taps on a GPU. For .cu.cc files.
#ifndef TENSORFLOW_OPS_IMAGE_CC_KERNELS_GRID_SAMPLE_SAMPLE_TAPS_GPU_H_
#define TENSORFLOW_OPS_IMAGE_CC_KERNELS_GRID_SAMPLE_SAMPLE_TAPS_GPU_H_

#include "tensorflow_ops/core/cc/cuda/cuda_launch.h"
#include "tensorflow_ops/image/cc/kernels/grid_sample/grid_sample_args.h"
#include "tensorflow_ops/image/cc/kernels/grid_sample/sample_axis.h"

namespace tfo {

// kAxis taps on each axis. Pixels are as ImageAxis defines them.
template <int kAxis, typename C>
struct PlaneTaps {
  scalar::AxisTaps<C, kAxis> y, x;
  int32_t row[kAxis], column[kAxis];

  // What a sample begins with, or its slopes.
  __device__ scalar::Fill<C> Start(const GridSampleSpec& args) const {
    auto fill = scalar::FillOf<kAxis, C>(args.fill_value, y, x);
    fill.value += y.nan + x.nan;
    return fill;
  }
  __device__ int64_t Pixel(const GridSampleSpec& args, int k, int j) const {
    return row[k] * args.width + column[j];
  }
};

// The last pixel's float may lie beyond it, above 2^24.
template <typename C>
__device__ int32_t ToPixel(C pixel, int64_t size) {
  const int32_t index = static_cast<int32_t>(pixel);
  return index < size ? index : static_cast<int32_t>(size - 1);
}

// The taps of sample `i` of all images' `grid`.
template <int kAxis, typename C>
__device__ PlaneTaps<kAxis, C> TapsAt(const GridSampleSpec& args, const C* grid,
                                      int64_t i) {
  const bool flow = args.coordinates == SampleCoordinates::kFlow;
  const bool y_first = YIsFirst(args.coordinates);
  // No pack: the grid may begin anywhere.
  const C* const pair = grid + 2 * i;
  const int64_t sample = flow ? i % args.samples : 0;
  const int64_t row = flow ? sample / args.flow_columns : 0;
  const C own_y = static_cast<C>(row);
  const C own_x = static_cast<C>(flow ? sample - row * args.flow_columns : 0);
  PlaneTaps<kAxis, C> taps;
  taps.y = scalar::TapsOf<kAxis, C>(AxisOf<C>(args, args.height),
                                    pair[y_first ? 0 : 1], own_y);
  taps.x = scalar::TapsOf<kAxis, C>(AxisOf<C>(args, args.width),
                                    pair[y_first ? 1 : 0], own_x);
#pragma unroll
  for (int k = 0; k < kAxis; ++k) {
    taps.row[k] = ToPixel(taps.y.pixel[k], args.height);
    taps.column[k] = ToPixel(taps.x.pixel[k], args.width);
  }
  return taps;
}

// Calls run(integral_constant) with the taps on an axis.
template <typename Run>
Error WithTapsOnAxis(SampleMode mode, const Run& run) {
  switch (mode) {
    case SampleMode::kNearest:
      return run(std::integral_constant<int, 1>());
    case SampleMode::kBilinear:
      return run(std::integral_constant<int, 2>());
    default:
      return run(std::integral_constant<int, 4>());
  }
}

}  // namespace tfo

#endif  // TENSORFLOW_OPS_IMAGE_CC_KERNELS_GRID_SAMPLE_SAMPLE_TAPS_GPU_H_
