// What the recurrent layers share: sizes, activations, masks.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_RECURRENT_RECURRENT_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_RECURRENT_RECURRENT_H_

#include <cstdint>
#include <utility>

#include "tensorflow_ops/core/cc/device.h"
#include "tensorflow_ops/core/cc/float16.h"

namespace tfo {

enum class CellActivation { kTanh, kSigmoid, kRelu, kLinear, kHardSigmoid };
inline constexpr std::pair<const char*, CellActivation> kCellActivations[] = {
    {"tanh", CellActivation::kTanh},
    {"sigmoid", CellActivation::kSigmoid},
    {"relu", CellActivation::kRelu},
    {"linear", CellActivation::kLinear},
    {"hard_sigmoid", CellActivation::kHardSigmoid}};

// A masked step keeps the state, and repeats the output before, which is 0
// before the example's first step.
struct RecurrentSpec {
  int64_t batch, steps, units;
  CellActivation activation, recurrent_activation;
  const bool* mask;  // false where masked; or null

  TFO_HOST_DEVICE bool IsMasked(int64_t example, int64_t step) const {
    return mask != nullptr && !mask[example * steps + step];
  }
  // The example's first step that is not masked, or `steps`.
  TFO_HOST_DEVICE int64_t FirstStep(int64_t example) const {
    int64_t step = 0;
    while (step < steps && IsMasked(example, step)) ++step;
    return step;
  }
};

template <typename V>
void DescribeRecurrence(RecurrentSpec& s, V& v) {
  v.Enum("activation", kCellActivations, "tanh", &s.activation);
  v.Enum("recurrent_activation", kCellActivations, "sigmoid",
         &s.recurrent_activation);
  v.Optional("mask", "[batch, steps]", &s.mask);
  v.Types("T");
  v.Size("batch", &s.batch);
  v.Size("steps", &s.steps);
  v.Size("units", &s.units);
}

}  // namespace tfo

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_RECURRENT_RECURRENT_H_
