#include "tensorflow_ops/core/cc/glue/op_util.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <new>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "tensorflow/core/framework/device_base.h"
#include "tensorflow/core/platform/threadpool.h"
#include "tensorflow_ops/core/cc/claimed_loop.h"
#include "tensorflow_ops/core/cc/cuda/cuda_driver.h"
#include "tensorflow_ops/core/cc/simd/cpu_dispatch.h"
#ifdef TFO_CUDA
#include "tensorflow/core/util/determinism.h"
#include "xla/stream_executor/stream.h"
#endif

namespace tfo {
namespace {

// No spelling serves all releases without a warning.
::tensorflow::thread::ThreadPool::SchedulingParams Adaptive(int64_t cost) {
  using ::tensorflow::thread::ThreadPool;
#if TFO_TENSORFLOW_MINOR < 20
  return ThreadPool::SchedulingParams(ThreadPool::SchedulingStrategy::kAdaptive,
                                      cost, std::nullopt);
#else
  return ThreadPool::SchedulingParams::Adaptive(cost);
#endif
}

}  // namespace

void CheckCpuLevel(::tensorflow::OpKernelConstruction* ctx) {
  const char* error = CpuLevelError();
  // The first failure is the one to report.
  if (error != nullptr && ctx->status().ok()) {
    ctx->CtxFailure(absl::InvalidArgumentError(error));
  }
}

template <>
Cpu GetDevice<Cpu>(::tensorflow::OpKernelContext* ctx) {
  const auto* workers = ctx->device()->tensorflow_cpu_worker_threads();
  Cpu cpu;
  cpu.pool = workers->workers;
  cpu.num_threads = workers->num_threads;
  cpu.run = [](void* pool, int64_t total, double cycles_per_unit,
               const Cpu::Body& body) {
    using ::tensorflow::thread::ThreadPool;
    auto* threads = static_cast<ThreadPool*>(pool);
    // Waking a thread takes 0.05 to 0.3 ms on a virtual machine. Work that
    // would save less than 0.1 ms stays on the calling thread.
    constexpr double kWakeCycles = 300000;
    const double saved = 1 - 1.0 / std::max(threads->NumThreads(), 1);
    if (cycles_per_unit * total * saved < kWakeCycles) return body(0, total);
    if (threads->CurrentThreadId() >= 0) {
      return ClaimedLoop<absl::Notification>::Run(
          threads->NumThreads(), total, cycles_per_unit, body,
          [threads](std::function<void()> task) {
            threads->Schedule(std::move(task));
          });
    }
    // TensorFlow counts whole cycles: group units that cost less.
    const int64_t group =
        cycles_per_unit < 1 ? std::llround(1 / std::max(cycles_per_unit, 1e-3))
                            : 1;
    // TensorFlow's threads must not throw.
    std::atomic<bool> no_memory{false};
    threads->ParallelFor(
        (total + group - 1) / group,
        Adaptive(std::llround(std::max(cycles_per_unit * group, 1.0))),
        [&](int64_t begin, int64_t end) {
          try {
            body(begin * group, std::min(end * group, total));
          } catch (const std::bad_alloc&) {
            no_memory = true;
          }
        });
    if (no_memory) throw std::bad_alloc();
  };
  return cpu;
}

#ifdef TFO_CUDA
const char* GpuDeviceType() {
  static const auto& type = *new std::string([] {
    const int driver = CudaOfDriver() / 1000, kernels = CudaOfKernels() / 1000;
    return driver == 0 || driver >= kernels
               ? std::string(::tensorflow::DEVICE_GPU)
               : absl::StrCat("GPU with a driver for CUDA ", kernels);
  }());
  return type.c_str();
}

template <>
Gpu GetDevice<Gpu>(::tensorflow::OpKernelContext* ctx) {
  Gpu gpu;
  gpu.stream =
      ctx->op_device_context()->stream()->platform_specific_handle().stream;
  gpu.deterministic = ::tensorflow::OpDeterminismRequired();
  return gpu;
}

absl::Status SetZero(const Gpu& gpu, ::tensorflow::Tensor* tensor) {
  return ToStatus(SetZero(gpu, tensor->data(), tensor->TotalBytes()));
}
#endif

absl::Status AllocateScratch(::tensorflow::OpKernelContext* ctx, int64_t bytes,
                             ::tensorflow::Tensor* memory, Gpu* device) {
  if (bytes == 0) return absl::OkStatus();
  TF_RETURN_IF_ERROR(ctx->allocate_temp(
      ::tensorflow::DT_INT8, ::tensorflow::TensorShape({bytes}), memory));
  device->scratch = memory->data();
  return absl::OkStatus();
}

absl::Status ToStatus(Error error) {
  return error == nullptr ? absl::OkStatus() : absl::InternalError(error);
}

absl::Status Expect(absl::string_view expectation, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::InvalidArgumentError(
      absl::StrCat(expectation, ": ", status.message()));
}

absl::Status SetZero(const Cpu&, ::tensorflow::Tensor* tensor) {
  std::memset(tensor->data(), 0, tensor->TotalBytes());
  return absl::OkStatus();
}

absl::Status OptionalInput(
    ::tensorflow::shape_inference::InferenceContext* c, absl::string_view name,
    std::optional<::tensorflow::shape_inference::ShapeHandle>* shape) {
  std::vector<::tensorflow::shape_inference::ShapeHandle> shapes;
  TF_RETURN_IF_ERROR(c->input(name, &shapes));
  if (shapes.size() > 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        name, " has ", shapes.size(), " tensors, expected at most one"));
  }
  if (!shapes.empty()) *shape = shapes[0];
  return absl::OkStatus();
}

const ::tensorflow::Tensor* OptionalInput(::tensorflow::OpKernelContext* ctx,
                                          absl::string_view name) {
  ::tensorflow::OpInputList list;
  ctx->input_list(name, &list).IgnoreError();  // the op has all that are read
  return list.size() == 0 ? nullptr : &list[0];
}

absl::Status ReadNumber(::tensorflow::OpKernelConstruction* ctx,
                        const char* attr, double* number) {
  std::vector<float> parts;
  TF_RETURN_IF_ERROR(ctx->GetAttr(attr, &parts));
  *number = 0;
  for (const float part : parts) *number += part;
  return absl::OkStatus();
}

absl::Status ReadShapeInput(::tensorflow::shape_inference::InferenceContext* c,
                            const char* name, int input, int rank,
                            ::tensorflow::shape_inference::ShapeHandle* shape) {
  const std::string expected =
      absl::StrCat(name, " must have ", rank, " sizes, of a tensor");
  TF_RETURN_IF_ERROR(
      Expect(expected, c->MakeShapeFromShapeTensor(input, shape)));
  TF_RETURN_IF_ERROR(Expect(expected, c->WithRank(*shape, rank, shape)));
  ::tensorflow::shape_inference::DimensionHandle values = c->MakeDim(1);
  for (int i = 0; i < rank; ++i) {
    // An unknown size does not hide that the others overflow.
    if (!c->ValueKnown(c->Dim(*shape, i))) continue;
    TF_RETURN_IF_ERROR(
        Expect(expected, c->Multiply(values, c->Dim(*shape, i), &values)));
  }
  return absl::OkStatus();
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

std::string PlaceText(const ::tensorflow::Tensor& tensor, int64_t element) {
  std::string place;
  for (int d = tensor.dims() - 1; d >= 0; --d) {
    const int64_t size = tensor.dim_size(d);
    place = absl::StrCat(element % size, place.empty() ? "" : ",", place);
    element /= size;
  }
  return place.empty() ? "" : absl::StrCat("[", place, "]");
}

}  // namespace tfo
