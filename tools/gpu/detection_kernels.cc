// zero_out and region pooling.
#include "tensorflow_ops/detection/cc/kernels/roi_align_max/roi_align_max.h"
#include "tensorflow_ops/detection/cc/kernels/roi_average/roi_average.h"
#include "tensorflow_ops/detection/cc/kernels/roi_pool/roi_pool.h"
#include "tensorflow_ops/zero_out/cc/kernels/zero_out.h"
#include "tools/gpu/kernel_call.h"

namespace tfo::gpu {
namespace {

FeatureShape Features(const KernelCall& call) {
  return {call.Int("batch"), call.Int("height"), call.Int("width"),
          call.Int("channels"), call.Text("layout") == "NCHW"};
}

PoolGrid Grid(const KernelCall& call) {
  return {call.Int("pooled_height"), call.Int("pooled_width")};
}

RoiArgs Args(const KernelCall& call) {
  return {Features(call), static_cast<float>(call.Number("scale")), Grid(call)};
}

RoiAlignMaxArgs MaxArgs(const KernelCall& call) {
  return {Args(call),
          {static_cast<int32_t>(call.Int("ratio")), call.Int("aligned") != 0}};
}

// With option `levels`, each map is half as high and wide as the one before;
// its smallest box is as large as `smallest_box` of its pixels.
RoiAverageArgs AverageArgs(const KernelCall& call) {
  const RoiAlignMaxArgs first = MaxArgs(call);
  RoiAverageArgs args = {};
  args.batch = first.features.batch;
  args.channels = first.features.channels;
  args.channels_first = first.features.channels_first;
  args.grid = first.grid;
  args.bins =
      call.Text("bins") == "pixels" ? RoiBins::kPixels : RoiBins::kSamples;
  args.sampling = first.sampling;
  const std::string order = call.Text("order");
  args.order = order == "channel_major" ? RoiChannels::kChannelMajor
               : order == "bin_major"   ? RoiChannels::kBinMajor
                                        : RoiChannels::kAll;
  args.num_levels = std::max<int32_t>(call.Int("levels"), 1);
  const double smallest_box = call.Number("smallest_box");
  for (int l = 0; l < args.num_levels; ++l) {
    const float scale = first.spatial_scale / (1 << l);
    args.levels[l] = {first.features.height >> l, first.features.width >> l,
                      scale,
                      l == 0 ? 0 : static_cast<float>(smallest_box / scale)};
  }
  return args;
}

// Boxes for features of T, from buffers i and i + 1.
template <typename T>
Boxes<Coordinate<T>> BoxesOf(const KernelCall& call, int i, T) {
  return {call.Int("boxes"), call.Int("yxyx") != 0, call[i], call[i + 1]};
}

template <typename T>
T* const* Maps(const KernelCall& call, int first, T) {
  return reinterpret_cast<T* const*>(call.Buffers(first));
}

}  // namespace

// input, output
TFO_GPU_KERNEL(zero_out, call) {
  return ZeroOut(call.Gpu(),
                 {call.Int("elements"), call.Int("bytes"), call.Int("keep")},
                 call[0], call[1]);
}

// features, boxes, images, output, argmax
TFO_GPU_KERNEL(roi_pool, call) {
  return call.WithType([&](auto t) {
    return RoiPool<decltype(t)>(call.Gpu(), Args(call), BoxesOf(call, 1, t),
                                call[0], call[3], call[4]);
  });
}

// d_output, argmax, boxes, images, d_features
TFO_GPU_KERNEL(roi_pool_grad, call) {
  return call.WithType([&](auto t) {
    return RoiPoolGrad<decltype(t)>(call.Gpu(), Args(call), BoxesOf(call, 2, t),
                                    call[0], call[1], call[4]);
  });
}

// dd_features, argmax, boxes, images, dd_output
TFO_GPU_KERNEL(roi_pool_grad_grad, call) {
  return call.WithType([&](auto t) {
    return RoiPoolGradGrad<decltype(t)>(
        call.Gpu(), Args(call), BoxesOf(call, 2, t), call[0], call[1], call[4]);
  });
}

// boxes, images, output, features of each level
TFO_GPU_KERNEL(roi_average, call) {
  return call.WithType([&](auto t) {
    return RoiAverage<decltype(t)>(call.Gpu(), AverageArgs(call),
                                   BoxesOf(call, 0, t), Maps(call, 3, t),
                                   call[2]);
  });
}

// boxes, images, d_output, d_features of each level
TFO_GPU_KERNEL(roi_average_grad, call) {
  return call.WithType([&](auto t) {
    return RoiAverageGrad<decltype(t)>(call.Gpu(), AverageArgs(call),
                                       BoxesOf(call, 0, t), call[2],
                                       Maps(call, 3, t));
  });
}

// boxes, images, d_output, d_boxes, features of each level
TFO_GPU_KERNEL(roi_average_boxes_grad, call) {
  return call.WithType([&](auto t) {
    return RoiAverageBoxesGrad<decltype(t)>(call.Gpu(), AverageArgs(call),
                                            BoxesOf(call, 0, t), call[2],
                                            Maps(call, 4, t), call[3]);
  });
}

// features, boxes, images, output
TFO_GPU_KERNEL(roi_align_max, call) {
  return call.WithType([&](auto t) {
    return RoiAlignMax<decltype(t)>(call.Gpu(), MaxArgs(call),
                                    BoxesOf(call, 1, t), call[0], call[3]);
  });
}

// d_output, features, boxes, images, d_features
TFO_GPU_KERNEL(roi_align_max_grad, call) {
  return call.WithType([&](auto t) {
    return RoiAlignMaxGrad<decltype(t)>(call.Gpu(), MaxArgs(call),
                                        BoxesOf(call, 2, t), call[0], call[1],
                                        call[4]);
  });
}

// dd_features, features, boxes, images, dd_output
TFO_GPU_KERNEL(roi_align_max_grad_grad, call) {
  return call.WithType([&](auto t) {
    return RoiAlignMaxGradGrad<decltype(t)>(call.Gpu(), MaxArgs(call),
                                            BoxesOf(call, 2, t), call[0],
                                            call[1], call[4]);
  });
}

// d_output, features, boxes, images, d_boxes
TFO_GPU_KERNEL(roi_align_max_boxes_grad, call) {
  return call.WithType([&](auto t) {
    return RoiAlignMaxBoxesGrad<decltype(t)>(call.Gpu(), MaxArgs(call),
                                             BoxesOf(call, 2, t), call[0],
                                             call[1], call[1], call[4]);
  });
}

}  // namespace tfo::gpu
