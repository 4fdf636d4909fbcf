// box_iou_loss on the CPU: a vector of pairs at a time.
#include <algorithm>

#include "tensorflow_ops/core/cc/simd/cpu_dispatch.h"
#include "tensorflow_ops/core/cc/simd/math_simd.h"
#include "tensorflow_ops/detection/cc/kernels/boxes/box_iou.h"
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

// Calls whole(kMetric as a Constant, at) for vectors of pairs from pair `at`
// on, and last(kMetric, at, n) for n pairs that fill less than one.
template <typename C, typename Whole, typename Last>
void ForPairs(const Cpu& cpu, const BoxIouLossSpec& spec, double cycles,
              const Whole& whole, const Last& last) {
  // Pairs of a task; a multiple of every vector's lanes.
  constexpr int64_t kPairs = 512;
  constexpr int kCount = Lanes<C>::kCount;
  cpu.ParallelFor((spec.count + kPairs - 1) / kPairs, cycles * kPairs,
                  [&](int64_t begin, int64_t end) {
                    WithMetric(spec.metric, [&](auto metric) {
                      const int64_t stop = std::min(end * kPairs, spec.count);
                      int64_t at = begin * kPairs;
                      for (; at + kCount <= stop; at += kCount) {
                        whole(metric, at);
                      }
                      if (at < stop) last(metric, at, stop - at);
                    });
                  });
}

}  // namespace

template <typename C>
Error BoxIouLoss(const Cpu& cpu, const BoxIouLossArgs<C>& args) {
  const BoxIouLossArgs<C> a = args;  // a copy, which stores cannot change
  const bool yxyx = a.format == BoxFormat::kYxyx;
  ForPairs<C>(
      cpu, a, /*cycles=*/8,
      [=](auto metric, int64_t at) {
        constexpr auto kMetric = static_cast<BoxMetric>(metric.kValue);
        Store(LossOf<kMetric>(LoadBoxes(a.boxes1 + 4 * at, yxyx),
                              LoadBoxes(a.boxes2 + 4 * at, yxyx)),
              a.loss + at);
      },
      [=](auto metric, int64_t at, int64_t n) {
        constexpr auto kMetric = static_cast<BoxMetric>(metric.kValue);
        StoreFirst(LossOf<kMetric>(LoadFirstBoxes(a.boxes1 + 4 * at, n, yxyx),
                                   LoadFirstBoxes(a.boxes2 + 4 * at, n, yxyx)),
                   a.loss + at, n);
      });
  return nullptr;
}

template <typename C>
Error BoxIouLossGrad(const Cpu& cpu, const BoxIouLossGradArgs<C>& args) {
  const BoxIouLossGradArgs<C> a = args;  // a copy, which stores cannot change
  const bool yxyx = a.format == BoxFormat::kYxyx;
  ForPairs<C>(
      cpu, a, /*cycles=*/16,
      [=](auto metric, int64_t at) {
        constexpr auto kMetric = static_cast<BoxMetric>(metric.kValue);
        const auto grad = GradOfLoss<kMetric>(
            LoadBoxes(a.boxes1 + 4 * at, yxyx),
            LoadBoxes(a.boxes2 + 4 * at, yxyx), Load(a.d_loss + at));
        StoreBoxes(grad.a, yxyx, a.d_boxes1 + 4 * at);
        StoreBoxes(grad.b, yxyx, a.d_boxes2 + 4 * at);
      },
      [=](auto metric, int64_t at, int64_t n) {
        constexpr auto kMetric = static_cast<BoxMetric>(metric.kValue);
        const auto grad =
            GradOfLoss<kMetric>(LoadFirstBoxes(a.boxes1 + 4 * at, n, yxyx),
                                LoadFirstBoxes(a.boxes2 + 4 * at, n, yxyx),
                                LoadFirst(a.d_loss + at, n));
        StoreFirstBoxes(grad.a, n, yxyx, a.d_boxes1 + 4 * at);
        StoreFirstBoxes(grad.b, n, yxyx, a.d_boxes2 + 4 * at);
      });
  return nullptr;
}

}  // namespace TFO_CPU_NAMESPACE

TFO_INSTANTIATE_WIDE_ALGORITHM_PER_LEVEL(BoxIouLoss, BoxIouLossArgs);
TFO_INSTANTIATE_WIDE_ALGORITHM_PER_LEVEL(BoxIouLossGrad, BoxIouLossGradArgs);

}  // namespace tfo
