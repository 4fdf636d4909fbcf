// Sizes in whole units, for host and device.
#ifndef TENSORFLOW_OPS_CORE_CC_INT_MATH_H_
#define TENSORFLOW_OPS_CORE_CC_INT_MATH_H_

#include <cstdint>

#include "tensorflow_ops/core/cc/float16.h"

namespace tfo {

// How many groups of `size` hold `count` >= 0 items.
TFO_HOST_DEVICE constexpr int64_t DivideUp(int64_t count, int64_t size) {
  return (count + size - 1) / size;
}

// The least multiple of `size` that is at least `count` >= 0.
TFO_HOST_DEVICE constexpr int64_t RoundUp(int64_t count, int64_t size) {
  return DivideUp(count, size) * size;
}

}  // namespace tfo

#endif  // TENSORFLOW_OPS_CORE_CC_INT_MATH_H_
