// Gradients to boxes on the host, put together from what threads summed.
#ifndef TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_BOX_SUMS_H_
#define TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_BOX_SUMS_H_

#include <vector>

#include "tensorflow_ops/detection/cc/kernels/roi_box.h"

namespace tfo {

// Writes d_boxes from `parts` of them, each (y1, x1, y2, x2): those of box k
// begin at k * of_box, `step` apart.
template <typename C>
void SumParts(const RoiArgs& args, const std::vector<double>& parts,
              int64_t of_box, int64_t step, int64_t count, C* d_boxes) {
  for (int64_t k = 0; k < args.num_boxes; ++k) {
    double sums[4] = {};
    for (int64_t i = 0; i < count; ++i) {
      for (int j = 0; j < 4; ++j) {
        sums[j] += parts[4 * (k * of_box + i * step) + j];
      }
    }
    for (int j = 0; j < 4; ++j) {
      d_boxes[4 * k + (args.yxyx ? j : j ^ 1)] = static_cast<C>(sums[j]);
    }
  }
}

}  // namespace tfo

#endif  // TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_BOX_SUMS_H_
