// The images of a mask op as planes.
#ifndef TENSORFLOW_OPS_IMAGE_CC_KERNELS_MASKS_MASK_INPUTS_OP_H_
#define TENSORFLOW_OPS_IMAGE_CC_KERNELS_MASKS_MASK_INPUTS_OP_H_

#include "tensorflow/core/framework/tensor_shape.h"
#include "tensorflow_ops/image/cc/kernels/masks/planes.h"

namespace tfo {

// Images [H, W], [N, H, W] or [N, H, W, C].
inline Planes PlanesOf(const ::tensorflow::TensorShape& shape) {
  const int rank = shape.dims(), batch = rank > 2;
  return {batch ? shape.dim_size(0) : 1, shape.dim_size(batch),
          shape.dim_size(batch + 1), rank > 3 ? shape.dim_size(3) : 1};
}

}  // namespace tfo

#endif  // TENSORFLOW_OPS_IMAGE_CC_KERNELS_MASKS_MASK_INPUTS_OP_H_
