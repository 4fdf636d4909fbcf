// The C interface (c_api.h) of zero_out and tfo.detection.
#include "tools/gpu/c_api.h"

#include "tensorflow_ops/core/cc/cpu_dispatch.h"
#include "tensorflow_ops/detection/cc/kernels/roi_align_max.h"
#include "tensorflow_ops/detection/cc/kernels/roi_average.h"
#include "tensorflow_ops/detection/cc/kernels/roi_pool.h"
#include "tensorflow_ops/zero_out/cc/kernels/zero_out.h"

namespace tfo {
namespace {

// The processor has one way to the gradient, a GPU two.
template <typename T>
Error AverageGrad(const Cpu& cpu, const RoiAverageArgs& args,
                  bool /*deterministic*/, const T* d_output,
                  const Coordinate<T>* boxes, const int32_t* box_indices,
                  T* const* d_features) {
  return RoiAverageGrad(cpu, args, d_output, boxes, box_indices, d_features);
}
template <typename T>
Error AverageGrad(const Gpu& gpu, const RoiAverageArgs& args,
                  bool deterministic, const T* d_output,
                  const Coordinate<T>* boxes, const int32_t* box_indices,
                  T* const* d_features) {
  return RoiAverageGrad(gpu, args, deterministic, d_output, boxes, box_indices,
                        d_features);
}

}  // namespace

TFO_C_API int64_t tfo_size_of_zero_out_args() { return sizeof(ZeroOutArgs); }
TFO_C_API int64_t tfo_size_of_roi_args() { return sizeof(RoiArgs); }
TFO_C_API int64_t tfo_size_of_roi_average_args() {
  return sizeof(RoiAverageArgs);
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
                             const RoiArgs* args, Pointer features,
                             Pointer boxes, Pointer box_indices, Pointer output,
                             Pointer argmax) {
  return Dispatch(*place, dtype, [&](auto device, auto t) {
    return RoiPool<decltype(t)>(device, *args, features, boxes, box_indices,
                                output, argmax);
  });
}

TFO_C_API Error tfo_roi_pool_grad(const Place* place, int32_t dtype,
                                  const RoiArgs* args, Pointer d_output,
                                  Pointer argmax, Pointer boxes,
                                  Pointer box_indices, Pointer d_features) {
  return Dispatch(*place, dtype, [&](auto device, auto t) {
    return RoiPoolGrad<decltype(t)>(device, *args, d_output, argmax, boxes,
                                    box_indices, d_features);
  });
}

TFO_C_API Error tfo_roi_pool_grad_grad(const Place* place, int32_t dtype,
                                       const RoiArgs* args, Pointer dd_features,
                                       Pointer argmax, Pointer boxes,
                                       Pointer box_indices, Pointer dd_output) {
  return Dispatch(*place, dtype, [&](auto device, auto t) {
    return RoiPoolGradGrad<decltype(t)>(device, *args, dd_features, argmax,
                                        boxes, box_indices, dd_output);
  });
}

// `features` and `d_features` are arrays of pointers, one per level.
TFO_C_API Error tfo_roi_average(const Place* place, int32_t dtype,
                                const RoiAverageArgs* args, Pointer features,
                                Pointer boxes, Pointer box_indices,
                                Pointer output) {
  return Dispatch(*place, dtype, [&](auto device, auto t) {
    return RoiAverage<decltype(t)>(device, *args, features, boxes, box_indices,
                                   output);
  });
}

// The gradient that is the same from run to run, and the one that need not be.
TFO_C_API Error tfo_roi_average_grad(const Place* place, int32_t dtype,
                                     const RoiAverageArgs* args,
                                     Pointer d_output, Pointer boxes,
                                     Pointer box_indices, Pointer d_features) {
  return Dispatch(*place, dtype, [&](auto device, auto t) {
    return AverageGrad<decltype(t)>(device, *args, true, d_output, boxes,
                                    box_indices, d_features);
  });
}
TFO_C_API Error tfo_roi_average_fast_grad(const Place* place, int32_t dtype,
                                          const RoiAverageArgs* args,
                                          Pointer d_output, Pointer boxes,
                                          Pointer box_indices,
                                          Pointer d_features) {
  return Dispatch(*place, dtype, [&](auto device, auto t) {
    return AverageGrad<decltype(t)>(device, *args, false, d_output, boxes,
                                    box_indices, d_features);
  });
}

TFO_C_API Error tfo_roi_average_boxes_grad(const Place* place, int32_t dtype,
                                           const RoiAverageArgs* args,
                                           Pointer d_output, Pointer features,
                                           Pointer boxes, Pointer box_indices,
                                           Pointer d_boxes) {
  return Dispatch(*place, dtype, [&](auto device, auto t) {
    return RoiAverageBoxesGrad<decltype(t)>(device, *args, d_output, features,
                                            boxes, box_indices, d_boxes);
  });
}

// Of the sizes, `roi` and `sampling` are used.
TFO_C_API Error tfo_roi_align_max(const Place* place, int32_t dtype,
                                  const RoiAverageArgs* args, Pointer features,
                                  Pointer values, Pointer boxes,
                                  Pointer box_indices, Pointer output) {
  return Dispatch(*place, dtype, [&](auto device, auto t) {
    return RoiAlignMax<decltype(t)>(device, args->roi, args->sampling, features,
                                    values, boxes, box_indices, output);
  });
}

TFO_C_API Error tfo_roi_align_max_grad(const Place* place, int32_t dtype,
                                       const RoiAverageArgs* args,
                                       Pointer d_output, Pointer features,
                                       Pointer boxes, Pointer box_indices,
                                       Pointer d_features) {
  return Dispatch(*place, dtype, [&](auto device, auto t) {
    return RoiAlignMaxGrad<decltype(t)>(device, args->roi, args->sampling,
                                        d_output, features, boxes, box_indices,
                                        d_features);
  });
}

TFO_C_API Error tfo_roi_align_max_boxes_grad(const Place* place, int32_t dtype,
                                             const RoiAverageArgs* args,
                                             Pointer d_output, Pointer features,
                                             Pointer values, Pointer boxes,
                                             Pointer box_indices,
                                             Pointer d_boxes) {
  return Dispatch(*place, dtype, [&](auto device, auto t) {
    return RoiAlignMaxBoxesGrad<decltype(t)>(device, args->roi, args->sampling,
                                             d_output, features, values, boxes,
                                             box_indices, d_boxes);
  });
}

}  // namespace tfo
