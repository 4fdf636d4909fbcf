// Non-maximum suppression in each class of each image, and the best boxes of
// the image over all classes.
#ifndef TENSORFLOW_OPS_DETECTION_CC_KERNELS_NMS_MULTICLASS_NMS_H_
#define TENSORFLOW_OPS_DETECTION_CC_KERNELS_NMS_MULTICLASS_NMS_H_

#include <cstdint>

#include "tensorflow_ops/core/cc/device.h"
#include "tensorflow_ops/detection/cc/kernels/boxes/box.h"

namespace tfo {

// T is float or double, also in the functions below.
template <typename T>
struct MulticlassNmsArgs {
  int64_t images, num_boxes, classes;  // num_boxes * classes is below 2^31
  BoxFormat format;
  bool boxes_per_class;
  const T* boxes;       // [images, num_boxes, (classes,) BoxSize(format)]
  const T* scores;      // [images, num_boxes, classes]
  T iou_threshold;      // in [0, 1]
  T score_threshold;    // only scores above it take part; NaN: all
  int64_t max_outputs;  // of an image
  int64_t max_outputs_per_class;  // negative: no limit
  // The results: [images, max_outputs], except counts [images]. Entries beyond
  // an image's count are -1 in `indices`, 0 in the others.
  int32_t *indices, *class_ids;
  int32_t* positions;  // index * classes + class id
  int32_t* counts;

  const T* BoxesOf(int64_t image) const {
    return boxes + image * num_boxes * (boxes_per_class ? classes : 1) *
                       BoxSize(format);
  }
  // The box of a score; both are indices within the image.
  TFO_HOST_DEVICE int64_t BoxOf(int64_t position) const {
    return boxes_per_class ? position : position / classes;
  }
  // The most boxes of one class that an image can return.
  TFO_HOST_DEVICE int64_t MostPerClass() const {
    const int64_t most =
        max_outputs_per_class < 0 || max_outputs_per_class > max_outputs
            ? max_outputs
            : max_outputs_per_class;
    return most < num_boxes ? most : num_boxes;
  }
};

// Writes all of the results: for each image the boxes that nms.h's suppression
// keeps in each class, at most max_outputs_per_class, and of these the best
// max_outputs; equal scores by rising position. gpu.scratch has
// MulticlassNmsScratchBytes.
template <typename T>
Error MulticlassNms(const Cpu& cpu, const MulticlassNmsArgs<T>& args);
template <typename T>
Error MulticlassNms(const Gpu& gpu, const MulticlassNmsArgs<T>& args);
template <typename T>
int64_t MulticlassNmsScratchBytes(const MulticlassNmsArgs<T>& args);

}  // namespace tfo

#endif  // TENSORFLOW_OPS_DETECTION_CC_KERNELS_NMS_MULTICLASS_NMS_H_
