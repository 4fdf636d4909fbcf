// The OpKernels of ZeroOut and ZeroOutWithIndex: check values, allocate
// outputs, call the algorithm.
#include "absl/strings/str_cat.h"
#include "tensorflow_ops/core/cc/glue/op_util.h"
#include "tensorflow_ops/zero_out/cc/kernels/zero_out.h"

namespace tfo {
namespace {

using ::tensorflow::OpKernelConstruction;
using ::tensorflow::OpKernelContext;
using ::tensorflow::Tensor;

template <typename Device>
absl::Status ComputeZeroOut(OpKernelContext* ctx, int64_t keep_index,
                            Tensor* zeroed) {
  const Tensor& x = ctx->input(0);
  if (x.NumElements() == 0) return absl::OkStatus();
  const ZeroOutArgs args = {x.NumElements(),
                            ::tensorflow::DataTypeSize(x.dtype()), keep_index};
  return ToStatus(
      ZeroOut(GetDevice<Device>(ctx), args, x.data(), zeroed->data()));
}

template <typename Device>
class ZeroOutOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* ctx) override {
    Tensor* zeroed;
    OP_REQUIRES_OK(ctx, AllocateOutputs(ctx, {&zeroed}));
    OP_REQUIRES_OK(ctx, ComputeZeroOut<Device>(ctx, /*keep_index=*/0, zeroed));
  }
};

template <typename Device>
class ZeroOutWithIndexOp : public OpKernel {
 public:
  explicit ZeroOutWithIndexOp(OpKernelConstruction* ctx) : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("preserve_index", &preserve_index_));
  }

  void Compute(OpKernelContext* ctx) override {
    const int64_t size = ctx->input(0).NumElements();
    OP_REQUIRES(ctx, 0 <= preserve_index_ && preserve_index_ < size,
                absl::InvalidArgumentError(absl::StrCat(
                    "preserve_index is ", preserve_index_, ", expected [0, ",
                    size, "): x has ", size, " elements")));
    OP_REQUIRES(ctx, preserve_index_ <= INT32_MAX,
                absl::InvalidArgumentError(absl::StrCat(
                    "preserve_index is ", preserve_index_,
                    ", expected below 2^31: the output index is int32")));
    Tensor *zeroed, *index;  // index: in host memory, on a GPU too
    OP_REQUIRES_OK(ctx, AllocateOutputs(ctx, {&zeroed, &index}));
    OP_REQUIRES_OK(ctx, ComputeZeroOut<Device>(ctx, preserve_index_, zeroed));
    *Data<int32_t>(index) = static_cast<int32_t>(preserve_index_);
  }

 private:
  int64_t preserve_index_;
};

TFO_REGISTER_ANY_DTYPE_KERNELS("ZeroOut", ZeroOutOp);
TFO_REGISTER_ANY_DTYPE_KERNELS("ZeroOutWithIndex", ZeroOutWithIndexOp,
                               .HostMemory("index"));

}  // namespace
}  // namespace tfo
