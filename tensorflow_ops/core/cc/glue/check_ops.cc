// Ops that raise errors when a graph runs. TensorFlow's own assertions vanish
// under XLA, and its Python functions do not compile there.
#include <algorithm>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow_ops/core/cc/glue/op_util.h"

namespace tfo {

using ::tensorflow::DEVICE_CPU;
using ::tensorflow::OpKernelConstruction;
using ::tensorflow::OpKernelContext;
using ::tensorflow::Tensor;
using ::tensorflow::shape_inference::InferenceContext;
using ::tensorflow::shape_inference::ShapeHandle;

REGISTER_OP("TensorflowOps>CheckValues")
    .Input("values: T")
    .Input("valid: bool")
    .Input("after: N * bool")
    .Output("checked: T")
    .Output("passed: N * bool")
    .Attr("argument: string")
    .Attr("expected: string")
    .Attr("on_gpu: bool = true")
    .Attr("decides_shape: bool = false")
    .Attr("N: int >= 0 = 0")
    .Attr("T: type")
    .SetShapeFn([](InferenceContext* c) {
      const ShapeHandle values = c->input(0), valid = c->input(1);
      c->set_output(0, values);
      for (int i = 1; i < c->num_outputs(); ++i) {
        c->set_output(i, c->input(i + 1));
      }
      if (!c->RankKnown(values) || !c->RankKnown(valid)) {
        return absl::OkStatus();
      }
      ShapeHandle leading;
      absl::Status status = c->WithRankAtMost(valid, c->Rank(values), &leading);
      if (status.ok()) {
        status = c->Subshape(values, 0, c->Rank(valid), &leading);
      }
      if (status.ok()) status = c->Merge(leading, valid, &leading);
      return Expect("valid must have leading dims of values", status);
    })
    .Doc(R"doc(
Returns values, or raises InvalidArgumentError for the first that is not valid:
"lengths[2] is 7, expected [0, 5]".

valid: a scalar, or of the leading dims of values.
after: passed of checks that come before this one, and speak first.
passed: after, once this check has passed.
argument: the name of values in the error.
expected: the values that are valid, as text.
on_gpu: whether to check on a GPU, too, which copies the values to the host and
  waits for them.
decides_shape: whether XLA must know the values when it compiles.
)doc");

REGISTER_OP("TensorflowOps>RefuseGradient")
    .Input("x: T")
    .Input("upstream: Tupstream")
    .Output("gradient: T")
    .Attr("reason: string")
    .Attr("T: {half, bfloat16, float, double}")
    .Attr("Tupstream: list({half, bfloat16, float, double}) >= 1")
    .SetShapeFn([](InferenceContext* c) {
      std::string reason;
      TF_RETURN_IF_ERROR(c->GetAttr("reason", &reason));
      if (reason.empty()) {
        return absl::InvalidArgumentError("reason is empty");
      }
      return ::tensorflow::shape_inference::UnchangedShape(c);
    })
    .Doc(R"doc(
Stands for a gradient that does not exist: raises UnimplementedError if upstream
is not zero, else returns zeros.

x: what the gradient would be to.
upstream: the upstream gradients.
reason: the error's text.
)doc");

void ForwardInputs(OpKernelContext* ctx) {
  ctx->set_output(0, ctx->input(0));
  for (int i = 1; i < ctx->num_outputs(); ++i) {
    ctx->set_output(i, ctx->input(i + 1));
  }
}

// Runs on the host.
class CheckValuesOp : public OpKernel {
 public:
  explicit CheckValuesOp(OpKernelConstruction* ctx) : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("argument", &argument_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("expected", &expected_));
  }

  void Compute(OpKernelContext* ctx) override {
    const Tensor& values = ctx->input(0);
    const Tensor& valid = ctx->input(1);
    ForwardInputs(ctx);
    const bool* const is_valid = Data<bool>(valid);
    for (int64_t i = 0; i < valid.NumElements(); ++i) {
      OP_REQUIRES(ctx, is_valid[i], Invalid(values, valid, i));
    }
  }

 private:
  absl::Status Invalid(const Tensor& values, const Tensor& valid,
                       int64_t element) const {
    Tensor rows;
    const int64_t count = valid.NumElements();
    if (!rows.CopyFrom(values, {count, values.NumElements() / count})) {
      return absl::InternalError("The values cannot be reshaped");
    }
    constexpr int64_t kMaxPrinted = 8;
    Tensor row = rows.SubSlice(element);
    if (valid.dims() == values.dims()) row = row.SubSlice(0);
    const std::string value = absl::StrReplaceAll(
        row.SummarizeValue(kMaxPrinted, /*print_v2=*/true), {{" ", ","}});
    return absl::InvalidArgumentError(
        absl::StrCat(argument_, PlaceText(valid, element), " is ", value,
                     ", expected ", expected_));
  }

  std::string argument_, expected_;
};

// On a GPU, without a check.
class ForwardValuesOp : public OpKernel {
 public:
  using OpKernel::OpKernel;
  void Compute(OpKernelContext* ctx) override { ForwardInputs(ctx); }
};

// Runs on the host.
class RefuseGradientOp : public OpKernel {
 public:
  explicit RefuseGradientOp(OpKernelConstruction* ctx) : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("reason", &reason_));
  }

  void Compute(OpKernelContext* ctx) override {
    for (int i = 1; i < ctx->num_inputs(); ++i) {
      OP_REQUIRES(ctx, IsZero(ctx->input(i)),
                  absl::UnimplementedError(reason_));
    }
    Tensor* gradient = nullptr;
    OP_REQUIRES_OK(ctx,
                   ctx->allocate_output(0, ctx->input(0).shape(), &gradient));
    if (gradient->NumElements() > 0) {  // else data may be null
      std::memset(gradient->data(), 0, gradient->TotalBytes());
    }
  }

 private:
  static bool IsZero(const Tensor& tensor) {
    switch (tensor.dtype()) {
      case ::tensorflow::DT_HALF:
        return AllZero<Eigen::half>(tensor);
      case ::tensorflow::DT_BFLOAT16:
        return AllZero<::tensorflow::bfloat16>(tensor);
      case ::tensorflow::DT_FLOAT:
        return AllZero<float>(tensor);
      default:
        return AllZero<double>(tensor);
    }
  }

  template <typename T>
  static bool AllZero(const Tensor& tensor) {
    const auto values = tensor.flat<T>();
    return std::all_of(values.data(), values.data() + values.size(),
                       [](T value) { return value == T(0); });
  }

  std::string reason_;
};

REGISTER_KERNEL_BUILDER(Name("TensorflowOps>CheckValues").Device(DEVICE_CPU),
                        CheckedKernel<CheckValuesOp>);
REGISTER_KERNEL_BUILDER(Name("TensorflowOps>RefuseGradient").Device(DEVICE_CPU),
                        CheckedKernel<RefuseGradientOp>);
#ifdef TFO_CUDA
REGISTER_KERNEL_BUILDER(Name("TensorflowOps>CheckValues")
                            .Device(::tensorflow::DEVICE_GPU)
                            .AttrConstraint("on_gpu", true)
                            .HostMemory("values")
                            .HostMemory("valid")
                            .HostMemory("after")
                            .HostMemory("checked")
                            .HostMemory("passed"),
                        CheckedKernel<CheckValuesOp>);
REGISTER_KERNEL_BUILDER(Name("TensorflowOps>CheckValues")
                            .Device(::tensorflow::DEVICE_GPU)
                            .AttrConstraint("on_gpu", false)
                            .HostMemory("after")
                            .HostMemory("passed"),
                        CheckedKernel<ForwardValuesOp>);
REGISTER_KERNEL_BUILDER(Name("TensorflowOps>RefuseGradient")
                            .Device(::tensorflow::DEVICE_GPU)
                            .HostMemory("x")
                            .HostMemory("upstream")
                            .HostMemory("gradient"),
                        CheckedKernel<RefuseGradientOp>);
#endif

}  // namespace tfo
