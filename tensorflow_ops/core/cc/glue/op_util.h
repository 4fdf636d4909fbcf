// Shared by op and OpKernel files: TensorFlow's context as the algorithms'
// devices and pointers, argument checks, registration.
#ifndef TENSORFLOW_OPS_CORE_CC_GLUE_OP_UTIL_H_
#define TENSORFLOW_OPS_CORE_CC_GLUE_OP_UTIL_H_

#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow_ops/core/cc/device.h"
#include "tensorflow_ops/core/cc/float16.h"
#include "tensorflow_ops/core/cc/glue/shape_check.h"

namespace tfo {

using ::tensorflow::OpKernel;

// Fails if TENSORFLOW_OPS_CPU does not name a level of this processor, which
// would otherwise be ignored silently.
void CheckCpuLevel(::tensorflow::OpKernelConstruction* ctx);

template <typename Kernel>
class CheckedSyncKernel : public Kernel {
 public:
  explicit CheckedSyncKernel(::tensorflow::OpKernelConstruction* ctx)
      : Kernel(ctx), shape_check_(ctx) {
    CheckCpuLevel(ctx);
  }
  void Compute(::tensorflow::OpKernelContext* ctx) override {
    OP_REQUIRES_OK(ctx, shape_check_.Run(ctx, [&] { Kernel::Compute(ctx); }));
  }

 private:
  ShapeCheck shape_check_;
};

template <typename Kernel>
class CheckedAsyncKernel : public Kernel {
 public:
  using DoneCallback = ::tensorflow::AsyncOpKernel::DoneCallback;
  explicit CheckedAsyncKernel(::tensorflow::OpKernelConstruction* ctx)
      : Kernel(ctx), shape_check_(ctx) {
    CheckCpuLevel(ctx);
  }
  void ComputeAsync(::tensorflow::OpKernelContext* ctx,
                    DoneCallback done) override {
    OP_REQUIRES_OK_ASYNC(
        ctx, shape_check_.Run(ctx, [&] { Kernel::ComputeAsync(ctx, done); }),
        done);
  }

 private:
  ShapeCheck shape_check_;
};

// The kernel that is registered for `Kernel`. Before Kernel::Compute, runs the
// op's shape function on the inputs. Compute therefore checks only values,
// allocates what the shape function has returned (AllocateOutputs), and may
// throw std::bad_alloc.
template <typename Kernel>
using CheckedKernel =
    std::conditional_t<std::is_base_of_v<::tensorflow::AsyncOpKernel, Kernel>,
                       CheckedAsyncKernel<Kernel>, CheckedSyncKernel<Kernel>>;

// Cpu with TensorFlow's intra-op pool, or Gpu with the op's stream and whether
// op determinism is enabled.
template <typename Device>
Device GetDevice(::tensorflow::OpKernelContext* ctx);
template <>
Cpu GetDevice<Cpu>(::tensorflow::OpKernelContext* ctx);
#ifdef TFO_CUDA
template <>
Gpu GetDevice<Gpu>(::tensorflow::OpKernelContext* ctx);

// Returns the device type to register CUDA kernels for: GPUs, or no device's
// if the driver is too old to run them, so that soft placement takes the CPU's
// kernels and an error names what is missing.
const char* GpuDeviceType();
#endif

// Gives a device scratch memory, which lives as long as `memory`.
absl::Status AllocateScratch(::tensorflow::OpKernelContext* ctx, int64_t bytes,
                             ::tensorflow::Tensor* memory, Gpu* device);

// Sets all bytes of a tensor on the device to 0.
absl::Status SetZero(const Cpu& cpu, ::tensorflow::Tensor* tensor);
absl::Status SetZero(const Gpu& gpu, ::tensorflow::Tensor* tensor);

// A tensor's data as the algorithms' type: Half for Eigen::half, BFloat16 for
// Eigen::bfloat16, else T itself. The dtype is not checked.
template <typename T>
const T* Data(const ::tensorflow::Tensor& tensor) {
  return static_cast<const T*>(tensor.data());
}
template <typename T>
T* Data(::tensorflow::Tensor* tensor) {
  return static_cast<T*>(tensor->data());
}

// An optional input is a list of no tensor or of one, which the first function
// checks, for a shape function. `name` is the list's.
absl::Status OptionalInput(
    ::tensorflow::shape_inference::InferenceContext* c, absl::string_view name,
    std::optional<::tensorflow::shape_inference::ShapeHandle>* shape);
// Its tensor, or null.
const ::tensorflow::Tensor* OptionalInput(::tensorflow::OpKernelContext* ctx,
                                          absl::string_view name);
// Its tensor's data, or null.
template <typename T>
const T* OptionalData(::tensorflow::OpKernelContext* ctx,
                      absl::string_view name) {
  const ::tensorflow::Tensor* const tensor = OptionalInput(ctx, name);
  return tensor == nullptr ? nullptr : Data<T>(*tensor);
}

// Allocates the first outputs, and sets their data: AllocateOutputs(ctx,
// &args.loss, &args.largest).
template <typename... T>
absl::Status AllocateOutputs(::tensorflow::OpKernelContext* ctx, T**... data) {
  static_assert((!std::is_same_v<T, ::tensorflow::Tensor> && ...));
  int i = 0;
  absl::Status status;
  const auto allocate = [&](auto** values) {
    ::tensorflow::Tensor* output = nullptr;
    status = AllocateOutput(ctx, i++, &output);
    if (status.ok()) *values = Data<std::decay_t<decltype(**values)>>(output);
    return status.ok();
  };
  (void)(allocate(data) && ...);
  return status;
}

// Sets the data of output i, which has the shape of input 0: its memory if no
// other op uses that, else new memory.
template <typename T>
absl::Status ForwardFirstInput(::tensorflow::OpKernelContext* ctx, int i,
                               T** data) {
  ::tensorflow::Tensor* output;
  TF_RETURN_IF_ERROR(ctx->forward_input_or_allocate_output(
      {0}, i, ctx->input(0).shape(), &output));
  *data = Data<T>(output);
  return absl::OkStatus();
}

// Reads a string attr as the value that `names` pairs it with. The op
// definition lists the same strings.
template <typename Enum, size_t n, typename Context>
absl::Status ReadEnum(Context* ctx, const char* attr,
                      const std::pair<const char*, Enum> (&names)[n],
                      Enum* value) {
  std::string read;
  TF_RETURN_IF_ERROR(ctx->GetAttr(attr, &read));
  for (const auto& [name, meaning] : names) {
    if (name != read) continue;
    *value = meaning;
    return absl::OkStatus();
  }
  return absl::InternalError(absl::StrCat(attr, " is ", read));
}

// Reads a number as the sum of an attr's floats, which have 32 bits each.
absl::Status ReadNumber(::tensorflow::OpKernelConstruction* ctx,
                        const char* attr, double* number);

// Converts an algorithm's error to a status.
absl::Status ToStatus(Error error);

// Calls run(device); on a GPU with scratch_bytes(gpu) of scratch memory.
template <typename Device, typename Bytes, typename Run>
absl::Status RunWithScratch(::tensorflow::OpKernelContext* ctx,
                            [[maybe_unused]] const Bytes& scratch_bytes,
                            const Run& run) {
  Device device = GetDevice<Device>(ctx);
  ::tensorflow::Tensor scratch;
  if constexpr (std::is_same_v<Device, Gpu>) {
    TF_RETURN_IF_ERROR(
        AllocateScratch(ctx, scratch_bytes(device), &scratch, &device));
  }
  return ToStatus(run(device));
}

// A shape function's status, with what the caller expected: "boxes must be
// [K, 4]: Shape must be rank 2 but is rank 1".
absl::Status Expect(absl::string_view expectation, const absl::Status& status);

// Reads the shape that input `name` of a shape function contains, of `rank`
// dims, as far as it is a constant. TensorFlow's tape ends the process for a
// shape whose number of values overflows.
absl::Status ReadShapeInput(::tensorflow::shape_inference::InferenceContext* c,
                            const char* name, int input, int rank,
                            ::tensorflow::shape_inference::ShapeHandle* shape);

// Ok if the attr Tvalue is the type that T is computed in.
absl::Status CheckValueType(::tensorflow::OpKernelConstruction* ctx,
                            ::tensorflow::DataType value);

// Where an element is, for errors: "[0,2]", or "" in a scalar.
std::string PlaceText(const ::tensorflow::Tensor& tensor, int64_t element);

// The DataType of the algorithms' types.
template <typename T>
struct DataTypeOf;
template <>
struct DataTypeOf<int32_t> {
  static constexpr auto kValue = ::tensorflow::DT_INT32;
};
template <>
struct DataTypeOf<int64_t> {
  static constexpr auto kValue = ::tensorflow::DT_INT64;
};
template <>
struct DataTypeOf<float> {
  static constexpr auto kValue = ::tensorflow::DT_FLOAT;
};
template <>
struct DataTypeOf<double> {
  static constexpr auto kValue = ::tensorflow::DT_DOUBLE;
};
template <>
struct DataTypeOf<Half> {
  static constexpr auto kValue = ::tensorflow::DT_HALF;
};
template <>
struct DataTypeOf<BFloat16> {
  static constexpr auto kValue = ::tensorflow::DT_BFLOAT16;
};

}  // namespace tfo

#define TFO_REGISTER_KERNEL_FOR(op, device, Kernel, OnDevice, T, ...)     \
  REGISTER_KERNEL_BUILDER(                                                \
      Name("TensorflowOps>" op)                                           \
          .Device(device)                                                 \
          .TypeConstraint("T", ::tfo::DataTypeOf<T>::kValue) __VA_ARGS__, \
      ::tfo::CheckedKernel<Kernel<OnDevice, T>>)

#define TFO_REGISTER_WIDE_KERNELS_ON(op, device, Kernel, OnDevice, ...)      \
  TFO_REGISTER_KERNEL_FOR(op, device, Kernel, OnDevice, float, __VA_ARGS__); \
  TFO_REGISTER_KERNEL_FOR(op, device, Kernel, OnDevice, double, __VA_ARGS__)

#define TFO_REGISTER_KERNELS_ON(op, device, Kernel, OnDevice, ...)         \
  TFO_REGISTER_WIDE_KERNELS_ON(op, device, Kernel, OnDevice, __VA_ARGS__); \
  TFO_REGISTER_KERNEL_FOR(op, device, Kernel, OnDevice, ::tfo::Half,       \
                          __VA_ARGS__);                                    \
  TFO_REGISTER_KERNEL_FOR(op, device, Kernel, OnDevice, ::tfo::BFloat16,   \
                          __VA_ARGS__)

// TFO_REGISTER_KERNELS(op, Kernel, more...) registers Kernel<Device, T> for the
// float dtypes on the CPU and, in CUDA builds, on the GPU. `more` is appended
// to the registration: .HostMemory("output_size"). Under XLA, such inputs are
// constants of the compiled program if their values can be known.
// TFO_REGISTER_WIDE_KERNELS does the same for float and double, of an op whose
// wrapper casts 16-bit data.
// TFO_REGISTER_ANY_DTYPE_KERNELS registers Kernel<Device> for all dtypes of the
// op. The macros with CPU in their names do the same for an op without CUDA
// kernels.
#define TFO_REGISTER_CPU_KERNELS(op, Kernel, ...)                           \
  TFO_REGISTER_KERNELS_ON(op, ::tensorflow::DEVICE_CPU, Kernel, ::tfo::Cpu, \
                          __VA_ARGS__)
#define TFO_REGISTER_WIDE_CPU_KERNELS(op, Kernel, ...)               \
  TFO_REGISTER_WIDE_KERNELS_ON(op, ::tensorflow::DEVICE_CPU, Kernel, \
                               ::tfo::Cpu, __VA_ARGS__)
#define TFO_REGISTER_ANY_DTYPE_CPU_KERNELS(op, Kernel, ...)                   \
  REGISTER_KERNEL_BUILDER(                                                    \
      Name("TensorflowOps>" op).Device(::tensorflow::DEVICE_CPU) __VA_ARGS__, \
      ::tfo::CheckedKernel<Kernel<::tfo::Cpu>>)
#ifdef TFO_CUDA
#define TFO_REGISTER_KERNELS(op, Kernel, ...)                             \
  TFO_REGISTER_CPU_KERNELS(op, Kernel, __VA_ARGS__);                      \
  TFO_REGISTER_KERNELS_ON(op, ::tfo::GpuDeviceType(), Kernel, ::tfo::Gpu, \
                          __VA_ARGS__)
#define TFO_REGISTER_WIDE_KERNELS(op, Kernel, ...)                             \
  TFO_REGISTER_WIDE_CPU_KERNELS(op, Kernel, __VA_ARGS__);                      \
  TFO_REGISTER_WIDE_KERNELS_ON(op, ::tfo::GpuDeviceType(), Kernel, ::tfo::Gpu, \
                               __VA_ARGS__)
#define TFO_REGISTER_ANY_DTYPE_KERNELS(op, Kernel, ...)                     \
  TFO_REGISTER_ANY_DTYPE_CPU_KERNELS(op, Kernel, __VA_ARGS__);              \
  REGISTER_KERNEL_BUILDER(                                                  \
      Name("TensorflowOps>" op).Device(::tfo::GpuDeviceType()) __VA_ARGS__, \
      ::tfo::CheckedKernel<Kernel<::tfo::Gpu>>)
#else
#define TFO_REGISTER_KERNELS TFO_REGISTER_CPU_KERNELS
#define TFO_REGISTER_WIDE_KERNELS TFO_REGISTER_WIDE_CPU_KERNELS
#define TFO_REGISTER_ANY_DTYPE_KERNELS TFO_REGISTER_ANY_DTYPE_CPU_KERNELS
#endif

#endif  // TENSORFLOW_OPS_CORE_CC_GLUE_OP_UTIL_H_
