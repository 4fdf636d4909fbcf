// The boxes of roi_pool on the host, and their rows of bins.
#ifndef TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_POOL_BIN_ROWS_H_
#define TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_POOL_BIN_ROWS_H_

#include <vector>

#include "tensorflow_ops/detection/cc/kernels/roi_bin_rows.h"
#include "tensorflow_ops/detection/cc/kernels/roi_pool_bins.h"

namespace tfo {

// A box in whole pixels, and the part of it that lies in the image.
struct PooledBox {
  bool valid;
  int64_t image;
  PooledSpan y, x;
  PixelRange rows, columns;
};

template <typename C>
std::vector<PooledBox> ReadBoxes(const RoiArgs& args, const C* boxes,
                                 const int32_t* box_indices) {
  std::vector<PooledBox> result(args.num_boxes);
  for (int64_t k = 0; k < args.num_boxes; ++k) {
    const ScaledBox<C> scaled = ReadBox(args, boxes, box_indices, k);
    PooledBox& box = result[k];
    box = {};
    box.valid = scaled.valid;
    if (!box.valid) continue;
    box.image = scaled.image;
    box.y = SpanOf(scaled.y1, scaled.y2);
    box.x = SpanOf(scaled.x1, scaled.x2);
    box.rows = Clip(box.y, args.height);
    box.columns = Clip(box.x, args.width);
  }
  return result;
}

inline std::vector<BinRow> BinRowsDownward(
    const RoiArgs& args, const std::vector<PooledBox>& boxes) {
  return BinRowsDownward(args, [&](const auto& add) {
    for (int64_t k = 0; k < args.num_boxes; ++k) {
      for (int32_t p = 0; p < args.pooled_height; ++p) {
        add(BinRow{k, p, static_cast<int32_t>(boxes[k].image),
                   BinOf(boxes[k].y, p, args.pooled_height, args.height)});
      }
    }
  });
}

}  // namespace tfo

#endif  // TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_POOL_BIN_ROWS_H_
