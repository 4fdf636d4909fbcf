// Results whose size the values of the inputs decide, on a GPU. A kernel may
// not wait for the stream, so these results are set in a callback, when the
// stream has reached it. (On the CPU a kernel allocates them when it knows
// their size.)
#ifndef TENSORFLOW_OPS_CORE_CC_COUNTED_OUTPUT_H_
#define TENSORFLOW_OPS_CORE_CC_COUNTED_OUTPUT_H_

#ifdef TFO_CUDA

#include <vector>

#include "tensorflow_ops/core/cc/op_util.h"

namespace tfo {

// The base of such kernels.
class CountedGpuKernel : public ::tensorflow::AsyncOpKernel {
 public:
  using AsyncOpKernel::AsyncOpKernel;

  void ComputeAsync(::tensorflow::OpKernelContext* ctx,
                    DoneCallback done) override;

 protected:
  // One tensor for each output, of which the op returns the first `count` rows,
  // known once the stream is done. All are in the GPU's memory.
  struct Results {
    std::vector<::tensorflow::Tensor> outputs;
    ::tensorflow::Tensor count;  // [1]
  };
  // Allocates and enqueues the results.
  virtual absl::Status Enqueue(::tensorflow::OpKernelContext* ctx,
                               Results* results) = 0;
};

}  // namespace tfo

#endif  // TFO_CUDA

#endif  // TENSORFLOW_OPS_CORE_CC_COUNTED_OUTPUT_H_
