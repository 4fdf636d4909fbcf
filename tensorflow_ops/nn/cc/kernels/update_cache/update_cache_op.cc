// The OpKernel of UpdateCache.
#include "absl/strings/str_cat.h"
#include "tensorflow_ops/core/cc/glue/op_util.h"
#include "tensorflow_ops/nn/cc/kernels/update_cache/update_cache.h"

namespace tfo {
namespace {

using ::tensorflow::OpKernelConstruction;
using ::tensorflow::OpKernelContext;
using ::tensorflow::Tensor;

template <typename Device>
class UpdateCacheOp : public OpKernel {
 public:
  explicit UpdateCacheOp(OpKernelConstruction* ctx) : OpKernel(ctx) {}

  void Compute(OpKernelContext* ctx) override {
    const Tensor &rows = ctx->input(1), &positions = ctx->input(2);
    const ::tensorflow::TensorShape shape = ctx->input(0).shape();
    UpdateCacheArgs args{};
    args.batch = shape.dim_size(0);
    args.length = shape.dim_size(1);
    args.count = rows.dim_size(1);
    args.bytes = ::tensorflow::DataTypeSize(rows.dtype());
    for (int i = 2; i < shape.dims(); ++i) args.bytes *= shape.dim_size(i);
    args.cache = Data<char>(ctx->input(0));
    args.rows = Data<char>(rows);
    args.positions = Data<int32_t>(positions);
    OP_REQUIRES_OK(ctx, ForwardFirstInput(ctx, 0, &args.output));
    if constexpr (std::is_same_v<Device, Cpu>) {
      int64_t bad;
      OP_REQUIRES_OK(ctx,
                     ToStatus(UpdateCache(GetDevice<Cpu>(ctx), args, &bad)));
      OP_REQUIRES(ctx, bad < 0,
                  absl::InvalidArgumentError(absl::StrCat(
                      "positions[", bad, "] is ", args.positions[bad],
                      ", expected [0, ", args.length - args.count, "]")));
    } else {
      OP_REQUIRES_OK(ctx, ToStatus(UpdateCache(GetDevice<Gpu>(ctx), args)));
    }
  }
};

TFO_REGISTER_ANY_DTYPE_KERNELS("UpdateCache", UpdateCacheOp);

}  // namespace
}  // namespace tfo
