// The OpKernel of ConnectedComponents.
#include "absl/strings/str_cat.h"
#include "tensorflow_ops/core/cc/glue/op_util.h"
#include "tensorflow_ops/image/cc/kernels/connected_components/connected_components.h"
#include "tensorflow_ops/image/cc/kernels/masks/mask_inputs_op.h"

namespace tfo {
namespace {

template <typename Device>
class ConnectedComponentsOp : public OpKernel {
 public:
  explicit ConnectedComponentsOp(::tensorflow::OpKernelConstruction* ctx)
      : OpKernel(ctx) {
    int connectivity;
    OP_REQUIRES_OK(ctx, ctx->GetAttr("connectivity", &connectivity));
    OP_REQUIRES(ctx, connectivity == 4 || connectivity == 8,
                absl::InvalidArgumentError(absl::StrCat(
                    "connectivity is ", connectivity, ", expected 4 or 8")));
    diagonal_ = connectivity == 8;
  }

  void Compute(::tensorflow::OpKernelContext* ctx) override {
    const ::tensorflow::Tensor& images = ctx->input(0);
    ConnectedComponentsArgs args;
    OP_REQUIRES_OK(ctx, AllocateOutputs(ctx, &args.labels, &args.counts));
    if (ctx->mutable_output(1)->NumElements() == 0) return;
    args.planes = PlanesOf(images.shape());
    args.pixel_bytes = ::tensorflow::DataTypeSize(images.dtype());
    args.diagonal = diagonal_;
    args.images = images.data();
    OP_REQUIRES_OK(ctx,
                   RunWithScratch<Device>(
                       ctx,
                       [&](const Gpu&) {
                         return ConnectedComponentsScratch(args.planes).Bytes();
                       },
                       [&](const Device& device) {
                         return ConnectedComponents(device, args);
                       }));
  }

 private:
  bool diagonal_;
};

TFO_REGISTER_ANY_DTYPE_KERNELS("ConnectedComponents", ConnectedComponentsOp);

}  // namespace
}  // namespace tfo
