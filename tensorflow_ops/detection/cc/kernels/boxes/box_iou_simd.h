// The inner loops of box_iou and box_iou_loss, compiled once per CPU level.
#ifndef TENSORFLOW_OPS_DETECTION_CC_KERNELS_BOXES_BOX_IOU_SIMD_H_
#define TENSORFLOW_OPS_DETECTION_CC_KERNELS_BOXES_BOX_IOU_SIMD_H_

#include <cstdint>

#include "tensorflow_ops/core/cc/cpu_dispatch.h"
#include "tensorflow_ops/detection/cc/kernels/boxes/box.h"

namespace tfo {

// The most boxes in a tile of pairs: of boxes1 and of boxes2.
inline constexpr int64_t kTileRows = 64, kTileColumns = 512;

// Boxes [count, 4].
template <typename C>
struct BoxRange {
  const C* boxes;
  int64_t count;
};

// Pairs of two ranges; element (row, column) of a matrix of pairs is at row *
// stride + column.
template <typename C>
struct BoxTile {
  BoxMetric metric;
  bool yxyx;
  BoxRange<C> rows, columns;
  int64_t stride;
};

template <typename C>
struct BoxPairs {
  BoxMetric metric;
  bool yxyx;
  const C *boxes1, *boxes2;
  int64_t count;
};

TFO_PER_CPU_LEVEL(
    // Writes the metrics of a tile, past the caches if `streams`.
    template <typename C>
    void IouOfTile(const BoxTile<C>& tile, bool streams, C* iou);

    // Writes the gradient to at most kTileRows rows, summed over any number of
    // columns.
    template <typename C>
    void IouGradToRows(const BoxTile<C>& tile, const C* d_iou, C* d_boxes);

    // Writes the gradient to at most kTileColumns columns, summed over any
    // number of rows.
    template <typename C>
    void IouGradToColumns(const BoxTile<C>& tile, const C* d_iou, C* d_boxes);

    // Write 1 - metric of each pair, and its gradient times d_loss.
    template <typename C> void IouLoss(const BoxPairs<C>& pairs, C* loss);
    template <typename C>
    void IouLossGrad(const BoxPairs<C>& pairs, const C* d_loss, C* d_boxes1,
                     C* d_boxes2);)

}  // namespace tfo

#endif  // TENSORFLOW_OPS_DETECTION_CC_KERNELS_BOXES_BOX_IOU_SIMD_H_
