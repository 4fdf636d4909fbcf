// The bins of roi_pool: the pixels that each covers. For host and device.
#ifndef TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_ROI_POOL_BINS_H_
#define TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_ROI_POOL_BINS_H_

#include "tensorflow_ops/detection/cc/kernels/roi/roi_box.h"

namespace tfo {

// One axis of a box in whole pixels: it covers [start, start + size).
struct PooledSpan {
  int64_t start, size;
};

// Rounds to the nearest pixel, halves away from zero. Coordinates are clamped
// to
// +-2^31, beyond any feature map, so that size * bins stays below 2^63.
template <typename C>
TFO_HOST_DEVICE static inline int64_t RoundToPixel(C coordinate) {
  constexpr C kFar = 2147483648.0;
  const C clamped = coordinate < -kFar  ? -kFar
                    : coordinate > kFar ? kFar
                                        : coordinate;
  return static_cast<int64_t>(round(clamped));
}

// Both end pixels belong to the box, so that it covers at least one.
template <typename C>
TFO_HOST_DEVICE static inline PooledSpan InclusiveSpan(C low, C high) {
  const int64_t start = RoundToPixel(low);
  return {start, RoundToPixel(high) - start + 1};
}

// Bin p of `bins`: [floor(p size / bins), ceil((p+1) size / bins)) from the
// start, clipped to [0, limit). In integers: rounding a floating-point bin size
// can end a bin a pixel late.
TFO_HOST_DEVICE static inline PixelRange BinOf(PooledSpan span, int64_t p,
                                               int64_t bins, int64_t limit) {
  const int64_t begin = span.start + p * span.size / bins;
  const int64_t end = span.start + ((p + 1) * span.size + bins - 1) / bins;
  PixelRange range;
  range.begin = static_cast<int32_t>(begin < 0       ? 0
                                     : begin < limit ? begin
                                                     : limit);
  range.end = static_cast<int32_t>(end < 0 ? 0 : end < limit ? end : limit);
  return range;
}

// All of the box's pixels on the axis.
TFO_HOST_DEVICE static inline PixelRange Clip(PooledSpan span, int64_t limit) {
  return BinOf(span, 0, 1, limit);
}

// A box in whole pixels. An invalid one has no pixels.
struct PooledBox {
  int64_t image;
  PooledSpan y, x;
};

template <typename C>
TFO_HOST_DEVICE static inline PooledBox ReadPooledBox(const RoiSpec& args,
                                                      const Boxes<C>& boxes,
                                                      int64_t k) {
  const ScaledBox<C> box =
      ReadBox(boxes, k, args.map.batch, args.spatial_scale);
  if (!box.valid) return {0, {0, 0}, {0, 0}};
  return {box.image, InclusiveSpan(box.y1, box.y2),
          InclusiveSpan(box.x1, box.x2)};
}

// The pixels of row p of a box's bins, and of column q.
TFO_HOST_DEVICE static inline PixelRange BinRows(const RoiSpec& args,
                                                 const PooledBox& box,
                                                 int64_t p) {
  return BinOf(box.y, p, args.grid.height, args.map.height);
}
TFO_HOST_DEVICE static inline PixelRange BinColumns(const RoiSpec& args,
                                                    const PooledBox& box,
                                                    int64_t q) {
  return BinOf(box.x, q, args.grid.width, args.map.width);
}

// Whether `value` replaces the maximum so far, `best`. NaN replaces all others
// and stays; of equal values the first stays.
template <typename V>
TFO_HOST_DEVICE static inline bool Replaces(V value, V best) {
  return !(value <= best) && best == best;
}

}  // namespace tfo

#endif  // TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_ROI_POOL_BINS_H_
