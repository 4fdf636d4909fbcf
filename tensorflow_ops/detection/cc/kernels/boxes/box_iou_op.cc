// The OpKernels of BoxIou, BoxIouLoss and their gradients.
#include "tensorflow_ops/core/cc/op_util.h"
#include "tensorflow_ops/detection/cc/kernels/boxes/box_iou.h"

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
    std::string mode, format;
    OP_REQUIRES_OK(ctx, ctx->GetAttr("mode", &mode));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("box_format", &format));
    metric_ = mode == "iou"    ? BoxMetric::kIou
              : mode == "giou" ? BoxMetric::kGiou
              : mode == "diou" ? BoxMetric::kDiou
                               : BoxMetric::kCiou;
    format_ = format == "xyxy"   ? BoxFormat::kXyxy
              : format == "yxyx" ? BoxFormat::kYxyx
                                 : BoxFormat::kRotated;
    OP_REQUIRES(
        ctx, format_ != BoxFormat::kRotated || metric_ == BoxMetric::kIou,
        absl::InvalidArgumentError("mode is " + mode +
                                   ", expected iou: box_format is cxcywhr"));
  }

 protected:
  // Checks that both are [..., `more_dims` dims, numbers of a box] and have the
  // same leading dims, to which it sets `leading`.
  absl::Status CheckBoxes(const TensorShape& boxes1, const TensorShape& boxes2,
                          int more_dims, TensorShape* leading) const {
    const int size = BoxSize(format_);
    const auto check = [&](const char* name, const TensorShape& shape) {
      if (shape.dims() > more_dims && shape.dim_size(shape.dims() - 1) == size)
        return absl::OkStatus();
      return absl::InvalidArgumentError(std::string(name) + " must be [..., " +
                                        (more_dims == 1 ? "boxes, " : "") +
                                        std::to_string(size) + "], got " +
                                        shape.DebugString());
    };
    TF_RETURN_IF_ERROR(check("boxes1", boxes1));
    TF_RETURN_IF_ERROR(check("boxes2", boxes2));
    *leading = boxes1;
    TensorShape other = boxes2;
    leading->RemoveLastDims(more_dims + 1);
    other.RemoveLastDims(more_dims + 1);
    if (*leading == other) return absl::OkStatus();
    return absl::InvalidArgumentError(
        "boxes2 must have boxes1's leading dims, got " + boxes1.DebugString() +
        " and " + boxes2.DebugString());
  }

  // Sets args, and the shape of the result, for all pairs.
  absl::Status ReadPairs(OpKernelContext* ctx, int first, BoxIouArgs* args,
                         TensorShape* pairs) const {
    const TensorShape& boxes1 = ctx->input(first).shape();
    const TensorShape& boxes2 = ctx->input(first + 1).shape();
    TF_RETURN_IF_ERROR(CheckBoxes(boxes1, boxes2, 1, pairs));
    *args = {metric_, format_, pairs->num_elements(),
             boxes1.dim_size(boxes1.dims() - 2),
             boxes2.dim_size(boxes2.dims() - 2)};
    TF_RETURN_IF_ERROR(pairs->AddDimWithStatus(args->rows));
    return pairs->AddDimWithStatus(args->columns);
  }
  // The same for pairs in order.
  absl::Status ReadPairs(OpKernelContext* ctx, int first, BoxIouLossArgs* args,
                         TensorShape* pairs) const {
    TF_RETURN_IF_ERROR(CheckBoxes(ctx->input(first).shape(),
                                  ctx->input(first + 1).shape(), 0, pairs));
    *args = {metric_, format_, pairs->num_elements()};
    return absl::OkStatus();
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
    Args args;
    TensorShape pairs;
    OP_REQUIRES_OK(ctx, ReadPairs(ctx, 0, &args, &pairs));
    Tensor* result = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, pairs, &result));
    if (result->NumElements() == 0) return;
    OP_REQUIRES_OK(
        ctx,
        ToStatus(Run()(GetDevice<Device>(ctx), args, Data<C>(ctx->input(0)),
                       Data<C>(ctx->input(1)), Data<C>(result))));
  }
};

template <typename Device, typename C, typename Args, typename Run>
class GradOp : public BoxIouOpBase {
 public:
  using BoxIouOpBase::BoxIouOpBase;

  void Compute(OpKernelContext* ctx) override {
    Args args;
    TensorShape pairs;
    OP_REQUIRES_OK(ctx, ReadPairs(ctx, 1, &args, &pairs));
    const Tensor &d = ctx->input(0), &boxes1 = ctx->input(1),
                 &boxes2 = ctx->input(2);
    OP_REQUIRES(ctx, d.shape() == pairs,
                absl::InvalidArgumentError(
                    std::string("the upstream gradient must be ") +
                    pairs.DebugString() + ", got " + d.shape().DebugString()));
    Tensor *d_boxes1 = nullptr, *d_boxes2 = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, boxes1.shape(), &d_boxes1));
    OP_REQUIRES_OK(ctx, ctx->allocate_output(1, boxes2.shape(), &d_boxes2));
    OP_REQUIRES_OK(ctx, ToStatus(Run()(GetDevice<Device>(ctx), args, Data<C>(d),
                                       Data<C>(boxes1), Data<C>(boxes2),
                                       Data<C>(d_boxes1), Data<C>(d_boxes2))));
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

#define TFO_REGISTER_BOX_KERNELS_ON(op, device, Kernel, OnDevice) \
  TFO_REGISTER_KERNEL_FOR(op, device, Kernel, OnDevice, float, ); \
  TFO_REGISTER_KERNEL_FOR(op, device, Kernel, OnDevice, double, )
#ifdef TFO_CUDA
#define TFO_REGISTER_BOX_KERNELS(op, Kernel)                              \
  TFO_REGISTER_BOX_KERNELS_ON(op, ::tensorflow::DEVICE_CPU, Kernel, Cpu); \
  TFO_REGISTER_BOX_KERNELS_ON(op, ::tensorflow::DEVICE_GPU, Kernel, Gpu)
#else
#define TFO_REGISTER_BOX_KERNELS(op, Kernel) \
  TFO_REGISTER_BOX_KERNELS_ON(op, ::tensorflow::DEVICE_CPU, Kernel, Cpu)
#endif

TFO_REGISTER_BOX_KERNELS("BoxIou", BoxIouOp);
TFO_REGISTER_BOX_KERNELS("BoxIouGrad", BoxIouGradOp);
TFO_REGISTER_BOX_KERNELS("BoxIouLoss", BoxIouLossOp);
TFO_REGISTER_BOX_KERNELS("BoxIouLossGrad", BoxIouLossGradOp);

}  // namespace
}  // namespace tfo
