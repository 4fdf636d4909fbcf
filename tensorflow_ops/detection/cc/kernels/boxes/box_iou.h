// Overlap of boxes: for all pairs of two sets, and as a loss for matched pairs.
//
// With w = max(x2 - x1, 0), likewise h: iou = intersection / union, 0 if the
// union is 0. giou = iou - (hull - union) / hull, with the smallest box around
// both, the term 0 for a hull of 0. diou = iou - distance^2 / diagonal^2, of
// the centers and of the hull, the term 0 for a diagonal of 0. ciou = diou -
// alpha v, v = 4 / pi^2 (atan2(w1, h1) - atan2(w2, h2))^2, alpha = v / (1 - iou
// + v), 0 for v = 0.
//
// A pair with a number that is not finite has a metric of NaN and no gradient.
// Finite boxes may have any size: where products of sides overflow or lose
// bits, they are computed again, in other units (box.h).
//
// Gradients: each max and min shares the gradient between equal arguments, and
// alpha counts as constant.
#ifndef TENSORFLOW_OPS_DETECTION_CC_KERNELS_BOXES_BOX_IOU_H_
#define TENSORFLOW_OPS_DETECTION_CC_KERNELS_BOXES_BOX_IOU_H_

#include <cstdint>

#include "tensorflow_ops/core/cc/device.h"
#include "tensorflow_ops/detection/cc/kernels/boxes/box.h"

namespace tfo {

// All pairs of boxes1 [batch, rows, size] and boxes2 [batch, columns, size],
// size being BoxSize(format). kRotated only has kIou, and no gradient.
struct BoxIouSpec {
  BoxMetric metric;
  BoxFormat format;
  int64_t batch, rows, columns;
};

// Pairs box i of boxes1 [count, 4] with box i of boxes2 [count, 4].
struct BoxIouLossSpec {
  BoxMetric metric;
  BoxFormat format;
  int64_t count;
};

// C is float or double.
template <typename C>
struct BoxIouArgs : BoxIouSpec {
  const C *boxes1, *boxes2;
  C* iou;  // [batch, rows, columns]
};
template <typename C>
struct BoxIouGradArgs : BoxIouSpec {
  const C *d_iou, *boxes1, *boxes2;
  C *d_boxes1, *d_boxes2;  // of the boxes' shapes
};
template <typename C>
struct BoxIouLossArgs : BoxIouLossSpec {
  const C *boxes1, *boxes2;
  C* loss;  // [count]
};
template <typename C>
struct BoxIouLossGradArgs : BoxIouLossSpec {
  const C *d_loss, *boxes1, *boxes2;
  C *d_boxes1, *d_boxes2;
};

template <typename C>
Error BoxIou(const Cpu& cpu, const BoxIouArgs<C>& args);
template <typename C>
Error BoxIou(const Gpu& gpu, const BoxIouArgs<C>& args);

template <typename C>
Error BoxIouGrad(const Cpu& cpu, const BoxIouGradArgs<C>& args);
template <typename C>
Error BoxIouGrad(const Gpu& gpu, const BoxIouGradArgs<C>& args);

// The loss is 1 - metric.
template <typename C>
Error BoxIouLoss(const Cpu& cpu, const BoxIouLossArgs<C>& args);
template <typename C>
Error BoxIouLoss(const Gpu& gpu, const BoxIouLossArgs<C>& args);

template <typename C>
Error BoxIouLossGrad(const Cpu& cpu, const BoxIouLossGradArgs<C>& args);
template <typename C>
Error BoxIouLossGrad(const Gpu& gpu, const BoxIouLossGradArgs<C>& args);

}  // namespace tfo

#endif  // TENSORFLOW_OPS_DETECTION_CC_KERNELS_BOXES_BOX_IOU_H_
