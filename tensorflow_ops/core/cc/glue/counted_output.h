// Results whose size the values of the inputs decide.
#ifndef TENSORFLOW_OPS_CORE_CC_GLUE_COUNTED_OUTPUT_H_
#define TENSORFLOW_OPS_CORE_CC_GLUE_COUNTED_OUTPUT_H_

#include <vector>

#include "tensorflow_ops/core/cc/glue/op_util.h"

namespace tfo {

// Memory for an op's outputs, which are vectors, and for their size.
struct CountedOutputs {
  std::vector<::tensorflow::Tensor> outputs;
  ::tensorflow::Tensor count;  // [1]

  // Allocates `most` values of each output; sets pointers to the count and to
  // the values.
  template <typename... T>
  absl::Status Allocate(::tensorflow::OpKernelContext* ctx, int64_t most,
                        int32_t** count_data, T**... data) {
    absl::Status status;
    const auto allocate = [&](int64_t n, auto** values,
                              ::tensorflow::Tensor* memory) {
      using Value = std::decay_t<decltype(**values)>;
      status = ctx->allocate_temp(DataTypeOf<Value>::kValue,
                                  ::tensorflow::TensorShape({n}), memory);
      if (status.ok()) *values = Data<Value>(memory);
      return status.ok();
    };
    outputs.resize(sizeof...(T));
    size_t i = 0;
    (void)(allocate(1, count_data, &count) && ... &&
           allocate(most, data, &outputs[i++]));
    return status;
  }
};

// The base of such kernels: returns the first values, as many as Run's count.
template <typename Device>
class CountedKernel;

template <>
class CountedKernel<Cpu> : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(::tensorflow::OpKernelContext* ctx) override;

 protected:
  virtual absl::Status Run(::tensorflow::OpKernelContext* ctx,
                           CountedOutputs* results) = 0;
};

#ifdef TFO_CUDA
// A kernel may not wait for the stream, so the outputs are set in a callback,
// when the stream has reached it.
template <>
class CountedKernel<Gpu> : public ::tensorflow::AsyncOpKernel {
 public:
  using AsyncOpKernel::AsyncOpKernel;

  void ComputeAsync(::tensorflow::OpKernelContext* ctx,
                    DoneCallback done) override;

 protected:
  virtual absl::Status Run(::tensorflow::OpKernelContext* ctx,
                           CountedOutputs* results) = 0;
};
#endif

}  // namespace tfo

#endif  // TENSORFLOW_OPS_CORE_CC_GLUE_COUNTED_OUTPUT_H_
