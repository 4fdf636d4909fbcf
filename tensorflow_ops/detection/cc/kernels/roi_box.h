// What the region pooling ops share: their sizes, and a box read from memory.
// Host and device read boxes with the same functions.
#ifndef TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_BOX_H_
#define TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_BOX_H_

#include <cmath>
#include <cstdint>

#include "tensorflow_ops/core/cc/float16.h"

namespace tfo {

struct RoiArgs {
  int64_t batch, height, width, channels;  // of features
  int64_t num_boxes;  // boxes [num_boxes, 4], in pixels of the input image
  int64_t pooled_height, pooled_width;  // bins; each at most 2^20
  float spatial_scale;  // feature pixels per image pixel; positive, finite
  bool channels_first;  // features [N,C,H,W], output [K,C,ph,pw]; else NHWC
  bool yxyx;            // a box is (y1,x1,y2,x2); else (x1,y1,x2,y2)
};

// Boxes are float, or double with double features.
template <typename T>
using Coordinate = Accumulator<T>;

// Device compilers join a product and a sum into one rounding; not here.
TFO_HOST_DEVICE static inline float Product(float a, float b) {
#ifdef __CUDA_ARCH__
  return __fmul_rn(a, b);
#else
  return a * b;
#endif
}
TFO_HOST_DEVICE static inline double Product(double a, double b) {
#ifdef __CUDA_ARCH__
  return __dmul_rn(a, b);
#else
  return a * b;
#endif
}

// A box in feature pixels.
template <typename C>
struct ScaledBox {
  // False: the box names no image, or is inverted or not finite. It pools zeros
  // and has no gradient.
  bool valid;
  int64_t image;
  C y1, x1, y2, x2;
};

template <typename C>
TFO_HOST_DEVICE static inline ScaledBox<C> ReadBox(const RoiArgs& args,
                                                   const C* boxes,
                                                   const int32_t* box_indices,
                                                   int64_t k) {
  const C* b = boxes + 4 * k;
  const C y1 = b[args.yxyx ? 0 : 1], x1 = b[args.yxyx ? 1 : 0];
  const C y2 = b[args.yxyx ? 2 : 3], x2 = b[args.yxyx ? 3 : 2];
  const C scale = args.spatial_scale;
  ScaledBox<C> box;
  box.image = box_indices[k];
  // A comparison with NaN is false; an infinite number less itself is NaN.
  box.valid = 0 <= box.image && box.image < args.batch && x1 <= x2 &&
              y1 <= y2 && x1 - x1 == 0 && x2 - x2 == 0 && y1 - y1 == 0 &&
              y2 - y2 == 0;
  box.y1 = Product(y1, scale);
  box.x1 = Product(x1, scale);
  box.y2 = Product(y2, scale);
  box.x2 = Product(x2, scale);
  return box;
}

// Pixels [begin, end) of one axis.
struct PixelRange {
  int32_t begin, end;
  TFO_HOST_DEVICE bool empty() const { return end <= begin; }
};

TFO_HOST_DEVICE static inline bool Meet(PixelRange a, PixelRange b) {
  return a.begin < b.end && b.begin < a.end;
}

}  // namespace tfo

#endif  // TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_BOX_H_
