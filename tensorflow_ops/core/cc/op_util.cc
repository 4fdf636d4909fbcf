#include "tensorflow_ops/core/cc/op_util.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tensorflow/core/framework/device_base.h"
#include "tensorflow/core/platform/threadpool.h"
#include "tensorflow_ops/core/cc/cpu_dispatch.h"
#include "tensorflow_ops/core/cc/shared_loop.h"
#ifdef TFO_CUDA
#include "xla/stream_executor/stream.h"
#endif

namespace tfo {

OpKernel::OpKernel(::tensorflow::OpKernelConstruction* ctx)
    : ::tensorflow::OpKernel(ctx) {
  const char* error = CpuLevelError();
  OP_REQUIRES(ctx, error == nullptr, absl::InvalidArgumentError(error));
}

template <>
Cpu GetDevice<Cpu>(::tensorflow::OpKernelContext* ctx) {
  const auto* workers = ctx->device()->tensorflow_cpu_worker_threads();
  Cpu cpu;
  cpu.pool = workers->workers;
  cpu.num_threads = workers->num_threads;
  cpu.run = [](void* pool, int64_t total, double cycles_per_unit,
               const Cpu::Body& body) {
    auto* threads = static_cast<::tensorflow::thread::ThreadPool*>(pool);
    // Some blocks for each thread, as their loads differ, but none so small
    // that claiming it, or what a body prepares for a block, counts.
    constexpr double kCyclesPerBlock = 40000;
    constexpr int kBlocksPerThread = 4;
    const int64_t blocks = std::min<int64_t>(
        {total, kBlocksPerThread * threads->NumThreads(),
         static_cast<int64_t>(
             std::min(cycles_per_unit * total / kCyclesPerBlock, 1e9))});
    const int helpers = std::min<int64_t>(threads->NumThreads(), blocks) - 1;
    if (helpers < 1) return body(0, total);
    // TensorFlow's threads let no exception pass.
    std::atomic<bool> no_memory{false};
    RunSharedLoop(
        total, blocks, helpers,
        [&](int64_t begin, int64_t end) {
          try {
            body(begin, end);
          } catch (const std::bad_alloc&) {
            no_memory = true;
          }
        },
        [threads](std::function<void()> work) {
          threads->Schedule(std::move(work));
        });
    if (no_memory) throw std::bad_alloc();
  };
  return cpu;
}

#ifdef TFO_CUDA
template <>
Gpu GetDevice<Gpu>(::tensorflow::OpKernelContext* ctx) {
  return {
      ctx->op_device_context()->stream()->platform_specific_handle().stream};
}
#endif

absl::Status ToStatus(Error error) {
  if (error == nullptr) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("The CUDA kernel was not launched: ", error));
}

absl::Status CheckShape(const char* name,
                        const ::tensorflow::TensorShape& shape,
                        std::initializer_list<int64_t> expected,
                        const char* what) {
  bool fits = shape.dims() == static_cast<int>(expected.size());
  for (int i = 0; fits && i < shape.dims(); ++i) {
    const int64_t size = expected.begin()[i];
    fits = size < 0 || size == shape.dim_size(i);
  }
  if (fits) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name, " must be ", what, ", got ", shape.DebugString()));
}

absl::Status CheckValueType(::tensorflow::OpKernelConstruction* ctx,
                            ::tensorflow::DataType value) {
  ::tensorflow::DataType got;
  TF_RETURN_IF_ERROR(ctx->GetAttr("Tvalue", &got));
  if (got == value) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("Tvalue must be ", ::tensorflow::DataTypeString(value),
                   " for this T, got ", ::tensorflow::DataTypeString(got)));
}

}  // namespace tfo
