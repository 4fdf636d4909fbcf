// Samples of images, correlation, deformable convolution and attention.
#include "tensorflow_ops/image/cc/kernels/correlation_cost/correlation_cost.h"
#include "tensorflow_ops/image/cc/kernels/grid_sample/grid_sample.h"
#include "tensorflow_ops/nn/cc/kernels/deform_conv/deform_conv.h"
#include "tensorflow_ops/nn/cc/kernels/deformable_attention/deformable_attention.h"
#include "tools/gpu/kernel_call.h"

namespace tfo::gpu {
namespace {

GridSampleArgs ReadSamples(const KernelCall& call) {
  const std::string mode = call.Text("mode"), padding = call.Text("padding");
  const std::string coordinates = call.Text("coordinates");
  return {mode == "nearest"   ? SampleMode::kNearest
          : mode == "bicubic" ? SampleMode::kBicubic
                              : SampleMode::kBilinear,
          padding == "border"       ? SamplePadding::kBorder
          : padding == "reflection" ? SamplePadding::kReflection
                                    : SamplePadding::kZeros,
          coordinates == "flow"     ? SampleCoordinates::kFlow
          : coordinates == "pixels" ? SampleCoordinates::kPixels
                                    : SampleCoordinates::kNormalized,
          call.Int("align_corners") != 0,
          call.Int("channels_first") != 0,
          call.Int("batch"),
          call.Int("height"),
          call.Int("width"),
          call.Int("channels"),
          call.Int("samples"),
          call.Int("flow_columns")};
}

CorrelationArgs ReadCorrelation(const KernelCall& call) {
  return {call.Int("max_displacement"),
          call.Int("kernel_size"),
          call.Int("stride_1"),
          call.Int("stride_2"),
          call.Int("padding"),
          call.Int("channels_first") != 0,
          call.Int("batch"),
          call.Int("height"),
          call.Int("width"),
          call.Int("channels")};
}

// Square kernels; the same stride, padding and dilation on both axes.
DeformConvArgs ReadConvolution(const KernelCall& call) {
  const int64_t kernel = call.Int("kernel_size"), stride = call.Int("stride");
  const int64_t padding = call.Int("padding");
  const int64_t dilation = call.Int("dilation");
  const auto out_size = [&](int64_t size) {
    return (size + 2 * padding - dilation * (kernel - 1) - 1) / stride + 1;
  };
  const int64_t height = call.Int("height"), width = call.Int("width");
  return {call.Int("batch"),
          height,
          width,
          call.Int("channels"),
          out_size(height),
          out_size(width),
          call.Int("filters"),
          kernel,
          kernel,
          stride,
          stride,
          padding,
          padding,
          dilation,
          dilation,
          call.Int("groups"),
          call.Int("offset_groups")};
}

// Options height0, width0, height1 and so on; `points` on each level.
AttentionArgs ReadAttention(const KernelCall& call) {
  AttentionArgs args = {};
  args.batch = call.Int("batch");
  args.heads = call.Int("heads");
  args.channels = call.Int("channels");
  args.queries = call.Int("queries");
  const int64_t levels = call.Int("levels"), points = call.Int("points");
  if (levels < 1 || levels > kMaxAttentionLevels) {
    throw std::invalid_argument("levels is " + std::to_string(levels));
  }
  for (int64_t l = 0; l < levels; ++l) {
    const std::string number = std::to_string(l);
    const int64_t height = call.Int("height" + number);
    const int64_t width = call.Int("width" + number);
    args.levels[l] = {height, width, args.pixels, points};
    args.pixels += height * width;
    args.points += points;
  }
  args.num_levels = static_cast<int>(levels);
  return args;
}

}  // namespace

// features, grid, direction or null, output
TFO_GPU_KERNEL(grid_sample, call) {
  return call.WithType([&](auto t) {
    using T = decltype(t);
    return GridSample<T>(call.Gpu(), ReadSamples(call), call[0], call[1],
                         call[2], call[3]);
  });
}

// d_output, grid, d_features
TFO_GPU_KERNEL(grid_sample_grad, call) {
  return call.WithType([&](auto t) {
    using T = decltype(t);
    const GridSampleArgs args = ReadSamples(call);
    return GridSampleGrad<T>(
        call.Gpu(GridSampleGradScratchBytes(args, sizeof(T))), args, call[0],
        call[1], call[2]);
  });
}

// d_output, features, grid, d_grid
TFO_GPU_KERNEL(grid_sample_grid_grad, call) {
  return call.WithType([&](auto t) {
    using T = decltype(t);
    return GridSampleGridGrad<T>(call.Gpu(), ReadSamples(call), call[0],
                                 call[1], call[2], call[3]);
  });
}

// a, b, costs
TFO_GPU_KERNEL(correlation_cost, call) {
  return call.WithType([&](auto t) {
    using T = decltype(t);
    return CorrelationCost<T>(call.Gpu(), ReadCorrelation(call), call[0],
                              call[1], call[2]);
  });
}

// d_costs, the other map, gradient
TFO_GPU_KERNEL(correlation_cost_grad, call) {
  return call.WithType([&](auto t) {
    using T = decltype(t);
    return CorrelationCostGrad<T>(call.Gpu(), ReadCorrelation(call), call[0],
                                  call[1], call.Int("to_b") != 0, call[2]);
  });
}

// features, offsets, filters, mask or null, bias or null, output
TFO_GPU_KERNEL(deform_conv, call) {
  return call.WithType([&](auto t) {
    using T = decltype(t);
    return DeformConv<T>(call.Gpu(), ReadConvolution(call),
                         {call[0], call[1], call[2], call[3], call[4]},
                         call[5]);
  });
}

// features, offsets, filters, mask or null, bias or null, d_output, and the
// gradients to the first five
TFO_GPU_KERNEL(deform_conv_grad, call) {
  return call.WithType([&](auto t) {
    using T = decltype(t);
    const DeformConvArgs args = ReadConvolution(call);
    const bool deterministic = call.Int("deterministic") != 0;
    return DeformConvGrad<T>(
        call.Gpu(DeformConvGradScratchBytes<T>(args, deterministic)), args,
        {call[0], call[1], call[2], call[3], call[4]}, call[5],
        {call[6], call[7], call[8], call[9], call[10]});
  });
}

// values, locations, weights, output
TFO_GPU_KERNEL(deformable_attention, call) {
  return call.WithType([&](auto t) {
    using T = decltype(t);
    using C = Accumulator<T>;
    return DeformableAttention<T, C>(call.Gpu(), ReadAttention(call), call[0],
                                     call[1], call[2], call[3]);
  });
}

// d_output, values, locations, weights, and the gradients to the last three
TFO_GPU_KERNEL(deformable_attention_grad, call) {
  return call.WithType([&](auto t) {
    using T = decltype(t);
    using C = Accumulator<T>;
    const AttentionArgs args = ReadAttention(call);
    const bool deterministic = call.Int("deterministic") != 0;
    return DeformableAttentionGrad<T, C>(
        call.Gpu(DeformableAttentionGradScratchBytes<T>(args, deterministic)),
        args, call[0], call[1], call[2], call[3], call[4], call[5], call[6]);
  });
}

}  // namespace tfo::gpu
