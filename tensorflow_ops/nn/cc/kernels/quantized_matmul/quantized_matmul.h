// Products of float matrices with weights of 8 or 4 bits:
//
//   outputs[m, n] = sum over k of inputs[m, k] * W[k, n]
//   W[k, n] = (q[k, n] - zero[g, n]) * scale[g, n], g = group_of[k]
//
// Sums are of Accumulator<T>. With `quantize_inputs`, each row of inputs is
// first rounded to integers, as Keras's AbsMaxQuantizer does:
//
//   s = 127 / (max |x| + 1e-7), x = round(x * s) within -127 and 127
//
// and the result is divided by s. Each operation rounds to T, and halves go to
// the even integer. A row with an infinity or a NaN has results of NaN. With
// one group, and zeros that are bytes, sums are then exact integers modulo
// 2^32.
//
// On the CPU, and for transposed weights on a GPU, float sums are of the stored
// numbers before zero and scale, of 4 bits up to 16^3 times as large: inputs
// above 1e30 may overflow. On a GPU, products of more than 8 rows round weights
// to T, so those of float16 must be in its range.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_QUANTIZED_MATMUL_QUANTIZED_MATMUL_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_QUANTIZED_MATMUL_QUANTIZED_MATMUL_H_

#include <cstdint>

#include "tensorflow_ops/core/cc/device.h"
#include "tensorflow_ops/core/cc/float16.h"

namespace tfo {

// Two numbers of 4 bits in a byte, the first in the low half: neighbors along
// the columns or along the depth of W. kNone: bytes.
enum class NibblePairs { kNone, kColumns, kDepth };

// W. The kernel's bytes are [depth, columns], or with `transposed`
// [columns, depth]; the axis of pairs has half the size, rounded up.
template <typename C>
struct QuantizedWeights {
  int64_t depth, columns, groups;
  NibblePairs pairs;
  bool transposed;
  bool is_signed;         // the bytes of kernel and zero
  const uint8_t* kernel;  // bytes of int8 or uint8
  const C* scale;         // [groups, columns], transposed [columns, groups]
  const uint8_t* zero;    // the same, not packed; null: float_zero
  const C* float_zero;    // the same; null: 0
  // [depth], in [0, groups): null for groups of block_size, but for the last.
  const int32_t* group_of;
  int64_t block_size;  // of one group: the depth
};

template <typename T>
struct QuantizedMatmulArgs {
  int64_t rows;
  bool quantize_inputs;
  QuantizedWeights<Accumulator<T>> weights;
  const T* inputs;  // [rows, depth]
  T* outputs;       // [rows, columns]
};

// d_inputs[m, k] = sum over n of d_outputs[m, n] * W[k, n]
template <typename T>
struct QuantizedMatmulGradArgs {
  int64_t rows;
  QuantizedWeights<Accumulator<T>> weights;
  const T* d_outputs;  // [rows, columns]
  T* d_inputs;         // [rows, depth]
};

// Write all outputs. On a GPU, weights whose group is outside count as 0;
// elsewhere the caller checks groups.
template <typename T>
Error QuantizedMatmul(const Cpu& cpu, const QuantizedMatmulArgs<T>& args);
template <typename T>
Error QuantizedMatmulGrad(const Cpu& cpu,
                          const QuantizedMatmulGradArgs<T>& args);
template <typename T>
Error QuantizedMatmul(const Gpu& gpu, const QuantizedMatmulArgs<T>& args);
template <typename T>
Error QuantizedMatmulGrad(const Gpu& gpu,
                          const QuantizedMatmulGradArgs<T>& args);

// gpu.scratch: quantized inputs, and parts of sums.
template <typename T>
int64_t QuantizedMatmulScratchBytes(const QuantizedMatmulArgs<T>& args);
template <typename T>
int64_t QuantizedMatmulGradScratchBytes(const QuantizedMatmulGradArgs<T>& args);

}  // namespace tfo

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_QUANTIZED_MATMUL_QUANTIZED_MATMUL_H_
