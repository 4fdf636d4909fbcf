// The boxes of roi_pool on the host, and the order in which their bins are gone
// through.
#ifndef TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_POOL_BIN_ROWS_H_
#define TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_POOL_BIN_ROWS_H_

#include <algorithm>
#include <tuple>
#include <vector>

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

// A row of a box's bins.
struct BinRow {
  int64_t box, p;
  PixelRange rows;
};

// All bin rows, from the top of the first image down: what one read, the next
// ones find in the cache, since a row of bins is a few pixels high and boxes
// are not.
inline std::vector<BinRow> BinRowsDownward(
    const RoiArgs& args, const std::vector<PooledBox>& boxes) {
  std::vector<BinRow> result;
  result.reserve(args.num_boxes * args.pooled_height);
  for (int64_t k = 0; k < args.num_boxes; ++k) {
    for (int64_t p = 0; p < args.pooled_height; ++p) {
      result.push_back(
          {k, p, BinOf(boxes[k].y, p, args.pooled_height, args.height)});
    }
  }
  std::sort(result.begin(), result.end(),
            [&](const BinRow& a, const BinRow& b) {
              return std::tuple(boxes[a.box].image, a.rows.begin, a.box, a.p) <
                     std::tuple(boxes[b.box].image, b.rows.begin, b.box, b.p);
            });
  return result;
}

}  // namespace tfo

#endif  // TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_POOL_BIN_ROWS_H_
