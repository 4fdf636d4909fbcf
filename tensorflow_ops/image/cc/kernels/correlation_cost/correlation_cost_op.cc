// The OpKernels of CorrelationCost and its gradient.
#include "tensorflow_ops/core/cc/glue/op_util.h"
#include "tensorflow_ops/image/cc/kernels/correlation_cost/correlation_cost.h"
#include "tensorflow_ops/image/cc/kernels/correlation_cost/correlation_inputs_op.h"

namespace tfo {
namespace {

class CorrelationOpBase : public OpKernel {
 public:
  explicit CorrelationOpBase(::tensorflow::OpKernelConstruction* ctx)
      : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, ReadCorrelationAttrs(ctx, &spec_));
  }

 protected:
  CorrelationSpec SpecOf(const ::tensorflow::TensorShape& features) const {
    CorrelationSpec spec = spec_;
    spec.batch = features.dim_size(0);
    spec.height = features.dim_size(1);
    spec.width = features.dim_size(2);
    spec.channels = features.dim_size(3);
    return spec;
  }

 private:
  CorrelationSpec spec_;
};

template <typename Device, typename T>
class CorrelationCostOp : public CorrelationOpBase {
 public:
  using CorrelationOpBase::CorrelationOpBase;

  void Compute(::tensorflow::OpKernelContext* ctx) override {
    const ::tensorflow::Tensor &a = ctx->input(0), &b = ctx->input(1);
    CorrelationCostArgs<T> args = {SpecOf(a.shape()), Data<T>(a), Data<T>(b),
                                   nullptr};
    OP_REQUIRES_OK(ctx, AllocateOutputs(ctx, &args.costs));
    if (ctx->mutable_output(0)->NumElements() == 0) return;
    OP_REQUIRES_OK(ctx,
                   ToStatus(CorrelationCost(GetDevice<Device>(ctx), args)));
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
    CorrelationCostGradArgs<T> args = {SpecOf(other.shape()), Data<T>(d_costs),
                                       Data<T>(other), to_b_, nullptr};
    OP_REQUIRES_OK(ctx, AllocateOutputs(ctx, &args.gradient));
    if (other.NumElements() == 0) return;
    OP_REQUIRES_OK(ctx,
                   ToStatus(CorrelationCostGrad(GetDevice<Device>(ctx), args)));
  }

 private:
  bool to_b_;
};

TFO_REGISTER_KERNELS("CorrelationCost", CorrelationCostOp, );
TFO_REGISTER_KERNELS("CorrelationCostGrad", CorrelationCostGradOp, );

}  // namespace
}  // namespace tfo
