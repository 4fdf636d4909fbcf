#include "tensorflow_ops/core/cc/glue/counted_output.h"

#include <cstring>
#include <memory>
#include <utility>

#include "tensorflow/core/framework/allocator.h"
#include "tensorflow/core/framework/device.h"

namespace tfo {

void CountedKernel<Cpu>::Compute(::tensorflow::OpKernelContext* ctx) {
  CountedOutputs results;
  OP_REQUIRES_OK(ctx, Run(ctx, &results));
  const int32_t n = *Data<int32_t>(results.count);
  for (size_t i = 0; i < results.outputs.size(); ++i) {
    // A slice would keep the memory of all values.
    const ::tensorflow::Tensor some = results.outputs[i].Slice(0, n);
    ::tensorflow::Tensor* output;
    OP_REQUIRES_OK(
        ctx, ctx->allocate_output(static_cast<int>(i), some.shape(), &output));
    if (n > 0) std::memcpy(output->data(), some.data(), some.TotalBytes());
  }
}

#ifdef TFO_CUDA
void CountedKernel<Gpu>::ComputeAsync(::tensorflow::OpKernelContext* ctx,
                                      DoneCallback done) {
  struct Pending {
    CountedOutputs results;
    ::tensorflow::Tensor count;  // on the host
  };
  // Not a std::shared_ptr, which requires glibc 2.32.
  auto pending = std::make_unique<Pending>();
  OP_REQUIRES_OK_ASYNC(ctx, Run(ctx, &pending->results), done);
  ::tensorflow::AllocatorAttributes pinned;
  pinned.set_on_host(true);
  pinned.set_gpu_compatible(true);
  OP_REQUIRES_OK_ASYNC(
      ctx,
      ctx->allocate_temp(::tensorflow::DT_INT32, ::tensorflow::TensorShape({1}),
                         &pending->count, pinned),
      done);
  // TensorFlow calls back once the stream has reached the copy, or has failed.
  Pending* const owned = pending.release();
  ctx->op_device_context()->CopyDeviceTensorToCPU(
      &owned->results.count, "count",
      static_cast<::tensorflow::Device*>(ctx->device()), &owned->count,
      [ctx, owned, done = std::move(done)](const absl::Status& copied) {
        if (copied.ok()) {
          const int32_t n = *Data<int32_t>(owned->count);
          const auto& outputs = owned->results.outputs;
          for (size_t i = 0; i < outputs.size(); ++i) {
            ctx->set_output(static_cast<int>(i), outputs[i].Slice(0, n));
          }
        } else {
          ctx->CtxFailure(copied);
        }
        delete owned;
        done();
      });
}
#endif  // TFO_CUDA

}  // namespace tfo
