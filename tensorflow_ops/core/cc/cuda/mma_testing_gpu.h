// Kernels that show what each lane of a warp gets from mma_gpu.h.
#ifndef TENSORFLOW_OPS_CORE_CC_CUDA_MMA_TESTING_GPU_H_
#define TENSORFLOW_OPS_CORE_CC_CUDA_MMA_TESTING_GPU_H_

#include <cstdint>

#include "tensorflow_ops/core/cc/device.h"
#include "tensorflow_ops/core/cc/float16.h"

namespace tfo {

// Whether kernels run on the CPU, where misuse aborts.
extern const bool kIsEmulated;

// Adds a product to c [32 lanes][4], in place; a lane has 1/32 of a and b in
// registers. depth 16, or 8 for Half and float. *ran: whether this GPU can.
template <typename T>
Error MultiplyFragments(const Gpu& gpu, int depth, const uint32_t* a,
                        const uint32_t* b, float* c, bool* ran);

// The same of int8, four in a register, at a depth of 32.
Error MultiplyIntegerFragments(const Gpu& gpu, const uint32_t* a,
                               const uint32_t* b, int32_t* c, bool* ran);

// Copies 32 rows of 8 values to shared memory and loads the first n * 8 of them
// as n matrices: to [32 lanes][n].
Error LoadFragments(const Gpu& gpu, int n, bool transposed,
                    const uint16_t* rows, uint32_t* to, bool* ran);

// Copies 64 pieces of `size` bytes, of each `bytes`, to shared memory and from
// there to `to`, the second 32 while the first are read.
Error CopyThroughShared(const Gpu& gpu, int size, int bytes, const char* from,
                        char* to);

}  // namespace tfo

#endif  // TENSORFLOW_OPS_CORE_CC_CUDA_MMA_TESTING_GPU_H_
