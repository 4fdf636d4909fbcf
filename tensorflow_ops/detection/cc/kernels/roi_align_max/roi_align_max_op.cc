// The OpKernels of the gradients of RoiAlign's maximum: RoiAlignMaxGrad,
// RoiAlignMaxGradGrad and RoiAlignMaxBoxesGrad. The maximum is RoiAlign's.
#include "tensorflow_ops/core/cc/op_util.h"
#include "tensorflow_ops/detection/cc/kernels/roi/roi_inputs_op.h"
#include "tensorflow_ops/detection/cc/kernels/roi_align_max/roi_align_max.h"

namespace tfo {
namespace {

using ::tensorflow::OpKernelConstruction;
using ::tensorflow::OpKernelContext;

class RoiAlignMaxOpBase : public OpKernel {
 public:
  explicit RoiAlignMaxOpBase(OpKernelConstruction* ctx) : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, ReadSpatialScale(ctx, &spatial_scale_));
    OP_REQUIRES_OK(ctx, ReadBoxFormat(ctx, &yxyx_));
    OP_REQUIRES_OK(ctx, ReadSampling(ctx, /*has_aligned=*/true, &sampling_));
  }

 protected:
  // Reads the spec, boxes and features of an op's Args.
  template <typename Device, typename Args>
  absl::Status ReadInputs(OpKernelContext* ctx, const RoiInputNames& names,
                          Args* args) const {
    RoiSizes sizes;
    TF_RETURN_IF_ERROR(
        ReadRoiInputs<Device>(ctx, yxyx_, names, &sizes, &args->boxes));
    static_cast<RoiAlignMaxSpec&>(*args) = {
        {sizes.levels[0], spatial_scale_, sizes.grid}, sampling_};
    args->features =
        InputData<std::decay_t<decltype(*args->features)>>(ctx, "features");
    return CheckSamplesOfMax(sizes, sampling_.ratio);
  }

 private:
  float spatial_scale_;
  bool yxyx_;
  RoiSampling sampling_;
};

template <typename Device, typename T>
class RoiAlignMaxGradOp : public RoiAlignMaxOpBase {
 public:
  using RoiAlignMaxOpBase::RoiAlignMaxOpBase;

  void Compute(OpKernelContext* ctx) override {
    RoiAlignMaxGradArgs<T> args = {};
    OP_REQUIRES_OK(ctx,
                   ReadInputs<Device>(ctx, {"features", "d_output"}, &args));
    // Without bins there is nothing to add.
    if (ctx->input(0).NumElements() == 0) args.boxes.count = 0;
    args.d_output = InputData<T>(ctx, "d_output");
    OP_REQUIRES_OK(ctx, AllocateOutputs(ctx, &args.d_features));
    OP_REQUIRES_OK(ctx,
                   ToStatus(RoiAlignMaxGrad(GetDevice<Device>(ctx), args)));
  }
};

template <typename Device, typename T>
class RoiAlignMaxGradGradOp : public RoiAlignMaxOpBase {
 public:
  using RoiAlignMaxOpBase::RoiAlignMaxOpBase;

  void Compute(OpKernelContext* ctx) override {
    RoiAlignMaxGradGradArgs<T> args = {};
    OP_REQUIRES_OK(ctx, ReadInputs<Device>(ctx, {"features"}, &args));
    args.dd_features = InputData<T>(ctx, "dd_features");
    OP_REQUIRES_OK(ctx, AllocateOutputs(ctx, &args.dd_output));
    if (ctx->mutable_output(0)->NumElements() == 0) return;
    OP_REQUIRES_OK(ctx,
                   ToStatus(RoiAlignMaxGradGrad(GetDevice<Device>(ctx), args)));
  }
};

template <typename Device, typename T>
class RoiAlignMaxBoxesGradOp : public RoiAlignMaxOpBase {
 public:
  using RoiAlignMaxOpBase::RoiAlignMaxOpBase;

  void Compute(OpKernelContext* ctx) override {
    RoiAlignMaxBoxesGradArgs<T> args = {};
    OP_REQUIRES_OK(ctx,
                   ReadInputs<Device>(ctx, {"features", "d_output"}, &args));
    args.d_output = InputData<T>(ctx, "d_output");
    args.values = InputData<T>(ctx, "values");
    OP_REQUIRES_OK(ctx, AllocateOutputs(ctx, &args.d_boxes));
    OP_REQUIRES_OK(
        ctx, ToStatus(RoiAlignMaxBoxesGrad(GetDevice<Device>(ctx), args)));
  }
};

TFO_REGISTER_KERNELS("RoiAlignMaxGrad", RoiAlignMaxGradOp);
TFO_REGISTER_KERNELS("RoiAlignMaxGradGrad", RoiAlignMaxGradGradOp,
                     .HostMemory("output_size"));
TFO_REGISTER_KERNELS("RoiAlignMaxBoxesGrad", RoiAlignMaxBoxesGradOp);

}  // namespace
}  // namespace tfo
