// The OpKernels of the gradients of RoiAlign's maximum: RoiAlignMaxGrad,
// RoiAlignMaxGradGrad and RoiAlignMaxBoxesGrad. The maximum is RoiAlign's.
#include "tensorflow_ops/core/cc/op_util.h"
#include "tensorflow_ops/detection/cc/kernels/roi/roi_inputs_op.h"
#include "tensorflow_ops/detection/cc/kernels/roi_align_max/roi_align_max.h"

namespace tfo {
namespace {

using ::tensorflow::OpKernelConstruction;
using ::tensorflow::OpKernelContext;
using ::tensorflow::Tensor;

class RoiAlignMaxOpBase : public OpKernel {
 public:
  explicit RoiAlignMaxOpBase(OpKernelConstruction* ctx) : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, ReadSpatialScale(ctx, &spatial_scale_));
    OP_REQUIRES_OK(ctx, ReadBoxFormat(ctx, &yxyx_));
    OP_REQUIRES_OK(ctx, ReadSampling(ctx, /*has_aligned=*/true, &sampling_));
  }

 protected:
  template <typename Device, typename C>
  absl::Status ReadInputs(OpKernelContext* ctx, const RoiInputNames& names,
                          RoiAlignMaxArgs* args, Boxes<C>* boxes) const {
    RoiSizes sizes;
    TF_RETURN_IF_ERROR(ReadRoiInputs<Device>(ctx, yxyx_, names, &sizes, boxes));
    *args = {{sizes.levels[0], spatial_scale_, sizes.grid}, sampling_};
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
    RoiAlignMaxArgs args;
    Boxes<Coordinate<T>> boxes;
    OP_REQUIRES_OK(
        ctx, ReadInputs<Device>(ctx, {"features", "d_output"}, &args, &boxes));
    const Tensor& d_output = ctx->input(0);
    if (d_output.NumElements() == 0) boxes.count = 0;  // nothing to add
    Tensor* d_features;
    OP_REQUIRES_OK(ctx, AllocateOutputs(ctx, {&d_features}));
    OP_REQUIRES_OK(ctx,
                   ToStatus(RoiAlignMaxGrad(
                       GetDevice<Device>(ctx), args, boxes, Data<T>(d_output),
                       InputData<T>(ctx, "features"), Data<T>(d_features))));
  }
};

template <typename Device, typename T>
class RoiAlignMaxGradGradOp : public RoiAlignMaxOpBase {
 public:
  using RoiAlignMaxOpBase::RoiAlignMaxOpBase;

  void Compute(OpKernelContext* ctx) override {
    RoiAlignMaxArgs args;
    Boxes<Coordinate<T>> boxes;
    OP_REQUIRES_OK(ctx, ReadInputs<Device>(ctx, {"features"}, &args, &boxes));
    Tensor* dd_output;
    OP_REQUIRES_OK(ctx, AllocateOutputs(ctx, {&dd_output}));
    if (dd_output->NumElements() == 0) return;
    OP_REQUIRES_OK(
        ctx, ToStatus(RoiAlignMaxGradGrad(GetDevice<Device>(ctx), args, boxes,
                                          InputData<T>(ctx, "dd_features"),
                                          InputData<T>(ctx, "features"),
                                          Data<T>(dd_output))));
  }
};

template <typename Device, typename T>
class RoiAlignMaxBoxesGradOp : public RoiAlignMaxOpBase {
 public:
  using RoiAlignMaxOpBase::RoiAlignMaxOpBase;

  void Compute(OpKernelContext* ctx) override {
    RoiAlignMaxArgs args;
    Boxes<Coordinate<T>> boxes;
    OP_REQUIRES_OK(
        ctx, ReadInputs<Device>(ctx, {"features", "d_output"}, &args, &boxes));
    Tensor* d_boxes;
    OP_REQUIRES_OK(ctx, AllocateOutputs(ctx, {&d_boxes}));
    OP_REQUIRES_OK(
        ctx, ToStatus(RoiAlignMaxBoxesGrad(
                 GetDevice<Device>(ctx), args, boxes,
                 InputData<T>(ctx, "d_output"), InputData<T>(ctx, "features"),
                 InputData<T>(ctx, "values"), Data<Coordinate<T>>(d_boxes))));
  }
};

TFO_REGISTER_KERNELS("RoiAlignMaxGrad", RoiAlignMaxGradOp);
TFO_REGISTER_KERNELS("RoiAlignMaxGradGrad", RoiAlignMaxGradGradOp,
                     .HostMemory("output_size"));
TFO_REGISTER_KERNELS("RoiAlignMaxBoxesGrad", RoiAlignMaxBoxesGradOp);

}  // namespace
}  // namespace tfo
