// Shared by the OpKernels of suppression.
#ifndef TENSORFLOW_OPS_DETECTION_CC_KERNELS_BOXES_BOXES_OP_H_
#define TENSORFLOW_OPS_DETECTION_CC_KERNELS_BOXES_BOXES_OP_H_

#include "tensorflow_ops/core/cc/glue/op_util.h"
#include "tensorflow_ops/detection/cc/kernels/boxes/box.h"

namespace tfo {

inline absl::Status ReadBoxFormat(::tensorflow::OpKernelConstruction* ctx,
                                  BoxFormat* format) {
  return ReadEnum(ctx, "box_format", kBoxFormats, format);
}

}  // namespace tfo

#endif  // TENSORFLOW_OPS_DETECTION_CC_KERNELS_BOXES_BOXES_OP_H_
