// The OpKernels of SparseSoftmaxCrossEntropy, SoftmaxCrossEntropy and their
// gradients.
#include "absl/strings/str_cat.h"
#include "tensorflow_ops/core/cc/op_util.h"
#include "tensorflow_ops/nn/cc/kernels/rows/cross_entropy.h"
#include "tensorflow_ops/nn/cc/kernels/rows/rows_op.h"

namespace tfo {
namespace {

using ::tensorflow::OpKernelConstruction;
using ::tensorflow::OpKernelContext;
using ::tensorflow::Tensor;

template <typename Device, typename T>
class LabelLossOpBase : public OpKernel {
 public:
  explicit LabelLossOpBase(OpKernelConstruction* ctx) : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, CheckValueType(ctx, DataTypeOf<Value>::kValue));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("ignores", &options_.ignores));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("ignore_index", &options_.ignore_index));
    OP_REQUIRES_OK(
        ctx, ReadNumber(ctx, "label_smoothing", &options_.label_smoothing));
    OP_REQUIRES_OK(ctx, ReadNumber(ctx, "z_loss", &options_.z_loss));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("log_prob", &options_.log_prob));
  }

 protected:
  using Value = Accumulator<T>;

  // "labels[3] is 7, expected [0, 2)", if there is such a row.
  absl::Status BadLabel(const Tensor& logits, int64_t row,
                        int64_t label) const {
    return absl::InvalidArgumentError(absl::StrCat(
        "labels[", row, "] is ", label, ", expected [0, ",
        RowsOf(logits).classes, ")",
        options_.ignores
            ? absl::StrCat(" or ignore_index ", options_.ignore_index)
            : "",
        logits.dims() == 2 ? "" : " (in flattened labels)"));
  }

  LabelLossOptions options_;
};

template <typename Device, typename T>
class LabelLossOp : public LabelLossOpBase<Device, T> {
 public:
  using LabelLossOpBase<Device, T>::LabelLossOpBase;
  using typename LabelLossOpBase<Device, T>::Value;

  void Compute(OpKernelContext* ctx) override {
    const IndexArray labels = IntsOf(ctx->input(1));
    const Tensor& logits = ctx->input(0);
    const RowsOf rows(logits);
    int64_t bad_row = rows.rows;
    LabelLossArgs<T> args{rows.rows,
                          rows.classes,
                          this->options_,
                          Data<T>(logits),
                          labels,
                          nullptr,
                          {},
                          std::is_same_v<Device, Cpu> ? &bad_row : nullptr};
    OP_REQUIRES_OK(ctx, AllocateOutputs(ctx, &args.loss, &args.sums.largest,
                                        &args.sums.rest));
    OP_REQUIRES_OK(ctx, RunOnRows<Device>(ctx, args));
    OP_REQUIRES(ctx, bad_row == rows.rows,
                this->BadLabel(logits, bad_row, labels[bad_row]));
  }
};

template <typename Device, typename T>
class LabelLossGradOp : public LabelLossOpBase<Device, T> {
 public:
  using LabelLossOpBase<Device, T>::LabelLossOpBase;
  using typename LabelLossOpBase<Device, T>::Value;

  void Compute(OpKernelContext* ctx) override {
    const IndexArray labels = IntsOf(ctx->input(1));
    const Tensor& logits = ctx->input(0);
    const RowsOf rows(logits);
    int64_t bad_row = rows.rows;
    LabelLossGradArgs<T> args{
        rows.rows,
        rows.classes,
        this->options_,
        Data<Value>(ctx->input(2)),
        Data<T>(logits),
        labels,
        {Data<Value>(ctx->input(3)), Data<Value>(ctx->input(4))},
        nullptr,
        std::is_same_v<Device, Cpu> ? &bad_row : nullptr};
    OP_REQUIRES_OK(ctx, AllocateOutputs(ctx, &args.d_logits));
    OP_REQUIRES_OK(ctx, RunOnRows<Device>(ctx, args));
    OP_REQUIRES(ctx, bad_row == rows.rows,
                this->BadLabel(logits, bad_row, labels[bad_row]));
  }
};

template <typename Device, typename T>
class CrossEntropyOp : public OpKernel {
 public:
  explicit CrossEntropyOp(OpKernelConstruction* ctx) : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, CheckValueType(ctx, DataTypeOf<Value>::kValue));
    OP_REQUIRES_OK(ctx, ReadNumber(ctx, "label_smoothing", &label_smoothing_));
  }
  void Compute(OpKernelContext* ctx) override {
    const Tensor &labels = ctx->input(0), &logits = ctx->input(1);
    const RowsOf rows(logits);
    CrossEntropyArgs<T> args{};
    args.rows = rows.rows;
    args.classes = rows.classes;
    args.label_smoothing = label_smoothing_;
    args.labels = Data<T>(labels);
    args.logits = Data<T>(logits);
    OP_REQUIRES_OK(ctx, AllocateOutputs(ctx, &args.loss, &args.sums.largest,
                                        &args.sums.rest, &args.label_sum));
    OP_REQUIRES_OK(ctx, RunOnRows<Device>(ctx, args));
  }

 private:
  using Value = Accumulator<T>;
  double label_smoothing_;
};

template <typename Device, typename T>
class CrossEntropyGradOp : public OpKernel {
 public:
  explicit CrossEntropyGradOp(OpKernelConstruction* ctx) : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, CheckValueType(ctx, DataTypeOf<Value>::kValue));
    OP_REQUIRES_OK(ctx, ReadNumber(ctx, "label_smoothing", &label_smoothing_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("to_labels", &to_labels_));
  }
  void Compute(OpKernelContext* ctx) override {
    const Tensor &labels = ctx->input(0), &logits = ctx->input(1);
    const RowsOf rows(logits);
    CrossEntropyGradArgs<T> args{
        rows.rows,
        rows.classes,
        label_smoothing_,
        Data<Value>(ctx->input(2)),
        Data<T>(labels),
        Data<T>(logits),
        {Data<Value>(ctx->input(3)), Data<Value>(ctx->input(4))},
        Data<Value>(ctx->input(5)),
        nullptr,
        nullptr};
    OP_REQUIRES_OK(ctx, AllocateOutputs(ctx, &args.d_logits, &args.d_labels));
    if (!to_labels_) args.d_labels = nullptr;
    OP_REQUIRES_OK(ctx, RunOnRows<Device>(ctx, args));
  }

 private:
  using Value = Accumulator<T>;
  double label_smoothing_;
  bool to_labels_;
};

TFO_REGISTER_KERNELS("SparseSoftmaxCrossEntropy", LabelLossOp);
TFO_REGISTER_KERNELS("SparseSoftmaxCrossEntropyGrad", LabelLossGradOp);
TFO_REGISTER_KERNELS("SoftmaxCrossEntropy", CrossEntropyOp);
TFO_REGISTER_KERNELS("SoftmaxCrossEntropyGrad", CrossEntropyGradOp);

}  // namespace
}  // namespace tfo
