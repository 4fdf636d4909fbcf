// The OpKernels of SparseSoftmaxCrossEntropy, SoftmaxCrossEntropy and their
// gradients.
#include "absl/strings/str_cat.h"
#include "tensorflow_ops/core/cc/op_util.h"
#include "tensorflow_ops/nn/cc/kernels/cross_entropy.h"
#include "tensorflow_ops/nn/cc/kernels/row_check.h"
#include "tensorflow_ops/nn/cc/kernels/row_scratch.h"

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
        rows.rows_shape.dims() == 1 ? "" : " (labels in flat order)"));
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
    Tensor *loss = nullptr, *largest = nullptr, *rest = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, rows.rows_shape, &loss));
    OP_REQUIRES_OK(ctx, ctx->allocate_output(1, rows.rows_shape, &largest));
    OP_REQUIRES_OK(ctx, ctx->allocate_output(2, rows.rows_shape, &rest));
    int64_t bad_row = rows.rows;
    const bool tells = std::is_same_v<Device, Cpu>;
    RowScratchMemory<Value> scratch;
    OP_REQUIRES_OK(ctx, scratch.template Allocate<Device>(ctx, rows));
    const LabelLossArgs<T> args{rows.rows,
                                rows.classes,
                                this->options_,
                                Data<T>(logits),
                                labels,
                                Data<Value>(loss),
                                {Data<Value>(largest), Data<Value>(rest)},
                                tells ? &bad_row : nullptr,
                                scratch.data};
    OP_REQUIRES_OK(ctx, ToStatus(LabelLoss(GetDevice<Device>(ctx), args)));
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
    const Tensor &logits = ctx->input(0), &d_loss = ctx->input(2),
                 &largest = ctx->input(3), &rest = ctx->input(4);
    RowsOf rows;
    OP_REQUIRES_OK(ctx, ReadLogits(logits, &rows));
    const auto& expected = rows.rows_shape;
    OP_REQUIRES_OK(ctx, CheckSameShape("labels", ctx->input(1), expected));
    OP_REQUIRES_OK(ctx, CheckSameShape("d_loss", d_loss, expected));
    OP_REQUIRES_OK(ctx, CheckSameShape("largest", largest, expected));
    OP_REQUIRES_OK(ctx, CheckSameShape("rest", rest, expected));
    Tensor* d_logits = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, rows.shape, &d_logits));
    int64_t bad_row = rows.rows;
    const bool tells = std::is_same_v<Device, Cpu>;
    const LabelLossGradArgs<T> args{rows.rows,
                                    rows.classes,
                                    this->options_,
                                    Data<Value>(d_loss),
                                    Data<T>(logits),
                                    labels,
                                    {Data<Value>(largest), Data<Value>(rest)},
                                    Data<T>(d_logits),
                                    tells ? &bad_row : nullptr};
    OP_REQUIRES_OK(ctx, ToStatus(LabelLossGrad(GetDevice<Device>(ctx), args)));
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
    Tensor* results[4];  // loss, largest, rest, label_sum
    for (int i = 0; i < 4; ++i) {
      OP_REQUIRES_OK(ctx,
                     ctx->allocate_output(i, rows.rows_shape, &results[i]));
    }
    RowScratchMemory<Value> scratch;
    OP_REQUIRES_OK(ctx, scratch.template Allocate<Device>(ctx, rows));
    const CrossEntropyArgs<T> args{
        rows.rows,
        rows.classes,
        label_smoothing_,
        Data<T>(labels),
        Data<T>(logits),
        Data<Value>(results[0]),
        {Data<Value>(results[1]), Data<Value>(results[2])},
        Data<Value>(results[3]),
        scratch.data};
    OP_REQUIRES_OK(ctx, ToStatus(CrossEntropy(GetDevice<Device>(ctx), args)));
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
    const Tensor &labels = ctx->input(0), &logits = ctx->input(1),
                 &d_loss = ctx->input(2), &largest = ctx->input(3),
                 &rest = ctx->input(4), &label_sum = ctx->input(5);
    RowsOf rows;
    OP_REQUIRES_OK(ctx, ReadLogits(logits, &rows));
    const auto& expected = rows.rows_shape;
    OP_REQUIRES_OK(ctx, CheckSameShape("labels", labels, rows.shape));
    OP_REQUIRES_OK(ctx, CheckSameShape("d_loss", d_loss, expected));
    OP_REQUIRES_OK(ctx, CheckSameShape("largest", largest, expected));
    OP_REQUIRES_OK(ctx, CheckSameShape("rest", rest, expected));
    OP_REQUIRES_OK(ctx, CheckSameShape("label_sum", label_sum, expected));
    Tensor *d_logits = nullptr, *d_labels = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, rows.shape, &d_logits));
    OP_REQUIRES_OK(
        ctx, ctx->allocate_output(1, to_labels_ ? rows.shape : TensorShape({0}),
                                  &d_labels));
    const CrossEntropyGradArgs<T> args{
        rows.rows,
        rows.classes,
        label_smoothing_,
        Data<Value>(d_loss),
        Data<T>(labels),
        Data<T>(logits),
        {Data<Value>(largest), Data<Value>(rest)},
        Data<Value>(label_sum),
        Data<T>(d_logits),
        to_labels_ ? Data<T>(d_labels) : nullptr};
    OP_REQUIRES_OK(ctx,
                   ToStatus(CrossEntropyGrad(GetDevice<Device>(ctx), args)));
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
