// Reads the arguments of the nms family from TensorFlow's contexts.
#ifndef TENSORFLOW_OPS_DETECTION_CC_KERNELS_NMS_NMS_INPUTS_OP_H_
#define TENSORFLOW_OPS_DETECTION_CC_KERNELS_NMS_NMS_INPUTS_OP_H_

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "tensorflow_ops/core/cc/glue/op_util.h"
#include "tensorflow_ops/detection/cc/kernels/boxes/boxes_op.h"

namespace tfo {

// Reads an input in host memory, a scalar.
template <typename T>
absl::Status ReadScalar(::tensorflow::OpKernelContext* ctx, const char* name,
                        T* value) {
  const ::tensorflow::Tensor* tensor;
  TF_RETURN_IF_ERROR(ctx->input(name, &tensor));
  *value = *Data<T>(*tensor);
  return absl::OkStatus();
}

template <typename Args>
absl::Status ReadThresholds(::tensorflow::OpKernelContext* ctx, Args* args) {
  TF_RETURN_IF_ERROR(ReadScalar(ctx, "iou_threshold", &args->iou_threshold));
  if (!(args->iou_threshold >= 0 && args->iou_threshold <= 1)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "iou_threshold is ", args->iou_threshold, ", expected [0, 1]"));
  }
  return ReadScalar(ctx, "score_threshold", &args->score_threshold);
}

// Reads an int32 input; refuses values below `least`.
inline absl::Status ReadLimit(::tensorflow::OpKernelContext* ctx,
                              const char* name, int32_t least, int64_t* value) {
  int32_t limit = 0;
  TF_RETURN_IF_ERROR(ReadScalar(ctx, name, &limit));
  *value = limit;
  if (limit >= least) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name, " is ", limit, ", expected at least ", least));
}

// Refuses multiclass_nms's max_outputs if most of it were padding, which may
// exceed the memory. `scores`: of an image.
inline absl::Status CheckPadding(int64_t max_outputs, int64_t scores) {
  constexpr int64_t kMaxPadded = int64_t{1} << 20;
  const int64_t most = std::max(scores, kMaxPadded);
  if (max_outputs <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "max_outputs is ", max_outputs, ", expected at most ", most,
      ": the larger of 2^20 and the ", scores, " scores of an image"));
}

// Reads boxes [K, 4] and scores [K].
template <template <typename> class Args, typename T>
absl::Status ReadBoxesAndScores(::tensorflow::OpKernelContext* ctx,
                                Args<T>* args) {
  const ::tensorflow::Tensor &boxes = ctx->input(0), &scores = ctx->input(1);
  args->num_boxes = boxes.dim_size(0);
  if (args->num_boxes > std::numeric_limits<int32_t>::max()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "boxes are ", args->num_boxes, ", expected less than 2^31"));
  }
  args->boxes = Data<T>(boxes);
  args->scores = Data<T>(scores);
  return absl::OkStatus();
}

}  // namespace tfo

#endif  // TENSORFLOW_OPS_DETECTION_CC_KERNELS_NMS_NMS_INPUTS_OP_H_
