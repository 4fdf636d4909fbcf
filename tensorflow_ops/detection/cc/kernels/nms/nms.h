// Non-maximum suppression, of all boxes or within groups.
//
// Visits boxes by descending score, equal scores by ascending index, and keeps
// a box unless its IoU with a kept box of its group is above the threshold.
// Boxes without an extent (box.h, rotated_box.h) overlap nothing; others may
// have any size. Boxes with a NaN score are ignored.
#ifndef TENSORFLOW_OPS_DETECTION_CC_KERNELS_NMS_NMS_H_
#define TENSORFLOW_OPS_DETECTION_CC_KERNELS_NMS_NMS_H_

#include <cstdint>

#include "tensorflow_ops/core/cc/device.h"
#include "tensorflow_ops/detection/cc/kernels/boxes/box.h"

namespace tfo {

// The group of each box; both null: all boxes are one group.
struct GroupIds {
  const int32_t* ids32 = nullptr;
  const int64_t* ids64 = nullptr;

  TFO_HOST_DEVICE bool exist() const {
    return ids32 != nullptr || ids64 != nullptr;
  }
  TFO_HOST_DEVICE int64_t operator[](int64_t i) const {
    return ids32 != nullptr ? ids32[i] : ids64[i];
  }
};

// T is float or double, also in the functions below: the type that scores and
// overlaps are compared in.
template <typename T>
struct NmsArgs {
  int64_t num_boxes;  // below 2^31
  BoxFormat format;
  const T* boxes;   // [num_boxes, BoxSize(format)]
  const T* scores;  // [num_boxes]
  GroupIds groups;
  T iou_threshold;      // in [0, 1]
  T score_threshold;    // only scores above it take part; NaN: all
  int64_t max_outputs;  // the most boxes to keep; negative: no limit
  // The results: the indices of the kept boxes, in the order above, with room
  // for num_boxes, and their number.
  int32_t *kept, *count;
};

// The same for any number of threads. gpu.scratch has NmsScratchBytes.
template <typename T>
Error Nms(const Cpu& cpu, const NmsArgs<T>& args);
template <typename T>
Error Nms(const Gpu& gpu, const NmsArgs<T>& args);
template <typename T>
int64_t NmsScratchBytes(const NmsArgs<T>& args);

}  // namespace tfo

#endif  // TENSORFLOW_OPS_DETECTION_CC_KERNELS_NMS_NMS_H_
