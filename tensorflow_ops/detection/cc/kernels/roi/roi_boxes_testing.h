// Boxes for benchmarks of region pooling.
#ifndef TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_ROI_BOXES_TESTING_H_
#define TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_ROI_BOXES_TESTING_H_

#include <algorithm>
#include <cmath>

#include "tensorflow_ops/core/cc/testing/gpu_testing.h"
#include "tensorflow_ops/detection/cc/kernels/roi/roi_box.h"

namespace tfo::testing {

// Boxes with sides from 16 to 160 in an image of 1216 x 800.
template <typename T>
GpuVector<Coordinate<T>> BenchmarkBoxes(int64_t n) {
  const auto random = RandomOnGpu<float>(4 * n, 1);
  GpuVector<Coordinate<T>> boxes;
  for (int64_t i = 0; i < n; ++i) {
    const float x = 608 + 200 * random[4 * i];
    const float y = 400 + 150 * random[4 * i + 1];
    const float w = 16 * std::exp(std::min(2.3f, std::abs(random[4 * i + 2])));
    const float h = 16 * std::exp(std::min(2.3f, std::abs(random[4 * i + 3])));
    for (const float at : {x, y, x + w, y + h}) boxes.push_back(at);
  }
  return boxes;
}

}  // namespace tfo::testing

#endif  // TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_ROI_BOXES_TESTING_H_
