// Drops numbers as TensorFlow's stateless_dropout does, with its random bits.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_DROPOUT_DROPOUT_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_DROPOUT_DROPOUT_H_

#include <cstdint>
#include <type_traits>

#include "tensorflow_ops/core/cc/device.h"
#include "tensorflow_ops/core/cc/float16.h"
#include "tensorflow_ops/core/cc/int_math.h"

namespace tfo {

// Random bits of a number: the fraction's, so that bits / 2^kDropoutBits is
// what TensorFlow draws from [0, 1).
template <typename T>
inline constexpr int kDropoutBits = std::is_same_v<T, double>  ? 52
                                    : std::is_same_v<T, float> ? 23
                                    : std::is_same_v<T, Half>  ? 10
                                                               : 7;
// How many numbers take their bits from one counter of Philox, whose four words
// they read in order. A double's second word has the lower bits.
template <typename T>
inline constexpr int kDropoutPerCounter = std::is_same_v<T, double> ? 2 : 4;

// A bit of the mask for each number, the lowest bit of a byte first.
TFO_HOST_DEVICE constexpr int64_t DropoutMaskBytes(int64_t size) {
  return DivideUp(size, 8);
}

// output[i] = inputs[i] * scale if the number's random bits are at least
// `least`, else 0.
template <typename T>
struct DropoutArgs {
  int64_t size;
  int64_t least;  // in [0, 2^kDropoutBits]
  Accumulator<T> scale;
  const T* inputs;          // [size]
  const uint64_t* key;      // [1]
  const uint64_t* counter;  // [2]: of the first numbers, lower half first
  T* output;                // [size], may be the inputs
  uint8_t* mask;            // [DropoutMaskBytes]: whether kept; else 0
};

// d_inputs[i] = d_output[i] * scale if the mask's bit is set, else 0.
template <typename T>
struct DropoutGradArgs {
  int64_t size;
  Accumulator<T> scale;
  const T* d_output;    // [size]
  const uint8_t* mask;  // [DropoutMaskBytes]
  T* d_inputs;          // [size], may be d_output
};

template <typename T>
Error Dropout(const Cpu& cpu, const DropoutArgs<T>& args);
template <typename T>
Error Dropout(const Gpu& gpu, const DropoutArgs<T>& args);
template <typename T>
Error DropoutGrad(const Cpu& cpu, const DropoutGradArgs<T>& args);
template <typename T>
Error DropoutGrad(const Gpu& gpu, const DropoutGradArgs<T>& args);

}  // namespace tfo

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_DROPOUT_DROPOUT_H_
