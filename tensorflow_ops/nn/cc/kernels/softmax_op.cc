// The OpKernels of Softmax, SoftmaxEntropy and their gradients.
#include "tensorflow_ops/core/cc/op_util.h"
#include "tensorflow_ops/nn/cc/kernels/row_check.h"
#include "tensorflow_ops/nn/cc/kernels/row_scratch.h"
#include "tensorflow_ops/nn/cc/kernels/softmax.h"

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
    RowsOf rows;
    OP_REQUIRES_OK(ctx, ReadLogits(logits, &rows));
    Tensor* output = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, rows.shape, &output));
    RowScratchMemory<Accumulator<T>> scratch;
    OP_REQUIRES_OK(ctx, scratch.template Allocate<Device>(ctx, rows));
    const auto run = [&](auto log) {
      const SoftmaxArgs<T, decltype(log)::value> args{
          rows.rows, rows.classes, Data<T>(logits), Data<T>(output),
          scratch.data};
      OP_REQUIRES_OK(ctx, ToStatus(Softmax(GetDevice<Device>(ctx), args)));
    };
    log_ ? run(std::true_type()) : run(std::false_type());
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
    RowsOf rows;
    OP_REQUIRES_OK(ctx, ReadRows("output", output, &rows));
    OP_REQUIRES_OK(ctx, CheckSameShape("d_output", d_output, rows.shape));
    Tensor* d_logits = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, rows.shape, &d_logits));
    if (d_logits->NumElements() == 0) return;
    RowScratchMemory<Accumulator<T>> scratch;
    OP_REQUIRES_OK(ctx, scratch.template Allocate<Device>(ctx, rows));
    const auto run = [&](auto log) {
      const SoftmaxGradArgs<T, decltype(log)::value> args{
          rows.rows,       rows.classes,      Data<T>(d_output),
          Data<T>(output), Data<T>(d_logits), scratch.data};
      OP_REQUIRES_OK(ctx, ToStatus(SoftmaxGrad(GetDevice<Device>(ctx), args)));
    };
    log_ ? run(std::true_type()) : run(std::false_type());
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
    RowsOf rows;
    OP_REQUIRES_OK(ctx, ReadLogits(logits, &rows));
    Tensor *entropy = nullptr, *largest = nullptr, *rest = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, rows.rows_shape, &entropy));
    OP_REQUIRES_OK(ctx, ctx->allocate_output(1, rows.rows_shape, &largest));
    OP_REQUIRES_OK(ctx, ctx->allocate_output(2, rows.rows_shape, &rest));
    RowScratchMemory<Value> scratch;
    OP_REQUIRES_OK(ctx, scratch.template Allocate<Device>(ctx, rows));
    const EntropyArgs<T> args{rows.rows,
                              rows.classes,
                              Data<T>(logits),
                              Data<Value>(entropy),
                              {Data<Value>(largest), Data<Value>(rest)},
                              scratch.data};
    OP_REQUIRES_OK(ctx, ToStatus(Entropy(GetDevice<Device>(ctx), args)));
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
    const Tensor &logits = ctx->input(0), &d_entropy = ctx->input(1),
                 &entropy = ctx->input(2), &largest = ctx->input(3),
                 &rest = ctx->input(4);
    RowsOf rows;
    OP_REQUIRES_OK(ctx, ReadLogits(logits, &rows));
    const auto& expected = rows.rows_shape;
    OP_REQUIRES_OK(ctx, CheckSameShape("d_entropy", d_entropy, expected));
    OP_REQUIRES_OK(ctx, CheckSameShape("entropy", entropy, expected));
    OP_REQUIRES_OK(ctx, CheckSameShape("largest", largest, expected));
    OP_REQUIRES_OK(ctx, CheckSameShape("rest", rest, expected));
    Tensor* d_logits = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, rows.shape, &d_logits));
    const EntropyGradArgs<T> args{rows.rows,
                                  rows.classes,
                                  Data<Value>(d_entropy),
                                  Data<T>(logits),
                                  Data<Value>(entropy),
                                  {Data<Value>(largest), Data<Value>(rest)},
                                  Data<T>(d_logits)};
    OP_REQUIRES_OK(ctx, ToStatus(EntropyGrad(GetDevice<Device>(ctx), args)));
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
