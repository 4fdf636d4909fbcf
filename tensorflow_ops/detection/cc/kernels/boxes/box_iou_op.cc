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
  // The arguments for all pairs of boxes1 and boxes2.
  void Read(const TensorShape& boxes1, const TensorShape& boxes2,
            BoxIouArgs* args) const {
    const int rows = boxes1.dims() - 2;
    *args = {metric_, format_, 1, boxes1.dim_size(rows), boxes2.dim_size(rows)};
    for (int i = 0; i < rows; ++i) args->batch *= boxes1.dim_size(i);
  }
  // For pairs in order.
  void Read(const TensorShape& boxes1, const TensorShape&,
            BoxIouLossArgs* args) const {
    *args = {metric_, format_, boxes1.num_elements() / BoxSize(format_)};
  }

 private:
  BoxMetric metric_;
  BoxFormat format_;
};

// Args is BoxIouArgs or BoxIouLossArgs, Run calls the algorithm.
template <typename Device, typename C, typename Args, typename Run>
class ForwardOp : public BoxIouOpBase {
 public:
  using BoxIouOpBase::BoxIouOpBase;

  void Compute(OpKernelContext* ctx) override {
    const Tensor &boxes1 = ctx->input(0), &boxes2 = ctx->input(1);
    Args args;
    Read(boxes1.shape(), boxes2.shape(), &args);
    Tensor* result = nullptr;
    OP_REQUIRES_OK(ctx, AllocateOutputs(ctx, {&result}));
    if (result->NumElements() == 0) return;
    OP_REQUIRES_OK(ctx,
                   ToStatus(Run()(GetDevice<Device>(ctx), args, Data<C>(boxes1),
                                  Data<C>(boxes2), Data<C>(result))));
  }
};

template <typename Device, typename C, typename Args, typename Run>
class GradOp : public BoxIouOpBase {
 public:
  using BoxIouOpBase::BoxIouOpBase;

  void Compute(OpKernelContext* ctx) override {
    const Tensor &d = ctx->input(0), &boxes1 = ctx->input(1),
                 &boxes2 = ctx->input(2);
    Args args;
    Read(boxes1.shape(), boxes2.shape(), &args);
    C *d_boxes1, *d_boxes2;
    OP_REQUIRES_OK(ctx, AllocateOutputs(ctx, &d_boxes1, &d_boxes2));
    OP_REQUIRES_OK(ctx, ToStatus(Run()(GetDevice<Device>(ctx), args, Data<C>(d),
                                       Data<C>(boxes1), Data<C>(boxes2),
                                       d_boxes1, d_boxes2)));
  }
};

#define TFO_ALGORITHM(Algorithm)                            \
  struct Run##Algorithm {                                   \
    template <typename... Arguments>                        \
    Error operator()(const Arguments&... arguments) const { \
      return Algorithm(arguments...);                       \
    }                                                       \
  }
TFO_ALGORITHM(BoxIou);
TFO_ALGORITHM(BoxIouGrad);
TFO_ALGORITHM(BoxIouLoss);
TFO_ALGORITHM(BoxIouLossGrad);
#undef TFO_ALGORITHM

template <typename Device, typename C>
using BoxIouOp = ForwardOp<Device, C, BoxIouArgs, RunBoxIou>;
template <typename Device, typename C>
using BoxIouGradOp = GradOp<Device, C, BoxIouArgs, RunBoxIouGrad>;
template <typename Device, typename C>
using BoxIouLossOp = ForwardOp<Device, C, BoxIouLossArgs, RunBoxIouLoss>;
template <typename Device, typename C>
using BoxIouLossGradOp = GradOp<Device, C, BoxIouLossArgs, RunBoxIouLossGrad>;

TFO_REGISTER_WIDE_KERNELS("BoxIou", BoxIouOp, );
TFO_REGISTER_WIDE_KERNELS("BoxIouGrad", BoxIouGradOp, );
TFO_REGISTER_WIDE_KERNELS("BoxIouLoss", BoxIouLossOp, );
TFO_REGISTER_WIDE_KERNELS("BoxIouLossGrad", BoxIouLossGradOp, );

}  // namespace
}  // namespace tfo
