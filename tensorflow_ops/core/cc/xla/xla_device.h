// The device that an OpKernel sees in a custom call: XLA's buffers, threads and
// stream. Part of xla_run.cc, which says what its code must do without.
#ifndef TENSORFLOW_OPS_CORE_CC_XLA_XLA_DEVICE_H_
#define TENSORFLOW_OPS_CORE_CC_XLA_XLA_DEVICE_H_

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "tensorflow/core/framework/allocator.h"
#include "tensorflow/core/framework/device_base.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/platform/threadpool.h"
#include "tensorflow/core/platform/threadpool_interface.h"
#define EIGEN_USE_THREADS
#include "tensorflow_ops/core/cc/xla/xla_scratch.h"
#include "unsupported/Eigen/CXX11/Tensor"
#include "xla/ffi/api/c_api.h"
#include "xla/ffi/api/c_api_internal.h"
#include "xla/stream_executor/stream.h"

namespace tfo {

// Converts XLA's error to a status, and frees it.
inline absl::Status ToStatus(const XLA_FFI_Api* api, XLA_FFI_Error* error) {
  if (error == nullptr) return absl::OkStatus();
  auto message = XlaArgs<XLA_FFI_Error_GetMessage_Args>(
      XLA_FFI_Error_GetMessage_Args_STRUCT_SIZE);
  message.error = error;
  api->XLA_FFI_Error_GetMessage(&message);
  const absl::Status status = absl::InternalError(message.message);
  auto destroy = XlaArgs<XLA_FFI_Error_Destroy_Args>(
      XLA_FFI_Error_Destroy_Args_STRUCT_SIZE);
  destroy.error = error;
  api->XLA_FFI_Error_Destroy(&destroy);
  return status;
}

// A buffer of XLA.
struct XlaBuffer {
  void* data;
  ::tensorflow::TensorShape shape;
  size_t bytes;
};

// A tensor's memory that is a buffer of XLA.
class XlaMemory : public ::tensorflow::TensorBuffer {
 public:
  explicit XlaMemory(const XlaBuffer& buffer)
      : TensorBuffer(buffer.data), size_(buffer.bytes) {}
  size_t size() const override { return size_; }
  TensorBuffer* root_buffer() override { return this; }
  void FillAllocationDescription(
      ::tensorflow::AllocationDescription*) const override {}
  bool OwnsMemory() const override { return false; }

 private:
  const size_t size_;
};

// Allocates a result: returns XLA's buffer.
class ResultAllocator : public ::tensorflow::Allocator {
 public:
  explicit ResultAllocator(const XlaBuffer& buffer) : buffer_(buffer) {}
  std::string Name() override { return "xla_result"; }
  void* AllocateRaw(size_t, size_t bytes) override {
    return bytes <= buffer_.bytes ? buffer_.data : nullptr;
  }
  void DeallocateRaw(void*) override {}

 private:
  const XlaBuffer buffer_;
};

// Allocates a call's scratch memory on a GPU.
class ScratchAllocator : public ::tensorflow::Allocator {
 public:
  ScratchAllocator(const XLA_FFI_Api* api, XLA_FFI_ExecutionContext* ctx)
      : memory_(api, ctx) {}
  std::string Name() override { return "xla_scratch"; }
  void* AllocateRaw(size_t alignment, size_t bytes) override {
    return memory_.Allocate(alignment, bytes);
  }
  void DeallocateRaw(void* data) override { memory_.Free(data); }

 private:
  XlaScratch memory_;
};

// XLA's thread pool, which is TensorFlow's intra-op pool.
class XlaPool : public ::tensorflow::thread::ThreadPoolInterface {
 public:
  explicit XlaPool(Eigen::ThreadPoolInterface* pool) : pool_(pool) {}
  void Schedule(std::function<void()> task) override {
    pool_->Schedule(std::move(task));
  }
  int NumThreads() const override { return pool_->NumThreads(); }
  int CurrentThreadId() const override { return pool_->CurrentThreadId(); }

 private:
  Eigen::ThreadPoolInterface* const pool_;
};

class XlaStream : public ::tensorflow::DeviceContext {
 public:
  explicit XlaStream(::stream_executor::Stream* stream) : stream_(stream) {}
  ::stream_executor::Stream* stream() const override { return stream_; }

 private:
  ::stream_executor::Stream* const stream_;
};

// The device of one call.
class XlaDevice : public ::tensorflow::DeviceBase {
 public:
  XlaDevice() : DeviceBase(::tensorflow::Env::Default()) {}

  absl::Status UseHost(const XLA_FFI_CallFrame& frame) {
    void* device = nullptr;
    TF_RETURN_IF_ERROR(ToStatus(
        frame.api,
        frame.api->internal_api->XLA_FFI_INTERNAL_IntraOpThreadPool_Get(
            frame.ctx, &device)));
    if (device == nullptr) return absl::InternalError("XLA has no threads");
    pool_.emplace(static_cast<Eigen::ThreadPoolDevice*>(device)->getPool());
    threads_.emplace(&*pool_);
    workers_ = {pool_->NumThreads(), &*threads_};
    set_tensorflow_cpu_worker_threads(&workers_);
    return absl::OkStatus();
  }
  absl::Status UseGpu(const XLA_FFI_CallFrame& frame) {
    void* stream = nullptr;
    TF_RETURN_IF_ERROR(ToStatus(
        frame.api, frame.api->internal_api->XLA_FFI_INTERNAL_Stream_Get(
                       frame.ctx, &stream)));
    stream_.reset(
        new XlaStream(static_cast<::stream_executor::Stream*>(stream)));
    scratch_.emplace(frame.api, frame.ctx);
    return absl::OkStatus();
  }
  void AddResult(int32_t scope_id, const XlaBuffer& buffer) {
    results_.try_emplace(scope_id, buffer);
  }

  XlaStream* context() const { return stream_.get(); }  // null on the host
  ::tensorflow::Allocator* GetAllocator(
      ::tensorflow::AllocatorAttributes attributes) override {
    if (scratch_.has_value() && !attributes.on_host()) return &*scratch_;
    return ::tensorflow::cpu_allocator();
  }
  ::tensorflow::Allocator* GetScopedAllocator(
      ::tensorflow::AllocatorAttributes attributes, int64_t) override {
    return &results_.at(attributes.scope_id);
  }
  const std::string& name() const override {
    static const auto& name = *new std::string("tensorflow_ops_xla");
    return name;
  }
  const ::tensorflow::DeviceAttributes& attributes() const override {
    static const auto& none = *new ::tensorflow::DeviceAttributes;
    return none;
  }

 private:
  std::optional<XlaPool> pool_;
  std::optional<::tensorflow::thread::ThreadPool> threads_;
  CpuWorkerThreads workers_ = {};
  ::tensorflow::core::RefCountPtr<XlaStream> stream_;
  std::optional<ScratchAllocator> scratch_;
  std::map<int32_t, ResultAllocator> results_;  // by scope id
};

}  // namespace tfo

#endif  // TENSORFLOW_OPS_CORE_CC_XLA_XLA_DEVICE_H_
