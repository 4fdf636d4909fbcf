// The shapes of depthwise_conv2d's tensors, for its shape function and its
// kernels.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_DEPTHWISE_CONV_DEPTHWISE_CONV_SHAPES_OP_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_DEPTHWISE_CONV_DEPTHWISE_CONV_SHAPES_OP_H_

#include "tensorflow_ops/core/cc/glue/conv_attrs.h"
#include "tensorflow_ops/core/cc/glue/op_util.h"
#include "tensorflow_ops/nn/cc/kernels/depthwise_conv/depthwise_conv.h"

namespace tfo {

// Of axis 0 (height) or 1 (width). Outputs are -1 if the filter is larger.
inline ConvAxis AxisOf(const ConvAttrs& attrs, int axis, int64_t size,
                       int64_t taps) {
  ConvAxis a{size, 0, taps, attrs.strides[axis], attrs.dilations[axis], 0};
  a.outputs = attrs.OutputSize(axis, size, taps, &a.before);
  return a;
}

}  // namespace tfo

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_DEPTHWISE_CONV_DEPTHWISE_CONV_SHAPES_OP_H_
