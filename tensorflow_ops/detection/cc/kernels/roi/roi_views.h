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

}  // namespace tfo

#endif  // TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_ROI_VIEWS_H_
