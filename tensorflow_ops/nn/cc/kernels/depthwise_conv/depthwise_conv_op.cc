// The OpKernels of DepthwiseConv2d and its gradient.
#include "tensorflow_ops/nn/cc/kernels/depthwise_conv/depthwise_conv_shapes_op.h"

namespace tfo {
namespace {

using ::tensorflow::OpKernelConstruction;
using ::tensorflow::OpKernelContext;
using ::tensorflow::Tensor;

class DepthwiseConvOpBase : public OpKernel {
 public:
  explicit DepthwiseConvOpBase(OpKernelConstruction* ctx) : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, attrs_.Read(ctx));
  }

 protected:
  DepthwiseConvShape ShapeOf(const Tensor& input, const Tensor& filter) const {
    return {input.dim_size(0), input.dim_size(3),
            AxisOf(attrs_, 0, input.dim_size(1), filter.dim_size(0)),
            AxisOf(attrs_, 1, input.dim_size(2), filter.dim_size(1))};
  }

  ConvAttrs attrs_;
};

template <typename Device, typename T>
class DepthwiseConvOp : public DepthwiseConvOpBase {
 public:
  using DepthwiseConvOpBase::DepthwiseConvOpBase;

  void Compute(OpKernelContext* ctx) override {
    const Tensor &input = ctx->input(0), &filter = ctx->input(1);
    DepthwiseConvArgs<T> args{ShapeOf(input, filter), Data<T>(input),
                              Data<T>(filter), nullptr};
    OP_REQUIRES_OK(ctx, AllocateOutputs(ctx, &args.output));
    OP_REQUIRES_OK(ctx, ToStatus(DepthwiseConv(GetDevice<Device>(ctx), args)));
  }
};

template <typename Device, typename T>
class DepthwiseConvGradOp : public DepthwiseConvOpBase {
 public:
  using DepthwiseConvOpBase::DepthwiseConvOpBase;

  void Compute(OpKernelContext* ctx) override {
    const Tensor &input = ctx->input(1), &filter = ctx->input(2);
    DepthwiseConvGradArgs<T> args{ShapeOf(input, filter),
                                  Data<T>(ctx->input(0)),
                                  Data<T>(input),
                                  Data<T>(filter),
                                  nullptr,
                                  nullptr};
    OP_REQUIRES_OK(ctx, AllocateOutputs(ctx, &args.d_input, &args.d_filter));
    OP_REQUIRES_OK(
        ctx,
        RunWithScratch<Device>(
            ctx, [&](const Gpu&) { return DepthwiseConvGradScratch(args); },
            [&](const Device& on) { return DepthwiseConvGrad(on, args); }));
  }
};

TFO_REGISTER_KERNELS("DepthwiseConv2d", DepthwiseConvOp);
TFO_REGISTER_KERNELS("DepthwiseConv2dGrad", DepthwiseConvGradOp);

}  // namespace
}  // namespace tfo
