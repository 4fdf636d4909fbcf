// What the CUDA kernels of roi_align_max share: a bin's largest sample. For
// .cu.cc files.
#ifndef TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_ALIGN_MAX_GPU_H_
#define TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_ALIGN_MAX_GPU_H_

#include "tensorflow_ops/core/cc/cuda_launch.h"
#include "tensorflow_ops/detection/cc/kernels/roi_gpu.h"

namespace tfo {

// A sample of a bin: one on each axis. Kind is Samples, or has more of each.
template <typename Kind>
struct Sample {
  typename Kind::Tap y, x;
};

// The i-th of the four pixels around a sample: on the next row if i & 2, on the
// next column if i & 1. One without a weight is not looked at: it may be
// outside.
template <typename C>
struct PixelAround {
  int32_t y, x;
  C weight;
  bool counts;

  template <typename Kind>
  __device__ PixelAround(const Sample<Kind>& at, int i)
      : y(at.y.low + i / 2),
        x(at.x.low + i % 2),
        weight((i / 2 ? at.y.fraction : 1 - at.y.fraction) *
               (i % 2 ? at.x.fraction : 1 - at.x.fraction)),
        counts((i / 2 == 0 || at.y.fraction != 0) &&
               (i % 2 == 0 || at.x.fraction != 0)) {}
};

// The values of a sample in N channels.
template <int N, bool kPacked, typename T, typename Kind>
__device__ Pack<Accumulator<T>, N> Interpolate(const T* map,
                                               const Strides& strides,
                                               const Sample<Kind>& at,
                                               int64_t step, int64_t valid) {
  using Value = Accumulator<T>;
  Pack<T, N> pixels[4];  // all loads before the first use
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const PixelAround<Value> pixel(at, i);
    if (pixel.counts) {
      pixels[i] = LoadChannels<N, kPacked>(
          map + pixel.y * strides.row + pixel.x * strides.place, step, valid);
    }
  }
  Pack<Value, N> values = {};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const PixelAround<Value> pixel(at, i);
#pragma unroll
    for (int n = 0; n < N; ++n) {
      if (pixel.counts) {
        values.values[n] += pixel.weight * Widen(pixels[i].values[n]);
      }
    }
  }
  return values;
}
template <typename T, typename Kind>
__device__ Accumulator<T> InterpolateOne(const T* map, const Strides& strides,
                                         const Sample<Kind>& at) {
  return Interpolate<1, false>(map, strides, at, 1, 1).values[0];
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
  // After those inside: are there samples outside, and is one the largest?
  __device__ bool IsOutside(C grid_y, C grid_x) const {
    if (count == 0) return true;
    return static_cast<double>(count) <
               static_cast<double>(grid_y) * static_cast<double>(grid_x) &&
           Replaces(C(0), value);
  }
};

template <typename T, typename Kind>
__device__ Largest<Kind> LargestOf(const T* map, const Strides& strides,
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
// The same for a bin whose samples have no room in shared memory.
template <typename Kind, typename T>
__device__ __noinline__ Largest<Kind> LargestOfOther(
    const T* map, Strides strides, const RoiOnLevel<Accumulator<T>>& roi,
    int64_t p, int64_t q) {
  using Tap = typename Kind::Tap;
  Largest<Kind> largest;
  VisitTapPairs<Kind>(roi, p, q, [&](const Tap& y, const Tap& x) {
    const Sample<Kind> at = {y, x};
    largest.Add(at, InterpolateOne(map, strides, at));
  });
  return largest;
}

// The first elements of a bin's channel c.
struct BinPlace {
  int64_t map, output;
};
__device__ inline BinPlace PlaceOf(const RoiArgs& args, const Strides& map,
                                   int64_t image, int64_t k, int64_t p,
                                   int64_t q, int64_t c) {
  const int64_t ph = args.pooled_height, pw = args.pooled_width;
  const Strides out = StridesOf(args.channels_first, ph, pw, args.channels);
  return {image * args.height * args.width * args.channels + c * map.channel,
          k * ph * pw * args.channels + p * out.row + q * out.place +
              c * out.channel};
}

// The sizes as roi_average's, whose blocks and tiles this op has, too.
inline RoiAverageArgs AsAverageArgs(const RoiArgs& roi,
                                    const RoiSampling& sampling) {
  RoiAverageArgs args = OneLevel(roi);
  args.bins = RoiBins::kSamples;
  args.sampling = sampling;
  return args;
}

inline bool IsEmpty(const RoiArgs& args) {
  return args.num_boxes == 0 || args.channels == 0 || args.pooled_height == 0 ||
         args.pooled_width == 0;
}

}  // namespace tfo

#endif  // TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_ALIGN_MAX_GPU_H_
