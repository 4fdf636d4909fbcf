// Shared by the OpKernels that read boxes: of overlap and of suppression.
#ifndef TENSORFLOW_OPS_DETECTION_CC_KERNELS_BOXES_BOXES_OP_H_
#define TENSORFLOW_OPS_DETECTION_CC_KERNELS_BOXES_BOXES_OP_H_

#include "tensorflow_ops/core/cc/op_util.h"
#include "tensorflow_ops/detection/cc/kernels/boxes/box.h"

namespace tfo {

inline absl::Status ReadBoxFormat(::tensorflow::OpKernelConstruction* ctx,
                                  BoxFormat* format) {
  return ReadEnum(ctx, "box_format",
                  {{"xyxy", BoxFormat::kXyxy},
                   {"yxyx", BoxFormat::kYxyx},
                   {"cxcywhr", BoxFormat::kRotated}},
                  format);
}

}  // namespace tfo

// Registers Kernel<Device, T> for float and double: the wrappers cast 16-bit
// boxes and scores.
#define TFO_REGISTER_WIDE_KERNELS_ON(op, device, Kernel, OnDevice, ...)      \
  TFO_REGISTER_KERNEL_FOR(op, device, Kernel, OnDevice, float, __VA_ARGS__); \
  TFO_REGISTER_KERNEL_FOR(op, device, Kernel, OnDevice, double, __VA_ARGS__)
#ifdef TFO_CUDA
#define TFO_REGISTER_WIDE_KERNELS(op, Kernel, ...)                             \
  TFO_REGISTER_WIDE_KERNELS_ON(op, ::tensorflow::DEVICE_CPU, Kernel,           \
                               ::tfo::Cpu, __VA_ARGS__);                       \
  TFO_REGISTER_WIDE_KERNELS_ON(op, ::tfo::GpuDeviceType(), Kernel, ::tfo::Gpu, \
                               __VA_ARGS__)
#else
#define TFO_REGISTER_WIDE_KERNELS(op, Kernel, ...)                   \
  TFO_REGISTER_WIDE_KERNELS_ON(op, ::tensorflow::DEVICE_CPU, Kernel, \
                               ::tfo::Cpu, __VA_ARGS__)
#endif

#endif  // TENSORFLOW_OPS_DETECTION_CC_KERNELS_BOXES_BOXES_OP_H_
