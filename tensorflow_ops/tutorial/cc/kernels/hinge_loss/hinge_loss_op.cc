// The OpKernels of HingeLoss and HingeLossGrad: check values, allocate outputs,
// call the algorithm.
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "tensorflow_ops/core/cc/op_util.h"
#include "tensorflow_ops/tutorial/cc/kernels/hinge_loss/hinge_loss.h"

namespace tfo {
namespace {

using ::tensorflow::OpKernelConstruction;
using ::tensorflow::OpKernelContext;
using ::tensorflow::Tensor;

// What both ops read and check.
template <typename Device>
class HingeLossOpBase : public OpKernel {
 public:
  explicit HingeLossOpBase(OpKernelConstruction* ctx) : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("ignore_index", &ignore_index_));
  }

 protected:
  // Ok, or "labels[3] is 7, expected [0, 5) or ignore_index -1". On a GPU, to
  // read the labels would stop the stream.
  template <typename Args>
  absl::Status CheckLabels(const Args& args) const {
    if constexpr (!std::is_same_v<Device, Cpu>) return absl::OkStatus();
    for (int64_t row = 0; row < args.rows; ++row) {
      const int64_t label = args.labels[row];
      if (HasHingeLoss(args, row) || label == ignore_index_) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("labels[", row, "] is ", label, ", expected [0, ",
                       args.classes, ") or ignore_index ", ignore_index_));
    }
    return absl::OkStatus();
  }

  int64_t ignore_index_;
};

template <typename Device, typename T>
class HingeLossOp : public HingeLossOpBase<Device> {
 public:
  using HingeLossOpBase<Device>::HingeLossOpBase;

  void Compute(OpKernelContext* ctx) override {
    const Tensor &logits = ctx->input(0), &labels = ctx->input(1);
    HingeLossArgs<T> args = {};
    args.rows = logits.dim_size(0);
    args.classes = logits.dim_size(1);
    args.ignore_index = this->ignore_index_;
    args.logits = Data<T>(logits);
    args.labels = Data<int64_t>(labels);
    OP_REQUIRES_OK(ctx, this->CheckLabels(args));
    OP_REQUIRES_OK(ctx, AllocateOutputs(ctx, &args.loss, &args.rank));
    OP_REQUIRES_OK(ctx, ToStatus(HingeLoss(GetDevice<Device>(ctx), args)));
  }
};

template <typename Device, typename T>
class HingeLossGradOp : public HingeLossOpBase<Device> {
 public:
  using HingeLossOpBase<Device>::HingeLossOpBase;

  void Compute(OpKernelContext* ctx) override {
    const Tensor &logits = ctx->input(1), &labels = ctx->input(2);
    HingeLossGradArgs<T> args = {};
    args.rows = logits.dim_size(0);
    args.classes = logits.dim_size(1);
    args.ignore_index = this->ignore_index_;
    args.d_loss = Data<T>(ctx->input(0));
    args.logits = Data<T>(logits);
    args.labels = Data<int64_t>(labels);
    OP_REQUIRES_OK(ctx, this->CheckLabels(args));
    OP_REQUIRES_OK(ctx, AllocateOutputs(ctx, &args.d_logits));
    OP_REQUIRES_OK(ctx, ToStatus(HingeLossGrad(GetDevice<Device>(ctx), args)));
  }
};

TFO_REGISTER_KERNELS("HingeLoss", HingeLossOp);
TFO_REGISTER_KERNELS("HingeLossGrad", HingeLossGradOp);

}  // namespace
}  // namespace tfo
