// The OpKernels of SparseSoftmaxCrossEntropy, SoftmaxCrossEntropy and their
// gradients.
#include "absl/strings/str_cat.h"
#include "tensorflow_ops/core/cc/op_util.h"
#include "tensorflow_ops/nn/cc/kernels/cross_entropy/cross_entropy.h"
#include "tensorflow_ops/nn/cc/kernels/rows/rows_op.h"

namespace tfo {
namespace {

using ::tensorflow::OpKernelConstruction;
using ::tensorflow::OpKernelContext;
using ::tensorflow::Tensor;
using ::tensorflow::TensorShape;

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

  static Labels LabelsOf(OpKernelContext* ctx) {
    const Tensor& labels = ctx->input(1);
    if (labels.dtype() == ::tensorflow::DT_INT32) return Data<int32_t>(labels);
    return Data<int64_t>(labels);
  }

  // "labels[3] is 7, expected [0, 2)", if there is such a row.
  absl::Status BadLabel(int64_t row, const RowsOf& rows, int64_t label) const {
    return absl::InvalidArgumentError(absl::StrCat(
        "labels[", row, "] is ", label, ", expected [0, ", rows.classes, ")",
        options_.ignores
            ? absl::StrCat(" or ignore_index ", options_.ignore_index)
            : "",
        rows.rows_shape.dims() == 1 ? "" : " (in flattened labels)"));
  }

  LabelLossOptions options_;
};

template <typename Device, typename T>
class LabelLossOp : public LabelLossOpBase<Device, T> {
 public:
  using LabelLossOpBase<Device, T>::LabelLossOpBase;
  using typename LabelLossOpBase<Device, T>::Value;

  void Compute(OpKernelContext* ctx) override {
    const Labels labels = this->LabelsOf(ctx);
    const Tensor& logits = ctx->input(0);
    RowsOf rows;
    OP_REQUIRES_OK(ctx, ReadLogits(logits, &rows));
    OP_REQUIRES_OK(ctx,
                   CheckSameShape("labels", ctx->input(1), rows.rows_shape));
    int64_t bad_row = rows.rows;
    LabelLossArgs<T> args{rows.rows,
                          rows.classes,
                          this->options_,
                          Data<T>(logits),
                          labels,
                          nullptr,
                          {},
                          std::is_same_v<Device, Cpu> ? &bad_row : nullptr};
    const auto& shape = rows.rows_shape;
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 0, shape, &args.loss));
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 1, shape, &args.sums.largest));
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 2, shape, &args.sums.rest));
    OP_REQUIRES_OK(ctx, RunOnRows<Device>(ctx, args));
    OP_REQUIRES(ctx, bad_row == rows.rows,
                this->BadLabel(bad_row, rows, labels[bad_row]));
  }
};

template <typename Device, typename T>
class LabelLossGradOp : public LabelLossOpBase<Device, T> {
 public:
  using LabelLossOpBase<Device, T>::LabelLossOpBase;
  using typename LabelLossOpBase<Device, T>::Value;

  void Compute(OpKernelContext* ctx) override {
    const Labels labels = this->LabelsOf(ctx);
    const Tensor& logits = ctx->input(0);
    RowsOf rows;
    OP_REQUIRES_OK(ctx, ReadLogits(logits, &rows));
    OP_REQUIRES_OK(
        ctx, CheckInputShapes(ctx, 1, {"labels", "d_loss", "largest", "rest"},
                              rows.rows_shape));
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
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 0, rows.shape, &args.d_logits));
    OP_REQUIRES_OK(ctx, RunOnRows<Device>(ctx, args));
    OP_REQUIRES(ctx, bad_row == rows.rows,
                this->BadLabel(bad_row, rows, labels[bad_row]));
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
    RowsOf rows;
    OP_REQUIRES_OK(ctx, ReadLogits(logits, &rows));
    OP_REQUIRES_OK(ctx, CheckSameShape("labels", labels, rows.shape));
    CrossEntropyArgs<T> args{};
    args.rows = rows.rows;
    args.classes = rows.classes;
    args.label_smoothing = label_smoothing_;
    args.labels = Data<T>(labels);
    args.logits = Data<T>(logits);
    const auto& shape = rows.rows_shape;
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 0, shape, &args.loss));
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 1, shape, &args.sums.largest));
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 2, shape, &args.sums.rest));
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 3, shape, &args.label_sum));
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
    RowsOf rows;
    OP_REQUIRES_OK(ctx, ReadLogits(logits, &rows));
    OP_REQUIRES_OK(ctx, CheckSameShape("labels", labels, rows.shape));
    OP_REQUIRES_OK(ctx, CheckInputShapes(
                            ctx, 2, {"d_loss", "largest", "rest", "label_sum"},
                            rows.rows_shape));
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
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 0, rows.shape, &args.d_logits));
    const TensorShape labels_shape = to_labels_ ? rows.shape : TensorShape({0});
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 1, labels_shape, &args.d_labels));
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
