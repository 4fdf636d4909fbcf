// Sorts items of CUDA kernels without a library: a bitonic network, so that the
// work does not depend on the data.
//
// Before(a, b) is a strict order; items that must keep their places relative to
// each other need a part that tells them apart.
#ifndef TENSORFLOW_OPS_CORE_CC_CUDA_SORT_GPU_H_
#define TENSORFLOW_OPS_CORE_CC_CUDA_SORT_GPU_H_

#include "tensorflow_ops/core/cc/cuda/warp_gpu.h"
#include "tensorflow_ops/core/cc/int_math.h"

namespace tfo {
namespace sort_gpu_internal {

inline constexpr int kThreads = 256;
inline constexpr int kTile = 1024;  // items that a block sorts in shared memory

template <typename Item, typename Before>
__device__ void Order(Item& a, Item& b, const Before& before) {
  if (!before(b, a)) return;
  const Item other = a;
  a = b;
  b = other;
}

// Sizes and strides are powers of two, at most n / 2 for n items: without the
// division of 64-bit numbers, which is a call.
//
// Pair t of the first step that merges sorted halves of 2 * half items: each
// item of the first half with its mirror image in the second.
template <typename Item, typename Before>
__device__ void OrderMirrored(Item* items, int64_t t, int64_t half,
                              const Before& before) {
  const int64_t offset = t & (half - 1), begin = 2 * (t - offset);
  Order(items[begin + offset], items[begin + 2 * half - 1 - offset], before);
}

// Pair t of a later step: items `stride` apart.
template <typename Item, typename Before>
__device__ void OrderStride(Item* items, int64_t t, int64_t stride,
                            const Before& before) {
  const int64_t offset = t & (stride - 1), begin = 2 * (t - offset);
  Order(items[begin + offset], items[begin + offset + stride], before);
}

// Waits for the threads that wrote a step's items if the strides of this step
// and the one before are at most `stride`. For strides up to 32 they are of the
// same warp, whose pairs have 64 neighboring items.
__device__ inline void WaitForStride(int64_t stride) {
  if (stride > 32) {
    __syncthreads();
  } else {
    __syncwarp(kAllLanes);
  }
}

// The steps of at most `stride` of n items, by all threads of the block.
template <typename Item, typename Before>
__device__ void OrderStrides(Item* items, int64_t n, int64_t stride,
                             const Before& before) {
  for (; stride >= 1; stride /= 2) {
    WaitForStride(2 * stride);  // that of the step before
    for (int64_t t = threadIdx.x; t < n / 2; t += blockDim.x) {
      OrderStride(items, t, stride, before);
    }
  }
}

}  // namespace sort_gpu_internal

// Sorts n items, a power of two, in any memory. All threads of the block call,
// and see the result. The block has whole warps.
template <typename Item, typename Before>
__device__ void SortInBlock(Item* items, int64_t n, const Before& before) {
  using namespace sort_gpu_internal;
  __syncthreads();
  for (int64_t half = 1; half < n; half *= 2) {
    WaitForStride(half);
    for (int64_t t = threadIdx.x; t < n / 2; t += blockDim.x) {
      OrderMirrored(items, t, half, before);
    }
    OrderStrides(items, n, half / 2, before);
  }
  __syncthreads();
}

namespace sort_gpu_internal {

// Copies n items to DynamicShared, calls sort(of the copy), and copies it back.
template <typename Item, typename Sort>
__device__ void WithTile(Item* items, int64_t n, const Sort& sort) {
  Item* const tile = static_cast<Item*>(DynamicShared());
  for (int i = threadIdx.x; i < n; i += blockDim.x) tile[i] = items[i];
  __syncthreads();
  sort(tile);
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += blockDim.x) items[i] = tile[i];
}

}  // namespace sort_gpu_internal

// The DynamicShared of SortInBlockByTiles.
template <typename Item>
constexpr int kBytesOfTile = sort_gpu_internal::kTile * sizeof(Item);

// As SortInBlock, of items in global memory: takes as few steps there as it
// can.
template <typename Item, typename Before>
__device__ void SortInBlockByTiles(Item* items, int64_t n,
                                   const Before& before) {
  using namespace sort_gpu_internal;
  const auto for_tiles = [&](const auto& sort) {
    __syncthreads();
    for (int64_t at = 0; at < n; at += kTile) {
      const int64_t size = n < kTile ? n : kTile;
      WithTile(items + at, size, [&](Item* tile) { sort(tile, size); });
    }
  };
  for_tiles([&](Item* tile, int64_t size) { SortInBlock(tile, size, before); });
  for (int64_t half = kTile; half < n; half *= 2) {
    for (int64_t stride = half; stride >= kTile; stride /= 2) {
      __syncthreads();
      for (int64_t t = threadIdx.x; t < n / 2; t += blockDim.x) {
        if (stride == half) {
          OrderMirrored(items, t, half, before);
        } else {
          OrderStride(items, t, stride, before);
        }
      }
    }
    for_tiles([&](Item* tile, int64_t size) {
      OrderStrides(tile, size, size / 2, before);
    });
  }
  __syncthreads();
}

namespace sort_gpu_internal {

template <typename Item, typename Before>
__global__ void __launch_bounds__(kThreads) SortTiles(Item* items) {
  WithTile(items + static_cast<int64_t>(blockIdx.x) * kTile, kTile,
           [](Item* tile) { SortInBlock(tile, kTile, Before()); });
}

template <typename Item, typename Before>
__global__ void __launch_bounds__(kThreads) MergeTiles(Item* items) {
  WithTile(items + static_cast<int64_t>(blockIdx.x) * kTile, kTile,
           [](Item* tile) { OrderStrides(tile, kTile, kTile / 2, Before()); });
}

template <typename Item, typename Before>
__global__ void __launch_bounds__(kThreads)
    MergeStep(Item* items, int64_t pairs, int64_t stride, bool mirrored) {
  for (int64_t t = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
       t < pairs; t += static_cast<int64_t>(gridDim.x) * kThreads) {
    if (mirrored) {
      OrderMirrored(items, t, stride, Before());
    } else {
      OrderStride(items, t, stride, Before());
    }
  }
}

}  // namespace sort_gpu_internal

// The number of items that SortOnGpu sorts for n of them: add items that come
// last.
inline int64_t PaddedForSort(int64_t n) {
  int64_t padded = sort_gpu_internal::kTile;
  while (padded < n) padded *= 2;
  return padded;
}

// Sorts PaddedForSort(..) items.
template <typename Before, typename Item>
Error SortOnGpu(const Gpu& gpu, Item* items, int64_t n) {
  using namespace sort_gpu_internal;
  const unsigned tiles = GridSize(n / kTile);
  Error error = LaunchWithShared(gpu, tiles, kThreads, kBytesOfTile<Item>,
                                 SortTiles<Item, Before>, items);
  for (int64_t half = kTile; half < n && error == nullptr; half *= 2) {
    for (int64_t stride = half; stride >= kTile && error == nullptr;
         stride /= 2) {
      error =
          Launch(gpu, GridSize(DivideUp(n / 2, kThreads)), kThreads,
                 MergeStep<Item, Before>, items, n / 2, stride, stride == half);
    }
    if (error != nullptr) break;
    error = LaunchWithShared(gpu, tiles, kThreads, kBytesOfTile<Item>,
                             MergeTiles<Item, Before>, items);
  }
  return error;
}

}  // namespace tfo

#endif  // TENSORFLOW_OPS_CORE_CC_CUDA_SORT_GPU_H_
