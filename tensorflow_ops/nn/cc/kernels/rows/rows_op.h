// Shared by the OpKernels of row functions (rows.h).
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_ROWS_ROWS_OP_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_ROWS_ROWS_OP_H_

#include "tensorflow_ops/core/cc/glue/op_util.h"
#include "tensorflow_ops/nn/cc/kernels/rows/rows.h"

namespace tfo {

// RunRowFunction on the op's device.
template <typename Device, typename Args>
absl::Status RunOnRows(::tensorflow::OpKernelContext* ctx, const Args& args) {
  return RunWithScratch<Device>(
      ctx, [&](const Gpu&) { return RowScratchBytes(args); },
      [&](const Device& device) { return RunRowFunction(device, args); });
}

}  // namespace tfo

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_ROWS_ROWS_OP_H_
