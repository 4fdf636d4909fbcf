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

// Rises with the score, whose bits are an Integer or a vector of them. 0 and -0
// are equal; NaN is below all scores.
template <typename Integer, typename Bits>
TFO_HOST_DEVICE static inline Bits OrderOf(Bits score) {
  constexpr int kSign = 8 * sizeof(Integer) - 1;
  constexpr auto kMagnitude =
      static_cast<Integer>(~uint64_t{0} >> (64 - kSign));
  constexpr Integer kInfinity = static_cast<Integer>(
      sizeof(Integer) == 4 ? 0x7F800000 : 0x7FF0000000000000);
  const Bits magnitude = score & kMagnitude;
  const Bits is_negative = score >> kSign;  // -1 or 0
  return magnitude > kInfinity ? Bits{} - kMagnitude - 1
                               : (magnitude ^ is_negative) - is_negative;
}

// Falls as the score, a float or double, rises.
template <typename T>
using ScoreKey = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;

// The key of NaN only, so all scores are above a threshold of NaN.
template <typename T>
TFO_HOST_DEVICE constexpr ScoreKey<T> NoScore() {
  return static_cast<ScoreKey<T>>(-1);
}

template <typename T>
TFO_HOST_DEVICE static inline ScoreKey<T> KeyOfScore(T score) {
  using Integer = std::make_signed_t<ScoreKey<T>>;
  Integer bits;
  memcpy(&bits, &score, sizeof(bits));
  return (NoScore<T>() >> 1) - static_cast<ScoreKey<T>>(OrderOf<Integer>(bits));
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
