// The images of a mask op as planes.
#ifndef TENSORFLOW_OPS_IMAGE_CC_KERNELS_MASKS_MASK_INPUTS_OP_H_
#define TENSORFLOW_OPS_IMAGE_CC_KERNELS_MASKS_MASK_INPUTS_OP_H_

#include <string>

#include "absl/strings/str_cat.h"
#include "tensorflow/core/framework/tensor_shape.h"
#include "tensorflow_ops/image/cc/kernels/masks/planes.h"

namespace tfo {

// Reads [H, W], [N, H, W] or [N, H, W, C].
inline absl::Status ReadPlanes(const ::tensorflow::TensorShape& shape,
                               Planes* planes) {
  const int rank = shape.dims();
  if (rank < 2 || rank > 4) {
    return absl::InvalidArgumentError(
        absl::StrCat("images must be [H, W], [N, H, W] or [N, H, W, C], got ",
                     shape.DebugString()));
  }
  const int batch = rank > 2;
  *planes = {batch ? shape.dim_size(0) : 1, shape.dim_size(batch),
             shape.dim_size(batch + 1), rank > 3 ? shape.dim_size(3) : 1};
  return absl::OkStatus();
}

// Checks the sizes that the algorithms support. Errors show `shape` as that of
// the images.
inline absl::Status CheckImageSides(int64_t height, int64_t width,
                                    const std::string& shape) {
  if (height < kMaxImageSide && width < kMaxImageSide) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("images are ", shape, ", expected height and width below ",
                   kMaxImageSide));
}
inline absl::Status CheckPlanePixels(int64_t height, int64_t width,
                                     const std::string& shape) {
  if (width == 0 || height <= (kMaxPlanePixels - 1) / width) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("images are ", shape, ", expected planes of fewer than ",
                   kMaxPlanePixels, " pixels: labels are int32"));
}

}  // namespace tfo

#endif  // TENSORFLOW_OPS_IMAGE_CC_KERNELS_MASKS_MASK_INPUTS_OP_H_
