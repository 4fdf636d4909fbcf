#include "absl/strings/str_cat.h"
#include "ramp/cc/ramp.h"
#include "tensorflow_ops/core/cc/glue/op_util.h"

namespace ramp {
namespace {

using ::tensorflow::OpKernelConstruction;
using ::tensorflow::OpKernelContext;
using ::tensorflow::Tensor;

template <typename Device, typename T>
class RampOp : public tfo::OpKernel {
 public:
  explicit RampOp(OpKernelConstruction* ctx) : tfo::OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("limit", &limit_));
    OP_REQUIRES(ctx, limit_ >= 0,
                absl::InvalidArgumentError(absl::StrCat(
                    "limit is ", limit_, ", expected at least 0")));
  }

  void Compute(OpKernelContext* ctx) override {
    const Tensor& x = ctx->input(0);
    T* y;
    OP_REQUIRES_OK(ctx, tfo::AllocateOutputs(ctx, &y));
    OP_REQUIRES_OK(ctx, tfo::ToStatus(Ramp(tfo::GetDevice<Device>(ctx),
                                           {x.NumElements(), limit_},
                                           tfo::Data<T>(x), y)));
  }

 private:
  float limit_;
};

#define REGISTER_ON(device, OnDevice, T)                      \
  REGISTER_KERNEL_BUILDER(                                    \
      Name("RampOps>Ramp")                                    \
          .Device(::tensorflow::device)                       \
          .TypeConstraint("T", ::tfo::DataTypeOf<T>::kValue), \
      ::tfo::CheckedKernel<RampOp<::tfo::OnDevice, T>>)
#ifdef TFO_CUDA
#define REGISTER(T)                \
  REGISTER_ON(DEVICE_CPU, Cpu, T); \
  REGISTER_ON(DEVICE_GPU, Gpu, T)
#else
#define REGISTER(T) REGISTER_ON(DEVICE_CPU, Cpu, T)
#endif
REGISTER(float);
REGISTER(double);
REGISTER(::tfo::Half);
REGISTER(::tfo::BFloat16);

}  // namespace
}  // namespace ramp
