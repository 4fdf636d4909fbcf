// The OpKernels of DeformConv2d and its gradient.
#include "tensorflow_ops/core/cc/op_util.h"
#include "tensorflow_ops/nn/cc/kernels/deform_conv/deform_conv.h"
#include "tensorflow_ops/nn/cc/kernels/deform_conv/deform_conv_shapes_op.h"

namespace tfo {
namespace {

using ::tensorflow::OpKernelConstruction;
using ::tensorflow::OpKernelContext;
using ::tensorflow::Tensor;
using ::tensorflow::TensorShape;

template <typename T>
class DeformConvOpBase : public OpKernel {
 public:
  explicit DeformConvOpBase(OpKernelConstruction* ctx) : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, attrs_.Read(ctx));
    OP_REQUIRES_OK(ctx,
                   CheckValueType(ctx, DataTypeOf<Accumulator<T>>::kValue));
  }

 protected:
  // Reads features, offsets, filters and mask, from input `first` on.
  absl::Status Read(OpKernelContext* ctx, int first, DeformConvArgs* args,
                    DeformConvInputs<T>* inputs) const {
    constexpr const char* kNames[] = {"features", "offsets", "filters", "mask"};
    FourDims dims[4] = {};
    for (int i = 0; i < (attrs_.has_mask ? 4 : 3); ++i) {
      const TensorShape& shape = ctx->input(first + i).shape();
      TF_RETURN_IF_ERROR(CheckShape(kNames[i], shape, {-1, -1, -1, -1}, "4-D"));
      for (int k = 0; k < 4; ++k) dims[i][k] = shape.dim_size(k);
    }
    TF_RETURN_IF_ERROR(CheckDeformConv(attrs_, dims[0], dims[1], dims[2],
                                       attrs_.has_mask ? &dims[3] : nullptr,
                                       args));
    if (!attrs_.has_mask) {
      TF_RETURN_IF_ERROR(CheckShape("mask", ctx->input(first + 3).shape(), {0},
                                    "[0] if has_mask is false"));
    }
    *inputs = {
        Data<T>(ctx->input(first)), Data<Accumulator<T>>(ctx->input(first + 1)),
        Data<T>(ctx->input(first + 2)),
        attrs_.has_mask ? Data<T>(ctx->input(first + 3)) : nullptr, nullptr};
    return absl::OkStatus();
  }

  DeformConvAttrs attrs_;
};

template <typename Device, typename T>
class DeformConvOp : public DeformConvOpBase<T> {
 public:
  using DeformConvOpBase<T>::DeformConvOpBase;

  void Compute(OpKernelContext* ctx) override {
    DeformConvArgs args;
    DeformConvInputs<T> inputs;
    OP_REQUIRES_OK(ctx, this->Read(ctx, 0, &args, &inputs));
    const bool has_bias = this->attrs_.has_bias;
    const Tensor& bias = ctx->input(4);
    const std::string expected =
        has_bias
            ? absl::StrCat("[", args.out_channels,
                           "], a number for each output channel of filters")
            : "[0] if has_bias is false";
    OP_REQUIRES_OK(
        ctx, CheckShape("bias", bias.shape(),
                        {has_bias ? args.out_channels : 0}, expected.c_str()));
    if (has_bias) inputs.bias = Data<T>(bias);
    TensorShape shape;
    for (int64_t size :
         {args.batch, args.out_height, args.out_width, args.out_channels}) {
      OP_REQUIRES_OK(ctx, shape.AddDimWithStatus(size));
    }
    Tensor* output = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, shape, &output));
    if (output->NumElements() == 0) return;
    OP_REQUIRES_OK(ctx, ToStatus(DeformConv(GetDevice<Device>(ctx), args,
                                            inputs, Data<T>(output))));
  }
};

template <typename Device, typename T>
class DeformConvGradOp : public DeformConvOpBase<T> {
 public:
  using DeformConvOpBase<T>::DeformConvOpBase;

  void Compute(OpKernelContext* ctx) override {
    DeformConvArgs args;
    DeformConvInputs<T> inputs;
    OP_REQUIRES_OK(ctx, this->Read(ctx, 1, &args, &inputs));
    const Tensor& d_output = ctx->input(0);
    OP_REQUIRES_OK(ctx, CheckShape("d_output", d_output.shape(),
                                   {args.batch, args.out_height, args.out_width,
                                    args.out_channels},
                                   "of the output's shape"));
    Tensor* outputs[5] = {};
    for (int i = 0; i < 4; ++i) {
      OP_REQUIRES_OK(
          ctx, ctx->allocate_output(i, ctx->input(i + 1).shape(), &outputs[i]));
    }
    const int64_t biases = this->attrs_.has_bias ? args.out_channels : 0;
    OP_REQUIRES_OK(ctx,
                   ctx->allocate_output(4, TensorShape({biases}), &outputs[4]));
    const DeformConvGrads<T> grads = {
        Data<T>(outputs[0]), Data<Accumulator<T>>(outputs[1]),
        Data<T>(outputs[2]),
        this->attrs_.has_mask ? Data<T>(outputs[3]) : nullptr,
        this->attrs_.has_bias ? Data<T>(outputs[4]) : nullptr};
    Device device = GetDevice<Device>(ctx);
    Tensor scratch;
    if constexpr (std::is_same_v<Device, Gpu>) {
      OP_REQUIRES_OK(ctx, AllocateScratch(ctx,
                                          DeformConvGradScratchBytes<T>(
                                              args, device.deterministic),
                                          &scratch, &device));
    }
    OP_REQUIRES_OK(ctx, ToStatus(DeformConvGrad(device, args, inputs,
                                                Data<T>(d_output), grads)));
  }
};

TFO_REGISTER_KERNELS("DeformConv2d", DeformConvOp);
TFO_REGISTER_KERNELS("DeformConv2dGrad", DeformConvGradOp);

}  // namespace
}  // namespace tfo
