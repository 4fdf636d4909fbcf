// The OpKernels of GaussianKl and GaussianKlGrad.
#include "tensorflow_ops/core/cc/op_util.h"
#include "tensorflow_ops/nn/cc/kernels/gaussian_kl/gaussian_kl.h"
#include "tensorflow_ops/nn/cc/kernels/rows/rows_op.h"

namespace tfo {
namespace {

using ::tensorflow::OpKernelConstruction;
using ::tensorflow::OpKernelContext;
using ::tensorflow::Tensor;

template <typename T>
class GaussianKlOpBase : public OpKernel {
 public:
  explicit GaussianKlOpBase(OpKernelConstruction* ctx) : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, CheckValueType(ctx, DataTypeOf<Value>::kValue));
    int p;
    OP_REQUIRES_OK(ctx, ctx->GetAttr("P", &p));
    OP_REQUIRES(ctx, p == 0 || p == 2,
                absl::InvalidArgumentError(
                    "p must be a mean and a log variance, or nothing"));
    unit_ = p == 0;
  }

 protected:
  using Value = Accumulator<T>;

  // Inputs [first, ...): q and p. Of the unit Gaussian, q twice: it is not
  // read.
  absl::Status ReadGaussians(OpKernelContext* ctx, int first, RowsOf* rows,
                             const T* (*gaussians)[4]) const {
    static const char* const kNames[] = {"q's mean", "q's log variance",
                                         "p's mean", "p's log variance"};
    TF_RETURN_IF_ERROR(ReadRows(kNames[0], ctx->input(first), rows));
    for (int i = 0; i < 4; ++i) {
      const Tensor& tensor = ctx->input(first + (unit_ ? i % 2 : i));
      TF_RETURN_IF_ERROR(CheckSameShape(kNames[i], tensor, rows->shape));
      (*gaussians)[i] = Data<T>(tensor);
    }
    return absl::OkStatus();
  }

  bool unit_;
};

template <typename Device, typename T>
class GaussianKlOp : public GaussianKlOpBase<T> {
 public:
  using GaussianKlOpBase<T>::GaussianKlOpBase;

  void Compute(OpKernelContext* ctx) override {
    RowsOf rows;
    const T* in[4];
    OP_REQUIRES_OK(ctx, this->ReadGaussians(ctx, 0, &rows, &in));
    Accumulator<T>* divergence = nullptr;
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 0, rows.rows_shape, &divergence));
    const auto run = [&](auto unit) {
      const GaussianKlArgs<T, decltype(unit)::value> args{
          rows.rows, rows.classes, in[0], in[1], in[2], in[3], divergence};
      OP_REQUIRES_OK(ctx, RunOnRows<Device>(ctx, args));
    };
    this->unit_ ? run(std::true_type()) : run(std::false_type());
  }
};

template <typename Device, typename T>
class GaussianKlGradOp : public GaussianKlOpBase<T> {
 public:
  using GaussianKlOpBase<T>::GaussianKlOpBase;

  void Compute(OpKernelContext* ctx) override {
    const Tensor& d_divergence = ctx->input(0);
    RowsOf rows;
    const T* in[4];
    OP_REQUIRES_OK(ctx, this->ReadGaussians(ctx, 1, &rows, &in));
    OP_REQUIRES_OK(
        ctx, CheckSameShape("d_divergence", d_divergence, rows.rows_shape));
    T* out[4] = {};
    for (int i = 0; i < (this->unit_ ? 2 : 4); ++i) {
      OP_REQUIRES_OK(ctx, AllocateOutput(ctx, i, rows.shape, &out[i]));
    }
    const auto run = [&](auto unit) {
      const GaussianKlGradArgs<T, decltype(unit)::value> args{
          rows.rows, rows.classes, Data<Accumulator<T>>(d_divergence),
          in[0],     in[1],        in[2],
          in[3],     out[0],       out[1],
          out[2],    out[3]};
      OP_REQUIRES_OK(ctx, RunOnRows<Device>(ctx, args));
    };
    this->unit_ ? run(std::true_type()) : run(std::false_type());
  }
};

TFO_REGISTER_KERNELS("GaussianKl", GaussianKlOp);
TFO_REGISTER_KERNELS("GaussianKlGrad", GaussianKlGradOp);

}  // namespace
}  // namespace tfo
