// A step of an optimizer, for all variables of a model at once.
#ifndef TENSORFLOW_OPS_OPTIMIZERS_CC_KERNELS_APPLY_GRADIENTS_APPLY_GRADIENTS_H_
#define TENSORFLOW_OPS_OPTIMIZERS_CC_KERNELS_APPLY_GRADIENTS_APPLY_GRADIENTS_H_

#include <cstdint>
#include <utility>

#include "tensorflow_ops/core/cc/device.h"
#include "tensorflow_ops/core/cc/float16.h"

namespace tfo {

// optimizer_formulas.h has their formulas, slots and scalars.
enum class Optimizer {
  kSgd,
  kMomentum,
  kNesterov,
  kAdam,
  kAmsgrad,
  kRmsprop,
  kRmspropMomentum,
  kRmspropCentered,
  kRmspropCenteredMomentum,
  kAdagrad,
  kAdamax,
  kNadam,
  kLion
};

// Calls run(constant) with the optimizer as an integral_constant.
template <typename Run>
auto WithOptimizer(Optimizer optimizer, const Run& run) {
#define TFO_CASE(name)  \
  case Optimizer::name: \
    return run(std::integral_constant<Optimizer, Optimizer::name>())
  switch (optimizer) {
    TFO_CASE(kSgd);
    TFO_CASE(kMomentum);
    TFO_CASE(kNesterov);
    TFO_CASE(kAdam);
    TFO_CASE(kAmsgrad);
    TFO_CASE(kRmsprop);
    TFO_CASE(kRmspropMomentum);
    TFO_CASE(kRmspropCentered);
    TFO_CASE(kRmspropCenteredMomentum);
    TFO_CASE(kAdagrad);
    TFO_CASE(kAdamax);
    TFO_CASE(kNadam);
    default:
      TFO_CASE(kLion);
  }
#undef TFO_CASE
}

constexpr bool IsCentered(Optimizer o) {
  return o == Optimizer::kRmspropCentered ||
         o == Optimizer::kRmspropCenteredMomentum;
}
constexpr bool HasMomentum(Optimizer o) {
  return o == Optimizer::kRmspropMomentum ||
         o == Optimizer::kRmspropCenteredMomentum;
}

// The numbers that an optimizer keeps for each of a variable.
inline constexpr int kMaxSlots = 3;
constexpr int NumSlots(Optimizer o) {
  switch (o) {
    case Optimizer::kSgd:
      return 0;
    case Optimizer::kAdam:
    case Optimizer::kAdamax:
    case Optimizer::kNadam:
    case Optimizer::kRmspropMomentum:
    case Optimizer::kRmspropCentered:
      return 2;
    case Optimizer::kAmsgrad:
    case Optimizer::kRmspropCenteredMomentum:
      return 3;
    default:
      return 1;
  }
}

// The learning rate, weight decay, a factor of the gradients, and those of the
// formula.
inline constexpr int kMaxScalars = 11;
constexpr int NumScalars(Optimizer o) {
  switch (o) {
    case Optimizer::kSgd:
      return 3;
    case Optimizer::kMomentum:
    case Optimizer::kNesterov:
    case Optimizer::kAdagrad:
      return 4;
    case Optimizer::kRmsprop:
    case Optimizer::kRmspropCentered:
      return 6;
    case Optimizer::kNadam:
      return 11;
    default:
      return 7;
  }
}

template <typename T>
struct VariableStep {
  int64_t size;
  // The variable and its slots; the same memory, or, if someone reads what was
  // before, other memory.
  const T* before[1 + kMaxSlots];
  T* after[1 + kMaxSlots];
  bool decays;        // by the weight decay
  const T* gradient;  // [size], or rows [num_ids, width]
  // Of rows only. Those of an id that occurs several times are summed.
  bool is_of_rows;
  const int64_t* ids;  // in [0, size / width)
  int64_t num_ids, width;

  TFO_HOST_DEVICE bool IsInPlace(int slots) const {
    for (int i = 0; i <= slots; ++i) {
      if (before[i] != after[i]) return false;
    }
    return true;
  }
};

template <typename T>
struct ApplyGradientsArgs {
  Optimizer optimizer;
  bool lazy;  // rows without a gradient stay, as do their slots
  int64_t num_variables;
  const VariableStep<T>* variables;  // in host memory
  const Accumulator<T>* scalars;     // [NumScalars(optimizer)]

  // Do rows without a gradient stay? A gradient of 0 changes nothing for some.
  bool KeepsOtherRows(const VariableStep<T>& variable) const {
    return lazy || (!variable.decays && (optimizer == Optimizer::kSgd ||
                                         optimizer == Optimizer::kAdagrad));
  }
};

template <typename T>
Error ApplyGradients(const Cpu& cpu, const ApplyGradientsArgs<T>& args);
template <typename T>
Error ApplyGradients(const Gpu& gpu, const ApplyGradientsArgs<T>& args);
// The scratch memory that the latter needs.
template <typename T>
int64_t ApplyGradientsScratch(const ApplyGradientsArgs<T>& args);

}  // namespace tfo

#endif  // TENSORFLOW_OPS_OPTIMIZERS_CC_KERNELS_APPLY_GRADIENTS_APPLY_GRADIENTS_H_
