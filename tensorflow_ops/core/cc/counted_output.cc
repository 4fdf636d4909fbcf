#include "tensorflow_ops/core/cc/counted_output.h"

#include <cstring>
#include <memory>
#include <utility>

#include "tensorflow/core/framework/allocator.h"
#include "tensorflow/core/framework/device_base.h"
#include "tensorflow/core/platform/threadpool.h"
#include "tensorflow_ops/core/cc/host_call.h"

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
  using ::tensorflow::Tensor;
  struct Pending {
    ::tensorflow::OpKernelContext* ctx;
    DoneCallback done;
    CountedOutputs results;
    Tensor count;  // on the host

    void Finish() {
      const int32_t n = *Data<int32_t>(count);
      for (size_t i = 0; i < results.outputs.size(); ++i) {
        ctx->set_output(static_cast<int>(i), results.outputs[i].Slice(0, n));
      }
      results = {};
      done();
    }
  };
  auto pending = std::make_unique<Pending>();
  pending->ctx = ctx;
  pending->done = std::move(done);
  const auto start = [&]() -> absl::Status {
    TF_RETURN_IF_ERROR(Run(ctx, &pending->results));
    ::tensorflow::AllocatorAttributes pinned;
    pinned.set_on_host(true);
    pinned.set_gpu_compatible(true);
    TF_RETURN_IF_ERROR(ctx->allocate_temp(::tensorflow::DT_INT32,
                                          ::tensorflow::TensorShape({1}),
                                          &pending->count, pinned));
    const Gpu gpu = GetDevice<Gpu>(ctx);
    TF_RETURN_IF_ERROR(ToStatus(EnqueueCopyToHost(gpu, pending->count.data(),
                                                  pending->results.count.data(),
                                                  sizeof(int32_t))));
    // The driver's thread must not call CUDA, which `done` may do.
    return ToStatus(EnqueueHostCall(
        gpu,
        [](void* argument) {
          auto* const finished = static_cast<Pending*>(argument);
          const auto* workers =
              finished->ctx->device()->tensorflow_cpu_worker_threads();
          workers->workers->Schedule([finished] {
            const std::unique_ptr<Pending> owned(finished);
            owned->Finish();
          });
        },
        pending.get()));
  };
  const absl::Status status = start();
  if (status.ok()) {
    pending.release();  // the callback owns it
    return;
  }
  ctx->CtxFailure(status);
  pending->done();
}

#endif  // TFO_CUDA

}  // namespace tfo
