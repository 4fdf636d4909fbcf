// The OpKernel of GatherTree.
#include "absl/strings/str_cat.h"
#include "tensorflow_ops/core/cc/op_util.h"
#include "tensorflow_ops/seq2seq/cc/kernels/gather_tree/gather_tree.h"

namespace tfo {
namespace {

using ::tensorflow::OpKernelConstruction;
using ::tensorflow::OpKernelContext;
using ::tensorflow::Tensor;

template <typename Device, typename Id>
class GatherTreeOp : public OpKernel {
 public:
  explicit GatherTreeOp(OpKernelConstruction* ctx) : OpKernel(ctx) {}

  void Compute(OpKernelContext* ctx) override {
    const Tensor &token_ids = ctx->input(0), &parent_ids = ctx->input(1),
                 &lengths = ctx->input(2), &pad_id = ctx->input(3);
    const int64_t time = token_ids.dim_size(0), batch = token_ids.dim_size(1),
                  beams = token_ids.dim_size(2);
    Id* sequences;
    OP_REQUIRES_OK(ctx, AllocateOutputs(ctx, &sequences));
    BadBeam bad;
    const GatherTreeArgs<Id> args{time,
                                  batch,
                                  beams,
                                  Data<Id>(token_ids),
                                  Data<Id>(parent_ids),
                                  Data<int32_t>(lengths),
                                  pad_id.scalar<Id>()(),
                                  sequences};
    if constexpr (std::is_same_v<Device, Cpu>) {
      OP_REQUIRES_OK(ctx,
                     ToStatus(GatherTree(GetDevice<Cpu>(ctx), args, &bad)));
    } else {
      OP_REQUIRES_OK(ctx, ToStatus(GatherTree(GetDevice<Gpu>(ctx), args)));
    }
    OP_REQUIRES(ctx, bad.beam < 0, BadBeamError(bad, args));
  }

 private:
  static absl::Status BadBeamError(const BadBeam& bad,
                                   const GatherTreeArgs<Id>& args) {
    if (bad.time < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("lengths[", bad.batch, ", ", bad.beam, "] is ",
                       bad.value, ", expected [0, ", args.time, "]"));
    }
    return absl::InvalidArgumentError(absl::StrCat(
        "the sequence of beam ", bad.beam, " of batch entry ", bad.batch,
        " reaches parent ", bad.value, " in parent_ids[", bad.time, ", ",
        bad.batch, "], expected [0, ", args.beams, ")"));
  }
};

#define TFO_REGISTER(device, OnDevice, Id)                 \
  REGISTER_KERNEL_BUILDER(Name("TensorflowOps>GatherTree") \
                              .Device(device)              \
                              .TypeConstraint<Id>("T")     \
                              .HostMemory("pad_id"),       \
                          CheckedKernel<GatherTreeOp<OnDevice, Id>>)
TFO_REGISTER(::tensorflow::DEVICE_CPU, Cpu, int32_t);
TFO_REGISTER(::tensorflow::DEVICE_CPU, Cpu, int64_t);
#ifdef TFO_CUDA
TFO_REGISTER(::tfo::GpuDeviceType(), Gpu, int32_t);
TFO_REGISTER(::tfo::GpuDeviceType(), Gpu, int64_t);
#endif
#undef TFO_REGISTER

}  // namespace
}  // namespace tfo
