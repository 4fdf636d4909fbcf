// Reads and writes boxes [n, 4] as vectors of their coordinates. Only *_simd.cc
// files include this header.
#ifndef TENSORFLOW_OPS_DETECTION_CC_KERNELS_BOXES_BOX_LANES_SIMD_H_
#define TENSORFLOW_OPS_DETECTION_CC_KERNELS_BOXES_BOX_LANES_SIMD_H_

#include "tensorflow_ops/core/cc/simd/simd.h"
#include "tensorflow_ops/detection/cc/kernels/boxes/box_metric.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {

// Calls body(kMetric as a Constant).
template <typename Body>
static TFO_INLINE void WithMetric(BoxMetric metric, const Body& body) {
  switch (metric) {
    case BoxMetric::kIou:
      return body(Constant<static_cast<int>(BoxMetric::kIou)>());
    case BoxMetric::kGiou:
      return body(Constant<static_cast<int>(BoxMetric::kGiou)>());
    case BoxMetric::kDiou:
      return body(Constant<static_cast<int>(BoxMetric::kDiou)>());
    case BoxMetric::kCiou:
      return body(Constant<static_cast<int>(BoxMetric::kCiou)>());
  }
}

// The next Lanes<C>::kCount boxes.
template <typename C>
static TFO_INLINE Box<typename Lanes<C>::Vector> LoadBoxes(const C* from,
                                                           bool yxyx) {
  constexpr int kCount = Lanes<C>::kCount;
  const auto v0 = Load(from), v1 = Load(from + kCount);
  const auto v2 = Load(from + 2 * kCount), v3 = Load(from + 3 * kCount);
  const auto first01 = EvenLanes(v0, v1);
  const auto second01 = OddLanes(v0, v1);
  const auto first23 = EvenLanes(v2, v3);
  const auto second23 = OddLanes(v2, v3);
  const auto a = EvenLanes(first01, first23);
  const auto b = EvenLanes(second01, second23);
  const auto c = OddLanes(first01, first23);
  const auto d = OddLanes(second01, second23);
  if (yxyx) return {b, a, d, c};
  return {a, b, c, d};
}

template <typename C>
static TFO_INLINE void StoreBoxes(const Box<typename Lanes<C>::Vector>& box,
                                  bool yxyx, C* to) {
  constexpr int kCount = Lanes<C>::kCount;
  const auto a = yxyx ? box.y1 : box.x1, b = yxyx ? box.x1 : box.y1;
  const auto c = yxyx ? box.y2 : box.x2, d = yxyx ? box.x2 : box.y2;
  const auto ac_low = InterleaveLow(a, c);
  const auto ac_high = InterleaveHigh(a, c);
  const auto bd_low = InterleaveLow(b, d);
  const auto bd_high = InterleaveHigh(b, d);
  Store(InterleaveLow(ac_low, bd_low), to);
  Store(InterleaveHigh(ac_low, bd_low), to + kCount);
  Store(InterleaveLow(ac_high, bd_high), to + 2 * kCount);
  Store(InterleaveHigh(ac_high, bd_high), to + 3 * kCount);
}

// The first n < Lanes<C>::kCount boxes; zeros in the other lanes.
template <typename C>
static TFO_INLINE Box<typename Lanes<C>::Vector> LoadFirstBoxes(const C* from,
                                                                int64_t n,
                                                                bool yxyx) {
  C padded[4 * Lanes<C>::kCount] = {};
  memcpy(padded, from, 4 * n * sizeof(C));
  return LoadBoxes(padded, yxyx);
}
template <typename C>
static TFO_INLINE void StoreFirstBoxes(
    const Box<typename Lanes<C>::Vector>& box, int64_t n, bool yxyx, C* to) {
  C padded[4 * Lanes<C>::kCount];
  StoreBoxes(box, yxyx, padded);
  memcpy(to, padded, 4 * n * sizeof(C));
}

}  // namespace TFO_CPU_NAMESPACE
}  // namespace tfo

#endif  // TENSORFLOW_OPS_DETECTION_CC_KERNELS_BOXES_BOX_LANES_SIMD_H_
