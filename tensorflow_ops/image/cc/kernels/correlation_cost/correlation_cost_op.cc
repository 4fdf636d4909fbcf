// The OpKernels of CorrelationCost and its gradient.
#include "tensorflow_ops/core/cc/op_util.h"
#include "tensorflow_ops/image/cc/kernels/correlation_cost/correlation_cost.h"
#include "tensorflow_ops/image/cc/kernels/correlation_cost/correlation_inputs_op.h"

namespace tfo {
namespace {

class CorrelationOpBase : public OpKernel {
 public:
  explicit CorrelationOpBase(::tensorflow::OpKernelConstruction* ctx)
      : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, ReadCorrelationAttrs(ctx, &args_));
  }

 protected:
  CorrelationArgs ArgsOf(const ::tensorflow::TensorShape& features) const {
    CorrelationArgs args = args_;
    args.batch = features.dim_size(0);
    args.height = features.dim_size(1);
    args.width = features.dim_size(2);
    args.channels = features.dim_size(3);
    return args;
  }

 private:
  CorrelationArgs args_;
};

template <typename Device, typename T>
class CorrelationCostOp : public CorrelationOpBase {
 public:
  using CorrelationOpBase::CorrelationOpBase;

  void Compute(::tensorflow::OpKernelContext* ctx) override {
    const ::tensorflow::Tensor &a = ctx->input(0), &b = ctx->input(1);
    ::tensorflow::Tensor* costs;
    OP_REQUIRES_OK(ctx, AllocateOutputs(ctx, {&costs}));
    if (costs->NumElements() == 0) return;
    OP_REQUIRES_OK(
        ctx, ToStatus(CorrelationCost(GetDevice<Device>(ctx), ArgsOf(a.shape()),
                                      Data<T>(a), Data<T>(b), Data<T>(costs))));
  }
};

template <typename Device, typename T>
class CorrelationCostGradOp : public CorrelationOpBase {
 public:
  explicit CorrelationCostGradOp(::tensorflow::OpKernelConstruction* ctx)
      : CorrelationOpBase(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("to_b", &to_b_));
  }

  void Compute(::tensorflow::OpKernelContext* ctx) override {
    const ::tensorflow::Tensor &d_costs = ctx->input(0), &other = ctx->input(1);
    ::tensorflow::Tensor* gradient;
    OP_REQUIRES_OK(ctx, AllocateOutputs(ctx, {&gradient}));
    if (gradient->NumElements() == 0) return;
    OP_REQUIRES_OK(
        ctx, ToStatus(CorrelationCostGrad(
                 GetDevice<Device>(ctx), ArgsOf(other.shape()),
                 Data<T>(d_costs), Data<T>(other), to_b_, Data<T>(gradient))));
  }

 private:
  bool to_b_;
};

TFO_REGISTER_KERNELS("CorrelationCost", CorrelationCostOp, );
TFO_REGISTER_KERNELS("CorrelationCostGrad", CorrelationCostGradOp, );

}  // namespace
}  // namespace tfo
