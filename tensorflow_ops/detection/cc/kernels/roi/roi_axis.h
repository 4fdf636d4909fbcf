// One axis of a box for the ops whose bins are weighted averages of pixels
// (roi_align, ps_roi_align, ps_roi_pool): bilinear interpolation and the mean
// of whole pixels both factor into a weight per row and a weight per column.
// For host and device, which compute the same weights bit by bit.
#ifndef TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_ROI_AXIS_H_
#define TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_ROI_AXIS_H_

#include "tensorflow_ops/core/cc/bilinear.h"
#include "tensorflow_ops/detection/cc/kernels/roi/roi_pool_bins.h"

namespace tfo {

// The values that a bin pools.
enum class RoiBins {
  kSamples,  // bilinear samples on a regular grid: RoIAlign
  kPixels,   // the pixels it covers: PS-RoI-Pool
};

// The grid of samples in a bin.
struct RoiSampling {
  int32_t ratio;  // samples of a bin on each axis; 0: ceil(bin size)
  bool aligned;   // pixel i's centre is at i + 0.5; else at i, and a box is at
                  // least a pixel
};

template <typename C>
struct RoiAxis {
  int64_t limit;  // pixels of the feature map
  int64_t bins;
  bool sampled;
  // kSamples, in feature pixels:
  C start, bin;  // where the box begins; a bin's size
  C grid;        // samples of a bin: a whole number, 0 for none
  C scale;       // feature pixels per image pixel
  bool grown;    // to the minimum size: its end does not matter
  // kPixels:
  PooledSpan span;
};

// The axis of a box from `low` to `high`, in feature pixels and finite.
template <typename C>
TFO_HOST_DEVICE static inline RoiAxis<C> SampledAxis(
    C low, C high, C scale, int64_t limit, int64_t bins,
    const RoiSampling& sampling) {
  RoiAxis<C> axis = {};
  axis.limit = limit;
  axis.bins = bins;
  axis.sampled = true;
  axis.start = sampling.aligned ? low - C(0.5) : low;
  C size = high - low;
  axis.grown = !sampling.aligned && size < 1;
  if (axis.grown) size = 1;
  axis.scale = scale;
  axis.bin = size / static_cast<C>(bins);
  axis.grid = sampling.ratio > 0 ? static_cast<C>(sampling.ratio)
                                 : static_cast<C>(ceil(axis.bin));
  // Overflow: sample positions are undefined, so none are used.
  if (!(axis.bin - axis.bin == 0 && axis.start - axis.start == 0)) {
    axis.grid = 0;
  }
  return axis;
}
template <typename C>
TFO_HOST_DEVICE static inline RoiAxis<C> PixelAxis(C low, C high, int64_t limit,
                                                   int64_t bins) {
  RoiAxis<C> axis = {};
  axis.limit = limit;
  axis.bins = bins;
  const int64_t start = RoundToPixel(low), size = RoundToPixel(high) - start;
  axis.span = {start, size < 1 ? 1 : size};
  return axis;
}

// A sample between the pixels low and low + 1, `fraction` of the way; at the
// map's edge it lies on a pixel, and fraction is 0.
template <typename C>
struct AxisSample {
  int32_t low;
  C fraction;
  bool moves;  // with the box: not held at an edge
  C position;  // in the box, from 0 at its beginning to 1 at its end
};

// Calls visit(sample) for each sample of bin p in [-1, limit], in order; the
// others count as zero. Makes at most 2 * limit + 6 calls, or as many as a
// nonzero ratio.
template <typename C, typename Visit>
TFO_HOST_DEVICE static inline void VisitSamples(const RoiAxis<C>& axis,
                                                int64_t p, Visit&& visit) {
  if (axis.limit <= 0) return;
  const C begin = axis.start + Product(static_cast<C>(p), axis.bin);
  const C limit = static_cast<C>(axis.limit);
  const int32_t last = static_cast<int32_t>(axis.limit - 1);
  double first_index = 0, last_index = static_cast<double>(axis.grid) - 1;
  if (axis.grid > 16 && axis.bin > 0) {
    // Skips most samples outside; the loop tests those that remain.
    const double step = static_cast<double>(axis.bin) / axis.grid;
    const double from = floor((-1.0 - begin) / step - 0.5) - 1;
    const double to = ceil((limit - begin) / step - 0.5) + 1;
    if (from > first_index) first_index = from;
    if (to < last_index) last_index = to;
    // Too far from the box's beginning to count samples exactly: those in the
    // map are a fraction of the bin smaller than its rounding error.
    if (last_index > 9e15) return;
  }
  for (double i = first_index; i <= last_index; ++i) {
    const C index = static_cast<C>(i + 0.5);
    C at = begin + Product(index, axis.bin) / axis.grid;
    if (!(at >= -1 && at <= limit)) continue;
    AxisSample<C> sample;
    sample.moves = at > 0;
    if (!(at > 0)) at = 0;
    const auto held = HeldBetweenPixels(at, last);
    sample.low = held.low;
    sample.fraction = held.fraction;
    if (held.low == last) sample.moves = false;
    sample.position =
        (static_cast<C>(p) + index / axis.grid) / static_cast<C>(axis.bins);
    visit(sample);
  }
}

// How a position or a weight on an axis changes with the box's beginning and
// end, in image pixels.
template <typename C>
struct BoxSlopes {
  C low, high;
};

// How a sample's position on the map changes with the box, in feature pixels.
template <typename C>
TFO_HOST_DEVICE static inline BoxSlopes<C> MotionOf(
    const RoiAxis<C>& axis, const AxisSample<C>& sample) {
  if (!sample.moves) return {};
  const C high = axis.grown ? C(0) : Product(axis.scale, sample.position);
  return {axis.scale - high, high};
}

// Calls visit(pixel, weight, slopes) for each pixel of bin p with a weight, in
// order, every pixel once: the bin adds `weight` times the pixel's value.
// Samples on the same pixels are merged. Without kSlopes, slopes are zero and
// not computed.
template <bool kSlopes, typename C, typename Visit>
TFO_HOST_DEVICE static inline void VisitTaps(const RoiAxis<C>& axis, int64_t p,
                                             Visit&& visit) {
  if (!axis.sampled) {
    const PixelRange range = BinOf(axis.span, p, axis.bins, axis.limit);
    const C weight = C(1) / static_cast<C>(range.end - range.begin);
    for (int32_t pixel = range.begin; pixel < range.end; ++pixel) {
      visit(pixel, weight, BoxSlopes<C>{});
    }
    return;
  }
  // The weights of `pixel` and the next one, to which later samples may add.
  int32_t pixel = -1;
  C weight = 0, next_weight = 0;
  BoxSlopes<C> slopes = {}, next_slopes = {};
  const C share = axis.grid > 0 ? C(1) / axis.grid : C(0);
  const auto emit = [&](int32_t at, C w, BoxSlopes<C> s) {
    // Pixels of no weight are not read: they may hold NaN.
    if (w == 0 && !(kSlopes && (s.low != 0 || s.high != 0))) return;
    visit(at, w * share, BoxSlopes<C>{s.low * share, s.high * share});
  };
  VisitSamples(axis, p, [&](const AxisSample<C>& sample) {
    if (sample.low != pixel) {
      if (pixel >= 0) emit(pixel, weight, slopes);
      const bool next = sample.low == pixel + 1 && pixel >= 0;
      if (!next && pixel >= 0) emit(pixel + 1, next_weight, next_slopes);
      weight = next ? next_weight : C(0);
      slopes = next ? next_slopes : BoxSlopes<C>{};
      next_weight = 0;
      next_slopes = {};
      pixel = sample.low;
    }
    weight += 1 - sample.fraction;
    next_weight += sample.fraction;
    if (kSlopes && sample.moves) {
      const BoxSlopes<C> motion = MotionOf(axis, sample);
      slopes.low -= motion.low;
      slopes.high -= motion.high;
      next_slopes.low += motion.low;
      next_slopes.high += motion.high;
    }
  });
  if (pixel >= 0) {
    emit(pixel, weight, slopes);
    emit(pixel + 1, next_weight, next_slopes);
  }
}

// A box's axes on its feature map.
template <typename C>
struct Roi {
  bool valid;     // as ScaledBox; false on a map without pixels, too
  int32_t level;  // of a feature pyramid; 0 on a single map
  int64_t image;
  RoiAxis<C> y, x;
};

template <typename C>
TFO_HOST_DEVICE static inline Roi<C> SampledRoi(const ScaledBox<C>& box,
                                                C spatial_scale, int64_t height,
                                                int64_t width,
                                                const PoolGrid& grid,
                                                const RoiSampling& sampling) {
  Roi<C> roi = {};
  roi.valid = box.valid && height > 0 && width > 0;
  if (!roi.valid) return roi;
  roi.image = box.image;
  roi.y =
      SampledAxis(box.y1, box.y2, spatial_scale, height, grid.height, sampling);
  roi.x =
      SampledAxis(box.x1, box.x2, spatial_scale, width, grid.width, sampling);
  return roi;
}
template <typename C>
TFO_HOST_DEVICE static inline Roi<C> PixelRoi(const ScaledBox<C>& box,
                                              int64_t height, int64_t width,
                                              const PoolGrid& grid) {
  Roi<C> roi = {};
  roi.valid = box.valid && height > 0 && width > 0;
  if (!roi.valid) return roi;
  roi.image = box.image;
  roi.y = PixelAxis(box.y1, box.y2, height, grid.height);
  roi.x = PixelAxis(box.x1, box.x2, width, grid.width);
  return roi;
}

}  // namespace tfo

#endif  // TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_ROI_AXIS_H_
