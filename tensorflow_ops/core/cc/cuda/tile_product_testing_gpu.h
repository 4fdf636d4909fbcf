// A kernel that multiplies matrices of one tile by tile_product_gpu.h.
#ifndef TENSORFLOW_OPS_CORE_CC_CUDA_TILE_PRODUCT_TESTING_GPU_H_
#define TENSORFLOW_OPS_CORE_CC_CUDA_TILE_PRODUCT_TESTING_GPU_H_

#include <cstdint>

#include "tensorflow_ops/core/cc/device.h"
#include "tensorflow_ops/core/cc/float16.h"

namespace tfo {

// How a kernel fills an operand.
enum class Filling { kStore, kCopyAsync, kSet };

// c [lines, lines] = a b for 128 lines, or 64 of double. a is [lines, depth],
// or [depth, lines] if !a_along_depth; likewise b is [lines, depth] or [depth,
// lines]. `depth` is a multiple of 16.
template <typename T>
Error MultiplyTiles(const Gpu& gpu, bool a_along_depth, bool b_along_depth,
                    bool tensor_cores, Filling filling, int depth, const T* a,
                    const T* b, Accumulator<T>* c);

}  // namespace tfo

#endif  // TENSORFLOW_OPS_CORE_CC_CUDA_TILE_PRODUCT_TESTING_GPU_H_
