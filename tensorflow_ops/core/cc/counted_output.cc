#ifdef TFO_CUDA

#include "tensorflow_ops/core/cc/counted_output.h"

#include <memory>
#include <utility>

#include "tensorflow/core/framework/allocator.h"
#include "tensorflow/core/framework/device_base.h"
#include "tensorflow/core/platform/threadpool.h"
#include "tensorflow_ops/core/cc/host_call.h"

namespace tfo {

void CountedGpuKernel::ComputeAsync(::tensorflow::OpKernelContext* ctx,
                                    DoneCallback done) {
  using ::tensorflow::Tensor;
  struct Pending {
    ::tensorflow::OpKernelContext* ctx;
    DoneCallback done;
    Results results;
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
    TF_RETURN_IF_ERROR(Enqueue(ctx, &pending->results));
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

}  // namespace tfo

#endif  // TFO_CUDA
