// Reads and writes boxes [n, 4] as vectors of their coordinates. Only *_simd.cc
// files include this header.
#ifndef TENSORFLOW_OPS_DETECTION_CC_KERNELS_BOXES_BOX_LANES_SIMD_H_
#define TENSORFLOW_OPS_DETECTION_CC_KERNELS_BOXES_BOX_LANES_SIMD_H_

#include "tensorflow_ops/core/cc/simd.h"
#include "tensorflow_ops/detection/cc/kernels/boxes/box_metric.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {

// Permutations of the lanes of two vectors: index i is lane i of the first, or
// lane i - kCount of the second.
template <typename C>
struct Permutations {
  using Index = typename Lanes<C>::Index;
  static constexpr int kCount = Lanes<C>::kCount;
  Index even, odd, low, high;  // low, high: alternating lanes

  TFO_INLINE Permutations() {
    for (int i = 0; i < kCount; ++i) {
      even[i] = 2 * i;
      odd[i] = 2 * i + 1;
      low[i] = i / 2 + i % 2 * kCount;
      high[i] = low[i] + kCount / 2;
    }
  }
};

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
  const Permutations<C> to;
  const auto v0 = Load(from), v1 = Load(from + kCount);
  const auto v2 = Load(from + 2 * kCount), v3 = Load(from + 3 * kCount);
  const auto first01 = __builtin_shuffle(v0, v1, to.even);
  const auto second01 = __builtin_shuffle(v0, v1, to.odd);
  const auto first23 = __builtin_shuffle(v2, v3, to.even);
  const auto second23 = __builtin_shuffle(v2, v3, to.odd);
  const auto a = __builtin_shuffle(first01, first23, to.even);
  const auto b = __builtin_shuffle(second01, second23, to.even);
  const auto c = __builtin_shuffle(first01, first23, to.odd);
  const auto d = __builtin_shuffle(second01, second23, to.odd);
  if (yxyx) return {b, a, d, c};
  return {a, b, c, d};
}

template <typename C>
static TFO_INLINE void StoreBoxes(const Box<typename Lanes<C>::Vector>& box,
                                  bool yxyx, C* to) {
  constexpr int kCount = Lanes<C>::kCount;
  const Permutations<C> by;
  const auto a = yxyx ? box.y1 : box.x1, b = yxyx ? box.x1 : box.y1;
  const auto c = yxyx ? box.y2 : box.x2, d = yxyx ? box.x2 : box.y2;
  const auto ac_low = __builtin_shuffle(a, c, by.low);
  const auto ac_high = __builtin_shuffle(a, c, by.high);
  const auto bd_low = __builtin_shuffle(b, d, by.low);
  const auto bd_high = __builtin_shuffle(b, d, by.high);
  Store(__builtin_shuffle(ac_low, bd_low, by.low), to);
  Store(__builtin_shuffle(ac_low, bd_low, by.high), to + kCount);
  Store(__builtin_shuffle(ac_high, bd_high, by.low), to + 2 * kCount);
  Store(__builtin_shuffle(ac_high, bd_high, by.high), to + 3 * kCount);
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
