// Shared by the CUDA kernels of deform_conv.h.
//
// Products are computed as an implicit GEMM: a block samples tiles of columns
// into shared memory and multiplies them there. A library (cuBLASLt) would need
// all columns in memory, kernel_height * kernel_width times the features, and
// CUTLASS another dependency. Sums are of Accumulator<T>, samples are rounded
// to T.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_DEFORM_CONV_DEFORM_CONV_GPU_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_DEFORM_CONV_DEFORM_CONV_GPU_H_

#include <numeric>

#include "tensorflow_ops/core/cc/bilinear.h"
#include "tensorflow_ops/core/cc/cuda/cuda_launch.h"
#include "tensorflow_ops/core/cc/cuda/sum_parts_gpu.h"
#include "tensorflow_ops/core/cc/cuda/tile_product_gpu.h"
#include "tensorflow_ops/core/cc/int_math.h"
#include "tensorflow_ops/core/cc/scratch.h"
#include "tensorflow_ops/nn/cc/kernels/deform_conv/deform_conv.h"

namespace tfo {
namespace deform_conv {

constexpr int kThreads = 256;

// Work of fewer blocks is split: two on each multiprocessor of a large GPU. A
// constant, so that results do not depend on the GPU.
constexpr int64_t kMinBlocks = 264;

// The nearest to n in [1, max], or 1.
inline int64_t Clamp(int64_t n, int64_t max) {
  if (n > max) n = max;
  return n < 1 ? 1 : n;
}

// What kernels compute with, in 32 bits if FitsInts.
struct Sizes {
  int64_t rows;    // outputs of the batch
  int64_t of_row;  // values of a row of pixels
  int taps, kernel_width, depth, channels, out_channels;
  int of_group, of_offsets, out_of_group;  // channels
  // Neighboring columns of a group, this many, have one tap and offset group.
  int segment;

  explicit Sizes(const DeformConvShape& args)
      : rows(args.batch * args.Outputs()),
        of_row(args.width * args.channels),
        taps(static_cast<int>(args.Taps())),
        kernel_width(static_cast<int>(args.kernel_width)),
        depth(static_cast<int>(args.Depth())),
        channels(static_cast<int>(args.channels)),
        out_channels(static_cast<int>(args.out_channels)),
        of_group(static_cast<int>(args.channels / args.groups)),
        of_offsets(static_cast<int>(args.channels / args.offset_groups)),
        out_of_group(static_cast<int>(args.out_channels / args.groups)),
        segment(std::gcd(of_group, of_offsets)) {}
};
inline bool FitsInts(const DeformConvShape& args) {
  constexpr int64_t kMax = 1 << 30;  // leaves room for a tile
  return args.Depth() <= kMax && args.channels <= kMax &&
         args.out_channels <= kMax;
}
inline constexpr Error kTooLarge =
    "deform_conv2d on GPUs: more than 2^30 channels or values of a filter";

// An output's place in the batch.
struct OutputPlace {
  int64_t index, image, y, x;
};
__device__ inline OutputPlace PlaceOf(const DeformConvShape& args,
                                      int64_t index) {
  const int64_t in_image = index % args.Outputs();
  return {index, index / args.Outputs(), in_image / args.out_width,
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
__device__ Tap<C> FindTap(const DeformConvInputs<T>& args, const Sizes& sizes,
                          const OutputPlace& output, int tap,
                          int offset_group) {
  const int64_t at =
      (output.index * args.offset_groups + offset_group) * sizes.taps + tap;
  const C y = static_cast<C>(output.y * args.stride_y - args.top +
                             tap / sizes.kernel_width * args.dilation_y) +
              args.offsets[2 * at];
  const C x = static_cast<C>(output.x * args.stride_x - args.left +
                             tap % sizes.kernel_width * args.dilation_x) +
              args.offsets[2 * at + 1];
  Tap<C> result;
  result.mask = args.mask == nullptr ? C(1) : C(Widen(args.mask[at]));
  result.nan = y != y || x != x ? y + x : C(0);
  result.reads = FindCell(y, x, args.height, args.width, &result.cell);
  return result;
}

// The columns of a group up to `end` that have one tap and offset group.
struct Segment {
  int end = 0, tap, offset_group;
  int shift;  // from a column to its channel
};
__device__ inline Segment SegmentOf(const Sizes& sizes, int group, int column) {
  Segment segment;
  segment.tap = column / sizes.of_group;
  segment.end = (column / sizes.segment + 1) * sizes.segment;
  segment.shift = (group - segment.tap) * sizes.of_group;
  segment.offset_group = (column + segment.shift) / sizes.of_offsets;
  return segment;
}

// A pack in registers. (nvcc splits packs of 16-bit values up.)
template <typename T, int N>
using Word = typename cuda_launch_internal::Word<sizeof(Pack<T, N>)>::Type;

// What samples of taps are made of, in shared memory.
template <typename C>
class SharedTaps {
 public:
  // kNan: whether a NaN offset makes samples NaN.
  template <bool kNan>
  __device__ void Set(const DeformConvShape& args, int slot, int64_t image,
                      const Tap<C>& tap) {
    Pack<C, 4> weights = {};
    Rest rest = {};
    if (tap.reads) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (HasCorner(tap.cell, i, args.height, args.width)) {
          weights.values[i] = CornerWeight(tap.cell, i);
        }
      }
      rest.mask = tap.mask;
      rest.pixel = image * args.Pixels() + CornerPixel(tap.cell, 0, args.width);
    } else if (kNan) {
      rest.mask = tap.nan;
    }
    weights_[slot] = weights;
    rest_[slot] = rest;
  }
  __device__ void SetEmpty(int slot) {
    weights_[slot] = {};
    rest_[slot] = {};
  }

  // Loads N channels of the four corners. Pixels of weight 0 are not read.
  template <int N, typename T>
  __device__ void Load(const DeformConvInputs<T>& args, const Sizes& sizes,
                       int slot, int channel, Word<T, N> (&corners)[4]) const {
    const int64_t pixel = rest_[slot].pixel * sizes.channels + channel;
    const Pack<C, 4> weights = weights_[slot];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      corners[i] = {};
      if (weights.values[i] == 0) continue;
      const int64_t corner =
          pixel + i / 2 * sizes.of_row + i % 2 * sizes.channels;
      const T* const from = args.features + corner;
      cuda_launch_internal::CheckAligned(from, alignof(Pack<T, N>));
      corners[i] = *reinterpret_cast<const Word<T, N>*>(from);
    }
  }
  // The samples, times the mask.
  template <int N, typename T>
  __device__ Pack<T, N> Sample(int slot, const Word<T, N> (&corners)[4]) const {
    const Pack<C, 4> weights = weights_[slot];
    const C mask = rest_[slot].mask;
    C sums[N] = {};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      Pack<T, N> corner;
      memcpy(&corner, &corners[i], sizeof(corner));
#pragma unroll
      for (int n = 0; n < N; ++n) {
        sums[n] += weights.values[i] * C(Widen(corner.values[n]));
      }
    }
    Pack<T, N> samples;
#pragma unroll
    for (int n = 0; n < N; ++n) samples.values[n] = Narrow<T>(mask * sums[n]);
    return samples;
  }

 private:
  struct alignas(16) Rest {
    int64_t pixel;  // of the batch
    C mask;
  };
  Pack<C, 4> weights_[kThreads];
  Rest rest_[kThreads];
};

// Samples columns from `column` on one by one, those beyond the last as 0: for
// channels that do not fit packs. Uses the thread's slot.
template <bool kNan, typename T, typename C = Accumulator<T>>
__device__ Pack<T, kPackSize<T>> SampleEach(const DeformConvInputs<T>& args,
                                            const Sizes& sizes,
                                            const OutputPlace& output,
                                            int group, int column,
                                            SharedTaps<C>* taps) {
  Pack<T, kPackSize<T>> samples = {};
  Segment segment;
  // Unrolled, it spills registers.
#pragma unroll 1
  for (int i = 0; i < kPackSize<T>; ++i, ++column) {
    if (column >= sizes.depth) continue;
    if (column >= segment.end) {
      segment = SegmentOf(sizes, group, column);
      taps->template Set<kNan>(
          args, threadIdx.x, output.image,
          FindTap(args, sizes, output, segment.tap, segment.offset_group));
    }
    Word<T, 1> corners[4];
    taps->template Load<1>(args, sizes, threadIdx.x, column + segment.shift,
                           corners);
    samples.values[i] =
        taps->template Sample<1, T>(threadIdx.x, corners).values[0];
  }
  return samples;
}

// Starts storing the first `count` values, at most a pack's, in an operand; the
// others are 0. kPacked: packs are aligned, and count is that of a pack or at
// most 0.
template <bool kPacked, typename T, Along kAlong>
__device__ void Fill(AsyncCopies* copies, Operand<T, kAlong>* operand, int line,
                     int depth, const T* from, int count) {
  if constexpr (kPacked) {
    operand->CopyAsync(copies, line, depth, from, count <= 0);
  } else {
    Pack<T, kPackSize<T>> pack = {};
#pragma unroll
    for (int i = 0; i < kPackSize<T>; ++i) {
      if (i < count) pack.values[i] = from[i];
    }
    operand->Store(line, depth, pack);
  }
}
// Stores the first `count` values of a pack.
template <bool kPacked, int N, typename T>
__device__ void StoreSome(const Pack<T, N>& pack, int count, T* to) {
  if constexpr (kPacked) {
    if (count > 0) StorePack(pack, to);
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      if (i < count) to[i] = pack.values[i];
    }
  }
}

}  // namespace deform_conv
}  // namespace tfo

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_DEFORM_CONV_DEFORM_CONV_GPU_H_
