// The OpKernels of Gru and its gradient.
#include "tensorflow_ops/core/cc/op_util.h"
#include "tensorflow_ops/nn/cc/kernels/recurrent/gru.h"
#include "tensorflow_ops/nn/cc/kernels/recurrent/recurrent_op.h"

namespace tfo {
namespace {

using ::tensorflow::OpKernelConstruction;
using ::tensorflow::OpKernelContext;
using ::tensorflow::Tensor;

class GruOpBase : public RecurrentOpBase {
 public:
  explicit GruOpBase(OpKernelConstruction* ctx) : RecurrentOpBase(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("reset_after", &reset_after_));
  }

 protected:
  GruSpec ReadSpec(OpKernelContext* ctx) const {
    return {RecurrentOpBase::ReadSpec(ctx), reset_after_};
  }

 private:
  bool reset_after_;
};

template <typename Device, typename T>
class GruOp : public GruOpBase {
 public:
  using GruOpBase::GruOpBase;

  void Compute(OpKernelContext* ctx) override {
    GruArgs<T> args{ReadSpec(ctx)};
    args.inputs = Data<T>(ctx->input(0));
    args.recurrent_kernel = Data<T>(ctx->input(1));
    args.bias = Data<T>(ctx->input(2));
    args.h0 = Data<T>(ctx->input(3));
    Tensor* resets;
    OP_REQUIRES_OK(ctx, AllocateOutputs(ctx, &args.outputs, &args.h));
    OP_REQUIRES_OK(ctx, ForwardFirstInput(ctx, 2, &args.gates));
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 3, &resets));
    args.resets = Data<T>(resets);
    OP_REQUIRES_OK(ctx, ToStatus(Gru(GetDevice<Device>(ctx), args)));
  }
};

template <typename Device, typename T>
class GruGradOp : public GruOpBase {
 public:
  using GruOpBase::GruOpBase;

  void Compute(OpKernelContext* ctx) override {
    GruGradArgs<T> args{ReadSpec(ctx)};
    args.gates = Data<T>(ctx->input(0));
    args.recurrent_kernel = Data<T>(ctx->input(1));
    args.h0 = Data<T>(ctx->input(2));
    args.outputs = Data<T>(ctx->input(3));
    args.resets = Data<T>(ctx->input(4));
    args.d_outputs = Data<T>(ctx->input(5));
    args.d_h = Data<T>(ctx->input(6));
    Tensor *d_recurrent, *d_h0;
    OP_REQUIRES_OK(ctx, ForwardFirstInput(ctx, 0, &args.d_inputs));
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 1, &d_recurrent));
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 2, &d_h0));
    args.d_recurrent = Data<T>(d_recurrent);
    args.d_h0 = Data<T>(d_h0);
    OP_REQUIRES_OK(ctx, ToStatus(GruGrad(GetDevice<Device>(ctx), args)));
  }
};

TFO_REGISTER_WIDE_KERNELS("Gru", GruOp, );
TFO_REGISTER_WIDE_KERNELS("GruGrad", GruGradOp, );

}  // namespace
}  // namespace tfo
