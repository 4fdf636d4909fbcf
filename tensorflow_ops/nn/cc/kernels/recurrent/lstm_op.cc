// The OpKernels of Lstm and its gradient.
#include "tensorflow_ops/core/cc/op_util.h"
#include "tensorflow_ops/nn/cc/kernels/recurrent/lstm.h"
#include "tensorflow_ops/nn/cc/kernels/recurrent/recurrent_op.h"

namespace tfo {
namespace {

using ::tensorflow::OpKernelContext;
using ::tensorflow::Tensor;

template <typename Device, typename T>
class LstmOp : public RecurrentOpBase {
 public:
  using RecurrentOpBase::RecurrentOpBase;

  void Compute(OpKernelContext* ctx) override {
    LstmArgs<T> args{ReadSpec(ctx)};
    args.inputs = Data<T>(ctx->input(0));
    args.recurrent_kernel = Data<T>(ctx->input(1));
    args.bias = Data<T>(ctx->input(2));
    args.h0 = Data<T>(ctx->input(3));
    args.c0 = Data<T>(ctx->input(4));
    Tensor* cells;
    OP_REQUIRES_OK(ctx, AllocateOutputs(ctx, &args.outputs, &args.h, &args.c));
    OP_REQUIRES_OK(ctx, ForwardFirstInput(ctx, 3, &args.gates));
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 4, &cells));
    args.cells = Data<T>(cells);
    OP_REQUIRES_OK(ctx, ToStatus(Lstm(GetDevice<Device>(ctx), args)));
  }
};

template <typename Device, typename T>
class LstmGradOp : public RecurrentOpBase {
 public:
  using RecurrentOpBase::RecurrentOpBase;

  void Compute(OpKernelContext* ctx) override {
    LstmGradArgs<T> args{ReadSpec(ctx)};
    args.gates = Data<T>(ctx->input(0));
    args.recurrent_kernel = Data<T>(ctx->input(1));
    args.c0 = Data<T>(ctx->input(2));
    args.cells = Data<T>(ctx->input(3));
    args.d_outputs = Data<T>(ctx->input(4));
    args.d_h = Data<T>(ctx->input(5));
    args.d_c = Data<T>(ctx->input(6));
    Tensor *d_h0, *d_c0;
    OP_REQUIRES_OK(ctx, ForwardFirstInput(ctx, 0, &args.d_inputs));
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 1, &d_h0));
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 2, &d_c0));
    args.d_h0 = Data<T>(d_h0);
    args.d_c0 = Data<T>(d_c0);
    OP_REQUIRES_OK(ctx, ToStatus(LstmGrad(GetDevice<Device>(ctx), args)));
  }
};

TFO_REGISTER_WIDE_KERNELS("Lstm", LstmOp, );
TFO_REGISTER_WIDE_KERNELS("LstmGrad", LstmGradOp, );

}  // namespace
}  // namespace tfo
