// The OpKernels of GaussianKl and GaussianKlGrad.
#include <array>

#include "tensorflow_ops/core/cc/glue/op_util.h"
#include "tensorflow_ops/nn/cc/kernels/rows/gaussian_kl.h"
#include "tensorflow_ops/nn/cc/kernels/rows/rows_op.h"

namespace tfo {
namespace {

using ::tensorflow::OpKernelConstruction;
using ::tensorflow::OpKernelContext;
using ::tensorflow::Tensor;

// The size of a tensor [..., classes].
struct RowsOf {
  explicit RowsOf(const Tensor& tensor)
      : classes(tensor.dim_size(tensor.dims() - 1)) {
    for (int i = 0; i < tensor.dims() - 1; ++i) rows *= tensor.dim_size(i);
  }
  int64_t rows = 1, classes;
};

template <typename T>
class GaussianKlOpBase : public OpKernel {
 public:
  explicit GaussianKlOpBase(OpKernelConstruction* ctx) : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, CheckValueType(ctx, DataTypeOf<Value>::kValue));
    int p;
    OP_REQUIRES_OK(ctx, ctx->GetAttr("P", &p));
    unit_ = p == 0;
  }

 protected:
  using Value = Accumulator<T>;

  // Inputs [first, ...): q and p. Of the unit Gaussian, q twice: it is not
  // read.
  std::array<const T*, 4> Gaussians(OpKernelContext* ctx, int first) const {
    std::array<const T*, 4> data;
    for (int i = 0; i < 4; ++i) {
      data[i] = Data<T>(ctx->input(first + (unit_ ? i % 2 : i)));
    }
    return data;
  }

  bool unit_;
};

template <typename Device, typename T>
class GaussianKlOp : public GaussianKlOpBase<T> {
 public:
  using GaussianKlOpBase<T>::GaussianKlOpBase;

  void Compute(OpKernelContext* ctx) override {
    const RowsOf rows(ctx->input(0));
    const auto in = this->Gaussians(ctx, 0);
    Accumulator<T>* divergence = nullptr;
    OP_REQUIRES_OK(ctx, AllocateOutputs(ctx, &divergence));
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
    const RowsOf rows(ctx->input(1));
    const auto in = this->Gaussians(ctx, 1);
    T* out[4] = {};
    OP_REQUIRES_OK(ctx, this->unit_ ? AllocateOutputs(ctx, &out[0], &out[1])
                                    : AllocateOutputs(ctx, &out[0], &out[1],
                                                      &out[2], &out[3]));
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
