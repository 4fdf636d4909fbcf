// Views of features and of pooled features, and what the inner loops on the CPU
// (*_simd.h) take of them.
#ifndef TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_ROI_VIEWS_H_
#define TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_ROI_VIEWS_H_

#include <cstdint>

namespace tfo {

// An image, NHWC, from some channel on: [.., width, channels].
template <typename T>
struct ImageView {
  T* data;
  int64_t width, channels;
};

// A row of pixels or of bins, NHWC, from some channel on: [.., channels].
template <typename T>
struct RowView {
  T* data;
  int64_t channels;
};

// A channel of an image, NCHW: [.., width]. From `data` on, memory has
// `readable` elements.
template <typename T>
struct PlaneView {
  T* data;
  int64_t width, readable;
};

// A value in each channel, `step` elements apart.
template <typename T>
struct ChannelView {
  T* data;
  int64_t step;
};

}  // namespace tfo

#endif  // TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_ROI_VIEWS_H_
