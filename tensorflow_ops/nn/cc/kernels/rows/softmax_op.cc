// The OpKernels of Softmax, SoftmaxEntropy and their gradients.
#include "tensorflow_ops/core/cc/op_util.h"
#include "tensorflow_ops/nn/cc/kernels/rows/rows_op.h"
#include "tensorflow_ops/nn/cc/kernels/rows/softmax.h"

namespace tfo {
namespace {

using ::tensorflow::OpKernelConstruction;
using ::tensorflow::OpKernelContext;
using ::tensorflow::Tensor;

template <typename Device, typename T>
class SoftmaxOp : public OpKernel {
 public:
  explicit SoftmaxOp(OpKernelConstruction* ctx) : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("log", &log_));
  }
  void Compute(OpKernelContext* ctx) override {
    const Tensor& logits = ctx->input(0);
    const RowsOf rows(logits);
    SoftmaxArgs<T> args{rows.rows, rows.classes, log_, Data<T>(logits),
                        nullptr};
    OP_REQUIRES_OK(ctx, AllocateOutputs(ctx, &args.output));
    OP_REQUIRES_OK(ctx, RunOnRows<Device>(ctx, args));
  }

 private:
  bool log_;
};

template <typename Device, typename T>
class SoftmaxGradOp : public OpKernel {
 public:
  explicit SoftmaxGradOp(OpKernelConstruction* ctx) : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("log", &log_));
  }
  void Compute(OpKernelContext* ctx) override {
    const Tensor &d_output = ctx->input(0), &output = ctx->input(1);
    const RowsOf rows(output);
    SoftmaxGradArgs<T> args{rows.rows,         rows.classes,    log_,
                            Data<T>(d_output), Data<T>(output), nullptr};
    OP_REQUIRES_OK(ctx, AllocateOutputs(ctx, &args.d_logits));
    if (output.NumElements() == 0) return;
    OP_REQUIRES_OK(ctx, RunOnRows<Device>(ctx, args));
  }

 private:
  bool log_;
};

template <typename Device, typename T>
class SoftmaxEntropyOp : public OpKernel {
 public:
  explicit SoftmaxEntropyOp(OpKernelConstruction* ctx) : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, CheckValueType(ctx, DataTypeOf<Value>::kValue));
  }
  void Compute(OpKernelContext* ctx) override {
    const Tensor& logits = ctx->input(0);
    const RowsOf rows(logits);
    EntropyArgs<T> args{};
    args.rows = rows.rows;
    args.classes = rows.classes;
    args.logits = Data<T>(logits);
    OP_REQUIRES_OK(ctx, AllocateOutputs(ctx, &args.entropy, &args.sums.largest,
                                        &args.sums.rest));
    OP_REQUIRES_OK(ctx, RunOnRows<Device>(ctx, args));
  }

 private:
  using Value = Accumulator<T>;
};

template <typename Device, typename T>
class SoftmaxEntropyGradOp : public OpKernel {
 public:
  explicit SoftmaxEntropyGradOp(OpKernelConstruction* ctx) : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, CheckValueType(ctx, DataTypeOf<Value>::kValue));
  }
  void Compute(OpKernelContext* ctx) override {
    const Tensor& logits = ctx->input(0);
    const RowsOf rows(logits);
    EntropyGradArgs<T> args{
        rows.rows,
        rows.classes,
        Data<Value>(ctx->input(1)),
        Data<T>(logits),
        Data<Value>(ctx->input(2)),
        {Data<Value>(ctx->input(3)), Data<Value>(ctx->input(4))},
        nullptr};
    OP_REQUIRES_OK(ctx, AllocateOutputs(ctx, &args.d_logits));
    OP_REQUIRES_OK(ctx, RunOnRows<Device>(ctx, args));
  }

 private:
  using Value = Accumulator<T>;
};

TFO_REGISTER_KERNELS("Softmax", SoftmaxOp);
TFO_REGISTER_KERNELS("SoftmaxGrad", SoftmaxGradOp);
TFO_REGISTER_KERNELS("SoftmaxEntropy", SoftmaxEntropyOp);
TFO_REGISTER_KERNELS("SoftmaxEntropyGrad", SoftmaxEntropyGradOp);

}  // namespace
}  // namespace tfo
