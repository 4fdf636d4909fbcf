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
    FourDims dims[4] = {};
    for (int i = 0; i < (attrs_.has_mask ? 4 : 3); ++i) {
      const TensorShape& shape = ctx->input(first + i).shape();
      for (int k = 0; k < 4; ++k) dims[i][k] = shape.dim_size(k);
    }
    *inputs = {
        Data<T>(ctx->input(first)), Data<Accumulator<T>>(ctx->input(first + 1)),
        Data<T>(ctx->input(first + 2)),
        attrs_.has_mask ? Data<T>(ctx->input(first + 3)) : nullptr, nullptr};
    return CheckDeformConv(attrs_, dims[0], dims[1], dims[2],
                           attrs_.has_mask ? &dims[3] : nullptr, args);
  }

  DeformConvAttrs attrs_;
};

template <typename Device, typename T>
class DeformConvOp : public DeformConvOpBase<T> {
 public:
  using DeformConvOpBase<T>::DeformConvOpBase;

  void Compute(OpKernelContext* ctx) override {
    Tensor* output;
    OP_REQUIRES_OK(ctx, AllocateOutputs(ctx, {&output}));
    if (output->NumElements() == 0) return;
    DeformConvArgs args;
    DeformConvInputs<T> inputs;
    OP_REQUIRES_OK(ctx, this->Read(ctx, 0, &args, &inputs));
    if (this->attrs_.has_bias) inputs.bias = Data<T>(ctx->input(4));
    OP_REQUIRES_OK(ctx, ToStatus(DeformConv(GetDevice<Device>(ctx), args,
                                            inputs, Data<T>(output))));
  }
};

template <typename Device, typename T>
class DeformConvGradOp : public DeformConvOpBase<T> {
 public:
  using DeformConvOpBase<T>::DeformConvOpBase;

  void Compute(OpKernelContext* ctx) override {
    Tensor* outputs[5];
    OP_REQUIRES_OK(ctx,
                   AllocateOutputs(ctx, {&outputs[0], &outputs[1], &outputs[2],
                                         &outputs[3], &outputs[4]}));
    DeformConvArgs args;
    DeformConvInputs<T> inputs;
    OP_REQUIRES_OK(ctx, this->Read(ctx, 1, &args, &inputs));
    const Tensor& d_output = ctx->input(0);
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
