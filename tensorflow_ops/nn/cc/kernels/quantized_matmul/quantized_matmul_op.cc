// The OpKernels of QuantizedMatmul and its gradient.
#include "absl/strings/str_cat.h"
#include "tensorflow_ops/core/cc/glue/op_util.h"
#include "tensorflow_ops/nn/cc/kernels/quantized_matmul/quantized_matmul.h"

namespace tfo {
namespace {

using ::tensorflow::OpKernelConstruction;
using ::tensorflow::OpKernelContext;
using ::tensorflow::Tensor;

template <typename Device, typename T>
class QuantizedMatmulOpBase : public OpKernel {
 public:
  explicit QuantizedMatmulOpBase(OpKernelConstruction* ctx) : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx,
                   CheckValueType(ctx, DataTypeOf<Accumulator<T>>::kValue));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("block_size", &block_size_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("transposed", &transposed_));
    OP_REQUIRES_OK(ctx,
                   ReadEnum<NibblePairs>(ctx, "pairs",
                                         {{"none", NibblePairs::kNone},
                                          {"columns", NibblePairs::kColumns},
                                          {"depth", NibblePairs::kDepth}},
                                         &pairs_));
    ::tensorflow::DataType kernel, zero, value;
    OP_REQUIRES_OK(ctx, ctx->GetAttr("Tkernel", &kernel));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("Tzero", &zero));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("Tvalue", &value));
    int has_zero;
    OP_REQUIRES_OK(ctx, ctx->GetAttr("has_zero", &has_zero));
    is_signed_ = kernel == ::tensorflow::DT_INT8;
    has_float_zero_ = has_zero > 0 && zero == value;
    OP_REQUIRES(ctx, has_zero == 0 || zero == kernel || zero == value,
                absl::InvalidArgumentError(absl::StrCat(
                    "zero is ", ::tensorflow::DataTypeString(zero),
                    ", expected ", ::tensorflow::DataTypeString(kernel), " or ",
                    ::tensorflow::DataTypeString(value))));
  }

 protected:
  // Reads the weights from input `first` on. `inputs` is [.., depth].
  absl::Status ReadWeights(OpKernelContext* ctx, int first,
                           const Tensor& inputs,
                           QuantizedWeights<Accumulator<T>>* weights) const {
    const Tensor& scale = ctx->input(first + 1);
    const int64_t depth = inputs.dim_size(inputs.dims() - 1);
    const int of_columns = scale.dims() == 2 && !transposed_ ? 1 : 0;
    *weights = {
        depth,
        scale.dim_size(of_columns),
        scale.dims() == 2 ? scale.dim_size(1 - of_columns) : 1,
        pairs_,
        transposed_,
        is_signed_,
        Data<uint8_t>(ctx->input(first)),
        Data<Accumulator<T>>(scale),
        has_float_zero_ ? nullptr : OptionalData<uint8_t>(ctx, "zero"),
        has_float_zero_ ? OptionalData<Accumulator<T>>(ctx, "zero") : nullptr,
        OptionalData<int32_t>(ctx, "group_index"),
        block_size_ > 0 ? block_size_ : depth};
    if constexpr (std::is_same_v<Device, Cpu>) {
      if (weights->group_of == nullptr) return absl::OkStatus();
      for (int64_t k = 0; k < weights->depth; ++k) {
        const int32_t group = weights->group_of[k];
        if (group < 0 || group >= weights->groups) {
          return absl::InvalidArgumentError(
              absl::StrCat("group_index[", k, "] is ", group, ", expected [0, ",
                           weights->groups - 1, "]"));
        }
      }
    }
    return absl::OkStatus();
  }

 private:
  int64_t block_size_;
  bool transposed_, is_signed_, has_float_zero_;
  NibblePairs pairs_;
};

template <typename Device, typename T>
class QuantizedMatmulOp : public QuantizedMatmulOpBase<Device, T> {
 public:
  explicit QuantizedMatmulOp(OpKernelConstruction* ctx)
      : QuantizedMatmulOpBase<Device, T>(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("quantize_inputs", &quantize_inputs_));
  }

  void Compute(OpKernelContext* ctx) override {
    QuantizedMatmulArgs<T> args{};
    Tensor* outputs;
    OP_REQUIRES_OK(ctx, AllocateOutputs(ctx, {&outputs}));
    if (outputs->NumElements() == 0) return;
    const Tensor& inputs = ctx->input(0);
    OP_REQUIRES_OK(ctx, this->ReadWeights(ctx, 1, inputs, &args.weights));
    args.rows = outputs->NumElements() / args.weights.columns;
    args.quantize_inputs = quantize_inputs_;
    args.inputs = Data<T>(inputs);
    args.outputs = Data<T>(outputs);
    OP_REQUIRES_OK(
        ctx,
        RunWithScratch<Device>(
            ctx, [&](const Gpu&) { return QuantizedMatmulScratchBytes(args); },
            [&](const Device& d) { return QuantizedMatmul(d, args); }));
  }

 private:
  bool quantize_inputs_;
};

template <typename Device, typename T>
class QuantizedMatmulGradOp : public QuantizedMatmulOpBase<Device, T> {
 public:
  using QuantizedMatmulOpBase<Device, T>::QuantizedMatmulOpBase;

  void Compute(OpKernelContext* ctx) override {
    QuantizedMatmulGradArgs<T> args{};
    Tensor* d_inputs;
    OP_REQUIRES_OK(ctx, AllocateOutputs(ctx, {&d_inputs}));
    if (d_inputs->NumElements() == 0) return;
    OP_REQUIRES_OK(ctx, this->ReadWeights(ctx, 2, *d_inputs, &args.weights));
    args.rows = d_inputs->NumElements() / args.weights.depth;
    args.d_outputs = Data<T>(ctx->input(0));
    args.d_inputs = Data<T>(d_inputs);
    OP_REQUIRES_OK(
        ctx,
        RunWithScratch<Device>(
            ctx,
            [&](const Gpu&) { return QuantizedMatmulGradScratchBytes(args); },
            [&](const Device& d) { return QuantizedMatmulGrad(d, args); }));
  }
};

TFO_REGISTER_KERNELS("QuantizedMatmul", QuantizedMatmulOp);
TFO_REGISTER_KERNELS("QuantizedMatmulGrad", QuantizedMatmulGradOp);

}  // namespace
}  // namespace tfo
