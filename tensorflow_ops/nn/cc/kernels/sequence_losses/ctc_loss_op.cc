// The OpKernels of CtcLoss and CtcLossGrad.
#include "tensorflow_ops/core/cc/op_util.h"
#include "tensorflow_ops/nn/cc/kernels/sequence_losses/ctc_loss.h"
#include "tensorflow_ops/nn/cc/kernels/sequence_losses/sequence_inputs_op.h"

namespace tfo {
namespace {

template <typename Device, typename T>
class CtcLossOp : public OpKernel {
 public:
  using Value = Accumulator<T>;

  explicit CtcLossOp(::tensorflow::OpKernelConstruction* ctx) : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, CheckValueType(ctx, DataTypeOf<Value>::kValue));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("blank_index", &blank_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("zero_infinity", &zero_infinity_));
  }

  void Compute(::tensorflow::OpKernelContext* ctx) override {
    CtcArgs<T> args;
    OP_REQUIRES_OK(
        ctx, ReadLabelSequences(ctx, blank_, /*nodes=*/false,
                                std::is_same_v<Device, Cpu>, &args.sequences));
    const LabelSequences& s = args.sequences;
    ::tensorflow::Tensor *loss, *largest, *rest;
    const ::tensorflow::TensorShape rows({s.batch, s.frames});
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, {s.batch}, &loss));
    OP_REQUIRES_OK(ctx, ctx->allocate_output(1, rows, &largest));
    OP_REQUIRES_OK(ctx, ctx->allocate_output(2, rows, &rest));
    args.zero_infinity = zero_infinity_;
    args.logits = Data<T>(ctx->input(1));
    args.loss = Data<Value>(loss);
    args.largest = Data<Value>(largest);
    args.rest = Data<Value>(rest);
    OP_REQUIRES_OK(ctx, RunWithScratch<Device>(
                            ctx, [&] { return CtcScratchBytes(args); },
                            [&](const Device& d) { return CtcLoss(d, args); }));
  }

 private:
  int64_t blank_;
  bool zero_infinity_;
};

template <typename Device, typename T>
class CtcLossGradOp : public OpKernel {
 public:
  using Value = Accumulator<T>;

  explicit CtcLossGradOp(::tensorflow::OpKernelConstruction* ctx)
      : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, CheckValueType(ctx, DataTypeOf<Value>::kValue));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("blank_index", &blank_));
  }

  void Compute(::tensorflow::OpKernelContext* ctx) override {
    CtcGradArgs<T> args;
    OP_REQUIRES_OK(
        ctx, ReadLabelSequences(ctx, blank_, /*nodes=*/false,
                                std::is_same_v<Device, Cpu>, &args.sequences));
    const LabelSequences& s = args.sequences;
    const ::tensorflow::TensorShape rows({s.batch, s.frames});
    OP_REQUIRES_OK(ctx, CheckSequenceShape("d_loss", ctx->input(4), {s.batch}));
    OP_REQUIRES_OK(ctx, CheckSequenceShape("largest", ctx->input(5), rows));
    OP_REQUIRES_OK(ctx, CheckSequenceShape("rest", ctx->input(6), rows));
    ::tensorflow::Tensor* d_logits;
    OP_REQUIRES_OK(ctx,
                   ctx->allocate_output(0, ctx->input(1).shape(), &d_logits));
    args.logits = Data<T>(ctx->input(1));
    args.d_loss = Data<Value>(ctx->input(4));
    args.largest = Data<Value>(ctx->input(5));
    args.rest = Data<Value>(ctx->input(6));
    args.d_logits = Data<T>(d_logits);
    OP_REQUIRES_OK(ctx,
                   RunWithScratch<Device>(
                       ctx, [&] { return CtcScratchBytes(args); },
                       [&](const Device& d) { return CtcLossGrad(d, args); }));
  }

 private:
  int64_t blank_;
};

TFO_REGISTER_KERNELS("CtcLoss", CtcLossOp);
TFO_REGISTER_KERNELS("CtcLossGrad", CtcLossGradOp);

}  // namespace
}  // namespace tfo
