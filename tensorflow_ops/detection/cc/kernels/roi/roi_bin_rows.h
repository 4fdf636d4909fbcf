// The rows of boxes' bins on the host, and the order in which they are visited.
#ifndef TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_ROI_BIN_ROWS_H_
#define TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_ROI_BIN_ROWS_H_

#include <algorithm>
#include <cstdint>
#include <tuple>
#include <vector>

#include "tensorflow_ops/detection/cc/kernels/roi/roi_box.h"

namespace tfo {

// A row of a box's bins, and the rows of pixels that they read.
struct BinRow {
  int64_t box;
  int32_t p, image;
  PixelRange rows;
};

// Sorts from the top of the first image down: neighbors find each other's
// pixels in the cache, since a row of bins is a few pixels high and boxes are
// not.
inline void SortDownward(std::vector<BinRow>& bin_rows) {
  std::sort(bin_rows.begin(), bin_rows.end(),
            [](const BinRow& a, const BinRow& b) {
              return std::tie(a.image, a.rows.begin, a.box, a.p) <
                     std::tie(b.image, b.rows.begin, b.box, b.p);
            });
}

}  // namespace tfo

#endif  // TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_ROI_BIN_ROWS_H_
