// The OpKernels of GridSample and its gradients.
#include "tensorflow_ops/core/cc/op_util.h"
#include "tensorflow_ops/image/cc/kernels/grid_sample/grid_sample.h"

namespace tfo {
namespace {

class GridSampleOpBase : public OpKernel {
 public:
  explicit GridSampleOpBase(::tensorflow::OpKernelConstruction* ctx)
      : OpKernel(ctx) {
    std::string mode, padding, coordinates;
    OP_REQUIRES_OK(ctx, ctx->GetAttr("mode", &mode));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("padding_mode", &padding));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("coordinates", &coordinates));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("align_corners", &args_.align_corners));
    args_.mode = mode == "bilinear"  ? SampleMode::kBilinear
                 : mode == "nearest" ? SampleMode::kNearest
                                     : SampleMode::kBicubic;
    args_.padding = padding == "zeros"    ? SamplePadding::kZeros
                    : padding == "border" ? SamplePadding::kBorder
                                          : SamplePadding::kReflection;
    args_.coordinates = coordinates == "normalized"
                            ? SampleCoordinates::kNormalized
                        : coordinates == "pixels" ? SampleCoordinates::kPixels
                                                  : SampleCoordinates::kFlow;
  }

 protected:
  GridSampleArgs ArgsOf(const ::tensorflow::TensorShape& features,
                        const ::tensorflow::TensorShape& grid) const {
    GridSampleArgs args = args_;
    args.batch = features.dim_size(0);
    args.height = features.dim_size(1);
    args.width = features.dim_size(2);
    args.channels = features.dim_size(3);
    args.samples = 1;
    for (int i = 1; i < grid.dims() - 1; ++i) args.samples *= grid.dim_size(i);
    args.flow_columns = grid.dim_size(grid.dims() - 2);
    return args;
  }

 private:
  GridSampleArgs args_ = {};
};

// GridSample, and GridSampleTangent, which has a direction as its third input.
template <typename Device, typename T>
class GridSampleOp : public GridSampleOpBase {
 public:
  explicit GridSampleOp(::tensorflow::OpKernelConstruction* ctx)
      : GridSampleOpBase(ctx) {
    OP_REQUIRES_OK(ctx,
                   CheckValueType(ctx, DataTypeOf<Accumulator<T>>::kValue));
  }

  void Compute(::tensorflow::OpKernelContext* ctx) override {
    const ::tensorflow::Tensor &features = ctx->input(0), &grid = ctx->input(1);
    ::tensorflow::Tensor* output;
    OP_REQUIRES_OK(ctx, AllocateOutputs(ctx, {&output}));
    if (output->NumElements() == 0) return;
    const Accumulator<T>* const direction =
        ctx->num_inputs() > 2 ? Data<Accumulator<T>>(ctx->input(2)) : nullptr;
    OP_REQUIRES_OK(
        ctx, ToStatus(GridSample(GetDevice<Device>(ctx),
                                 ArgsOf(features.shape(), grid.shape()),
                                 Data<T>(features), Data<Accumulator<T>>(grid),
                                 direction, Data<T>(output))));
  }
};

template <typename Device, typename T>
class GridSampleGradOp : public GridSampleOpBase {
 public:
  explicit GridSampleGradOp(::tensorflow::OpKernelConstruction* ctx)
      : GridSampleOpBase(ctx) {
    OP_REQUIRES_OK(ctx,
                   CheckValueType(ctx, DataTypeOf<Accumulator<T>>::kValue));
  }

  void Compute(::tensorflow::OpKernelContext* ctx) override {
    const ::tensorflow::Tensor &d_output = ctx->input(0), &grid = ctx->input(1);
    // The shape function takes -1 for a size that is unknown.
    OP_REQUIRES(ctx, OutputShape(0) != nullptr,
                absl::InvalidArgumentError(
                    "features_shape must have sizes of at least 0"));
    ::tensorflow::Tensor* d_features;
    OP_REQUIRES_OK(ctx, AllocateOutputs(ctx, {&d_features}));
    if (d_features->NumElements() == 0) return;
    const GridSampleArgs args = ArgsOf(d_features->shape(), grid.shape());
    Device device = GetDevice<Device>(ctx);
    ::tensorflow::Tensor memory;
    if constexpr (std::is_same_v<Device, Gpu>) {
      OP_REQUIRES_OK(
          ctx, AllocateScratch(ctx, GridSampleGradScratchBytes(args, sizeof(T)),
                               &memory, &device));
    }
    OP_REQUIRES_OK(ctx, ToStatus(GridSampleGrad(device, args, Data<T>(d_output),
                                                Data<Accumulator<T>>(grid),
                                                Data<T>(d_features))));
  }
};

template <typename Device, typename T>
class GridSampleGridGradOp : public GridSampleOpBase {
 public:
  explicit GridSampleGridGradOp(::tensorflow::OpKernelConstruction* ctx)
      : GridSampleOpBase(ctx) {
    OP_REQUIRES_OK(ctx,
                   CheckValueType(ctx, DataTypeOf<Accumulator<T>>::kValue));
  }

  void Compute(::tensorflow::OpKernelContext* ctx) override {
    const ::tensorflow::Tensor &d_output = ctx->input(0),
                               &features = ctx->input(1), &grid = ctx->input(2);
    ::tensorflow::Tensor* d_grid;
    OP_REQUIRES_OK(ctx, AllocateOutputs(ctx, {&d_grid}));
    if (grid.NumElements() == 0) return;
    OP_REQUIRES_OK(
        ctx, ToStatus(GridSampleGridGrad(
                 GetDevice<Device>(ctx), ArgsOf(features.shape(), grid.shape()),
                 Data<T>(d_output), Data<T>(features),
                 Data<Accumulator<T>>(grid), Data<Accumulator<T>>(d_grid))));
  }
};

TFO_REGISTER_KERNELS("GridSample", GridSampleOp, );
TFO_REGISTER_KERNELS("GridSampleTangent", GridSampleOp, );
TFO_REGISTER_KERNELS("GridSampleGrad", GridSampleGradOp,
                     .HostMemory("features_shape"));
TFO_REGISTER_KERNELS("GridSampleGridGrad", GridSampleGridGradOp, );

}  // namespace
}  // namespace tfo
