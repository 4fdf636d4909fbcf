// Shared by the CUDA kernels of roi_align_max: a bin's largest sample. For
// .cu.cc files.
#ifndef TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_ALIGN_MAX_ROI_ALIGN_MAX_GPU_H_
#define TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_ALIGN_MAX_ROI_ALIGN_MAX_GPU_H_

#include "tensorflow_ops/core/cc/cuda_launch.h"
#include "tensorflow_ops/detection/cc/kernels/roi/roi_bin_row_gpu.h"
#include "tensorflow_ops/detection/cc/kernels/roi/roi_pool_bins.h"
#include "tensorflow_ops/detection/cc/kernels/roi_align_max/roi_align_max.h"

namespace tfo {

// A sample of a bin: one on each axis. Kind is Samples, or has more of each.
template <typename Kind>
struct Sample {
  typename Kind::Tap y, x;
};

// The i-th of the four pixels around a sample: on the next row if i & 2, on the
// next column if i & 1. Without a weight it may be outside of the map.
template <typename C>
struct Corner {
  int32_t y, x;
  C weight;
  bool has_weight;

  template <typename Kind>
  __device__ Corner(const Sample<Kind>& at, int i)
      : y(at.y.low + i / 2),
        x(at.x.low + i % 2),
        weight((i / 2 ? at.y.fraction : 1 - at.y.fraction) *
               (i % 2 ? at.x.fraction : 1 - at.x.fraction)),
        has_weight((i / 2 == 0 || at.y.fraction != 0) &&
                   (i % 2 == 0 || at.x.fraction != 0)) {}
};

// Loads a sample's N channels from `map` on.
template <int N, typename T, typename Kind>
__device__ Pack<Accumulator<T>, N> Interpolate(const T* map,
                                               const FeatureStrides& strides,
                                               const Sample<Kind>& at) {
  using Value = Accumulator<T>;
  Pack<T, N> pixels[4];  // all loads before the first use
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const Corner<Value> corner(at, i);
    if (corner.has_weight) {
      pixels[i] =
          LoadPack<N>(map + corner.y * strides.row + corner.x * strides.column);
    }
  }
  Pack<Value, N> values = {};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const Corner<Value> corner(at, i);
#pragma unroll
    for (int n = 0; n < N; ++n) {
      if (corner.has_weight) {
        values.values[n] += corner.weight * Widen(pixels[i].values[n]);
      }
    }
  }
  return values;
}
template <typename T, typename Kind>
__device__ Accumulator<T> InterpolateOne(const T* map,
                                         const FeatureStrides& strides,
                                         const Sample<Kind>& at) {
  return Interpolate<1>(map, strides, at).values[0];
}

// The largest of a bin's samples in one channel, so far.
template <typename Kind>
struct Largest {
  using C = typename Kind::Coordinate;
  C value = 0;
  Sample<Kind> sample = {};
  int64_t count = 0;  // of samples inside of the map

  __device__ void Add(const Sample<Kind>& at, C here) {
    if (count == 0 || Replaces(here, value)) {
      value = here;
      sample = at;
    }
    ++count;
  }
  // After all samples inside are added: whether one outside is the largest, of
  // a bin of grid_y x grid_x samples.
  __device__ bool IsOutside(C grid_y, C grid_x) const {
    if (count == 0) return true;
    return static_cast<double>(count) <
               static_cast<double>(grid_y) * static_cast<double>(grid_x) &&
           Replaces(C(0), value);
  }
};

template <typename T, typename Kind>
__device__ Largest<Kind> LargestOf(const T* map, const FeatureStrides& strides,
                                   const BinOfRow<Kind>& bin) {
  Largest<Kind> largest;
  for (int32_t i = 0; i < bin.count_y; ++i) {
    for (int32_t j = 0; j < bin.count_x; ++j) {
      const Sample<Kind> at = {bin.y[i], bin.x[j]};
      largest.Add(at, InterpolateOne(map, strides, at));
    }
  }
  return largest;
}
// The same for a bin whose samples do not fit in shared memory.
template <typename Kind, typename T>
__device__ __noinline__ Largest<Kind> LargestOfFallback(
    const T* map, FeatureStrides strides, const Roi<Accumulator<T>>& roi,
    int64_t p, int64_t q) {
  using Tap = typename Kind::Tap;
  Largest<Kind> largest;
  VisitTapPairs<Kind>(roi, p, q, [&](const Tap& y, const Tap& x) {
    const Sample<Kind> at = {y, x};
    largest.Add(at, InterpolateOne(map, strides, at));
  });
  return largest;
}

// Offsets of channel c of an image, and of bin (p, q) of box k.
struct BinOffsets {
  int64_t map, output;
};
__device__ inline BinOffsets OffsetsOf(const RoiAlignMaxSpec& args,
                                       int64_t image, int64_t k, int64_t p,
                                       int64_t q, int64_t c) {
  return {args.map.Offset(image, 0, 0, c),
          args.Pooled(/*num_boxes=*/0).Offset(k, p, q, c)};
}

inline MaxTaps MaxTapsOf(const RoiAlignMaxSpec& args) {
  return MaxTapsOn(args.map, RoiBins::kSamples, args.sampling);
}

}  // namespace tfo

#endif  // TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_ALIGN_MAX_ROI_ALIGN_MAX_GPU_H_
