// The OpKernels of Dropout and DropoutGrad.
#include "tensorflow_ops/core/cc/glue/op_util.h"
#include "tensorflow_ops/nn/cc/kernels/dropout/dropout.h"

namespace tfo {
namespace {

using ::tensorflow::OpKernelConstruction;
using ::tensorflow::OpKernelContext;

template <typename T>
class ScalingOp : public OpKernel {
 public:
  explicit ScalingOp(OpKernelConstruction* ctx) : OpKernel(ctx) {
    double scale;
    OP_REQUIRES_OK(ctx, ReadNumber(ctx, "scale", &scale));
    scale_ = static_cast<Accumulator<T>>(scale);
  }

 protected:
  Accumulator<T> scale_;
};

template <typename Device, typename T>
class DropoutOp : public ScalingOp<T> {
 public:
  explicit DropoutOp(OpKernelConstruction* ctx) : ScalingOp<T>(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("least", &least_));
    OP_REQUIRES(ctx, least_ <= int64_t{1} << kDropoutBits<T>,
                absl::InvalidArgumentError(absl::StrCat(
                    "least is ", least_, ", expected at most 2^",
                    kDropoutBits<T>, ": the random bits of a number")));
  }

  void Compute(OpKernelContext* ctx) override {
    DropoutArgs<T> args{};
    args.size = ctx->input(0).NumElements();
    args.least = least_;
    args.scale = this->scale_;
    args.inputs = Data<T>(ctx->input(0));
    args.key = Data<uint64_t>(ctx->input(1));
    args.counter = Data<uint64_t>(ctx->input(2));
    OP_REQUIRES_OK(ctx, ForwardFirstInput(ctx, 0, &args.output));
    ::tensorflow::Tensor* mask;
    OP_REQUIRES_OK(
        ctx, ctx->allocate_output(1, {DropoutMaskBytes(args.size)}, &mask));
    args.mask = Data<uint8_t>(mask);
    OP_REQUIRES_OK(ctx, ToStatus(Dropout(GetDevice<Device>(ctx), args)));
  }

 private:
  int64_t least_;
};

template <typename Device, typename T>
class DropoutGradOp : public ScalingOp<T> {
 public:
  using ScalingOp<T>::ScalingOp;

  void Compute(OpKernelContext* ctx) override {
    DropoutGradArgs<T> args{};
    args.size = ctx->input(0).NumElements();
    args.scale = this->scale_;
    args.d_output = Data<T>(ctx->input(0));
    args.mask = Data<uint8_t>(ctx->input(1));
    OP_REQUIRES_OK(ctx, ForwardFirstInput(ctx, 0, &args.d_inputs));
    OP_REQUIRES_OK(ctx, ToStatus(DropoutGrad(GetDevice<Device>(ctx), args)));
  }
};

TFO_REGISTER_KERNELS("Dropout", DropoutOp);
TFO_REGISTER_KERNELS("DropoutGrad", DropoutGradOp);

}  // namespace
}  // namespace tfo
