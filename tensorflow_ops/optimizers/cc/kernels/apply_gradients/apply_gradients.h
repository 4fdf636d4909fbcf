// A step of an optimizer, for all variables of a model at once.
#ifndef TENSORFLOW_OPS_OPTIMIZERS_CC_KERNELS_APPLY_GRADIENTS_APPLY_GRADIENTS_H_
#define TENSORFLOW_OPS_OPTIMIZERS_CC_KERNELS_APPLY_GRADIENTS_APPLY_GRADIENTS_H_

#include <cstdint>
#include <type_traits>

#include "tensorflow_ops/core/cc/device.h"
#include "tensorflow_ops/core/cc/float16.h"

namespace tfo {

// optimizer_formulas.h has their formulas.
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

struct OptimizerTraits {
  const char* name;  // the op's attr
  int slots;         // per variable
  int scalars;       // see ApplyGradientsArgs
};
inline constexpr OptimizerTraits kOptimizers[] = {
    {"sgd", 0, 3},
    {"momentum", 1, 4},
    {"nesterov", 1, 4},
    {"adam", 2, 7},
    {"amsgrad", 3, 7},
    {"rmsprop", 1, 6},
    {"rmsprop_momentum", 2, 7},
    {"rmsprop_centered", 2, 6},
    {"rmsprop_centered_momentum", 3, 7},
    {"adagrad", 1, 4},
    {"adamax", 2, 7},
    {"nadam", 2, 11},
    {"lion", 1, 7},
};
constexpr int kNumOptimizers = sizeof(kOptimizers) / sizeof(kOptimizers[0]);
inline constexpr int kMaxSlots = 3, kMaxScalars = 11;

constexpr int NumSlots(Optimizer optimizer) {
  return kOptimizers[static_cast<int>(optimizer)].slots;
}
constexpr int NumScalars(Optimizer optimizer) {
  return kOptimizers[static_cast<int>(optimizer)].scalars;
}

// For device code, which calls no functions of the host.
template <Optimizer kOptimizer>
inline constexpr int kSlotsOf = NumSlots(kOptimizer);
template <Optimizer kOptimizer>
inline constexpr int kScalarsOf = NumScalars(kOptimizer);

// Calls run(constant) with the optimizer as an integral_constant.
template <int kNumber = 0, typename Run>
Error WithOptimizer(Optimizer optimizer, const Run& run) {
  constexpr auto kThis = static_cast<Optimizer>(kNumber);
  static_assert(NumSlots(kThis) <= kMaxSlots &&
                NumScalars(kThis) <= kMaxScalars);
  if constexpr (kNumber + 1 < kNumOptimizers) {
    if (optimizer != kThis) return WithOptimizer<kNumber + 1>(optimizer, run);
  }
  return run(std::integral_constant<Optimizer, kThis>());
}

template <typename T>
struct VariableStep {
  int64_t size;
  // The variable and its slots. Equal pointers update in place; they differ
  // while a reader holds the old buffer.
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
  // The learning rate, the weight decay, a factor of the gradients, and those
  // of the formula.
  const Accumulator<T>* scalars;

  // Whether rows without a gradient keep their values: in lazy steps, and for
  // optimizers that a gradient of 0 does not move.
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
