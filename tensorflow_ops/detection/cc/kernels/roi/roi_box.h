// Shared by the region pooling ops: the shape of features, boxes as views of
// memory, the grid of bins. Host and device read boxes with the same functions.
#ifndef TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_ROI_BOX_H_
#define TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_ROI_BOX_H_

#include <cmath>
#include <cstdint>

#include "tensorflow_ops/core/cc/float16.h"

namespace tfo {

// The distance between neighboring images, rows and columns, in elements.
// Channels are contiguous.
struct FeatureStrides {
  int64_t image, row, column;
};

// Features [batch, height, width, channels]. Pooled features have such a shape,
// too: an image per box, a pixel per bin.
struct FeatureShape {
  int64_t batch, height, width, channels;

  TFO_HOST_DEVICE int64_t ImageSize() const {
    return height * width * channels;
  }
  TFO_HOST_DEVICE int64_t Size() const { return batch * ImageSize(); }
  TFO_HOST_DEVICE FeatureStrides Strides() const {
    return {ImageSize(), width * channels, channels};
  }
  TFO_HOST_DEVICE int64_t Offset(int64_t image, int64_t y, int64_t x,
                                 int64_t channel) const {
    return ((image * height + y) * width + x) * channels + channel;
  }
};

// The bins of a box on each axis, at most 2^20.
struct PoolGrid {
  int64_t height, width;
};

// The sizes of an op that pools boxes of one feature map.
struct RoiSpec {
  FeatureShape map;
  float spatial_scale;  // feature pixels per image pixel; positive, finite
  PoolGrid grid;

  TFO_HOST_DEVICE FeatureShape Pooled(int64_t num_boxes) const {
    return {num_boxes, grid.height, grid.width, map.channels};
  }
};

// Boxes are float, or double with double features.
template <typename T>
using Coordinate = Accumulator<T>;

// Boxes in memory, in pixels of the input image.
template <typename C>
struct Boxes {
  int64_t count;
  bool yxyx;              // a box is (y1,x1,y2,x2); else (x1,y1,x2,y2)
  const C* data;          // [count, 4]
  const int32_t* images;  // [count], an image of the features each
};

// A box in feature pixels.
template <typename C>
struct ScaledBox {
  // False if the image index is out of range, or the box is inverted or not
  // finite. Such a box pools zeros and has no gradient.
  bool valid;
  int64_t image;
  C y1, x1, y2, x2;
};

template <typename C>
TFO_HOST_DEVICE static inline ScaledBox<C> ReadBox(const Boxes<C>& boxes,
                                                   int64_t k, int64_t batch,
                                                   float spatial_scale) {
  const C* b = boxes.data + 4 * k;
  const C y1 = b[boxes.yxyx ? 0 : 1], x1 = b[boxes.yxyx ? 1 : 0];
  const C y2 = b[boxes.yxyx ? 2 : 3], x2 = b[boxes.yxyx ? 3 : 2];
  const C scale = spatial_scale;
  ScaledBox<C> box;
  box.image = boxes.images[k];
  // Comparisons with NaN are false; infinity minus itself is NaN.
  box.valid = 0 <= box.image && box.image < batch && x1 <= x2 && y1 <= y2 &&
              x1 - x1 == 0 && x2 - x2 == 0 && y1 - y1 == 0 && y2 - y2 == 0;
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

TFO_HOST_DEVICE static inline bool Overlap(PixelRange a, PixelRange b) {
  return a.begin < b.end && b.begin < a.end;
}

}  // namespace tfo

#endif  // TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_ROI_BOX_H_
