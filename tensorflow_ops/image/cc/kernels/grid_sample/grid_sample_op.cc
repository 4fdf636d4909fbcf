// The OpKernels of GridSample and its gradients.
#include "absl/strings/str_cat.h"
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
  // Checks shapes, and sets args and the shape of the output.
  absl::Status Read(const ::tensorflow::TensorShape& features,
                    const ::tensorflow::TensorShape& grid, GridSampleArgs* args,
                    ::tensorflow::TensorShape* output) const {
    *args = args_;
    // dense_image_warp's names, or grid_sample's.
    const bool flow = args->coordinates == SampleCoordinates::kFlow;
    const char* const name = flow ? "images" : "features";
    TF_RETURN_IF_ERROR(CheckShape(name, features, {-1, -1, -1, -1}, "4-D"));
    args->batch = features.dim_size(0);
    args->height = features.dim_size(1);
    args->width = features.dim_size(2);
    args->channels = features.dim_size(3);
    for (const int64_t size : {args->height, args->width}) {
      if (size < 1 || size > kMaxSampledSide) {
        return absl::InvalidArgumentError(absl::StrCat(
            name, " are ", features.DebugString(),
            ", expected height and width in [1, ", kMaxSampledSide, "]"));
      }
    }
    if (args->Pixels() > kMaxSampledPixels) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, " are ", features.DebugString(),
                       ", expected height * width below 2^31"));
    }
    const int rank = grid.dims();
    const bool fits =
        flow ? grid == ::tensorflow::TensorShape(
                           {args->batch, args->height, args->width, 2})
             : rank >= 3 && grid.dim_size(rank - 1) == 2 &&
                   grid.dim_size(0) == args->batch;
    if (!fits) {
      return absl::InvalidArgumentError(absl::StrCat(
          flow ? "flow must be [N, H, W, 2] with N, H and W of images "
               : "grid must be [N, d1, ..., dk, 2] with N of features ",
          features.DebugString(), ", got ", grid.DebugString()));
    }
    args->samples = 1;
    args->flow_columns = grid.dim_size(rank - 2);
    TF_RETURN_IF_ERROR(output->AddDimWithStatus(args->batch));
    for (int i = 1; i < rank - 1; ++i) {
      args->samples *= grid.dim_size(i);
      TF_RETURN_IF_ERROR(output->AddDimWithStatus(grid.dim_size(i)));
    }
    return output->AddDimWithStatus(args->channels);
  }

  absl::Status CheckGradient(const ::tensorflow::TensorShape& gradient,
                             const ::tensorflow::TensorShape& output) const {
    if (gradient == output) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("the upstream gradient must be ", output.DebugString(),
                     ", got ", gradient.DebugString()));
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
    GridSampleArgs args;
    ::tensorflow::TensorShape shape;
    OP_REQUIRES_OK(ctx, Read(features.shape(), grid.shape(), &args, &shape));
    ::tensorflow::Tensor* output;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, shape, &output));
    if (output->NumElements() == 0) return;
    const Accumulator<T>* direction = nullptr;
    if (ctx->num_inputs() > 2) {
      const ::tensorflow::TensorShape& moved = ctx->input(2).shape();
      OP_REQUIRES(
          ctx, moved == grid.shape(),
          absl::InvalidArgumentError(absl::StrCat(
              "direction must have grid's shape ", grid.shape().DebugString(),
              ", got ", moved.DebugString())));
      direction = Data<Accumulator<T>>(ctx->input(2));
    }
    OP_REQUIRES_OK(
        ctx, ToStatus(GridSample(GetDevice<Device>(ctx), args,
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
    const ::tensorflow::Tensor &d_output = ctx->input(0), &grid = ctx->input(1),
                               &sizes = ctx->input(2);
    OP_REQUIRES_OK(ctx,
                   CheckShape("features_shape", sizes.shape(), {4}, "[4]"));
    ::tensorflow::TensorShape features, output;
    OP_REQUIRES_OK(ctx, ::tensorflow::TensorShapeUtils::MakeShape(
                            Data<int64_t>(sizes), 4, &features));
    GridSampleArgs args;
    OP_REQUIRES_OK(ctx, Read(features, grid.shape(), &args, &output));
    OP_REQUIRES_OK(ctx, CheckGradient(d_output.shape(), output));
    ::tensorflow::Tensor* d_features;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, features, &d_features));
    if (features.num_elements() == 0) return;
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
    GridSampleArgs args;
    ::tensorflow::TensorShape output;
    OP_REQUIRES_OK(ctx, Read(features.shape(), grid.shape(), &args, &output));
    OP_REQUIRES_OK(ctx, CheckGradient(d_output.shape(), output));
    ::tensorflow::Tensor* d_grid;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, grid.shape(), &d_grid));
    if (grid.NumElements() == 0) return;
    OP_REQUIRES_OK(ctx, ToStatus(GridSampleGridGrad(
                            GetDevice<Device>(ctx), args, Data<T>(d_output),
                            Data<T>(features), Data<Accumulator<T>>(grid),
                            Data<Accumulator<T>>(d_grid))));
  }
};

TFO_REGISTER_KERNELS("GridSample", GridSampleOp, );
TFO_REGISTER_KERNELS("GridSampleTangent", GridSampleOp, );
TFO_REGISTER_KERNELS("GridSampleGrad", GridSampleGradOp,
                     .HostMemory("features_shape"));
TFO_REGISTER_KERNELS("GridSampleGridGrad", GridSampleGridGradOp, );

}  // namespace
}  // namespace tfo
