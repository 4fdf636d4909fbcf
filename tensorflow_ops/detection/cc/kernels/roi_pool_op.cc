// The OpKernels of RoiPool, RoiPoolGrad and RoiPoolGradGrad.
#include "tensorflow_ops/core/cc/op_util.h"
#include "tensorflow_ops/detection/cc/kernels/roi_check.h"
#include "tensorflow_ops/detection/cc/kernels/roi_pool.h"

namespace tfo {
namespace {

using ::tensorflow::OpKernelConstruction;
using ::tensorflow::OpKernelContext;
using ::tensorflow::Tensor;
using ::tensorflow::TensorShape;

class RoiOpBase : public OpKernel {
 public:
  explicit RoiOpBase(OpKernelConstruction* ctx) : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, ReadRoiAttrs(ctx, &attrs_));
  }

 protected:
  RoiArgs attrs_;  // with no sizes yet
};

template <typename Device, typename T>
class RoiPoolOp : public RoiOpBase {
 public:
  using RoiOpBase::RoiOpBase;

  void Compute(OpKernelContext* ctx) override {
    const Tensor &features = ctx->input(0), &boxes = ctx->input(1),
                 &box_indices = ctx->input(2);
    RoiArgs args = attrs_;
    OP_REQUIRES_OK(ctx, CheckFeatures("features", features.shape(), &args));
    OP_REQUIRES_OK(
        ctx, CheckBoxes<Device>(boxes, box_indices,
                                DataTypeOf<Coordinate<T>>::kValue, &args));
    OP_REQUIRES_OK(ctx, CheckOutputSize(ctx->input(3), &args));
    TensorShape shape;
    OP_REQUIRES_OK(ctx, PooledShape(args, &shape));
    Tensor *output = nullptr, *argmax = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, shape, &output));
    // A graph in which nobody reads argmax, that is inference, does without it.
    if (ctx->output_required(1)) {
      OP_REQUIRES_OK(ctx, ctx->allocate_output(1, shape, &argmax));
    }
    OP_REQUIRES_OK(
        ctx,
        ToStatus(RoiPool(GetDevice<Device>(ctx), args, Data<T>(features),
                         Data<Coordinate<T>>(boxes), Data<int32_t>(box_indices),
                         Data<T>(output),
                         argmax == nullptr ? nullptr : Data<int32_t>(argmax))));
  }
};

template <typename Device, typename T>
class RoiPoolGradOp : public RoiOpBase {
 public:
  using RoiOpBase::RoiOpBase;

  void Compute(OpKernelContext* ctx) override {
    const Tensor &d_output = ctx->input(0), &argmax = ctx->input(1),
                 &boxes = ctx->input(2), &box_indices = ctx->input(3),
                 &features_shape = ctx->input(4);
    RoiArgs args = attrs_;
    OP_REQUIRES_OK(ctx, CheckShape("features_shape", features_shape.shape(),
                                   {4}, "4 numbers"));
    TensorShape shape;
    OP_REQUIRES_OK(ctx, TensorShape::BuildTensorShape(
                            features_shape.flat<int64_t>(), &shape));
    OP_REQUIRES_OK(ctx, CheckFeatures("features_shape", shape, &args));
    OP_REQUIRES_OK(
        ctx, CheckBoxes<Device>(boxes, box_indices,
                                DataTypeOf<Coordinate<T>>::kValue, &args));
    OP_REQUIRES_OK(ctx, CheckPooled("d_output", d_output.shape(), &args));
    OP_REQUIRES(
        ctx, argmax.shape() == d_output.shape(),
        absl::InvalidArgumentError("argmax must have d_output's shape " +
                                   d_output.shape().DebugString() + ", got " +
                                   argmax.shape().DebugString()));
    if (d_output.NumElements() == 0) args.num_boxes = 0;  // nothing to add
    Tensor* d_features = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, shape, &d_features));
    OP_REQUIRES_OK(ctx, ToStatus(RoiPoolGrad(
                            GetDevice<Device>(ctx), args, Data<T>(d_output),
                            Data<int32_t>(argmax), Data<Coordinate<T>>(boxes),
                            Data<int32_t>(box_indices), Data<T>(d_features))));
  }
};

template <typename Device, typename T>
class RoiPoolGradGradOp : public RoiOpBase {
 public:
  using RoiOpBase::RoiOpBase;

  void Compute(OpKernelContext* ctx) override {
    const Tensor &dd_features = ctx->input(0), &argmax = ctx->input(1),
                 &boxes = ctx->input(2), &box_indices = ctx->input(3);
    RoiArgs args = attrs_;
    OP_REQUIRES_OK(ctx,
                   CheckFeatures("dd_features", dd_features.shape(), &args));
    OP_REQUIRES_OK(
        ctx, CheckBoxes<Device>(boxes, box_indices,
                                DataTypeOf<Coordinate<T>>::kValue, &args));
    OP_REQUIRES_OK(ctx, CheckPooled("argmax", argmax.shape(), &args));
    Tensor* dd_output = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, argmax.shape(), &dd_output));
    if (dd_output->NumElements() == 0) return;
    OP_REQUIRES_OK(ctx, ToStatus(RoiPoolGradGrad(
                            GetDevice<Device>(ctx), args, Data<T>(dd_features),
                            Data<int32_t>(argmax), Data<Coordinate<T>>(boxes),
                            Data<int32_t>(box_indices), Data<T>(dd_output))));
  }
};

TFO_REGISTER_KERNELS("RoiPool", RoiPoolOp, .HostMemory("output_size"));
TFO_REGISTER_KERNELS("RoiPoolGrad", RoiPoolGradOp,
                     .HostMemory("features_shape"));
TFO_REGISTER_KERNELS("RoiPoolGradGrad", RoiPoolGradGradOp);

}  // namespace
}  // namespace tfo
