// The OpKernels of RnntLoss and RnntLossGrad.
#include "tensorflow_ops/core/cc/op_util.h"
#include "tensorflow_ops/nn/cc/kernels/sequence_losses/rnnt_loss.h"
#include "tensorflow_ops/nn/cc/kernels/sequence_losses/sequence_inputs_op.h"

namespace tfo {
namespace {

template <typename Device, typename T>
class RnntLossOp : public OpKernel {
 public:
  using Value = Accumulator<T>;

  explicit RnntLossOp(::tensorflow::OpKernelConstruction* ctx) : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, CheckValueType(ctx, DataTypeOf<Value>::kValue));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("blank_index", &blank_));
  }

  void Compute(::tensorflow::OpKernelContext* ctx) override {
    RnntArgs<T> args;
    OP_REQUIRES_OK(
        ctx, ReadLabelSequences(ctx, blank_, /*nodes=*/true,
                                std::is_same_v<Device, Cpu>, &args.sequences));
    const LabelSequences& s = args.sequences;
    ::tensorflow::Tensor *loss, *largest, *rest;
    const ::tensorflow::TensorShape rows({s.batch, s.frames, s.max_labels + 1});
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, {s.batch}, &loss));
    OP_REQUIRES_OK(ctx, ctx->allocate_output(1, rows, &largest));
    OP_REQUIRES_OK(ctx, ctx->allocate_output(2, rows, &rest));
    args.logits = Data<T>(ctx->input(1));
    args.loss = Data<Value>(loss);
    args.largest = Data<Value>(largest);
    args.rest = Data<Value>(rest);
    OP_REQUIRES_OK(ctx,
                   RunWithScratch<Device>(
                       ctx, [&] { return RnntScratchBytes(args); },
                       [&](const Device& d) { return RnntLoss(d, args); }));
  }

 private:
  int64_t blank_;
};

template <typename Device, typename T>
class RnntLossGradOp : public OpKernel {
 public:
  using Value = Accumulator<T>;

  explicit RnntLossGradOp(::tensorflow::OpKernelConstruction* ctx)
      : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, CheckValueType(ctx, DataTypeOf<Value>::kValue));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("blank_index", &blank_));
  }

  void Compute(::tensorflow::OpKernelContext* ctx) override {
    RnntGradArgs<T> args;
    OP_REQUIRES_OK(
        ctx, ReadLabelSequences(ctx, blank_, /*nodes=*/true,
                                std::is_same_v<Device, Cpu>, &args.sequences));
    const LabelSequences& s = args.sequences;
    const ::tensorflow::TensorShape rows({s.batch, s.frames, s.max_labels + 1});
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
                       ctx, [&] { return RnntScratchBytes(args); },
                       [&](const Device& d) { return RnntLossGrad(d, args); }));
  }

 private:
  int64_t blank_;
};

TFO_REGISTER_KERNELS("RnntLoss", RnntLossOp);
TFO_REGISTER_KERNELS("RnntLossGrad", RnntLossGradOp);

}  // namespace
}  // namespace tfo
