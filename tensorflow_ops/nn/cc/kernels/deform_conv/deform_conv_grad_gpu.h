// Shared by the kernels of deformable convolution's gradients.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_DEFORM_CONV_DEFORM_CONV_GRAD_GPU_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_DEFORM_CONV_DEFORM_CONV_GRAD_GPU_H_

#include <type_traits>

#include "tensorflow_ops/nn/cc/kernels/deform_conv/deform_conv_gpu.h"

namespace tfo {
namespace deform_conv {

// How the work is split, and scratch memory. Depends on shapes only.
template <typename T>
struct GradPlan : Sizes {
  using C = Accumulator<T>;
  static constexpr bool kInPlace = sizeof(T) == sizeof(C);
  static constexpr int kLines = TileSize<T>::kLines;

  // Gradients to columns. A part has some of the chunks of an offset group's
  // channels: up to kLines, of one group.
  int chunks_of_segment, chunks, channel_parts;
  int64_t wave;  // outputs whose columns are in memory at once
  // The gradient to filters: tiles of columns and of output channels, and parts
  // of the outputs. That to bias: parts of the outputs.
  int64_t down, across, row_parts, bias_parts;
  // Sizes in scratch memory.
  int64_t feature_sums, columns, place_sums, filter_sums, bias_sums;

  GradPlan(const DeformConvShape& args, bool deterministic) : Sizes(args) {
    constexpr int64_t kMaxValues = 16 << 20;
    const int64_t column_count = args.Taps() * args.channels;
    const int64_t filters = args.Depth() * args.out_channels;
    chunks_of_segment = static_cast<int>(DivideUp(segment, kLines));
    chunks = of_offsets / segment * chunks_of_segment;
    channel_parts = static_cast<int>(DivideUp(of_offsets, kLines));
    wave = deterministic ? Clamp(kMaxValues / column_count, rows)
                         : Clamp(rows, rows);
    down = DivideUp(depth, kLines);
    across = DivideUp(out_of_group, kLines);
    // More than needed to fill a GPU only for precision.
    const int64_t for_blocks = kMinBlocks / (down * across * args.groups);
    const int64_t for_sums = rows >> 14;
    const int64_t max_parts = Clamp(kMaxValues / filters, rows >> 7);
    row_parts = Clamp(for_blocks > for_sums ? for_blocks : for_sums, max_parts);
    bias_parts = Clamp(rows >> 7, 64);
    feature_sums = kInPlace ? 0 : args.batch * args.Pixels() * args.channels;
    columns = deterministic ? wave * column_count : 0;
    place_sums = channel_parts == 1
                     ? 0
                     : channel_parts * rows * args.offset_groups * taps * 3;
    filter_sums = row_parts == 1 ? 0 : row_parts * filters;
    bias_sums = bias_parts * args.out_channels;
  }
};

// Arrays in scratch memory; null if the plan has none.
template <typename T>
struct GradMemory {
  Accumulator<T>*feature_sums, *columns, *place_sums, *filter_sums, *bias_sums;
  int64_t bytes;

  GradMemory(const GradPlan<T>& plan, void* base) {
    ScratchLayout layout(base);
    layout.Reserve(&feature_sums, plan.feature_sums);
    layout.Reserve(&columns, plan.columns);
    layout.Reserve(&place_sums, plan.place_sums);
    layout.Reserve(&filter_sums, plan.filter_sums);
    layout.Reserve(&bias_sums, plan.bias_sums);
    bytes = layout.bytes();
  }
};

// Launches a kernel for packs, or for single values if they do not fit.
template <typename T, typename Run>
Error WithPacks(const DeformConvGradArgs<T>& args, const Sizes& sizes,
                const Run& run) {
  return WithWidestPack<T>(
      [&](auto n) {
        return FitsPacks<n>(sizes.segment, args.features, args.d_features) &&
               FitsPacks<n>(sizes.out_of_group, args.filters, args.d_output,
                            args.d_filters);
      },
      [&](auto n) { return run(std::bool_constant<(n > 1)>()); });
}

// Each enqueues what writes one gradient.
template <typename T>
Error EnqueueFilterGrad(const Gpu& gpu, const DeformConvGradArgs<T>& args,
                        const GradPlan<T>& plan, const GradMemory<T>& memory);
template <typename T>
Error EnqueueBiasGrad(const Gpu& gpu, const DeformConvGradArgs<T>& args,
                      const GradPlan<T>& plan, const GradMemory<T>& memory);

}  // namespace deform_conv
}  // namespace tfo

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_DEFORM_CONV_DEFORM_CONV_GRAD_GPU_H_
