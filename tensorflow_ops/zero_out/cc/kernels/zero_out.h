// Zeros all elements of a tensor but one. It only moves bytes, so it needs the
// size of elements and not their type.
#ifndef TENSORFLOW_OPS_ZERO_OUT_CC_KERNELS_ZERO_OUT_H_
#define TENSORFLOW_OPS_ZERO_OUT_CC_KERNELS_ZERO_OUT_H_

#include <cstdint>

#include "tensorflow_ops/core/cc/device.h"

namespace tfo {

struct ZeroOutArgs {
  int64_t num_elements;  // of input and output; 0 leaves nothing to do
  int64_t element_size;  // in bytes: 1, 2, 4, 8 or 16
  int64_t keep_index;    // the element that is copied, in [0, num_elements)
};

// Writes all of `output`, which must not overlap `input`. Returns null or the
// launch's error; the Gpu overload only enqueues.
Error ZeroOut(const Cpu& cpu, const ZeroOutArgs& args, const void* input,
              void* output);
Error ZeroOut(const Gpu& gpu, const ZeroOutArgs& args, const void* input,
              void* output);

}  // namespace tfo

#endif  // TENSORFLOW_OPS_ZERO_OUT_CC_KERNELS_ZERO_OUT_H_
