// What every OpKernel file needs: TensorFlow's context as the algorithms'
// devices and pointers, argument checks, registration.
#ifndef TENSORFLOW_OPS_CORE_CC_OP_UTIL_H_
#define TENSORFLOW_OPS_CORE_CC_OP_UTIL_H_

#include <new>

#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow_ops/core/cc/device.h"
#include "tensorflow_ops/core/cc/float16.h"

namespace tfo {

// The base of every kernel here: refuses a TENSORFLOW_OPS_CPU that names no
// level of this processor, which would otherwise be ignored in silence.
class OpKernel : public ::tensorflow::OpKernel {
 public:
  explicit OpKernel(::tensorflow::OpKernelConstruction* ctx);
};

// A kernel whose algorithm may find no memory to work in: an error, where
// TensorFlow would let the exception end the process.
template <typename Kernel>
class MemoryChecked : public Kernel {
 public:
  using Kernel::Kernel;

  void Compute(::tensorflow::OpKernelContext* ctx) override {
    try {
      Kernel::Compute(ctx);
    } catch (const std::bad_alloc&) {
      ctx->CtxFailure(absl::ResourceExhaustedError(
          Kernel::type_string() + " finds too little memory to work in"));
    }
  }
};

// Cpu: TensorFlow's intra-op pool. Gpu: the op's stream, and whether op
// determinism is enabled.
template <typename Device>
Device GetDevice(::tensorflow::OpKernelContext* ctx);
template <>
Cpu GetDevice<Cpu>(::tensorflow::OpKernelContext* ctx);
#ifdef TFO_CUDA
template <>
Gpu GetDevice<Gpu>(::tensorflow::OpKernelContext* ctx);
#endif

// A tensor's data as the algorithms' type: Half for Eigen::half, BFloat16 for
// Eigen::bfloat16, T itself for the rest. The caller knows the dtype.
template <typename T>
const T* Data(const ::tensorflow::Tensor& tensor) {
  return static_cast<const T*>(tensor.data());
}
template <typename T>
T* Data(::tensorflow::Tensor* tensor) {
  return static_cast<T*>(tensor->data());
}

// An algorithm's error as a status.
absl::Status ToStatus(Error error);

// Ok, or "boxes must be [K, 4], got [7,5]": `shape` has as many dims as
// `expected`, where -1 stands for any size. `what` spells the expectation for
// people.
absl::Status CheckShape(const char* name,
                        const ::tensorflow::TensorShape& shape,
                        std::initializer_list<int64_t> expected,
                        const char* what);

// Ok, if the attr Tvalue is what T is computed in.
absl::Status CheckValueType(::tensorflow::OpKernelConstruction* ctx,
                            ::tensorflow::DataType value);

// DataType of the algorithms' types.
template <typename T>
struct DataTypeOf;
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
      ::tfo::MemoryChecked<Kernel<OnDevice, T>>)

#define TFO_REGISTER_KERNELS_ON(op, device, Kernel, OnDevice, ...)            \
  TFO_REGISTER_KERNEL_FOR(op, device, Kernel, OnDevice, float, __VA_ARGS__);  \
  TFO_REGISTER_KERNEL_FOR(op, device, Kernel, OnDevice, double, __VA_ARGS__); \
  TFO_REGISTER_KERNEL_FOR(op, device, Kernel, OnDevice, ::tfo::Half,          \
                          __VA_ARGS__);                                       \
  TFO_REGISTER_KERNEL_FOR(op, device, Kernel, OnDevice, ::tfo::BFloat16,      \
                          __VA_ARGS__)

// TFO_REGISTER_KERNELS(op, Kernel, more...): Kernel<Device, T> for the float
// dtypes on the CPU, and on the GPU where the build has CUDA. `more` goes to
// the registration, such as .HostMemory("output_size").
// TFO_REGISTER_ANY_DTYPE_KERNELS: Kernel<Device> for every dtype the op allows.
#ifdef TFO_CUDA
#define TFO_REGISTER_KERNELS(op, Kernel, ...)                               \
  TFO_REGISTER_KERNELS_ON(op, ::tensorflow::DEVICE_CPU, Kernel, ::tfo::Cpu, \
                          __VA_ARGS__);                                     \
  TFO_REGISTER_KERNELS_ON(op, ::tensorflow::DEVICE_GPU, Kernel, ::tfo::Gpu, \
                          __VA_ARGS__)
#define TFO_REGISTER_ANY_DTYPE_KERNELS(op, Kernel, ...)                       \
  REGISTER_KERNEL_BUILDER(                                                    \
      Name("TensorflowOps>" op).Device(::tensorflow::DEVICE_CPU) __VA_ARGS__, \
      ::tfo::MemoryChecked<Kernel<::tfo::Cpu>>);                              \
  REGISTER_KERNEL_BUILDER(                                                    \
      Name("TensorflowOps>" op).Device(::tensorflow::DEVICE_GPU) __VA_ARGS__, \
      ::tfo::MemoryChecked<Kernel<::tfo::Gpu>>)
#else
#define TFO_REGISTER_KERNELS(op, Kernel, ...)                               \
  TFO_REGISTER_KERNELS_ON(op, ::tensorflow::DEVICE_CPU, Kernel, ::tfo::Cpu, \
                          __VA_ARGS__)
#define TFO_REGISTER_ANY_DTYPE_KERNELS(op, Kernel, ...)                       \
  REGISTER_KERNEL_BUILDER(                                                    \
      Name("TensorflowOps>" op).Device(::tensorflow::DEVICE_CPU) __VA_ARGS__, \
      ::tfo::MemoryChecked<Kernel<::tfo::Cpu>>)
#endif

#endif  // TENSORFLOW_OPS_CORE_CC_OP_UTIL_H_
