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
#include <utility>

#include "tensorflow_ops/core/cc/device.h"
#include "tensorflow_ops/detection/cc/kernels/boxes/box.h"

namespace tfo {

inline constexpr std::pair<const char*, BoxMetric> kBoxMetrics[] = {
    {"iou", BoxMetric::kIou},
    {"giou", BoxMetric::kGiou},
    {"diou", BoxMetric::kDiou},
    {"ciou", BoxMetric::kCiou}};
// Those that have gradients.
inline constexpr std::pair<const char*, BoxFormat> kCornerFormats[] = {
    {"xyxy", BoxFormat::kXyxy}, {"yxyx", BoxFormat::kYxyx}};

// All pairs of boxes1 and boxes2. kRotated only has kIou, and no gradient.
struct BoxIouSpec {
  BoxMetric metric;
  BoxFormat format;
  int64_t batch, rows, columns;
};

template <typename V>
void DescribeSizes(BoxIouSpec& s, V& v) {
  v.Size("...", &s.batch);
  v.Size("boxes1", &s.rows);
  v.Size("boxes2", &s.columns);
}

// C is float or double.
template <typename C>
struct BoxIouArgs : BoxIouSpec {
  const C *boxes1, *boxes2;
  C* iou;
};

template <typename C, typename V>
void Describe(BoxIouArgs<C>& a, V& v) {
  v.Types("T");
  v.Enum("mode", kBoxMetrics, "iou", &a.metric);
  v.Enum("box_format", kBoxFormats, "xyxy", &a.format);
  const bool rotated = a.format == BoxFormat::kRotated;
  v.Check(!rotated || a.metric == BoxMetric::kIou,
          "mode must be iou: box_format is cxcywhr");
  v.In("boxes1", rotated ? "[..., boxes1, 5]" : "[..., boxes1, 4]", &a.boxes1);
  v.In("boxes2",
       rotated ? "[..., boxes2, 5] with boxes1's leading dims"
               : "[..., boxes2, 4] with boxes1's leading dims",
       &a.boxes2);
  DescribeSizes(a, v);
  v.Out("iou", "[..., boxes1, boxes2]", &a.iou);
}

template <typename C>
struct BoxIouGradArgs : BoxIouSpec {
  const C *d_iou, *boxes1, *boxes2;
  C *d_boxes1, *d_boxes2;
};

template <typename C, typename V>
void Describe(BoxIouGradArgs<C>& a, V& v) {
  v.In("d_iou", "[..., boxes1, boxes2]", &a.d_iou);
  v.In("boxes1", "[..., boxes1, 4] with d_iou's dims", &a.boxes1);
  v.In("boxes2", "[..., boxes2, 4] with d_iou's dims", &a.boxes2);
  v.Types("T");
  v.Enum("mode", kBoxMetrics, "iou", &a.metric);
  v.Enum("box_format", kCornerFormats, "xyxy", &a.format);
  DescribeSizes(a, v);
  v.Out("d_boxes1", "[..., boxes1, 4]", &a.d_boxes1);
  v.Out("d_boxes2", "[..., boxes2, 4]", &a.d_boxes2);
}

// Pairs each box of boxes1 with that of boxes2 at its place.
struct BoxIouLossSpec {
  BoxMetric metric;
  BoxFormat format;
  int64_t count;
};

template <typename C, typename V>
void DescribePairs(BoxIouLossSpec& s, const C** boxes1, const C** boxes2,
                   V& v) {
  v.In("boxes1", "[..., 4]", boxes1);
  v.In("boxes2", "[..., 4] with boxes1's leading dims", boxes2);
  v.Types("T");
  v.Enum("mode", kBoxMetrics, "giou", &s.metric);
  v.Enum("box_format", kCornerFormats, "xyxy", &s.format);
  v.Size("...", &s.count);
}

template <typename C>
struct BoxIouLossArgs : BoxIouLossSpec {
  const C *boxes1, *boxes2;
  C* loss;
};

template <typename C, typename V>
void Describe(BoxIouLossArgs<C>& a, V& v) {
  DescribePairs(a, &a.boxes1, &a.boxes2, v);
  v.Out("loss", "[...]", &a.loss);
}

template <typename C>
struct BoxIouLossGradArgs : BoxIouLossSpec {
  const C *d_loss, *boxes1, *boxes2;
  C *d_boxes1, *d_boxes2;
};

template <typename C, typename V>
void Describe(BoxIouLossGradArgs<C>& a, V& v) {
  v.In("d_loss", "[...]", &a.d_loss);
  DescribePairs(a, &a.boxes1, &a.boxes2, v);
  v.Out("d_boxes1", "[..., 4]", &a.d_boxes1);
  v.Out("d_boxes2", "[..., 4]", &a.d_boxes2);
}

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
