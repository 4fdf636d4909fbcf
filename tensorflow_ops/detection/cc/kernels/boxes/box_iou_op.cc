// The OpKernels of BoxIou, BoxIouLoss and their gradients.
#include "tensorflow_ops/core/cc/op_util.h"
#include "tensorflow_ops/detection/cc/kernels/boxes/box_iou.h"
#include "tensorflow_ops/detection/cc/kernels/boxes/boxes_op.h"

namespace tfo {
namespace {

using ::tensorflow::OpKernelConstruction;
using ::tensorflow::OpKernelContext;
using ::tensorflow::Tensor;
using ::tensorflow::TensorShape;

// boxes1 and boxes2, two inputs in a row.
class BoxIouOpBase : public OpKernel {
 public:
  explicit BoxIouOpBase(OpKernelConstruction* ctx) : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, ReadEnum(ctx, "mode",
                                 {{"iou", BoxMetric::kIou},
                                  {"giou", BoxMetric::kGiou},
                                  {"diou", BoxMetric::kDiou},
                                  {"ciou", BoxMetric::kCiou}},
                                 &metric_));
    OP_REQUIRES_OK(ctx, ReadBoxFormat(ctx, &format_));
    OP_REQUIRES(
        ctx, format_ != BoxFormat::kRotated || metric_ == BoxMetric::kIou,
        absl::InvalidArgumentError("mode must be iou: box_format is cxcywhr"));
  }

 protected:
  // The spec of all pairs of boxes1 and boxes2.
  void Read(const TensorShape& boxes1, const TensorShape& boxes2,
            BoxIouSpec* spec) const {
    const int rows = boxes1.dims() - 2;
    *spec = {metric_, format_, 1, boxes1.dim_size(rows), boxes2.dim_size(rows)};
    for (int i = 0; i < rows; ++i) spec->batch *= boxes1.dim_size(i);
  }
  // For pairs in order.
  void Read(const TensorShape& boxes1, const TensorShape&,
            BoxIouLossSpec* spec) const {
    *spec = {metric_, format_, boxes1.num_elements() / BoxSize(format_)};
  }

 private:
  BoxMetric metric_;
  BoxFormat format_;
};

template <typename Device, typename C, typename Args,
          Error (*kRun)(const Device&, const Args&)>
class ForwardOp : public BoxIouOpBase {
 public:
  using BoxIouOpBase::BoxIouOpBase;

  void Compute(OpKernelContext* ctx) override {
    const Tensor &boxes1 = ctx->input(0), &boxes2 = ctx->input(1);
    Tensor* result = nullptr;
    OP_REQUIRES_OK(ctx, AllocateOutputs(ctx, {&result}));
    if (result->NumElements() == 0) return;
    Args args = {{}, Data<C>(boxes1), Data<C>(boxes2), Data<C>(result)};
    Read(boxes1.shape(), boxes2.shape(), &args);
    OP_REQUIRES_OK(ctx, ToStatus(kRun(GetDevice<Device>(ctx), args)));
  }
};

template <typename Device, typename C, typename Args,
          Error (*kRun)(const Device&, const Args&)>
class GradOp : public BoxIouOpBase {
 public:
  using BoxIouOpBase::BoxIouOpBase;

  void Compute(OpKernelContext* ctx) override {
    const Tensor &d = ctx->input(0), &boxes1 = ctx->input(1),
                 &boxes2 = ctx->input(2);
    Args args = {{},      Data<C>(d), Data<C>(boxes1), Data<C>(boxes2),
                 nullptr, nullptr};
    Read(boxes1.shape(), boxes2.shape(), &args);
    OP_REQUIRES_OK(ctx, AllocateOutputs(ctx, &args.d_boxes1, &args.d_boxes2));
    OP_REQUIRES_OK(ctx, ToStatus(kRun(GetDevice<Device>(ctx), args)));
  }
};

template <typename Device, typename C>
using BoxIouOp = ForwardOp<Device, C, BoxIouArgs<C>, BoxIou>;
template <typename Device, typename C>
using BoxIouGradOp = GradOp<Device, C, BoxIouGradArgs<C>, BoxIouGrad>;
template <typename Device, typename C>
using BoxIouLossOp = ForwardOp<Device, C, BoxIouLossArgs<C>, BoxIouLoss>;
template <typename Device, typename C>
using BoxIouLossGradOp =
    GradOp<Device, C, BoxIouLossGradArgs<C>, BoxIouLossGrad>;

TFO_REGISTER_WIDE_KERNELS("BoxIou", BoxIouOp, );
TFO_REGISTER_WIDE_KERNELS("BoxIouGrad", BoxIouGradOp, );
TFO_REGISTER_WIDE_KERNELS("BoxIouLoss", BoxIouLossOp, );
TFO_REGISTER_WIDE_KERNELS("BoxIouLossGrad", BoxIouLossGradOp, );

}  // namespace
}  // namespace tfo
