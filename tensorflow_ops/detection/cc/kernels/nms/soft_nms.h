// Soft non-maximum suppression (Bodla et al., arXiv:1704.04503).
//
// Repeatedly takes the box of the best score, the first of equal ones, and
// multiplies the scores of the others by
//   kGaussian: exp(-iou^2 / sigma)
//   kLinear:   1 - iou where iou >= iou_threshold, 1 elsewhere
// until no score is above score_threshold. Boxes without an extent (box.h) have
// an IoU of 0. A NaN score is never taken.
#ifndef TENSORFLOW_OPS_DETECTION_CC_KERNELS_NMS_SOFT_NMS_H_
#define TENSORFLOW_OPS_DETECTION_CC_KERNELS_NMS_SOFT_NMS_H_

#include <cstdint>

#include "tensorflow_ops/core/cc/device.h"
#include "tensorflow_ops/detection/cc/kernels/boxes/box.h"

namespace tfo {

enum class SoftNmsMethod { kGaussian, kLinear };

// T is float or double, also in the functions below.
template <typename T>
struct SoftNmsArgs {
  int64_t num_boxes;  // below 2^31
  BoxFormat format;
  SoftNmsMethod method;
  const T* boxes;       // [num_boxes, BoxSize(format)]
  const T* scores;      // [num_boxes]
  T sigma;              // positive
  T iou_threshold;      // in [0, 1]
  T score_threshold;    // no NaN
  int64_t max_outputs;  // the most boxes to take; negative: no limit
  // The results: the boxes in the order in which they are taken, and their
  // scores then, both with room for num_boxes; and their number.
  int32_t* indices;
  T* taken_scores;
  int32_t* count;
};

// gpu.scratch has SoftNmsScratchBytes.
template <typename T>
Error SoftNms(const Cpu& cpu, const SoftNmsArgs<T>& args);
template <typename T>
Error SoftNms(const Gpu& gpu, const SoftNmsArgs<T>& args);
template <typename T>
int64_t SoftNmsScratchBytes(const SoftNmsArgs<T>& args);

}  // namespace tfo

#endif  // TENSORFLOW_OPS_DETECTION_CC_KERNELS_NMS_SOFT_NMS_H_
