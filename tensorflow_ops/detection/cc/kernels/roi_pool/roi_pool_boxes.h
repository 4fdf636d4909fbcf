// The boxes of roi_pool on the host, and their rows of bins.
#ifndef TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_POOL_ROI_POOL_BOXES_H_
#define TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_POOL_ROI_POOL_BOXES_H_

#include <vector>

#include "tensorflow_ops/detection/cc/kernels/roi/roi_bin_rows.h"
#include "tensorflow_ops/detection/cc/kernels/roi/roi_pool_bins.h"

namespace tfo {

template <typename C>
std::vector<PooledBox> ReadPooledBoxes(const RoiSpec& args,
                                       const Boxes<C>& boxes) {
  std::vector<PooledBox> result(boxes.count);
  for (int64_t k = 0; k < boxes.count; ++k) {
    result[k] = ReadPooledBox(args, boxes, k);
  }
  return result;
}

inline std::vector<BinRow> PooledBinRows(const RoiSpec& args,
                                         const std::vector<PooledBox>& boxes) {
  std::vector<BinRow> result;
  result.reserve(boxes.size() * args.grid.height);
  for (size_t k = 0; k < boxes.size(); ++k) {
    for (int32_t p = 0; p < args.grid.height; ++p) {
      result.push_back({static_cast<int64_t>(k), p,
                        static_cast<int32_t>(boxes[k].image),
                        BinRows(args, boxes[k], p)});
    }
  }
  SortDownward(result);
  return result;
}

}  // namespace tfo

#endif  // TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_POOL_ROI_POOL_BOXES_H_
