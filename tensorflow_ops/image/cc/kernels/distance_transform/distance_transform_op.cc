// The OpKernel of EuclideanDistanceTransform.
#include "absl/strings/str_cat.h"
#include "tensorflow_ops/core/cc/glue/op_util.h"
#include "tensorflow_ops/image/cc/kernels/distance_transform/distance_transform.h"
#include "tensorflow_ops/image/cc/kernels/masks/mask_inputs_op.h"

namespace tfo {
namespace {

template <typename Device, typename T>
class DistanceTransformOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(::tensorflow::OpKernelContext* ctx) override {
    const ::tensorflow::Tensor &images = ctx->input(0),
                               &spacing = ctx->input(1);
    DistanceTransformArgs<T> args;
    OP_REQUIRES_OK(ctx, AllocateOutputs(ctx, &args.distances));
    for (int i = 0; i < 2; ++i) {
      const double value = Data<double>(spacing)[i];
      OP_REQUIRES(
          ctx, 1e-38 <= value && value <= 1e38,
          absl::InvalidArgumentError(absl::StrCat(
              "spacing[", i, "] is ", value, ", expected [1e-38, 1e+38]")));
    }
    args.planes = PlanesOf(images.shape());
    args.type = {::tensorflow::DataTypeSize(images.dtype()),
                 ::tensorflow::DataTypeIsFloating(images.dtype())};
    args.row_spacing = Data<double>(spacing)[0];
    args.column_spacing = Data<double>(spacing)[1];
    args.images = images.data();
    if (images.NumElements() == 0) return;
    OP_REQUIRES_OK(
        ctx, RunWithScratch<Device>(
                 ctx,
                 [&](const Gpu&) {
                   return DistanceScratch(args.planes, sizeof(T)).Bytes();
                 },
                 [&](const Device& d) { return DistanceTransform(d, args); }));
  }
};

TFO_REGISTER_KERNELS("EuclideanDistanceTransform", DistanceTransformOp,
                     .HostMemory("spacing"));

}  // namespace
}  // namespace tfo
