// Shared by the CUDA kernels of deform_conv.h.
//
// Products are computed as an implicit GEMM: a block samples tiles of columns
// into shared memory and multiplies them there. A library (cuBLASLt) would need
// all columns in memory, kernel_height * kernel_width times the features, and
// CUTLASS another dependency. Tensor cores are not used: float32 keeps all its
// bits, and the reads of four corners a sample take most of the time.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_DEFORM_CONV_DEFORM_CONV_GPU_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_DEFORM_CONV_DEFORM_CONV_GPU_H_

#include "tensorflow_ops/core/cc/bilinear.h"
#include "tensorflow_ops/core/cc/cuda_launch.h"
#include "tensorflow_ops/core/cc/int_math.h"
#include "tensorflow_ops/nn/cc/kernels/deform_conv/deform_conv.h"

namespace tfo {
namespace deform_conv {

constexpr int kThreads = 256;
// Rows and columns of a block's product, and the depth of the tiles of its
// factors. A thread has kEach x kEach of the products.
constexpr int kTile = 64, kDepth = 16, kEach = 4;
constexpr int kAcross = kTile / kEach;

template <typename C>
struct Products {
  C sums[kEach][kEach];
};

template <typename C>
__device__ void Clear(Products<C>* products) {
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
#pragma unroll
    for (int j = 0; j < kEach; ++j) products->sums[i][j] = 0;
  }
}

// Adds a^T * b. The thread's products are rows threadIdx.x / kAcross * kEach
// and columns threadIdx.x % kAcross * kEach on.
template <typename C>
__device__ void MultiplyAdd(const C (*a)[kTile], const C (*b)[kTile],
                            Products<C>* products) {
  const int row = threadIdx.x / kAcross * kEach;
  const int column = threadIdx.x % kAcross * kEach;
#pragma unroll
  for (int k = 0; k < kDepth; ++k) {
    C left[kEach], right[kEach];
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      left[i] = a[k][row + i];
      right[i] = b[k][column + i];
    }
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
#pragma unroll
      for (int j = 0; j < kEach; ++j) {
        products->sums[i][j] += left[i] * right[j];
      }
    }
  }
}

// An output's place in the batch.
struct OutputPlace {
  int64_t index, image, y, x;
};
__device__ inline OutputPlace PlaceOf(const DeformConvShape& args,
                                      int64_t index) {
  const int64_t in_image = index % OutputsOf(args);
  return {index, index / OutputsOf(args), in_image / args.out_width,
          in_image % args.out_width};
}

// A tap of an output: where it reads.
template <typename C>
struct Tap {
  BilinearCell<C> cell;
  C mask;
  bool reads;  // any pixel
  C nan;       // 0, or NaN if an offset is
};
template <typename T, typename C = Accumulator<T>>
__device__ Tap<C> FindTap(const DeformConvInputs<T>& args,
                          const OutputPlace& output, int64_t tap,
                          int64_t offset_group) {
  const int64_t at =
      (output.index * args.offset_groups + offset_group) * TapsOf(args) + tap;
  const C y = static_cast<C>(output.y * args.stride_y - args.top +
                             tap / args.kernel_width * args.dilation_y) +
              args.offsets[2 * at];
  const C x = static_cast<C>(output.x * args.stride_x - args.left +
                             tap % args.kernel_width * args.dilation_x) +
              args.offsets[2 * at + 1];
  Tap<C> result;
  result.mask = args.mask == nullptr ? C(1) : C(Widen(args.mask[at]));
  result.nan = y != y || x != x ? y + x : C(0);
  result.reads = FindCell(y, x, args.height, args.width, &result.cell);
  return result;
}

// The sample of a channel, times the mask. `image` is the image's first pixel.
template <typename T, typename C>
__device__ C Sample(const DeformConvShape& args, const T* image,
                    const Tap<C>& tap, int64_t channel) {
  if (!tap.reads) return 0;
  C sum = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const C weight = CornerWeight(tap.cell, i);
    if (weight == 0 || !HasCorner(tap.cell, i, args.height, args.width)) {
      continue;
    }
    sum += weight *
           Widen(image[CornerPixel(tap.cell, i, args.width) * args.channels +
                       channel]);
  }
  return tap.mask * sum;
}

// Samples kEach columns of a group, from `column` on, of one output. Columns
// beyond the last are zero. kNan: whether a NaN offset makes them NaN.
template <bool kNan, typename T, typename C = Accumulator<T>>
__device__ void SampleColumns(const DeformConvInputs<T>& args,
                              const OutputPlace& output, int64_t group,
                              int64_t column, C* to) {
  const int64_t of_group = args.channels / args.groups;
  const int64_t of_offsets = args.channels / args.offset_groups;
  const T* const image =
      args.features + output.image * PixelsOf(args) * args.channels;
  int64_t tap_index = -1, offset_group = -1;
  Tap<C> tap = {};
#pragma unroll
  for (int i = 0; i < kEach; ++i, ++column) {
    if (column >= DepthOf(args)) {
      to[i] = 0;
      continue;
    }
    const int64_t channel = group * of_group + column % of_group;
    if (column / of_group != tap_index ||
        channel / of_offsets != offset_group) {
      tap_index = column / of_group;
      offset_group = channel / of_offsets;
      tap = FindTap(args, output, tap_index, offset_group);
    }
    to[i] = Sample(args, image, tap, channel);
    if (kNan) to[i] += tap.nan;
  }
}

}  // namespace deform_conv
}  // namespace tfo

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_DEFORM_CONV_DEFORM_CONV_GPU_H_
