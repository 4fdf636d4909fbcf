#ifdef TFO_CUDA

#include "tensorflow_ops/core/cc/counted_output.h"

#include <memory>
#include <utility>

#include "tensorflow/core/framework/allocator.h"
#include "tensorflow/core/framework/device.h"

namespace tfo {

void CountedGpuKernel::ComputeAsync(::tensorflow::OpKernelContext* ctx,
                                    DoneCallback done) {
  using ::tensorflow::Tensor;
  struct Pending {
    Results results;
    Tensor count;  // on the host
  };
  const auto pending = std::make_shared<Pending>();
  OP_REQUIRES_OK_ASYNC(ctx, Enqueue(ctx, &pending->results), done);
  ::tensorflow::AllocatorAttributes pinned;
  pinned.set_on_host(true);
  pinned.set_gpu_compatible(true);
  OP_REQUIRES_OK_ASYNC(
      ctx,
      ctx->allocate_temp(::tensorflow::DT_INT32, ::tensorflow::TensorShape({1}),
                         &pending->count, pinned),
      done);
  // TensorFlow calls back once the stream has reached the copy, or has failed.
  ctx->op_device_context()->CopyDeviceTensorToCPU(
      &pending->results.count, "count",
      static_cast<::tensorflow::Device*>(ctx->device()), &pending->count,
      [ctx, pending, done = std::move(done)](const absl::Status& copied) {
        OP_REQUIRES_OK_ASYNC(ctx, copied, done);
        const int32_t n = *Data<int32_t>(pending->count);
        auto& outputs = pending->results.outputs;
        for (size_t i = 0; i < outputs.size(); ++i) {
          ctx->set_output(static_cast<int>(i), outputs[i].Slice(0, n));
        }
        outputs.clear();
        done();
      });
}

}  // namespace tfo

#endif  // TFO_CUDA
