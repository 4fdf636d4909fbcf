// Memory for the states of parts of rows, which the GPU's functions need where
// rows are long and few (core/cc/row_parts.h).
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_ROW_SCRATCH_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_ROW_SCRATCH_H_

#include "tensorflow_ops/core/cc/row_parts.h"
#include "tensorflow_ops/nn/cc/kernels/row_check.h"

namespace tfo {

// Null on the processor and where rows are not cut.
template <typename Value>
struct RowScratchMemory {
  ::tensorflow::Tensor tensor;
  Value* data = nullptr;

  template <typename Device>
  absl::Status Allocate(::tensorflow::OpKernelContext* ctx,
                        const RowsOf& rows) {
    const int64_t size = RowScratch(rows.rows, rows.classes);
    if (std::is_same_v<Device, Cpu> || size == 0) return absl::OkStatus();
    TF_RETURN_IF_ERROR(ctx->allocate_temp(
        DataTypeOf<Value>::kValue, ::tensorflow::TensorShape({size}), &tensor));
    data = Data<Value>(&tensor);
    return absl::OkStatus();
  }
};

}  // namespace tfo

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_ROW_SCRATCH_H_
