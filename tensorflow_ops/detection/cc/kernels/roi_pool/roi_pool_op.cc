// The OpKernels of RoiPool, RoiPoolGrad and RoiPoolGradGrad.
#include "tensorflow_ops/core/cc/op_util.h"
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
  template <typename Device, typename C>
  absl::Status ReadInputs(OpKernelContext* ctx, const RoiInputNames& names,
                          RoiArgs* args, Boxes<C>* boxes) const {
    RoiSizes sizes;
    TF_RETURN_IF_ERROR(ReadRoiInputs<Device>(ctx, yxyx_, names, &sizes, boxes));
    *args = {sizes.levels[0], spatial_scale_, sizes.grid};
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
    RoiArgs args;
    Boxes<Coordinate<T>> boxes;
    OP_REQUIRES_OK(ctx, ReadInputs<Device>(ctx, {"features"}, &args, &boxes));
    Tensor *output, *argmax = nullptr;
    OP_REQUIRES_OK(ctx, AllocateOutputs(ctx, {&output}));
    // Inference does not read argmax: the kernel then does without it.
    if (ctx->output_required(1)) {
      OP_REQUIRES_OK(ctx, ctx->allocate_output(1, output->shape(), &argmax));
    }
    OP_REQUIRES_OK(
        ctx,
        ToStatus(RoiPool(GetDevice<Device>(ctx), args, boxes,
                         InputData<T>(ctx, "features"), Data<T>(output),
                         argmax == nullptr ? nullptr : Data<int32_t>(argmax))));
  }
};

template <typename Device, typename T>
class RoiPoolGradOp : public RoiPoolOpBase {
 public:
  using RoiPoolOpBase::RoiPoolOpBase;

  void Compute(OpKernelContext* ctx) override {
    RoiArgs args;
    Boxes<Coordinate<T>> boxes;
    OP_REQUIRES_OK(
        ctx, ReadInputs<Device>(ctx, {nullptr, "d_output"}, &args, &boxes));
    const Tensor &d_output = ctx->input(0), &argmax = ctx->input(1);
    if (d_output.NumElements() == 0) boxes.count = 0;  // nothing to add
    Tensor* d_features;
    OP_REQUIRES_OK(ctx, AllocateOutputs(ctx, {&d_features}));
    OP_REQUIRES_OK(
        ctx, ToStatus(RoiPoolGrad(GetDevice<Device>(ctx), args, boxes,
                                  Data<T>(d_output), Data<int32_t>(argmax),
                                  Data<T>(d_features))));
  }
};

template <typename Device, typename T>
class RoiPoolGradGradOp : public RoiPoolOpBase {
 public:
  using RoiPoolOpBase::RoiPoolOpBase;

  void Compute(OpKernelContext* ctx) override {
    RoiArgs args;
    Boxes<Coordinate<T>> boxes;
    OP_REQUIRES_OK(
        ctx, ReadInputs<Device>(ctx, {"dd_features", "argmax"}, &args, &boxes));
    Tensor* dd_output;
    OP_REQUIRES_OK(ctx, AllocateOutputs(ctx, {&dd_output}));
    if (dd_output->NumElements() == 0) return;
    OP_REQUIRES_OK(ctx,
                   ToStatus(RoiPoolGradGrad(GetDevice<Device>(ctx), args, boxes,
                                            InputData<T>(ctx, "dd_features"),
                                            InputData<int32_t>(ctx, "argmax"),
                                            Data<T>(dd_output))));
  }
};

TFO_REGISTER_KERNELS("RoiPool", RoiPoolOp, .HostMemory("output_size"));
TFO_REGISTER_KERNELS("RoiPoolGrad", RoiPoolGradOp,
                     .HostMemory("features_shape"));
TFO_REGISTER_KERNELS("RoiPoolGradGrad", RoiPoolGradGradOp);

}  // namespace
}  // namespace tfo
