// Shared by the forward and the backward pass of deform_conv.h on the CPU:
// taps, tiles of outputs, blocks of columns.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_DEFORM_CONV_DEFORM_CONV_CPU_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_DEFORM_CONV_DEFORM_CONV_CPU_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "tensorflow_ops/core/cc/bilinear.h"
#include "tensorflow_ops/core/cc/gemm_simd.h"
#include "tensorflow_ops/core/cc/int_math.h"
#include "tensorflow_ops/core/cc/scratch.h"
#include "tensorflow_ops/nn/cc/kernels/deform_conv/deform_conv.h"
#include "tensorflow_ops/nn/cc/kernels/deform_conv/deform_conv_simd.h"

namespace tfo {
namespace deform_conv {

// Multiply-adds of a vector take about a cycle.
template <typename T>
double CyclesPerOutput(const DeformConvShape& args) {
  return 1.0 * DepthOf(args) * args.out_channels / (64 / sizeof(T));
}

// The use of taps. kOutput: a tap with a NaN offset has a NaN weight; for other
// uses, nothing is read there. kSlopes: corners of weight 0 count, too.
enum class TapUse { kOutput, kSlopes, kFilters };

// Finds all taps of `count` outputs of an image from `first` on, [count][tap]
// [offset group].
template <TapUse kUse, typename T, typename C = Accumulator<T>>
void FindTaps(const DeformConvInputs<T>& args, int64_t image, int64_t first,
              int64_t count, DeformTap<C>* taps) {
  const int64_t all = TapsOf(args);
  for (int64_t m = 0; m < count; ++m) {
    const int64_t output = image * OutputsOf(args) + first + m;
    const int64_t p = (first + m) / args.out_width;
    const int64_t q = (first + m) % args.out_width;
    const int64_t per_output = all * args.offset_groups;
    const C* const offsets = args.offsets + 2 * output * per_output;
    for (int64_t t = 0; t < all; ++t) {
      const C base_y = static_cast<C>(p * args.stride_y - args.top +
                                      t / args.kernel_width * args.dilation_y);
      const C base_x = static_cast<C>(q * args.stride_x - args.left +
                                      t % args.kernel_width * args.dilation_x);
      for (int64_t g = 0; g < args.offset_groups; ++g) {
        const int64_t channel = g * all + t;
        const C y = base_y + offsets[2 * channel];
        const C x = base_x + offsets[2 * channel + 1];
        DeformTap<C>& tap = *taps++;
        tap = {{-1, -1, -1, -1}, {0, 0, 0, 0}, 0, 0, 1};
        if (args.mask != nullptr) {
          tap.mask = Widen(args.mask[output * per_output + channel]);
        }
        BilinearCell<C> cell;
        if (!FindCell(y, x, args.height, args.width, &cell)) {
          if (kUse == TapUse::kOutput && (y != y || x != x)) {
            tap.weights[0] = y + x;
          }
          continue;
        }
        tap.y_fraction = cell.y_fraction;
        tap.x_fraction = cell.x_fraction;
        for (int i = 0; i < 4; ++i) {
          const C weight = CornerWeight(cell, i);
          if (!HasCorner(cell, i, args.height, args.width)) continue;
          if (kUse != TapUse::kSlopes && weight == 0) continue;
          tap.pixels[i] =
              static_cast<int32_t>(CornerPixel(cell, i, args.width));
          tap.weights[i] = weight;
        }
      }
    }
  }
}

// Channels that follow each other within a group and an offset group.
struct Segment {
  int64_t channel, count;
  int64_t group, offset_group;
};
inline std::vector<Segment> SegmentsOf(const DeformConvShape& args,
                                       int64_t begin, int64_t end) {
  const int64_t of_group = args.channels / args.groups;
  const int64_t of_offsets = args.channels / args.offset_groups;
  std::vector<Segment> segments;
  for (int64_t c = begin; c < end;) {
    const int64_t group = c / of_group, offset_group = c / of_offsets;
    const int64_t stop = std::min(
        {end, (group + 1) * of_group, (offset_group + 1) * of_offsets});
    segments.push_back({c, stop - c, group, offset_group});
    c = stop;
  }
  return segments;
}

// Calls run(tap, segment, column) for the columns [begin, end) of a group; the
// segment starts at `column`.
template <typename Run>
void ForColumns(const DeformConvShape& args, int64_t group, int64_t begin,
                int64_t end, const Run& run) {
  const int64_t of_group = args.channels / args.groups;
  const int64_t of_offsets = args.channels / args.offset_groups;
  for (int64_t column = begin; column < end;) {
    const int64_t tap = column / of_group;
    const int64_t channel = group * of_group + column % of_group;
    const int64_t offset_group = channel / of_offsets;
    const int64_t count = std::min({end - column, (tap + 1) * of_group - column,
                                    (offset_group + 1) * of_offsets - channel});
    run(tap, Segment{channel, count, group, offset_group}, column);
    column += count;
  }
}

// Samples the columns [begin, end) of a group for `count` outputs of an image
// into rows of kGemmStride. Requires their taps.
template <typename T, typename C = Accumulator<T>>
void SampleBlock(const DeformConvShape& args, const T* image, int64_t group,
                 int64_t begin, int64_t end, const DeformTap<C>* taps,
                 int64_t count, const T* zeros, C* columns) {
  const auto sample = TFO_DISPATCH(SampleColumns<T>);
  ForColumns(
      args, group, begin, end,
      [&](int64_t tap, const Segment& segment, int64_t column) {
        sample({taps + tap * args.offset_groups + segment.offset_group,
                TapsOf(args) * args.offset_groups, count},
               {image + segment.channel, args.channels, segment.count, zeros},
               columns + column - begin);
      });
}

}  // namespace deform_conv
}  // namespace tfo

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_DEFORM_CONV_DEFORM_CONV_CPU_H_
