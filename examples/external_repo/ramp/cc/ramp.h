// Clips values to [0, limit].
#ifndef RAMP_CC_RAMP_H_
#define RAMP_CC_RAMP_H_

#include <cstdint>

#include "tensorflow_ops/core/cc/device.h"
#include "tensorflow_ops/core/cc/float16.h"

namespace ramp {

struct RampArgs {
  int64_t num_elements;  // of x and y
  float limit;           // at least 0
};

// NaN stays NaN.
template <typename T>
TFO_HOST_DEVICE T RampValue(const RampArgs& args, T x) {
  const auto value = tfo::Widen(x);
  if (value < 0) return tfo::Narrow<T>(0);
  return value > args.limit ? tfo::Narrow<T>(args.limit) : x;
}

// Writes all of y. T: float, double, tfo::Half, tfo::BFloat16.
template <typename T>
tfo::Error Ramp(const tfo::Cpu& cpu, const RampArgs& args, const T* x, T* y);
template <typename T>
tfo::Error Ramp(const tfo::Gpu& gpu, const RampArgs& args, const T* x, T* y);

}  // namespace ramp

#endif  // RAMP_CC_RAMP_H_
