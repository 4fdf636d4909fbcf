// Makes an op of the description (describe.h) of its algorithm's Args: in
// cc/ops
//
//   TFO_OP("Softmax", SoftmaxArgs);
//
// defines TensorflowOps>Softmax and its shape function, and in a *_op.cc
//
//   TFO_OP_KERNELS("Softmax", SoftmaxArgs, RunOnRows<Device>(ctx, args));
//
// registers OpKernels, which fill in `args`, then evaluate the expression, an
// Error or a status, with `ctx`, `device` and `args`. TFO_WIDE_OP and
// TFO_WIDE_OP_KERNELS are for float and double only, TFO_INDEX_OP and
// TFO_INDEX_OP_KERNELS for int32 and int64, TFO_OP_CPU_KERNELS for an op
// without CUDA kernels.
#ifndef TENSORFLOW_OPS_CORE_CC_GLUE_OP_SPEC_H_
#define TENSORFLOW_OPS_CORE_CC_GLUE_OP_SPEC_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow_ops/core/cc/describe.h"
#include "tensorflow_ops/core/cc/glue/named_dims.h"
#include "tensorflow_ops/core/cc/glue/op_util.h"

namespace tfo {

// Builds the definition, of Args<Half>: there T and Accumulator<T> differ.
class DefinitionVisitor : public ArgsVisitor {
 public:
  DefinitionVisitor(const char* op, const char* floats)
      : op_(op), floats_(floats) {}

  template <typename X>
  void In(const char* name, const char*, X*, const char* type = TypeOf<X>()) {
    op_.Input(absl::StrCat(name, ": ", type));
  }
  template <typename X>
  void Optional(const char* name, const char*, X*) {
    op_.Input(absl::StrCat(name, ": has_", name, " * ", TypeOf<X>()));
    op_.Attr(absl::StrCat("has_", name, ": int >= 0"));
  }
  template <typename X>
  void Scalar(const char* name, X*) {
    op_.Input(absl::StrCat(name, ": ", TypeOf<X>()));
  }
  template <typename X>
  void Out(const char* name, const char*, X*, const char* = nullptr) {
    op_.Output(absl::StrCat(name, ": ", TypeOf<X>()));
  }
  template <typename X>
  void OptionalOut(const char* name, const char*, const char* of, X*) {
    op_.Output(absl::StrCat(name, ": has_", of, " * ", TypeOf<X>()));
  }
  template <typename... Name>
  void Types(const Name&... names) {
    (AddType(names), ...);
  }
  void Option(const char* name, bool default_value, bool*) {
    op_.Attr(absl::StrCat(name, ": bool = ", default_value ? "true" : "false"));
  }
  void Option(const char* name, int64_t default_value, int64_t*) {
    op_.Attr(absl::StrCat(name, ": int = ", default_value));
  }
  void Option(const char* name, float default_value, float*) {
    op_.Attr(absl::StrCat(name, ": float = ", default_value));
  }
  void Option(const char* name, double*) {
    op_.Attr(absl::StrCat(name, ": list(float) = []"));
  }
  template <typename X>
  void Required(const char* name, X*, const char* bound = "") {
    op_.Attr(absl::StrCat(name, std::is_same_v<X, bool> ? ": bool" : ": int ",
                          bound));
  }
  template <typename Table, typename Value>
  void Enum(const char* name, const Table& table, const char* default_word,
            Value*) {
    std::string words;
    for (const auto& [word, value] : table) {
      absl::StrAppend(&words, words.empty() ? "'" : ", '", word, "'");
    }
    op_.Attr(absl::StrCat(name, ": {", words, "} = '", default_word, "'"));
  }

  ::tensorflow::register_op::OpDefBuilderWrapper& op() { return op_; }

 private:
  template <typename X>
  static const char* TypeOf() {
    using Element = std::remove_cv_t<std::remove_pointer_t<X>>;
    return std::is_same_v<Element, Half>      ? "T"
           : std::is_same_v<Element, float>   ? "Tvalue"
           : std::is_same_v<Element, double>  ? "double"
           : std::is_same_v<Element, bool>    ? "bool"
           : std::is_same_v<Element, int32_t> ? "int32"
                                              : "int64";
  }
  void AddType(const std::string& name) {
    op_.Attr(absl::StrCat(name, ": ",
                          name == "T"        ? floats_
                          : name == "Tvalue" ? "{float, double}"
                                             : "{int32, int64}"));
  }

  ::tensorflow::register_op::OpDefBuilderWrapper op_;
  const char* const floats_;
};

// A visitor that may fail; it then ignores the rest.
class FallibleVisitor : public ArgsVisitor {
 public:
  const absl::Status& status() const { return status_; }

 protected:
  // Whether `status` is ok, and all were.
  bool Ok(const absl::Status& status) {
    status_.Update(status);
    return status_.ok();
  }

 private:
  absl::Status status_;
};

// Reads attrs of an InferenceContext or an OpKernelConstruction.
template <typename Context>
class AttrsVisitor : public FallibleVisitor {
 public:
  template <typename Default, typename Value>
  void Option(const char* name, Default, Value* value) {
    this->Ok(ctx_->GetAttr(name, value));
  }
  template <typename Value>
  void Required(const char* name, Value* value, const char* = nullptr) {
    this->Ok(ctx_->GetAttr(name, value));
  }
  template <typename Table, typename Value>
  void Enum(const char* name, const Table& table, const char*, Value* value) {
    this->Ok(ReadEnum(ctx_, name, table, value));
  }

 protected:
  explicit AttrsVisitor(Context* ctx) : ctx_(ctx) {}

  Context* const ctx_;
};

class ShapeVisitor
    : public AttrsVisitor<::tensorflow::shape_inference::InferenceContext> {
 public:
  explicit ShapeVisitor(::tensorflow::shape_inference::InferenceContext* c)
      : AttrsVisitor(c), dims_(c) {}

  template <typename... X>
  void In(const char* name, const char* shape, const X&...) {
    ReadInput(name, shape);
  }
  template <typename X>
  void Optional(const char* name, const char* shape, X*) {
    ReadOptional(name, shape);
  }
  template <typename X>
  void Scalar(const char* name, X*) {
    ReadInput(name, "a scalar");
  }
  template <typename... X>
  void Out(const char*, const char* shape, const X&...) {
    outputs_.push_back(shape);
  }
  template <typename X>
  void OptionalOut(const char*, const char* shape, const char* of, X*) {
    if (HasOptional(of)) outputs_.push_back(shape);
  }
  void Size(const std::string& name, int64_t* size) {
    *size = name == "..." ? -1 : ctx_->Value(dims_[name]);
  }
  using AttrsVisitor::Option;
  void Option(const char*, double*) {}
  using AttrsVisitor::Required;
  void Required(const char* name, int64_t* value, const char* = nullptr) {
    if (Ok(ctx_->GetAttr(name, value)) && *value >= 0) {
      dims_[name] = ctx_->MakeDim(*value);
    }
  }
  template <typename... Part>
  void Check(bool condition, const Part&... parts) {
    if (!condition) {
      Ok(absl::InvalidArgumentError(absl::StrCat(parts...)));
    }
  }

  // After a description.
  absl::Status SetOutputs();

 private:
  void ReadInput(const char* name, const char* shape);
  void ReadOptional(const char* name, const char* shape);
  bool HasOptional(const char* name);

  NamedDims dims_;
  int inputs_ = 0;
  std::vector<std::string> outputs_;
};

// Where a size is: a dim of an input, from the last, -1, backwards; or, of
// "...", the dims before `dim`.
struct SizePlace {
  int input, dim;
  bool is_product;
};

// In the constructor of an OpKernel: reads options, finds sizes.
class OptionsVisitor : public AttrsVisitor<::tensorflow::OpKernelConstruction> {
 public:
  // `value` is Tvalue's dtype.
  OptionsVisitor(::tensorflow::OpKernelConstruction* ctx,
                 const OpKernel* kernel, ::tensorflow::DataType value)
      : AttrsVisitor(ctx), kernel_(kernel), value_(value) {}

  template <typename... X>
  void In(const char* name, const char* shape, const X&...) {
    AddInput(name, shape);
  }
  template <typename X>
  void Optional(const char* name, const char*, X*) {
    AddInput(name, "");
  }
  void Size(const std::string& name, int64_t*);
  template <typename... Name>
  void Types(const Name&... names) {
    if (((names == std::string("Tvalue")) || ...)) {
      Ok(CheckValueType(ctx_, value_));
    }
  }
  using AttrsVisitor::Option;
  void Option(const char* name, double* number) {
    Ok(ReadNumber(ctx_, name, number));
  }

  std::vector<SizePlace> TakeSizes() { return std::move(sizes_); }

 private:
  void AddInput(const char* name, const char* shape);

  const OpKernel* const kernel_;
  const ::tensorflow::DataType value_;
  std::vector<std::pair<int, std::vector<std::string>>> inputs_;
  std::vector<SizePlace> sizes_;
};

// In a call: sets tensors and sizes.
class TensorsVisitor : public FallibleVisitor {
 public:
  TensorsVisitor(::tensorflow::OpKernelContext* ctx,
                 const std::vector<SizePlace>& sizes)
      : ctx_(ctx), size_(sizes.data()) {}

  template <typename X>
  void In(const char*, const char*, X* data, const char* = nullptr) {
    Set(ctx_->input(input_++), data);
  }
  template <typename X>
  void Optional(const char* name, const char*, X* data) {
    const ::tensorflow::Tensor* const tensor = OptionalInput(ctx_, name);
    *data = nullptr;
    if (tensor == nullptr) return;
    Set(*tensor, data);
    ++input_;
  }
  template <typename X>
  void Scalar(const char*, X* value) {
    *value = *Data<X>(ctx_->input(input_++));
  }
  template <typename X>
  void Out(const char*, const char*, X** data, const char* from = nullptr) {
    ::tensorflow::Tensor* tensor;
    if (Allocate(from, &tensor)) *data = Data<X>(tensor);
  }
  template <typename X>
  void OptionalOut(const char* name, const char* shape, const char* of,
                   X** data) {
    *data = nullptr;
    if (OptionalInput(ctx_, of) != nullptr) Out(name, shape, data);
  }
  void Size(const char*, int64_t* size);

 private:
  template <typename X>
  static void Set(const ::tensorflow::Tensor& tensor, const X** data) {
    *data = Data<X>(tensor);
  }
  template <typename Index>
  static void Set(const ::tensorflow::Tensor& tensor, Index* index) {
    if (tensor.dtype() == ::tensorflow::DT_INT32) {
      *index = Data<int32_t>(tensor);
    } else {
      *index = Data<int64_t>(tensor);
    }
  }
  bool Allocate(const char* from, ::tensorflow::Tensor** tensor);

  ::tensorflow::OpKernelContext* const ctx_;
  const SizePlace* size_;
  int input_ = 0, output_ = 0;
};

template <typename Args>
absl::Status InferShapes(::tensorflow::shape_inference::InferenceContext* c) {
  Args args{};
  ShapeVisitor visitor(c);
  Describe(args, visitor);
  return visitor.SetOutputs();
}

// Scalars are in host memory.
class HostMemoryVisitor : public ArgsVisitor {
 public:
  explicit HostMemoryVisitor(::tensorflow::KernelDefBuilder* kernel)
      : kernel_(kernel) {}
  template <typename X>
  void Scalar(const char* name, X*) {
    kernel_->HostMemory(name);
  }

 private:
  ::tensorflow::KernelDefBuilder* const kernel_;
};

// Registers the definition.
template <typename Args>
::tensorflow::InitOnStartupMarker DefineOp(const char* op, const char* floats) {
  Args args{};
  DefinitionVisitor visitor(op, floats);
  Describe(args, visitor);
  return visitor.op().SetShapeFn(InferShapes<Args>)();
}

inline absl::Status ToStatus(absl::Status status) { return status; }

template <typename Args, typename Value>
class DescribedKernel : public OpKernel {
 public:
  using OpArgs = Args;

  explicit DescribedKernel(::tensorflow::OpKernelConstruction* ctx)
      : OpKernel(ctx) {
    OptionsVisitor visitor(ctx, this, DataTypeOf<Value>::kValue);
    Describe(options_, visitor);
    OP_REQUIRES_OK(ctx, visitor.status());
    sizes_ = visitor.TakeSizes();
  }

  void Compute(::tensorflow::OpKernelContext* ctx) override {
    Args args = options_;
    TensorsVisitor visitor(ctx, sizes_);
    Describe(args, visitor);
    OP_REQUIRES_OK(ctx, visitor.status());
    OP_REQUIRES_OK(ctx, Run(ctx, args));
  }

 private:
  virtual absl::Status Run(::tensorflow::OpKernelContext* ctx,
                           Args& args) const = 0;

  Args options_{};
  std::vector<SizePlace> sizes_;
};

template <typename Kernel>
void RegisterKernel(const char* op, const char* device,
                    ::tensorflow::DataType type) {
  ::tensorflow::KernelDefBuilder builder(op);
  builder.Device(device).TypeConstraint("T", type);
  typename Kernel::OpArgs args{};
  HostMemoryVisitor visitor(&builder);
  Describe(args, visitor);
  ::tensorflow::kernel_factory::OpKernelRegistrar(
      builder.Build(), op,
      [](::tensorflow::OpKernelConstruction* ctx) -> ::tensorflow::OpKernel* {
        return new CheckedKernel<Kernel>(ctx);
      });
}

// Registers Kernel<Device, T> for each T.
template <template <typename, typename> class Kernel, typename... T>
::tensorflow::InitOnStartupMarker RegisterCpuKernels(const char* op) {
  (RegisterKernel<Kernel<Cpu, T>>(op, ::tensorflow::DEVICE_CPU,
                                  DataTypeOf<T>::kValue),
   ...);
  return {};
}
template <template <typename, typename> class Kernel, typename... T>
::tensorflow::InitOnStartupMarker RegisterKernels(const char* op) {
#ifdef TFO_CUDA
  (RegisterKernel<Kernel<Gpu, T>>(op, GpuDeviceType(), DataTypeOf<T>::kValue),
   ...);
#endif
  return RegisterCpuKernels<Kernel, T...>(op);
}

}  // namespace tfo

#define TFO_DEFINE_OP(op, Args, floats)                              \
  static const ::tensorflow::InitOnStartupMarker k##Args##Definition \
      [[maybe_unused]] = ::tfo::DefineOp<::tfo::Args<::tfo::Half>>(  \
          "TensorflowOps>" op, floats)
#define TFO_OP(op, Args) \
  TFO_DEFINE_OP(op, Args, "{half, bfloat16, float, double}")
#define TFO_WIDE_OP(op, Args) TFO_DEFINE_OP(op, Args, "{float, double}")
#define TFO_INDEX_OP(op, Args) TFO_DEFINE_OP(op, Args, "{int32, int64}")

#define TFO_DESCRIBED_KERNEL(Args, ...)                                   \
  template <typename Device, typename T>                                  \
  class Args##Kernel                                                      \
      : public ::tfo::DescribedKernel<Args<T>, ::tfo::Accumulator<T>> {   \
   public:                                                                \
    using ::tfo::DescribedKernel<Args<T>,                                 \
                                 ::tfo::Accumulator<T>>::DescribedKernel; \
                                                                          \
   private:                                                               \
    absl::Status Run([[maybe_unused]] ::tensorflow::OpKernelContext* ctx, \
                     Args<T>& args) const override {                      \
      [[maybe_unused]] const Device device = GetDevice<Device>(ctx);      \
      return ToStatus(__VA_ARGS__);                                       \
    }                                                                     \
  }
#define TFO_REGISTER_DESCRIBED(Register, op, Args, ...)          \
  static const ::tensorflow::InitOnStartupMarker k##Args##Kernel \
      [[maybe_unused]] =                                         \
          Register<Args##Kernel, __VA_ARGS__>("TensorflowOps>" op)
#define TFO_OP_KERNELS(op, Args, ...)                                     \
  TFO_DESCRIBED_KERNEL(Args, __VA_ARGS__);                                \
  TFO_REGISTER_DESCRIBED(::tfo::RegisterKernels, op, Args, float, double, \
                         ::tfo::Half, ::tfo::BFloat16)
#define TFO_OP_CPU_KERNELS(op, Args, ...)                                    \
  TFO_DESCRIBED_KERNEL(Args, __VA_ARGS__);                                   \
  TFO_REGISTER_DESCRIBED(::tfo::RegisterCpuKernels, op, Args, float, double, \
                         ::tfo::Half, ::tfo::BFloat16)
#define TFO_WIDE_OP_KERNELS(op, Args, ...) \
  TFO_DESCRIBED_KERNEL(Args, __VA_ARGS__); \
  TFO_REGISTER_DESCRIBED(::tfo::RegisterKernels, op, Args, float, double)
#define TFO_INDEX_OP_KERNELS(op, Args, ...) \
  TFO_DESCRIBED_KERNEL(Args, __VA_ARGS__);  \
  TFO_REGISTER_DESCRIBED(::tfo::RegisterKernels, op, Args, int32_t, int64_t)

#endif  // TENSORFLOW_OPS_CORE_CC_GLUE_OP_SPEC_H_
