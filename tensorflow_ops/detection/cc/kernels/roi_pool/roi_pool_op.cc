// The OpKernels of RoiPool, RoiPoolGrad and RoiPoolGradGrad.
#include "tensorflow_ops/core/cc/glue/op_util.h"
#include "tensorflow_ops/detection/cc/kernels/roi/roi_inputs_op.h"
#include "tensorflow_ops/detection/cc/kernels/roi_pool/roi_pool.h"

namespace tfo {
namespace {

using ::tensorflow::OpKernelConstruction;
using ::tensorflow::OpKernelContext;
using ::tensorflow::Tensor;

class RoiPoolOpBase : public OpKernel {
 public:
  explicit RoiPoolOpBase(OpKernelConstruction* ctx) : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, ReadSpatialScale(ctx, &spatial_scale_));
    OP_REQUIRES_OK(ctx, ReadBoxFormat(ctx, &yxyx_));
  }

 protected:
  // Reads the spec and boxes of an op's Args.
  template <typename Device, typename Args>
  absl::Status ReadInputs(OpKernelContext* ctx, const RoiInputNames& names,
                          Args* args) const {
    RoiSizes sizes;
    TF_RETURN_IF_ERROR(
        ReadRoiInputs<Device>(ctx, yxyx_, names, &sizes, &args->boxes));
    static_cast<RoiSpec&>(*args) = {sizes.levels[0], spatial_scale_,
                                    sizes.grid};
    return absl::OkStatus();
  }

 private:
  float spatial_scale_;
  bool yxyx_;
};

template <typename Device, typename T>
class RoiPoolOp : public RoiPoolOpBase {
 public:
  using RoiPoolOpBase::RoiPoolOpBase;

  void Compute(OpKernelContext* ctx) override {
    RoiPoolArgs<T> args = {};
    OP_REQUIRES_OK(ctx, ReadInputs<Device>(ctx, {"features"}, &args));
    args.features = InputData<T>(ctx, "features");
    OP_REQUIRES_OK(ctx, AllocateOutputs(ctx, &args.output));
    // Inference does not read argmax: the kernel then does without it.
    if (ctx->output_required(1)) {
      Tensor* argmax;
      OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 1, &argmax));
      args.argmax = Data<int32_t>(argmax);
    }
    OP_REQUIRES_OK(ctx, ToStatus(RoiPool(GetDevice<Device>(ctx), args)));
  }
};

template <typename Device, typename T>
class RoiPoolGradOp : public RoiPoolOpBase {
 public:
  using RoiPoolOpBase::RoiPoolOpBase;

  void Compute(OpKernelContext* ctx) override {
    RoiPoolGradArgs<T> args = {};
    OP_REQUIRES_OK(ctx, ReadInputs<Device>(ctx, {nullptr, "d_output"}, &args));
    // Without bins there is nothing to add.
    if (ctx->input(0).NumElements() == 0) args.boxes.count = 0;
    args.d_output = InputData<T>(ctx, "d_output");
    args.argmax = InputData<int32_t>(ctx, "argmax");
    OP_REQUIRES_OK(ctx, AllocateOutputs(ctx, &args.d_features));
    OP_REQUIRES_OK(ctx, ToStatus(RoiPoolGrad(GetDevice<Device>(ctx), args)));
  }
};

template <typename Device, typename T>
class RoiPoolGradGradOp : public RoiPoolOpBase {
 public:
  using RoiPoolOpBase::RoiPoolOpBase;

  void Compute(OpKernelContext* ctx) override {
    RoiPoolGradGradArgs<T> args = {};
    OP_REQUIRES_OK(ctx,
                   ReadInputs<Device>(ctx, {"dd_features", "argmax"}, &args));
    args.dd_features = InputData<T>(ctx, "dd_features");
    args.argmax = InputData<int32_t>(ctx, "argmax");
    OP_REQUIRES_OK(ctx, AllocateOutputs(ctx, &args.dd_output));
    if (ctx->mutable_output(0)->NumElements() == 0) return;
    OP_REQUIRES_OK(ctx,
                   ToStatus(RoiPoolGradGrad(GetDevice<Device>(ctx), args)));
  }
};

TFO_REGISTER_KERNELS("RoiPool", RoiPoolOp, .HostMemory("output_size"));
TFO_REGISTER_KERNELS("RoiPoolGrad", RoiPoolGradOp,
                     .HostMemory("features_shape"));
TFO_REGISTER_KERNELS("RoiPoolGradGrad", RoiPoolGradGradOp);

}  // namespace
}  // namespace tfo
