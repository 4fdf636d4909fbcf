// The rows of boxes' bins on the host, and the order in which they are gone
// through.
#ifndef TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_BIN_ROWS_H_
#define TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_BIN_ROWS_H_

#include <algorithm>
#include <tuple>
#include <vector>

#include "tensorflow_ops/detection/cc/kernels/roi_box.h"

namespace tfo {

// A row of a box's bins, and the rows of pixels that it looks at.
struct BinRow {
  int64_t box;
  int32_t p, image;
  PixelRange rows;
};

// All bin rows, from the top of the first image down: what one read, the next
// ones find in the cache, since a row of bins is a few pixels high and boxes
// are not. for_each(add) calls add(row) for each.
template <typename ForEach>
std::vector<BinRow> BinRowsDownward(const RoiArgs& args,
                                    const ForEach& for_each) {
  std::vector<BinRow> result;
  result.reserve(args.num_boxes * args.pooled_height);
  for_each([&](const BinRow& row) { result.push_back(row); });
  std::sort(result.begin(), result.end(), [](const BinRow& a, const BinRow& b) {
    return std::tie(a.image, a.rows.begin, a.box, a.p) <
           std::tie(b.image, b.rows.begin, b.box, b.p);
  });
  return result;
}

}  // namespace tfo

#endif  // TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_BIN_ROWS_H_
