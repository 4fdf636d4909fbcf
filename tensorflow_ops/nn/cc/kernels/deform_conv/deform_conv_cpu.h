// Shared by the forward and the backward pass of deform_conv.h on the CPU:
// taps, tiles of outputs, blocks of columns.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_DEFORM_CONV_DEFORM_CONV_CPU_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_DEFORM_CONV_DEFORM_CONV_CPU_H_

#include <algorithm>
#include <cstdint>
#include <vector>

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

// Finds all taps of `count` outputs of an image from `first` on, [count][tap]
// [offset group].
template <TapUse kUse, typename T, typename C = Accumulator<T>>
void FindTaps(const DeformConvInputs<T>& args, int64_t image, int64_t first,
              int64_t count, DeformTap<C>* taps) {
  const int64_t output = image * OutputsOf(args) + first;
  const int64_t per_output = TapsOf(args) * args.offset_groups;
  const T* const mask =
      args.mask == nullptr ? nullptr : args.mask + output * per_output;
  TFO_DISPATCH(FindTaps<kUse, T>)
  (args, args.offsets + 2 * output * per_output, mask, first, count, taps);
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
