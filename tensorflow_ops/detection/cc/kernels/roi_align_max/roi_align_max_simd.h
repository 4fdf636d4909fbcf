// The inner loops of roi_align_max, compiled once per CPU level.
#ifndef TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_ALIGN_MAX_ROI_ALIGN_MAX_SIMD_H_
#define TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_ALIGN_MAX_ROI_ALIGN_MAX_SIMD_H_

#include "tensorflow_ops/core/cc/cpu_dispatch.h"
#include "tensorflow_ops/detection/cc/kernels/roi/roi_box.h"
#include "tensorflow_ops/detection/cc/kernels/roi/roi_views.h"

namespace tfo {

// A sample on one axis: `fraction` weighs the pixel after `low`, the rest
// weighs `low`. It `moves` with the box if it is not held at an edge; then both
// pixels are on the map.
template <typename C>
struct LineSample {
  int32_t low;
  C fraction;
  bool moves;
};
// A bin's samples on one axis, inside of the map.
template <typename C>
struct LineSamples {
  const LineSample<C>*begin, *end;
};
// A bin's samples: sample i is on row i / (samples on x), column i % (samples
// on x). Some lie outside of the map if `outside`.
template <typename C>
struct BinSamples {
  LineSamples<C> rows, columns;
  bool outside;
};

TFO_PER_CPU_LEVEL(
    // The largest sample of a bin in `channels` channels of `map`. Writes its
    // value and its index; 0 and -1 for one outside and where there are no
    // samples. Either may be null.
    template <typename T>
    void LargestSamples(const ImageView<const T>& map, int64_t channels,
                        BinSamples<Accumulator<T>> bin, T* values,
                        int32_t* samples);

    // Writes the value of `map` at each channel's sample, 0 for -1. `samples`
    // may be read 16 elements further.
    template <typename T>
    void ReadSamples(const ImageView<const T>& map, int64_t channels,
                     BinSamples<Accumulator<T>> bin, const int32_t* samples,
                     T* values);

    // The transpose of ReadSamples in some `rows` of pixels, the first of which
    // is the first of `sums`. `samples` may be read 16 elements further.
    template <typename T>
    void AddToSamples(const T* d_values, const int32_t* samples,
                      int64_t channels, BinSamples<Accumulator<T>> bin,
                      PixelRange rows, const ImageView<Accumulator<T>>& sums);

    // Adds the sum of d_values times the slope of `map` at each channel's
    // sample: of its slope downward to that row's of `row_sums`, of its slope
    // across to that column's of `column_sums`. `samples` may be read 16
    // elements further.
    template <typename T>
    void AddSlopes(const T* d_values, const int32_t* samples,
                   const ImageView<const T>& map, int64_t channels,
                   BinSamples<Accumulator<T>> bin, double* row_sums,
                   double* column_sums);)

}  // namespace tfo

#endif  // TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_ALIGN_MAX_ROI_ALIGN_MAX_SIMD_H_
