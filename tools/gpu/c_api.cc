// A C interface to the algorithm files, so that Python calls them through
// ctypes on a machine without TensorFlow. One function per algorithm, all
// alike: place, dtype, sizes, then pointers in the algorithm's order. It
// returns null, or what is wrong.
#include "tensorflow_ops/core/cc/cpu_dispatch.h"
#include "tensorflow_ops/core/cc/device.h"
#include "tensorflow_ops/core/cc/float16.h"
#include "tensorflow_ops/detection/cc/kernels/roi_align_max.h"
#include "tensorflow_ops/detection/cc/kernels/roi_average.h"
#include "tensorflow_ops/detection/cc/kernels/roi_pool.h"
#include "tensorflow_ops/zero_out/cc/kernels/zero_out.h"

#define TFO_C_API extern "C" __attribute__((visibility("default")))

namespace tfo {
namespace {

// Where to run: on one thread of the processor, or on a stream of the GPU.
struct Place {
  int32_t on_gpu;
  void* stream;
};

// Calls run(device, T{}): the overload of the place, the type of the code.
template <typename T, typename Run>
Error OnPlace(const Place& place, const Run& run) {
  return place.on_gpu ? run(Gpu{place.stream}, T{}) : run(Cpu{}, T{});
}
template <typename Run>
Error Dispatch(const Place& place, int32_t dtype, const Run& run) {
  switch (dtype) {
    case 0:
      return OnPlace<float>(place, run);
    case 1:
      return OnPlace<double>(place, run);
    case 2:
      return OnPlace<Half>(place, run);
    case 3:
      return OnPlace<BFloat16>(place, run);
    default:
      return "no kernel for this dtype";
  }
}

// A void pointer that becomes the pointer a parameter asks for.
struct Pointer {
  void* address;
  template <typename T>
  operator T*() const {
    return static_cast<T*>(address);
  }
};

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

// bindings.py declares the structs of sizes again, and compares with these.
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

}  // namespace tfo
