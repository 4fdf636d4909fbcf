// The order in which suppression takes boxes: falling scores, equal scores by
// rising index. Scores become whole numbers, so that all devices and floating-
// point modes have one order.
#ifndef TENSORFLOW_OPS_DETECTION_CC_KERNELS_NMS_NMS_ORDER_H_
#define TENSORFLOW_OPS_DETECTION_CC_KERNELS_NMS_NMS_ORDER_H_

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "tensorflow_ops/core/cc/float16.h"

namespace tfo {

// Descends as the score, a float or double, rises. 0 and -0 have the same key.
template <typename T>
using ScoreKey = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;

// The key of NaN only.
template <typename T>
TFO_HOST_DEVICE constexpr ScoreKey<T> NoScore() {
  return static_cast<ScoreKey<T>>(-1);
}

template <typename T>
TFO_HOST_DEVICE static inline ScoreKey<T> KeyOfScore(T score) {
  using Key = ScoreKey<T>;
  constexpr Key kSign = Key{1} << (8 * sizeof(Key) - 1);
  constexpr Key kInfinity =
      sizeof(Key) == 4 ? Key{0x7F800000} : static_cast<Key>(0x7FF0000000000000);
  Key bits;
  memcpy(&bits, &score, sizeof(bits));
  const Key magnitude = bits & ~kSign;
  if (magnitude > kInfinity) return NoScore<T>();
  return bits > kSign ? bits : ~magnitude & ~kSign;
}

// Scores above the threshold have smaller keys; NaN: all scores have.
template <typename T>
TFO_HOST_DEVICE static inline ScoreKey<T> KeyOfThreshold(T threshold) {
  return KeyOfScore(threshold);
}

template <typename Key>
struct Ranked {
  Key key;
  int32_t index;
};

// Sorts by key; items of equal keys stay in their order. Returns `items` or
// `buffer`, whichever holds the result; both have n items. Key is uint32_t or
// uint64_t.
template <typename Key>
Ranked<Key>* SortByKey(Ranked<Key>* items, Ranked<Key>* buffer, int64_t n);

}  // namespace tfo

#endif  // TENSORFLOW_OPS_DETECTION_CC_KERNELS_NMS_NMS_ORDER_H_
