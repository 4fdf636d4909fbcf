// The OpKernels of CorrelationCost and its gradient.
#include "absl/strings/str_cat.h"
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
  // Sets args, and the shape of the costs, for features of a shape.
  absl::Status Read(const char* name, const ::tensorflow::TensorShape& shape,
                    CorrelationArgs* args,
                    ::tensorflow::TensorShape* costs) const {
    TF_RETURN_IF_ERROR(CheckShape(name, shape, {-1, -1, -1, -1}, "4-D"));
    *args = args_;
    args->batch = shape.dim_size(0);
    args->height = shape.dim_size(1);
    args->width = shape.dim_size(2);
    args->channels = shape.dim_size(3);
    for (const int64_t size : {args->height, args->width}) {
      TF_RETURN_IF_ERROR(CheckCorrelatedSize(*args, size, shape.DebugString()));
    }
    for (const int64_t size : {args->batch, args->OutputHeight(),
                               args->OutputWidth(), args->Displacements()}) {
      TF_RETURN_IF_ERROR(costs->AddDimWithStatus(size));
    }
    return absl::OkStatus();
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
    CorrelationArgs args;
    ::tensorflow::TensorShape shape;
    OP_REQUIRES_OK(ctx, Read("features_a", a.shape(), &args, &shape));
    OP_REQUIRES(
        ctx, a.shape() == b.shape(),
        absl::InvalidArgumentError(absl::StrCat(
            "features_b must have features_a's shape ", a.shape().DebugString(),
            ", got ", b.shape().DebugString())));
    ::tensorflow::Tensor* costs;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, shape, &costs));
    if (costs->NumElements() == 0) return;
    OP_REQUIRES_OK(
        ctx, ToStatus(CorrelationCost(GetDevice<Device>(ctx), args, Data<T>(a),
                                      Data<T>(b), Data<T>(costs))));
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
    CorrelationArgs args;
    ::tensorflow::TensorShape shape;
    OP_REQUIRES_OK(ctx, Read("other", other.shape(), &args, &shape));
    OP_REQUIRES(ctx, d_costs.shape() == shape,
                absl::InvalidArgumentError(
                    absl::StrCat("d_costs must be ", shape.DebugString(),
                                 ", got ", d_costs.shape().DebugString())));
    ::tensorflow::Tensor* gradient;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, other.shape(), &gradient));
    if (gradient->NumElements() == 0) return;
    OP_REQUIRES_OK(ctx, ToStatus(CorrelationCostGrad(
                            GetDevice<Device>(ctx), args, Data<T>(d_costs),
                            Data<T>(other), to_b_, Data<T>(gradient))));
  }

 private:
  bool to_b_;
};

TFO_REGISTER_KERNELS("CorrelationCost", CorrelationCostOp, );
TFO_REGISTER_KERNELS("CorrelationCostGrad", CorrelationCostGradOp, );

}  // namespace
}  // namespace tfo
