// Sizes and options of the grid_sample kernels. For host and device.
#ifndef TENSORFLOW_OPS_IMAGE_CC_KERNELS_GRID_SAMPLE_GRID_SAMPLE_ARGS_H_
#define TENSORFLOW_OPS_IMAGE_CC_KERNELS_GRID_SAMPLE_GRID_SAMPLE_ARGS_H_

#include <cstdint>

#include "tensorflow_ops/core/cc/float16.h"

namespace tfo {

enum class SampleMode { kBilinear, kNearest, kBicubic };
enum class SamplePadding {
  kZeros,
  kBorder,
  kReflection,
  kConstant,
  kWrap,
  kGridWrap
};
enum class SampleCoordinates {
  kNormalized,  // (x, y); -1 and 1 are the image's ends
  kPixels,      // (x, y); 0 is the centre of the first pixel
  kFlow,        // (y, x); subtracted from the sample's own position
  kIndices,     // (y, x); pixels, by SciPy's rules
};
// Whether y comes first in a pair.
TFO_HOST_DEVICE static inline bool YIsFirst(SampleCoordinates coordinates) {
  return coordinates == SampleCoordinates::kFlow ||
         coordinates == SampleCoordinates::kIndices;
}

// Height and width are in [1, kMaxSampledSide], their product is at most
// kMaxSampledPixels.
inline constexpr int64_t kMaxSampledSide = int64_t{1} << 30;
inline constexpr int64_t kMaxSampledPixels = (int64_t{1} << 31) - 1;

struct GridSampleSpec {
  SampleMode mode;
  SamplePadding padding;
  SampleCoordinates coordinates;
  bool align_corners;
  double fill_value;  // of pixels outside
  int64_t batch, height, width, channels;
  int64_t samples;       // of an image
  int64_t flow_columns;  // kFlow: samples of a row

  TFO_HOST_DEVICE int64_t Pixels() const { return height * width; }
};

// Taps on each axis: the pixels that a sample is a weighted sum of.
TFO_HOST_DEVICE static inline int TapsOnAxis(SampleMode mode) {
  return mode == SampleMode::kNearest    ? 1
         : mode == SampleMode::kBilinear ? 2
                                         : 4;
}

// One axis of the image, as formulas read it.
template <typename C>
struct ImageAxis {
  SampleMode mode;
  SamplePadding padding;
  SampleCoordinates coordinates;
  bool align_corners;
  bool fills;  // are pixels outside not 0?
  int32_t size;
  C scale;  // how a place moves with its coordinate, in pixels
};

template <typename C>
TFO_HOST_DEVICE static inline ImageAxis<C> AxisOf(const GridSampleSpec& args,
                                                  int64_t size) {
  ImageAxis<C> axis = {args.mode,
                       args.padding,
                       args.coordinates,
                       args.align_corners,
                       args.fill_value != 0,
                       static_cast<int32_t>(size),
                       1};
  if (args.coordinates == SampleCoordinates::kFlow) axis.scale = -1;
  if (args.coordinates == SampleCoordinates::kNormalized) {
    axis.scale = static_cast<C>(args.align_corners ? size - 1 : size) / 2;
  }
  return axis;
}

}  // namespace tfo

#endif  // TENSORFLOW_OPS_IMAGE_CC_KERNELS_GRID_SAMPLE_GRID_SAMPLE_ARGS_H_
