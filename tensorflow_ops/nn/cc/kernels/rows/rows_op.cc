#include "tensorflow_ops/nn/cc/kernels/rows/rows_op.h"

#include <vector>

namespace tfo {

absl::Status ReadNumber(::tensorflow::OpKernelConstruction* ctx,
                        const char* name, double* number) {
  std::vector<float> parts;
  TF_RETURN_IF_ERROR(ctx->GetAttr(name, &parts));
  *number = 0;
  for (const float part : parts) *number += part;
  return absl::OkStatus();
}

}  // namespace tfo
