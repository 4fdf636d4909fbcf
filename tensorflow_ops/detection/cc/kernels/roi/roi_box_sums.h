// Gradients to boxes on the host, summed from the results of units of work.
#ifndef TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_ROI_BOX_SUMS_H_
#define TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_ROI_BOX_SUMS_H_

#include <vector>

#include "tensorflow_ops/detection/cc/kernels/roi/roi_box.h"

namespace tfo {

// The parts of a box: part i of box k is k * box_step + i * step.
struct BoxParts {
  int64_t count, box_step, step;
};

// Writes d_boxes, the sums of each box's `parts`, which are (y1, x1, y2, x2).
template <typename C>
void SumBoxParts(const Boxes<C>& boxes, const std::vector<double>& parts,
                 const BoxParts& of, C* d_boxes) {
  for (int64_t k = 0; k < boxes.count; ++k) {
    double sums[4] = {};
    for (int64_t i = 0; i < of.count; ++i) {
      for (int j = 0; j < 4; ++j) {
        sums[j] += parts[4 * (k * of.box_step + i * of.step) + j];
      }
    }
    for (int j = 0; j < 4; ++j) {
      // In xyxy, each corner's coordinates change places.
      d_boxes[4 * k + (boxes.yxyx ? j : j ^ 1)] = static_cast<C>(sums[j]);
    }
  }
}

}  // namespace tfo

#endif  // TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_ROI_BOX_SUMS_H_
