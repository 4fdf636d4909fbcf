// The OpKernels of MultiscaleDeformableAttention and its gradient.
#include "tensorflow_ops/core/cc/glue/op_util.h"
#include "tensorflow_ops/nn/cc/kernels/deformable_attention/deformable_attention.h"

namespace tfo {
namespace {

using ::tensorflow::OpKernelConstruction;
using ::tensorflow::OpKernelContext;
using ::tensorflow::Tensor;
using ::tensorflow::TensorShape;

template <typename T>
class DeformableAttentionOpBase : public OpKernel {
 public:
  explicit DeformableAttentionOpBase(OpKernelConstruction* ctx)
      : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("num_points", &num_points_));
    for (int64_t n : num_points_) {
      OP_REQUIRES(ctx, n >= 0 && n <= INT32_MAX,
                  absl::InvalidArgumentError(absl::StrCat(
                      "num_points has ", n, ", expected [0, 2^31)")));
    }
    OP_REQUIRES_OK(ctx,
                   CheckValueType(ctx, DataTypeOf<Accumulator<T>>::kValue));
  }

 protected:
  // Reads values, spatial_shapes, locations and weights, inputs `first` on.
  absl::Status Read(OpKernelContext* ctx, int first,
                    AttentionInputs<T>* args) const {
    const TensorShape& values = ctx->input(first).shape();
    const TensorShape& weights = ctx->input(first + 3).shape();
    args->values = Data<T>(ctx->input(first));
    args->locations = Data<Accumulator<T>>(ctx->input(first + 2));
    args->weights = Data<Accumulator<T>>(ctx->input(first + 3));
    args->batch = values.dim_size(0);
    args->pixels = values.dim_size(1);
    args->heads = values.dim_size(2);
    args->channels = values.dim_size(3);
    args->queries = weights.dim_size(1);
    TF_RETURN_IF_ERROR(ReadLevels(ctx->input(first + 1), args));
    for (int l = 0; l < args->num_levels; ++l) {
      args->levels[l].points =
          num_points_.empty() ? weights.dim_size(4) : num_points_[l];
      args->points += args->levels[l].points;
    }
    return absl::OkStatus();
  }

 private:
  absl::Status ReadLevels(const Tensor& shapes, AttentionShape* args) const {
    const int64_t levels = shapes.dim_size(0);
    if (levels < 1 || levels > kMaxAttentionLevels) {
      return absl::InvalidArgumentError(
          absl::StrCat("spatial_shapes has ", levels, " levels, expected 1 to ",
                       kMaxAttentionLevels));
    }
    const auto sizes = shapes.matrix<int64_t>();
    int64_t pixels = 0;
    for (int64_t l = 0; l < levels; ++l) {
      const int64_t height = sizes(l, 0), width = sizes(l, 1);
      if (height < 1 || width < 1 || height > kMaxAttentionSide ||
          width > kMaxAttentionSide || height > INT32_MAX / width) {
        return absl::InvalidArgumentError(absl::StrCat(
            "spatial_shapes[", l, "] is (", height, ", ", width,
            "), expected a positive height and width of at most 2^24, and "
            "below 2^31 pixels"));
      }
      args->levels[l] = {height, width, pixels, 0};
      pixels += height * width;
    }
    args->num_levels = static_cast<int>(levels);
    if (pixels == args->pixels) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("spatial_shapes have ", pixels, " pixels, expected the ",
                     args->pixels, " of values"));
  }

  std::vector<int64_t> num_points_;
};

template <typename Device, typename T>
class DeformableAttentionOp : public DeformableAttentionOpBase<T> {
 public:
  using DeformableAttentionOpBase<T>::DeformableAttentionOpBase;

  void Compute(OpKernelContext* ctx) override {
    Tensor* output;
    OP_REQUIRES_OK(ctx, AllocateOutputs(ctx, {&output}));
    DeformableAttentionArgs<T> args{};
    OP_REQUIRES_OK(ctx, this->Read(ctx, 0, &args));
    if (output->NumElements() == 0) return;
    args.output = Data<T>(output);
    OP_REQUIRES_OK(ctx,
                   ToStatus(DeformableAttention(GetDevice<Device>(ctx), args)));
  }
};

template <typename Device, typename T>
class DeformableAttentionGradOp : public DeformableAttentionOpBase<T> {
 public:
  using DeformableAttentionOpBase<T>::DeformableAttentionOpBase;

  void Compute(OpKernelContext* ctx) override {
    Tensor *d_values, *d_locations, *d_weights;
    OP_REQUIRES_OK(ctx,
                   AllocateOutputs(ctx, {&d_values, &d_locations, &d_weights}));
    DeformableAttentionGradArgs<T> args{};
    OP_REQUIRES_OK(ctx, this->Read(ctx, 1, &args));
    args.d_output = Data<T>(ctx->input(0));
    args.d_values = Data<T>(d_values);
    args.d_locations = Data<Accumulator<T>>(d_locations);
    args.d_weights = Data<Accumulator<T>>(d_weights);
    if (d_weights->NumElements() == 0) {
      if (d_values->NumElements() == 0) return;
      // The other sides of the weights may be of any size.
      args.queries = args.points = 0;
      for (AttentionLevel& level : args.levels) level.points = 0;
    }
    OP_REQUIRES_OK(ctx, RunWithScratch<Device>(
                            ctx,
                            [&](const Gpu& gpu) {
                              return DeformableAttentionGradScratchBytes<T>(
                                  args, gpu.deterministic);
                            },
                            [&](const Device& d) {
                              return DeformableAttentionGrad(d, args);
                            }));
  }
};

TFO_REGISTER_KERNELS("MultiscaleDeformableAttention", DeformableAttentionOp,
                     .HostMemory("spatial_shapes"));
TFO_REGISTER_KERNELS("MultiscaleDeformableAttentionGrad",
                     DeformableAttentionGradOp, .HostMemory("spatial_shapes"));

}  // namespace
}  // namespace tfo
