// The OpKernels of MultiscaleDeformableAttention and its gradient.
#include "tensorflow_ops/core/cc/op_util.h"
#include "tensorflow_ops/nn/cc/kernels/deformable_attention/deformable_attention.h"

namespace tfo {
namespace {

using ::tensorflow::OpKernelConstruction;
using ::tensorflow::OpKernelContext;
using ::tensorflow::Tensor;
using ::tensorflow::TensorShape;

template <typename T>
class AttentionOpBase : public OpKernel {
 public:
  explicit AttentionOpBase(OpKernelConstruction* ctx) : OpKernel(ctx) {
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
  // Reads values, spatial_shapes, sampling_locations and attention_weights,
  // from input `first` on, and sets the output's shape.
  absl::Status Read(OpKernelContext* ctx, int first, AttentionArgs* args,
                    TensorShape* output) const {
    const TensorShape& values = ctx->input(first).shape();
    const TensorShape& weights = ctx->input(first + 3).shape();
    TF_RETURN_IF_ERROR(CheckShape("values", values, {-1, -1, -1, -1},
                                  "[N, S, heads, channels]"));
    *args = {};
    args->batch = values.dim_size(0);
    args->pixels = values.dim_size(1);
    args->heads = values.dim_size(2);
    args->channels = values.dim_size(3);
    TF_RETURN_IF_ERROR(ReadLevels(ctx->input(first + 1), args));

    const int64_t levels = args->num_levels;
    if (num_points_.empty()) {
      TF_RETURN_IF_ERROR(CheckShape(
          "attention_weights", weights,
          {args->batch, -1, args->heads, levels, -1},
          "[N, Q, heads, levels, points] of values and spatial_shapes"));
    } else {
      if (levels != static_cast<int64_t>(num_points_.size())) {
        return absl::InvalidArgumentError(absl::StrCat(
            "num_points has ", num_points_.size(),
            " numbers, expected one for each of the ", levels, " levels"));
      }
      int64_t points = 0;
      for (int64_t n : num_points_) points += n;
      TF_RETURN_IF_ERROR(CheckShape(
          "attention_weights", weights, {args->batch, -1, args->heads, points},
          "[N, Q, heads, sum of num_points] of values"));
    }
    args->queries = weights.dim_size(1);
    args->points = 0;
    for (int l = 0; l < args->num_levels; ++l) {
      args->levels[l].points =
          num_points_.empty() ? weights.dim_size(4) : num_points_[l];
      args->points += args->levels[l].points;
    }
    TensorShape locations = weights;
    TF_RETURN_IF_ERROR(locations.AddDimWithStatus(2));
    const TensorShape& got = ctx->input(first + 2).shape();
    if (got != locations) {
      return absl::InvalidArgumentError(
          absl::StrCat("sampling_locations must be ", locations.DebugString(),
                       ", (x, y) for each of the attention_weights, got ",
                       got.DebugString()));
    }
    return SetOutputShape(*args, output);
  }

 private:
  // Inputs without elements may have sides of any size.
  static absl::Status SetOutputShape(const AttentionArgs& args,
                                     TensorShape* output) {
    bool fits = args.heads == 0 || args.channels <= INT64_MAX / args.heads;
    if (fits) {
      for (int64_t size :
           {args.batch, args.queries, args.heads * args.channels}) {
        fits = fits && output->AddDimWithStatus(size).ok();
      }
    }
    if (fits) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(
        "values and attention_weights have N = ", args.batch, ", Q = ",
        args.queries, ", heads = ", args.heads, ", channels = ", args.channels,
        ": expected fewer than 2^63 numbers in [N, Q, heads * channels]"));
  }

  absl::Status ReadLevels(const Tensor& shapes, AttentionArgs* args) const {
    TF_RETURN_IF_ERROR(
        CheckShape("spatial_shapes", shapes.shape(), {-1, 2}, "[levels, 2]"));
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
class AttentionOp : public AttentionOpBase<T> {
 public:
  using AttentionOpBase<T>::AttentionOpBase;

  void Compute(OpKernelContext* ctx) override {
    AttentionArgs args;
    TensorShape shape;
    OP_REQUIRES_OK(ctx, this->Read(ctx, 0, &args, &shape));
    Tensor* output = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, shape, &output));
    if (output->NumElements() == 0) return;
    using C = Accumulator<T>;
    OP_REQUIRES_OK(ctx, ToStatus(DeformableAttention(
                            GetDevice<Device>(ctx), args,
                            Data<T>(ctx->input(0)), Data<C>(ctx->input(2)),
                            Data<C>(ctx->input(3)), Data<T>(output))));
  }
};

template <typename Device, typename T>
class AttentionGradOp : public AttentionOpBase<T> {
 public:
  using AttentionOpBase<T>::AttentionOpBase;

  void Compute(OpKernelContext* ctx) override {
    AttentionArgs args;
    TensorShape shape;
    OP_REQUIRES_OK(ctx, this->Read(ctx, 1, &args, &shape));
    const Tensor& d_output = ctx->input(0);
    OP_REQUIRES_OK(ctx, CheckShape("d_output", d_output.shape(),
                                   {shape.dim_size(0), shape.dim_size(1),
                                    shape.dim_size(2)},
                                   "of the output's shape"));
    Tensor *d_values = nullptr, *d_locations = nullptr, *d_weights = nullptr;
    OP_REQUIRES_OK(ctx,
                   ctx->allocate_output(0, ctx->input(1).shape(), &d_values));
    OP_REQUIRES_OK(
        ctx, ctx->allocate_output(1, ctx->input(3).shape(), &d_locations));
    OP_REQUIRES_OK(ctx,
                   ctx->allocate_output(2, ctx->input(4).shape(), &d_weights));
    if (d_weights->NumElements() == 0) {
      if (d_values->NumElements() == 0) return;
      // The other sides of the weights may be of any size.
      args.queries = args.points = 0;
      for (AttentionLevel& level : args.levels) level.points = 0;
    }
    Device device = GetDevice<Device>(ctx);
    Tensor scratch;
    if constexpr (std::is_same_v<Device, Gpu>) {
      OP_REQUIRES_OK(ctx,
                     AllocateScratch(ctx,
                                     DeformableAttentionGradScratchBytes<T>(
                                         args, device.deterministic),
                                     &scratch, &device));
    }
    using C = Accumulator<T>;
    OP_REQUIRES_OK(
        ctx, ToStatus(DeformableAttentionGrad(
                 device, args, Data<T>(d_output), Data<T>(ctx->input(1)),
                 Data<C>(ctx->input(3)), Data<C>(ctx->input(4)),
                 Data<T>(d_values), Data<C>(d_locations), Data<C>(d_weights))));
  }
};

TFO_REGISTER_KERNELS("MultiscaleDeformableAttention", AttentionOp,
                     .HostMemory("spatial_shapes"));
TFO_REGISTER_KERNELS("MultiscaleDeformableAttentionGrad", AttentionGradOp,
                     .HostMemory("spatial_shapes"));

}  // namespace
}  // namespace tfo
