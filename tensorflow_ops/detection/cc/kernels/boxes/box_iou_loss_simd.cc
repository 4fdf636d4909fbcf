// box_iou_loss: a vector of pairs at a time.
#include "tensorflow_ops/core/cc/math_simd.h"
#include "tensorflow_ops/detection/cc/kernels/boxes/box_iou_simd.h"
#include "tensorflow_ops/detection/cc/kernels/boxes/box_lanes_simd.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {
namespace {

template <typename V>
TFO_INLINE MeasuredBox<V> Measure(const Box<V>& box) {
  return {box, AreaOrNan(box), V{}};
}

// The loss of a vector of pairs.
template <BoxMetric kMetric, typename V>
TFO_INLINE V LossOf(const Box<V>& a, const Box<V>& b) {
  V angle{};
  if constexpr (kMetric == BoxMetric::kCiou) angle = AngleBetween(a, b);
  return ScalarOf<V>(1) - MetricOf<kMetric>(Measure(a), Measure(b), angle);
}

template <BoxMetric kMetric, typename V>
TFO_INLINE BoxPair<V> GradOfLoss(const Box<V>& a, const Box<V>& b, V d_loss) {
  V angle{};
  if constexpr (kMetric == BoxMetric::kCiou) angle = AngleBetween(a, b);
  return GradOfMetric<kMetric>(Measure(a), Measure(b), angle, -d_loss);
}

}  // namespace

template <typename C>
void IouLoss(const BoxPairs<C>& pairs, C* loss) {
  constexpr int kCount = Lanes<C>::kCount;
  const BoxPairs<C> p = pairs;  // a copy, which stores cannot change
  WithMetric(p.metric, [&](auto constant) {
    constexpr auto kMetric = static_cast<BoxMetric>(constant.kValue);
    int64_t at = 0;
    for (; at + kCount <= p.count; at += kCount) {
      Store(LossOf<kMetric>(LoadBoxes(p.boxes1 + 4 * at, p.yxyx),
                            LoadBoxes(p.boxes2 + 4 * at, p.yxyx)),
            loss + at);
    }
    if (at == p.count) return;
    const int64_t n = p.count - at;
    StoreFirst(LossOf<kMetric>(LoadFirstBoxes(p.boxes1 + 4 * at, n, p.yxyx),
                               LoadFirstBoxes(p.boxes2 + 4 * at, n, p.yxyx)),
               loss + at, n);
  });
}

template <typename C>
void IouLossGrad(const BoxPairs<C>& pairs, const C* d_loss, C* d_boxes1,
                 C* d_boxes2) {
  constexpr int kCount = Lanes<C>::kCount;
  const BoxPairs<C> p = pairs;  // a copy, which stores cannot change
  WithMetric(p.metric, [&](auto constant) {
    constexpr auto kMetric = static_cast<BoxMetric>(constant.kValue);
    int64_t at = 0;
    for (; at + kCount <= p.count; at += kCount) {
      const auto grad = GradOfLoss<kMetric>(
          LoadBoxes(p.boxes1 + 4 * at, p.yxyx),
          LoadBoxes(p.boxes2 + 4 * at, p.yxyx), Load(d_loss + at));
      StoreBoxes(grad.a, p.yxyx, d_boxes1 + 4 * at);
      StoreBoxes(grad.b, p.yxyx, d_boxes2 + 4 * at);
    }
    if (at == p.count) return;
    const int64_t n = p.count - at;
    const auto grad =
        GradOfLoss<kMetric>(LoadFirstBoxes(p.boxes1 + 4 * at, n, p.yxyx),
                            LoadFirstBoxes(p.boxes2 + 4 * at, n, p.yxyx),
                            LoadFirst(d_loss + at, n));
    StoreFirstBoxes(grad.a, n, p.yxyx, d_boxes1 + 4 * at);
    StoreFirstBoxes(grad.b, n, p.yxyx, d_boxes2 + 4 * at);
  });
}

TFO_INSTANTIATE_WIDE_FUNCTION(IouLoss);
TFO_INSTANTIATE_WIDE_FUNCTION(IouLossGrad);

}  // namespace TFO_CPU_NAMESPACE
}  // namespace tfo
