// The ops on logits and Gaussians: inputs, attrs, outputs, shapes. All work
// along the last axis; the axes before it are a batch of any rank.
#include "absl/strings/str_cat.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow_ops/core/cc/op_util.h"

namespace tfo {
namespace {

using ::tensorflow::shape_inference::InferenceContext;
using ::tensorflow::shape_inference::ShapeHandle;

// Inputs [first, last) have one shape, of at least a dim.
absl::Status OneShape(InferenceContext* c, int first, int last,
                      const char* names, ShapeHandle* shape) {
  *shape = c->UnknownShape();
  for (int i = first; i < last; ++i) {
    ShapeHandle with_classes;
    TF_RETURN_IF_ERROR(
        Expect(absl::StrCat(names, " must have at least one dim"),
               c->WithRankAtLeast(c->input(i), 1, &with_classes)));
    TF_RETURN_IF_ERROR(Expect(absl::StrCat(names, " must have the same shape"),
                              c->Merge(*shape, with_classes, shape)));
  }
  return absl::OkStatus();
}

// OneShape of all inputs from `first` on: q's and p's.
absl::Status GaussianShape(InferenceContext* c, int first, ShapeHandle* shape) {
  int p;
  TF_RETURN_IF_ERROR(c->GetAttr("P", &p));
  if (p != 0 && p != 2) {
    return absl::InvalidArgumentError(
        "p must be a mean and a log variance, or nothing");
  }
  return OneShape(c, first, c->num_inputs(), "means and log variances", shape);
}

// OneShape for logits, which have at least one class.
absl::Status LogitsShape(InferenceContext* c, int first, int last,
                         const char* names, ShapeHandle* shape) {
  TF_RETURN_IF_ERROR(OneShape(c, first, last, names, shape));
  if (!c->RankKnown(*shape)) return absl::OkStatus();
  const auto classes = c->Dim(*shape, -1);
  if (!c->ValueKnown(classes) || c->Value(classes) > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "logits must have at least one class, got ", c->DebugString(*shape)));
}

// All but the last axis.
absl::Status Rows(InferenceContext* c, ShapeHandle shape, ShapeHandle* rows) {
  return c->Subshape(shape, 0, -1, rows);
}

// Inputs [first, last) and `rows` have one shape.
absl::Status MergeRows(InferenceContext* c, int first, int last,
                       const char* names, ShapeHandle* rows) {
  for (int i = first; i < last; ++i) {
    TF_RETURN_IF_ERROR(Expect(
        absl::StrCat(names, " must have logits' shape without the classes"),
        c->Merge(*rows, c->input(i), rows)));
  }
  return absl::OkStatus();
}

// logits, then inputs of one value per row; all outputs have one value per row.
absl::Status RowsShape(InferenceContext* c, const char* names) {
  ShapeHandle logits, rows;
  TF_RETURN_IF_ERROR(LogitsShape(c, 0, 1, "logits", &logits));
  TF_RETURN_IF_ERROR(Rows(c, logits, &rows));
  TF_RETURN_IF_ERROR(MergeRows(c, 1, c->num_inputs(), names, &rows));
  for (int i = 0; i < c->num_outputs(); ++i) c->set_output(i, rows);
  return absl::OkStatus();
}

// The same inputs; the output has logits' shape.
absl::Status RowsGradShape(InferenceContext* c, const char* names) {
  ShapeHandle logits, rows;
  TF_RETURN_IF_ERROR(LogitsShape(c, 0, 1, "logits", &logits));
  TF_RETURN_IF_ERROR(Rows(c, logits, &rows));
  TF_RETURN_IF_ERROR(MergeRows(c, 1, c->num_inputs(), names, &rows));
  if (c->RankKnown(rows)) {
    TF_RETURN_IF_ERROR(c->Concatenate(
        rows,
        c->Vector(c->RankKnown(logits) ? c->Dim(logits, -1) : c->UnknownDim()),
        &logits));
  }
  c->set_output(0, logits);
  return absl::OkStatus();
}

}  // namespace
}  // namespace tfo

using ::tensorflow::shape_inference::InferenceContext;
using ::tensorflow::shape_inference::ShapeHandle;

// Per-row tensors have the dtype that T is computed in: float, or double for
// double.
#define TFO_FLOAT_ATTRS \
  .Attr("T: {half, bfloat16, float, double}").Attr("Tvalue: {float, double}")

REGISTER_OP("TensorflowOps>Softmax")
    .Input("logits: T")
    .Output("output: T")
    .Attr("log: bool = false")
    .Attr("T: {half, bfloat16, float, double}")
    .SetShapeFn([](InferenceContext* c) {
      ShapeHandle logits;
      TF_RETURN_IF_ERROR(tfo::LogitsShape(c, 0, 1, "logits", &logits));
      c->set_output(0, logits);
      return absl::OkStatus();
    });

REGISTER_OP("TensorflowOps>SoftmaxGrad")
    .Input("d_output: T")
    .Input("output: T")
    .Output("d_logits: T")
    .Attr("log: bool = false")
    .Attr("T: {half, bfloat16, float, double}")
    .SetShapeFn([](InferenceContext* c) {
      ShapeHandle output;
      TF_RETURN_IF_ERROR(
          tfo::OneShape(c, 0, 2, "d_output and output", &output));
      c->set_output(0, output);
      return absl::OkStatus();
    });

// `largest` and `rest` of a row: its largest logit, and the sum of
// e^(logit - largest) minus 1.
REGISTER_OP("TensorflowOps>SoftmaxEntropy")
    .Input("logits: T")
    .Output("entropy: Tvalue")
    .Output("largest: Tvalue")
    .Output("rest: Tvalue") TFO_FLOAT_ATTRS.SetShapeFn([](InferenceContext* c) {
      return tfo::RowsShape(c, "");
    });

REGISTER_OP("TensorflowOps>SoftmaxEntropyGrad")
    .Input("logits: T")
    .Input("d_entropy: Tvalue")
    .Input("entropy: Tvalue")
    .Input("largest: Tvalue")
    .Input("rest: Tvalue")
    .Output("d_logits: T") TFO_FLOAT_ATTRS.SetShapeFn([](InferenceContext* c) {
      return tfo::RowsGradShape(c, "d_entropy, entropy, largest and rest");
    });

// Attrs have 32-bit floats: label_smoothing and z_loss are lists whose sum is
// the 64-bit number. (As inputs they would cost each eager call a tensor, and
// compilers could not read them.) With log_prob, the negative loss.
#define TFO_LABEL_LOSS_ATTRS                      \
  TFO_FLOAT_ATTRS.Attr("Tlabels: {int32, int64}") \
      .Attr("ignores: bool = false")              \
      .Attr("ignore_index: int = 0")              \
      .Attr("label_smoothing: list(float) = []")  \
      .Attr("z_loss: list(float) = []")           \
      .Attr("log_prob: bool = false")

REGISTER_OP("TensorflowOps>SparseSoftmaxCrossEntropy")
    .Input("logits: T")
    .Input("labels: Tlabels")
    .Output("loss: Tvalue")
    .Output("largest: Tvalue")
    .Output("rest: Tvalue") TFO_LABEL_LOSS_ATTRS.SetShapeFn(
        [](InferenceContext* c) { return tfo::RowsShape(c, "labels"); });

REGISTER_OP("TensorflowOps>SparseSoftmaxCrossEntropyGrad")
    .Input("logits: T")
    .Input("labels: Tlabels")
    .Input("d_loss: Tvalue")
    .Input("largest: Tvalue")
    .Input("rest: Tvalue")
    .Output("d_logits: T")
        TFO_LABEL_LOSS_ATTRS.SetShapeFn([](InferenceContext* c) {
          return tfo::RowsGradShape(c, "labels, d_loss, largest and rest");
        });

REGISTER_OP("TensorflowOps>SoftmaxCrossEntropy")
    .Input("labels: T")
    .Input("logits: T")
    .Output("loss: Tvalue")
    .Output("largest: Tvalue")
    .Output("rest: Tvalue")
    .Output("label_sum: Tvalue") TFO_FLOAT_ATTRS
    .Attr("label_smoothing: list(float) = []")
    .SetShapeFn([](InferenceContext* c) {
      ShapeHandle shape, rows;
      TF_RETURN_IF_ERROR(
          tfo::LogitsShape(c, 0, 2, "labels and logits", &shape));
      TF_RETURN_IF_ERROR(tfo::Rows(c, shape, &rows));
      for (int i = 0; i < 4; ++i) c->set_output(i, rows);
      return absl::OkStatus();
    });

// Without to_labels, d_labels is empty.
REGISTER_OP("TensorflowOps>SoftmaxCrossEntropyGrad")
    .Input("labels: T")
    .Input("logits: T")
    .Input("d_loss: Tvalue")
    .Input("largest: Tvalue")
    .Input("rest: Tvalue")
    .Input("label_sum: Tvalue")
    .Output("d_logits: T")
    .Output("d_labels: T") TFO_FLOAT_ATTRS
    .Attr("label_smoothing: list(float) = []")
    .Attr("to_labels: bool = true")
    .SetShapeFn([](InferenceContext* c) {
      ShapeHandle shape, rows;
      TF_RETURN_IF_ERROR(
          tfo::LogitsShape(c, 0, 2, "labels and logits", &shape));
      TF_RETURN_IF_ERROR(tfo::Rows(c, shape, &rows));
      TF_RETURN_IF_ERROR(tfo::MergeRows(
          c, 2, 6, "d_loss, largest, rest and label_sum", &rows));
      bool to_labels;
      TF_RETURN_IF_ERROR(c->GetAttr("to_labels", &to_labels));
      c->set_output(0, shape);
      c->set_output(1, to_labels ? shape : c->Vector(0));
      return absl::OkStatus();
    });

// p: its mean and its log variance, or nothing: the unit Gaussian.
REGISTER_OP("TensorflowOps>GaussianKl")
    .Input("q_mean: T")
    .Input("q_log_variance: T")
    .Input("p: P * T")
    .Output("divergence: Tvalue") TFO_FLOAT_ATTRS.Attr("P: int >= 0")
    .SetShapeFn([](InferenceContext* c) {
      ShapeHandle shape, rows;
      TF_RETURN_IF_ERROR(tfo::GaussianShape(c, 0, &shape));
      TF_RETURN_IF_ERROR(tfo::Rows(c, shape, &rows));
      c->set_output(0, rows);
      return absl::OkStatus();
    });

REGISTER_OP("TensorflowOps>GaussianKlGrad")
    .Input("d_divergence: Tvalue")
    .Input("q_mean: T")
    .Input("q_log_variance: T")
    .Input("p: P * T")
    .Output("d_q_mean: T")
    .Output("d_q_log_variance: T")
    .Output("d_p: P * T") TFO_FLOAT_ATTRS.Attr("P: int >= 0")
    .SetShapeFn([](InferenceContext* c) {
      ShapeHandle shape, rows;
      TF_RETURN_IF_ERROR(tfo::GaussianShape(c, 1, &shape));
      TF_RETURN_IF_ERROR(tfo::Rows(c, shape, &rows));
      TF_RETURN_IF_ERROR(tfo::MergeRows(c, 0, 1, "d_divergence", &rows));
      for (int i = 0; i < c->num_outputs(); ++i) c->set_output(i, shape);
      return absl::OkStatus();
    });
