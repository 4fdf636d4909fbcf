// The OpKernels of DeformConv2d and its gradient.
#include "tensorflow_ops/core/cc/glue/op_util.h"
#include "tensorflow_ops/nn/cc/kernels/deform_conv/deform_conv.h"
#include "tensorflow_ops/nn/cc/kernels/deform_conv/deform_conv_shapes_op.h"

namespace tfo {
namespace {

using ::tensorflow::OpKernelConstruction;
using ::tensorflow::OpKernelContext;
using ::tensorflow::Tensor;

template <typename T>
class DeformConvOpBase : public OpKernel {
 public:
  explicit DeformConvOpBase(OpKernelConstruction* ctx) : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, attrs_.Read(ctx));
    OP_REQUIRES_OK(ctx,
                   CheckValueType(ctx, DataTypeOf<Accumulator<T>>::kValue));
  }

 protected:
  // Reads features, offsets and filters, from input `first` on, and the mask.
  absl::Status Read(OpKernelContext* ctx, int first,
                    DeformConvInputs<T>* args) const {
    const Tensor* const mask = OptionalInput(ctx, "mask");
    FourDims dims[4] = {};
    for (int i = 0; i < (mask != nullptr ? 4 : 3); ++i) {
      const Tensor& tensor = i < 3 ? ctx->input(first + i) : *mask;
      for (int k = 0; k < 4; ++k) dims[i][k] = tensor.dim_size(k);
    }
    args->features = Data<T>(ctx->input(first));
    args->offsets = Data<Accumulator<T>>(ctx->input(first + 1));
    args->filters = Data<T>(ctx->input(first + 2));
    args->mask = mask != nullptr ? Data<T>(*mask) : nullptr;
    return CheckDeformConv(attrs_, dims[0], dims[1], dims[2],
                           mask != nullptr ? &dims[3] : nullptr, args);
  }

  ConvAttrs attrs_;
};

template <typename Device, typename T>
class DeformConvOp : public DeformConvOpBase<T> {
 public:
  using DeformConvOpBase<T>::DeformConvOpBase;

  void Compute(OpKernelContext* ctx) override {
    Tensor* output;
    OP_REQUIRES_OK(ctx, AllocateOutputs(ctx, {&output}));
    if (output->NumElements() == 0) return;
    DeformConvArgs<T> args{};
    OP_REQUIRES_OK(ctx, this->Read(ctx, 0, &args));
    args.bias = OptionalData<T>(ctx, "bias");
    args.output = Data<T>(output);
    OP_REQUIRES_OK(
        ctx,
        RunWithScratch<Device>(
            ctx, [&](const Gpu&) { return DeformConvScratchBytes<T>(args); },
            [&](const Device& d) { return DeformConv(d, args); }));
  }
};

template <typename Device, typename T>
class DeformConvGradOp : public DeformConvOpBase<T> {
 public:
  using DeformConvOpBase<T>::DeformConvOpBase;

  void Compute(OpKernelContext* ctx) override {
    Tensor* outputs[5] = {};
    for (int i = 0; i < ctx->num_outputs(); ++i) {
      OP_REQUIRES_OK(ctx, AllocateOutput(ctx, i, &outputs[i]));
    }
    DeformConvGradArgs<T> args{};
    OP_REQUIRES_OK(ctx, this->Read(ctx, 1, &args));
    args.d_output = Data<T>(ctx->input(0));
    args.d_features = Data<T>(outputs[0]);
    args.d_offsets = Data<Accumulator<T>>(outputs[1]);
    args.d_filters = Data<T>(outputs[2]);
    if (OptionalInput(ctx, "mask") != nullptr) {
      args.d_mask = Data<T>(outputs[3]);
    }
    if (OptionalInput(ctx, "bias") != nullptr) {
      args.d_bias = Data<T>(outputs[ctx->num_outputs() - 1]);
    }
    OP_REQUIRES_OK(
        ctx, RunWithScratch<Device>(
                 ctx,
                 [&](const Gpu& gpu) {
                   return DeformConvGradScratchBytes<T>(args,
                                                        gpu.deterministic);
                 },
                 [&](const Device& d) { return DeformConvGrad(d, args); }));
  }
};

TFO_REGISTER_KERNELS("DeformConv2d", DeformConvOp);
TFO_REGISTER_KERNELS("DeformConv2dGrad", DeformConvGradOp);

}  // namespace
}  // namespace tfo
