// The inner loop of roi_align_max, compiled once per CPU level.
#ifndef TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_ALIGN_MAX_SIMD_H_
#define TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_ALIGN_MAX_SIMD_H_

#include "tensorflow_ops/core/cc/cpu_dispatch.h"
#include "tensorflow_ops/core/cc/float16.h"

namespace tfo {

// A sample on one axis: it takes `fraction` from the pixel after `low`, the
// rest from `low`.
template <typename C>
struct LineSample {
  int64_t low;
  C fraction;
};
// A bin's samples on one axis, inside of the map.
template <typename C>
struct LineSamples {
  const LineSample<C>*begin, *end;
};

// Where the elements of a map lie, in elements.
struct MapStrides {
  int64_t row, column, channel;
};

// Calls visit(offset, weight) for each pixel around a sample that has a weight.
template <typename C, typename Visit>
static inline __attribute__((always_inline)) void VisitCorners(
    const LineSample<C>& y, const LineSample<C>& x, const MapStrides& strides,
    const Visit& visit) {
  const int64_t at = y.low * strides.row + x.low * strides.column;
  visit(at, (1 - y.fraction) * (1 - x.fraction));
  if (x.fraction != 0) {
    visit(at + strides.column, (1 - y.fraction) * x.fraction);
  }
  if (y.fraction == 0) return;
  visit(at + strides.row, y.fraction * (1 - x.fraction));
  if (x.fraction != 0) {
    visit(at + strides.row + strides.column, y.fraction * x.fraction);
  }
}

TFO_PER_CPU_LEVEL(
    // The largest sample of a bin in `channels` channels of `map`. Writes its
    // value and which it is, y * (samples on x) + x; -1 and 0 for one outside,
    // of which there are some if `outside`, and where there are no samples.
    template <typename T>
    void LargestSamples(const T* map, MapStrides strides, int64_t channels,
                        LineSamples<Accumulator<T>> rows,
                        LineSamples<Accumulator<T>> columns, bool outside,
                        Accumulator<T>* values, int32_t* samples);)

}  // namespace tfo

#endif  // TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_ALIGN_MAX_SIMD_H_
