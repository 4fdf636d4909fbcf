// The OpKernels of CtcLoss, RnntLoss and their gradients.
#include "tensorflow_ops/core/cc/op_util.h"
#include "tensorflow_ops/nn/cc/kernels/sequence_losses/sequence_inputs_op.h"
#include "tensorflow_ops/nn/cc/kernels/sequence_losses/sequence_loss.h"

namespace tfo {
namespace {

template <typename Loss, typename Device, typename T>
class SequenceLossOp : public OpKernel {
 public:
  using Value = Accumulator<T>;

  explicit SequenceLossOp(::tensorflow::OpKernelConstruction* ctx)
      : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, CheckValueType(ctx, DataTypeOf<Value>::kValue));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("blank_index", &blank_));
    if (Loss::kHasNodes) return;
    OP_REQUIRES_OK(ctx, ctx->GetAttr("zero_infinity", &zero_infinity_));
  }

  void Compute(::tensorflow::OpKernelContext* ctx) override {
    SequenceLossArgs<Loss, T> args;
    OP_REQUIRES_OK(
        ctx, (ReadLabelSequences<Loss, Device>(ctx, blank_, &args.sequences)));
    OP_REQUIRES_OK(ctx,
                   AllocateOutputs(ctx, &args.loss, &args.largest, &args.rest));
    args.logits = Data<T>(ctx->input(1));
    args.zero_infinity = zero_infinity_;
    OP_REQUIRES_OK(
        ctx,
        RunWithScratch<Device>(
            ctx, [&](const Gpu&) { return SequenceLossScratchBytes(args); },
            [&](const Device& d) { return SequenceLoss(d, args); }));
  }

 private:
  int64_t blank_;
  bool zero_infinity_ = false;
};

template <typename Loss, typename Device, typename T>
class SequenceLossGradOp : public OpKernel {
 public:
  using Value = Accumulator<T>;

  explicit SequenceLossGradOp(::tensorflow::OpKernelConstruction* ctx)
      : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, CheckValueType(ctx, DataTypeOf<Value>::kValue));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("blank_index", &blank_));
  }

  void Compute(::tensorflow::OpKernelContext* ctx) override {
    SequenceLossGradArgs<Loss, T> args;
    OP_REQUIRES_OK(
        ctx, (ReadLabelSequences<Loss, Device>(ctx, blank_, &args.sequences)));
    OP_REQUIRES_OK(ctx, AllocateOutputs(ctx, &args.d_logits));
    args.logits = Data<T>(ctx->input(1));
    args.d_loss = Data<Value>(ctx->input(4));
    args.largest = Data<Value>(ctx->input(5));
    args.rest = Data<Value>(ctx->input(6));
    OP_REQUIRES_OK(
        ctx,
        RunWithScratch<Device>(
            ctx, [&](const Gpu&) { return SequenceLossScratchBytes(args); },
            [&](const Device& d) { return SequenceLossGrad(d, args); }));
  }

 private:
  int64_t blank_;
};

template <typename Device, typename T>
using CtcLossOp = SequenceLossOp<Ctc, Device, T>;
template <typename Device, typename T>
using CtcLossGradOp = SequenceLossGradOp<Ctc, Device, T>;
template <typename Device, typename T>
using RnntLossOp = SequenceLossOp<Rnnt, Device, T>;
template <typename Device, typename T>
using RnntLossGradOp = SequenceLossGradOp<Rnnt, Device, T>;

TFO_REGISTER_KERNELS("CtcLoss", CtcLossOp);
TFO_REGISTER_KERNELS("CtcLossGrad", CtcLossGradOp);
TFO_REGISTER_KERNELS("RnntLoss", RnntLossOp);
TFO_REGISTER_KERNELS("RnntLossGrad", RnntLossGradOp);

}  // namespace
}  // namespace tfo
