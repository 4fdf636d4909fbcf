// The C interface (c_api.h) of zero_out and tfo.detection.
#include "tools/gpu/c_api.h"

#include <algorithm>

#include "tensorflow_ops/core/cc/cpu_dispatch.h"
#include "tensorflow_ops/detection/cc/kernels/roi_align_max.h"
#include "tensorflow_ops/detection/cc/kernels/roi_average.h"
#include "tensorflow_ops/detection/cc/kernels/roi_pool.h"
#include "tensorflow_ops/zero_out/cc/kernels/zero_out.h"

namespace tfo {
namespace {

// The sizes of a region pooling problem.
struct CRoiArgs {
  int64_t batch, height, width, channels, num_boxes;
  int64_t pooled_height, pooled_width;
  float spatial_scale;
  bool channels_first, yxyx;
};

// The same for ops whose bins are averages; the first level's height, width and
// scale are in `roi`, too.
struct CRoiAverageArgs {
  CRoiArgs roi;
  RoiBins bins;
  RoiSampling sampling;
  RoiChannels order;
  int32_t num_levels;
  RoiLevel levels[kMaxLevels];
};

RoiArgs ToArgs(const CRoiArgs& c) {
  return {{c.batch, c.height, c.width, c.channels, c.channels_first},
          c.spatial_scale,
          {c.pooled_height, c.pooled_width}};
}
RoiAlignMaxArgs ToMaxArgs(const CRoiAverageArgs& c) {
  return {ToArgs(c.roi), c.sampling};
}
RoiAverageArgs ToArgs(const CRoiAverageArgs& c) {
  RoiAverageArgs args = {};
  args.batch = c.roi.batch;
  args.channels = c.roi.channels;
  args.channels_first = c.roi.channels_first;
  args.grid = {c.roi.pooled_height, c.roi.pooled_width};
  args.bins = c.bins;
  args.sampling = c.sampling;
  args.order = c.order;
  args.num_levels = c.num_levels;
  std::copy(c.levels, c.levels + kMaxLevels, args.levels);
  return args;
}

// Boxes for features of T.
template <typename T>
Boxes<Coordinate<T>> ToBoxes(const CRoiArgs& c, Pointer boxes,
                             Pointer box_indices) {
  return {c.num_boxes, c.yxyx, boxes, box_indices};
}

Cpu Deterministic(const Cpu& cpu) { return cpu; }
Gpu Deterministic(Gpu gpu) {
  gpu.deterministic = true;
  return gpu;
}

}  // namespace

TFO_C_API int64_t tfo_size_of_zero_out_args() { return sizeof(ZeroOutArgs); }
TFO_C_API int64_t tfo_size_of_roi_args() { return sizeof(CRoiArgs); }
TFO_C_API int64_t tfo_size_of_roi_average_args() {
  return sizeof(CRoiAverageArgs);
}

TFO_C_API const char* tfo_cpu_level() { return CpuLevelName(ActiveCpuLevel()); }

TFO_C_API Error tfo_zero_out(const Place* place, int32_t /*any*/,
                             const ZeroOutArgs* args, Pointer input,
                             Pointer output) {
  return OnPlace<float>(*place, [&](auto device, auto) {
    return ZeroOut(device, *args, input, output);
  });
}

TFO_C_API Error tfo_roi_pool(const Place* place, int32_t dtype,
                             const CRoiArgs* args, Pointer features,
                             Pointer boxes, Pointer box_indices, Pointer output,
                             Pointer argmax) {
  return Dispatch(*place, dtype, [&](auto device, auto t) {
    return RoiPool<decltype(t)>(device, ToArgs(*args),
                                ToBoxes<decltype(t)>(*args, boxes, box_indices),
                                features, output, argmax);
  });
}

TFO_C_API Error tfo_roi_pool_grad(const Place* place, int32_t dtype,
                                  const CRoiArgs* args, Pointer d_output,
                                  Pointer argmax, Pointer boxes,
                                  Pointer box_indices, Pointer d_features) {
  return Dispatch(*place, dtype, [&](auto device, auto t) {
    return RoiPoolGrad<decltype(t)>(
        device, ToArgs(*args), ToBoxes<decltype(t)>(*args, boxes, box_indices),
        d_output, argmax, d_features);
  });
}

TFO_C_API Error tfo_roi_pool_grad_grad(const Place* place, int32_t dtype,
                                       const CRoiArgs* args,
                                       Pointer dd_features, Pointer argmax,
                                       Pointer boxes, Pointer box_indices,
                                       Pointer dd_output) {
  return Dispatch(*place, dtype, [&](auto device, auto t) {
    return RoiPoolGradGrad<decltype(t)>(
        device, ToArgs(*args), ToBoxes<decltype(t)>(*args, boxes, box_indices),
        dd_features, argmax, dd_output);
  });
}

// `features` and `d_features` are arrays of pointers, one per level.
TFO_C_API Error tfo_roi_average(const Place* place, int32_t dtype,
                                const CRoiAverageArgs* args, Pointer features,
                                Pointer boxes, Pointer box_indices,
                                Pointer output) {
  return Dispatch(*place, dtype, [&](auto device, auto t) {
    return RoiAverage<decltype(t)>(
        device, ToArgs(*args),
        ToBoxes<decltype(t)>(args->roi, boxes, box_indices), features, output);
  });
}

// The gradient that is the same from run to run, and the one that need not be.
TFO_C_API Error tfo_roi_average_grad(const Place* place, int32_t dtype,
                                     const CRoiAverageArgs* args,
                                     Pointer d_output, Pointer boxes,
                                     Pointer box_indices, Pointer d_features) {
  return Dispatch(*place, dtype, [&](auto device, auto t) {
    return RoiAverageGrad<decltype(t)>(
        Deterministic(device), ToArgs(*args),
        ToBoxes<decltype(t)>(args->roi, boxes, box_indices), d_output,
        d_features);
  });
}
TFO_C_API Error tfo_roi_average_fast_grad(const Place* place, int32_t dtype,
                                          const CRoiAverageArgs* args,
                                          Pointer d_output, Pointer boxes,
                                          Pointer box_indices,
                                          Pointer d_features) {
  return Dispatch(*place, dtype, [&](auto device, auto t) {
    return RoiAverageGrad<decltype(t)>(
        device, ToArgs(*args),
        ToBoxes<decltype(t)>(args->roi, boxes, box_indices), d_output,
        d_features);
  });
}

TFO_C_API Error tfo_roi_average_boxes_grad(const Place* place, int32_t dtype,
                                           const CRoiAverageArgs* args,
                                           Pointer d_output, Pointer features,
                                           Pointer boxes, Pointer box_indices,
                                           Pointer d_boxes) {
  return Dispatch(*place, dtype, [&](auto device, auto t) {
    return RoiAverageBoxesGrad<decltype(t)>(
        device, ToArgs(*args),
        ToBoxes<decltype(t)>(args->roi, boxes, box_indices), d_output, features,
        d_boxes);
  });
}

// Of the sizes, `roi` and `sampling` are used. With other values than the
// features this is the gradient's gradient.
TFO_C_API Error tfo_roi_align_max(const Place* place, int32_t dtype,
                                  const CRoiAverageArgs* args, Pointer features,
                                  Pointer values, Pointer boxes,
                                  Pointer box_indices, Pointer output) {
  return Dispatch(*place, dtype, [&](auto device, auto t) {
    const auto c_boxes = ToBoxes<decltype(t)>(args->roi, boxes, box_indices);
    if (values.address == features.address) {
      return RoiAlignMax<decltype(t)>(device, ToMaxArgs(*args), c_boxes,
                                      features, output);
    }
    return RoiAlignMaxGradGrad<decltype(t)>(device, ToMaxArgs(*args), c_boxes,
                                            values, features, output);
  });
}

TFO_C_API Error tfo_roi_align_max_grad(const Place* place, int32_t dtype,
                                       const CRoiAverageArgs* args,
                                       Pointer d_output, Pointer features,
                                       Pointer boxes, Pointer box_indices,
                                       Pointer d_features) {
  return Dispatch(*place, dtype, [&](auto device, auto t) {
    return RoiAlignMaxGrad<decltype(t)>(
        device, ToMaxArgs(*args),
        ToBoxes<decltype(t)>(args->roi, boxes, box_indices), d_output, features,
        d_features);
  });
}

TFO_C_API Error tfo_roi_align_max_boxes_grad(const Place* place, int32_t dtype,
                                             const CRoiAverageArgs* args,
                                             Pointer d_output, Pointer features,
                                             Pointer values, Pointer boxes,
                                             Pointer box_indices,
                                             Pointer d_boxes) {
  return Dispatch(*place, dtype, [&](auto device, auto t) {
    return RoiAlignMaxBoxesGrad<decltype(t)>(
        device, ToMaxArgs(*args),
        ToBoxes<decltype(t)>(args->roi, boxes, box_indices), d_output, features,
        values, d_boxes);
  });
}

}  // namespace tfo
