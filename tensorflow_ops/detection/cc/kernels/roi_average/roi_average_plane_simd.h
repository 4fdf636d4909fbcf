// Shared by roi_average's loops over planes. For files that are compiled once
// per CPU level.
#ifndef TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_AVERAGE_ROI_AVERAGE_PLANE_SIMD_H_
#define TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_AVERAGE_ROI_AVERAGE_PLANE_SIMD_H_

#include "tensorflow_ops/core/cc/simd.h"
#include "tensorflow_ops/detection/cc/kernels/roi_average/roi_average_simd.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {

template <typename T>
using Vector = typename Lanes<T>::Vector;
template <typename T>
using Sum = Accumulator<T>;

// Whether there is a single bin, too narrow for a row of vectors to pay off.
template <typename Tap>
static TFO_INLINE bool IsFewPixels(const BinTaps<Tap>& rows,
                                   const BinTaps<Tap>& columns) {
  return rows.count == 1 && columns.count == 1 &&
         columns.begin[1] - columns.begin[0] <= 8;
}

// The columns of pixels in which bins have taps; none if begin >= end.
struct ColumnRange {
  int64_t begin, end;
};
template <typename Tap>
static ColumnRange ColumnsOf(const BinTaps<Tap>& columns) {
  const TapSpan<Tap> all = {columns.taps + columns.begin[0],
                            columns.taps + columns.begin[columns.count]};
  if (all.begin == all.end) return {0, 0};
  // Rounding may let neighboring bins' samples change places by a pixel.
  ColumnRange result = {all.begin->pixel, all.end[-1].pixel + 1};
  for (int64_t q = 0; q < columns.count; ++q) {
    const TapSpan<Tap> bin = TapsOf(columns, q);
    if (bin.begin == bin.end) continue;
    if (bin.begin->pixel < result.begin) result.begin = bin.begin->pixel;
    if (bin.end[-1].pixel >= result.end) result.end = bin.end[-1].pixel + 1;
  }
  return result;
}

// A vector of a plane's elements; lanes beyond the row are unspecified.
template <typename T>
static TFO_INLINE typename Lanes<T>::Vector LoadRow(PlaneView<const T> plane,
                                                    int64_t at) {
  return at + Lanes<T>::kCount <= plane.readable
             ? Load(plane.data + at)
             : LoadFirst(plane.data + at, plane.readable - at);
}

}  // namespace TFO_CPU_NAMESPACE
}  // namespace tfo

#endif  // TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_AVERAGE_ROI_AVERAGE_PLANE_SIMD_H_
