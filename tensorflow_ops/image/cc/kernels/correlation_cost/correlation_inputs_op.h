// The attrs of correlation_cost, for shape functions and OpKernels.
#ifndef TENSORFLOW_OPS_IMAGE_CC_KERNELS_CORRELATION_COST_CORRELATION_INPUTS_OP_H_
#define TENSORFLOW_OPS_IMAGE_CC_KERNELS_CORRELATION_COST_CORRELATION_INPUTS_OP_H_

#include <string>

#include "absl/strings/str_cat.h"
#include "tensorflow_ops/core/cc/glue/op_util.h"
#include "tensorflow_ops/image/cc/kernels/correlation_cost/correlation_cost.h"

namespace tfo {

// Reads attrs of an InferenceContext or an OpKernelConstruction.
template <typename Context>
absl::Status ReadCorrelationAttrs(Context* ctx, CorrelationSpec* args) {
  *args = {};
  struct Option {
    const char* name;
    int64_t* value;
    int64_t least;
  };
  const Option options[] = {{"max_displacement", &args->max_displacement, 0},
                            {"kernel_size", &args->kernel_size, 1},
                            {"stride_1", &args->stride_1, 1},
                            {"stride_2", &args->stride_2, 1},
                            {"padding", &args->padding, 0}};
  for (const Option& option : options) {
    TF_RETURN_IF_ERROR(ctx->GetAttr(option.name, option.value));
    if (*option.value < option.least || *option.value > kMaxCorrelationOption) {
      return absl::InvalidArgumentError(
          absl::StrCat(option.name, " is ", *option.value, ", expected [",
                       option.least, ", ", kMaxCorrelationOption, "]"));
    }
  }
  if (args->kernel_size % 2 == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "kernel_size is ", args->kernel_size, ", expected an odd number"));
  }
  return absl::OkStatus();
}

}  // namespace tfo

#endif  // TENSORFLOW_OPS_IMAGE_CC_KERNELS_CORRELATION_COST_CORRELATION_INPUTS_OP_H_
