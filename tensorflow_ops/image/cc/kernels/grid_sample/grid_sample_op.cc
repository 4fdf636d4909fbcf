// The OpKernels of GridSample and its gradients.
#include "tensorflow_ops/core/cc/glue/op_util.h"
#include "tensorflow_ops/image/cc/kernels/grid_sample/grid_sample.h"

namespace tfo {
namespace {

class GridSampleOpBase : public OpKernel {
 public:
  GridSampleOpBase(::tensorflow::OpKernelConstruction* ctx,
                   ::tensorflow::DataType value)
      : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, CheckValueType(ctx, value));
    OP_REQUIRES_OK(ctx, ReadEnum(ctx, "mode",
                                 {{"bilinear", SampleMode::kBilinear},
                                  {"nearest", SampleMode::kNearest},
                                  {"bicubic", SampleMode::kBicubic}},
                                 &spec_.mode));
    OP_REQUIRES_OK(ctx, ReadEnum(ctx, "padding_mode",
                                 {{"zeros", SamplePadding::kZeros},
                                  {"border", SamplePadding::kBorder},
                                  {"reflection", SamplePadding::kReflection},
                                  {"constant", SamplePadding::kConstant},
                                  {"wrap", SamplePadding::kWrap},
                                  {"grid_wrap", SamplePadding::kGridWrap}},
                                 &spec_.padding));
    OP_REQUIRES_OK(ctx,
                   ReadEnum(ctx, "coordinates",
                            {{"normalized", SampleCoordinates::kNormalized},
                             {"pixels", SampleCoordinates::kPixels},
                             {"flow", SampleCoordinates::kFlow},
                             {"indices", SampleCoordinates::kIndices}},
                            &spec_.coordinates));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("align_corners", &spec_.align_corners));
    if (!ctx->HasAttr("fill_value")) return;  // the gradient to features
    OP_REQUIRES_OK(ctx, ReadNumber(ctx, "fill_value", &spec_.fill_value));
  }

 protected:
  GridSampleSpec SpecOf(const ::tensorflow::TensorShape& features,
                        const ::tensorflow::TensorShape& grid) const {
    GridSampleSpec spec = spec_;
    spec.batch = features.dim_size(0);
    spec.height = features.dim_size(1);
    spec.width = features.dim_size(2);
    spec.channels = features.dim_size(3);
    spec.samples = 1;
    for (int i = 1; i < grid.dims() - 1; ++i) spec.samples *= grid.dim_size(i);
    spec.flow_columns = grid.dim_size(grid.dims() - 2);
    return spec;
  }

 private:
  GridSampleSpec spec_ = {};
};

// GridSample, and GridSampleTangent, which has a direction as its third input.
template <typename Device, typename T>
class GridSampleOp : public GridSampleOpBase {
 public:
  explicit GridSampleOp(::tensorflow::OpKernelConstruction* ctx)
      : GridSampleOpBase(ctx, DataTypeOf<Accumulator<T>>::kValue) {}

  void Compute(::tensorflow::OpKernelContext* ctx) override {
    const ::tensorflow::Tensor &features = ctx->input(0), &grid = ctx->input(1);
    using Sum = Accumulator<T>;
    GridSampleArgs<T> args = {SpecOf(features.shape(), grid.shape()),
                              Data<T>(features), Data<Sum>(grid), nullptr,
                              nullptr};
    if (ctx->num_inputs() > 2) args.direction = Data<Sum>(ctx->input(2));
    OP_REQUIRES_OK(ctx, AllocateOutputs(ctx, &args.output));
    if (ctx->mutable_output(0)->NumElements() == 0) return;
    OP_REQUIRES_OK(ctx, ToStatus(GridSample(GetDevice<Device>(ctx), args)));
  }
};

template <typename Device, typename T>
class GridSampleGradOp : public GridSampleOpBase {
 public:
  explicit GridSampleGradOp(::tensorflow::OpKernelConstruction* ctx)
      : GridSampleOpBase(ctx, DataTypeOf<Accumulator<T>>::kValue) {}

  void Compute(::tensorflow::OpKernelContext* ctx) override {
    const ::tensorflow::Tensor &d_output = ctx->input(0), &grid = ctx->input(1);
    // The shape function takes -1 for a size that is unknown.
    OP_REQUIRES(ctx, OutputShape(0) != nullptr,
                absl::InvalidArgumentError(
                    "features_shape must have sizes of at least 0"));
    ::tensorflow::Tensor* d_features;
    OP_REQUIRES_OK(ctx, AllocateOutputs(ctx, {&d_features}));
    if (d_features->NumElements() == 0) return;
    const GridSampleGradArgs<T> args = {
        SpecOf(d_features->shape(), grid.shape()), Data<T>(d_output),
        Data<Accumulator<T>>(grid), Data<T>(d_features)};
    OP_REQUIRES_OK(
        ctx, RunWithScratch<Device>(
                 ctx,
                 [&](const Gpu&) {
                   return GridSampleGradScratchBytes(args, sizeof(T));
                 },
                 [&](const Device& d) { return GridSampleGrad(d, args); }));
  }
};

template <typename Device, typename T>
class GridSampleGridGradOp : public GridSampleOpBase {
 public:
  explicit GridSampleGridGradOp(::tensorflow::OpKernelConstruction* ctx)
      : GridSampleOpBase(ctx, DataTypeOf<Accumulator<T>>::kValue) {}

  void Compute(::tensorflow::OpKernelContext* ctx) override {
    const ::tensorflow::Tensor &d_output = ctx->input(0),
                               &features = ctx->input(1), &grid = ctx->input(2);
    GridSampleGridGradArgs<T> args = {SpecOf(features.shape(), grid.shape()),
                                      Data<T>(d_output), Data<T>(features),
                                      Data<Accumulator<T>>(grid), nullptr};
    OP_REQUIRES_OK(ctx, AllocateOutputs(ctx, &args.d_grid));
    if (grid.NumElements() == 0) return;
    OP_REQUIRES_OK(ctx,
                   ToStatus(GridSampleGridGrad(GetDevice<Device>(ctx), args)));
  }
};

TFO_REGISTER_KERNELS("GridSample", GridSampleOp, );
TFO_REGISTER_KERNELS("GridSampleTangent", GridSampleOp, );
TFO_REGISTER_KERNELS("GridSampleGrad", GridSampleGradOp,
                     .HostMemory("features_shape"));
TFO_REGISTER_KERNELS("GridSampleGridGrad", GridSampleGridGradOp, );

}  // namespace
}  // namespace tfo
