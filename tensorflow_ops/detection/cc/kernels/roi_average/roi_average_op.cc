// The OpKernels of the ops whose bins are averages: RoiAlign, PsRoiPool,
// PsRoiAlign, MultiscaleRoiAlign, and their gradients.
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tensorflow_ops/core/cc/glue/op_util.h"
#include "tensorflow_ops/detection/cc/kernels/roi/roi_inputs_op.h"
#include "tensorflow_ops/detection/cc/kernels/roi_average/roi_average.h"

namespace tfo {
namespace {

using ::tensorflow::OpInputList;
using ::tensorflow::OpKernelConstruction;
using ::tensorflow::OpKernelContext;
using ::tensorflow::Tensor;

// The differences between the ops, shared by each with its gradients.
struct RoiAverageTraits {
  RoiBins bins;
  bool has_aligned, has_channel_order, has_levels;
};
constexpr RoiAverageTraits kRoiAlign = {RoiBins::kSamples, true, false, false};
constexpr RoiAverageTraits kPsRoiPool = {RoiBins::kPixels, false, true, false};
constexpr RoiAverageTraits kPsRoiAlign = {RoiBins::kSamples, false, true,
                                          false};
constexpr RoiAverageTraits kMultiscaleRoiAlign = {RoiBins::kSamples, true,
                                                  false, true};

absl::Status ReadLevels(OpKernelConstruction* ctx, RoiAverageSpec* args) {
  std::vector<float> strides;
  float box_size, box_stride;
  TF_RETURN_IF_ERROR(ctx->GetAttr("L", &args->num_levels));
  TF_RETURN_IF_ERROR(ctx->GetAttr("strides", &strides));
  TF_RETURN_IF_ERROR(ctx->GetAttr("canonical_box_size", &box_size));
  TF_RETURN_IF_ERROR(ctx->GetAttr("canonical_stride", &box_stride));
  for (float& stride : strides) stride = Flushed(stride);
  box_size = Flushed(box_size);
  box_stride = Flushed(box_stride);
  if (args->num_levels > kMaxLevels) {
    return absl::InvalidArgumentError(
        absl::StrCat("features has ", args->num_levels,
                     " maps, expected at most ", kMaxLevels));
  }
  if (strides.size() != static_cast<size_t>(args->num_levels)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "strides has ", strides.size(), " entries for ", args->num_levels,
        args->num_levels == 1 ? " feature map" : " feature maps"));
  }
  if (!(box_size > 0 && std::isfinite(box_size) && box_stride > 0 &&
        std::isfinite(box_stride))) {
    return absl::InvalidArgumentError(
        absl::StrCat("canonical_box_size and canonical_stride are ", box_size,
                     " and ", box_stride, ", expected positive numbers"));
  }
  for (int l = 0; l < args->num_levels; ++l) {
    if (!(strides[l] > (l == 0 ? 0.0f : strides[l - 1])) ||
        !std::isfinite(strides[l])) {
      return absl::InvalidArgumentError(
          absl::StrCat("strides[", l, "] is ", strides[l],
                       ", expected positive numbers in increasing order"));
    }
    args->levels[l].spatial_scale = 1 / strides[l];
    args->levels[l].smallest_box =
        l == 0 ? 0 : box_size * (strides[l] / box_stride);
  }
  return absl::OkStatus();
}

absl::Status ReadAverageAttrs(OpKernelConstruction* ctx,
                              const RoiAverageTraits& traits,
                              RoiAverageSpec* args) {
  *args = {};
  args->bins = traits.bins;
  args->num_levels = 1;
  if (!traits.has_levels) {
    TF_RETURN_IF_ERROR(ReadSpatialScale(ctx, &args->levels[0].spatial_scale));
  }
  if (traits.bins == RoiBins::kSamples) {
    TF_RETURN_IF_ERROR(ReadSampling(ctx, traits.has_aligned, &args->sampling));
  }
  if (traits.has_channel_order) {
    std::string order;
    TF_RETURN_IF_ERROR(ctx->GetAttr("channel_order", &order));
    args->order = order == "bin_major" ? RoiChannels::kBinMajor
                                       : RoiChannels::kChannelMajor;
  }
  return traits.has_levels ? ReadLevels(ctx, args) : absl::OkStatus();
}

template <typename T>
absl::Status InputMaps(OpKernelContext* ctx, const T* (&maps)[kMaxLevels]) {
  OpInputList features;
  TF_RETURN_IF_ERROR(ctx->input_list("features", &features));
  for (int l = 0; l < features.size(); ++l) maps[l] = Data<T>(features[l]);
  return absl::OkStatus();
}

class RoiAverageOpBase : public OpKernel {
 public:
  RoiAverageOpBase(OpKernelConstruction* ctx, const RoiAverageTraits& traits)
      : OpKernel(ctx), traits_(traits) {
    OP_REQUIRES_OK(ctx, ReadBoxFormat(ctx, &yxyx_));
    OP_REQUIRES_OK(ctx, ReadAverageAttrs(ctx, traits, &attrs_));
  }

 protected:
  // Reads the spec and boxes of an op's Args.
  template <typename Device, typename Args>
  absl::Status ReadInputs(OpKernelContext* ctx, const RoiInputNames& names,
                          Args* args) const {
    RoiSizes sizes;
    TF_RETURN_IF_ERROR(
        ReadRoiInputs<Device>(ctx, yxyx_, names, &sizes, &args->boxes));
    static_cast<RoiAverageSpec&>(*args) = attrs_;
    args->batch = sizes.levels[0].batch;
    args->channels = sizes.levels[0].channels;
    for (int l = 0; l < args->num_levels; ++l) {
      args->levels[l].height = sizes.levels[l].height;
      args->levels[l].width = sizes.levels[l].width;
    }
    args->grid = sizes.grid;
    return CheckSamples(args->grid, args->sampling.ratio);
  }

  const RoiAverageTraits& traits_;
  bool yxyx_;
  RoiAverageSpec attrs_;  // without sizes
};

// features..., boxes, box_indices, output_size -> output.
template <typename Device, typename T>
class RoiAverageOp : public RoiAverageOpBase {
 public:
  using RoiAverageOpBase::RoiAverageOpBase;

  void Compute(OpKernelContext* ctx) override {
    RoiAverageArgs<T> args = {};
    OP_REQUIRES_OK(ctx, ReadInputs<Device>(ctx, {"features"}, &args));
    OP_REQUIRES_OK(ctx, InputMaps(ctx, args.features));
    OP_REQUIRES_OK(ctx, AllocateOutputs(ctx, &args.output));
    if (ctx->mutable_output(0)->NumElements() == 0) return;
    OP_REQUIRES_OK(ctx, ToStatus(RoiAverage(GetDevice<Device>(ctx), args)));
  }
};

// d_output, boxes, box_indices, a shape for each d_features -> d_features...
template <typename Device, typename T>
class RoiAverageGradOp : public RoiAverageOpBase {
 public:
  using RoiAverageOpBase::RoiAverageOpBase;

  void Compute(OpKernelContext* ctx) override {
    RoiAverageGradArgs<T> args = {};
    OP_REQUIRES_OK(ctx, ReadInputs<Device>(ctx, {nullptr, "d_output"}, &args));
    // Without bins there is nothing to add.
    if (ctx->input(0).NumElements() == 0) args.boxes.count = 0;
    args.d_output = InputData<T>(ctx, "d_output");
    for (int l = 0; l < args.num_levels; ++l) {
      Tensor* map;
      OP_REQUIRES_OK(ctx, AllocateOutput(ctx, l, &map));
      args.d_features[l] = Data<T>(map);
    }
    OP_REQUIRES_OK(ctx, ToStatus(RoiAverageGrad(GetDevice<Device>(ctx), args)));
  }
};

// d_output, features..., boxes, box_indices -> d_boxes.
template <typename Device, typename T>
class RoiAverageBoxesGradOp : public RoiAverageOpBase {
 public:
  using RoiAverageOpBase::RoiAverageOpBase;

  void Compute(OpKernelContext* ctx) override {
    RoiAverageBoxesGradArgs<T> args = {};
    OP_REQUIRES_OK(ctx,
                   ReadInputs<Device>(ctx, {"features", "d_output"}, &args));
    args.d_output = InputData<T>(ctx, "d_output");
    OP_REQUIRES_OK(ctx, InputMaps(ctx, args.features));
    OP_REQUIRES_OK(ctx, AllocateOutputs(ctx, &args.d_boxes));
    OP_REQUIRES_OK(ctx,
                   ToStatus(RoiAverageBoxesGrad(GetDevice<Device>(ctx), args)));
  }
};

// The kernels above of one op.
template <const RoiAverageTraits& kTraits>
struct RoiAverageKernels {
  template <typename Base>
  class Of : public Base {
   public:
    explicit Of(OpKernelConstruction* ctx) : Base(ctx, kTraits) {}
  };
  template <typename Device, typename T>
  using Forward = Of<RoiAverageOp<Device, T>>;
  template <typename Device, typename T>
  using Grad = Of<RoiAverageGradOp<Device, T>>;
  template <typename Device, typename T>
  using BoxesGrad = Of<RoiAverageBoxesGradOp<Device, T>>;
};
using RoiAlignKernels = RoiAverageKernels<kRoiAlign>;
using PsRoiPoolKernels = RoiAverageKernels<kPsRoiPool>;
using PsRoiAlignKernels = RoiAverageKernels<kPsRoiAlign>;
using MultiscaleRoiAlignKernels = RoiAverageKernels<kMultiscaleRoiAlign>;

TFO_REGISTER_KERNELS("RoiAlign", RoiAlignKernels::Forward,
                     .HostMemory("output_size"));
TFO_REGISTER_KERNELS("RoiAlignGrad", RoiAlignKernels::Grad,
                     .HostMemory("features_shape"));
TFO_REGISTER_KERNELS("RoiAlignBoxesGrad", RoiAlignKernels::BoxesGrad);
TFO_REGISTER_KERNELS("PsRoiPool", PsRoiPoolKernels::Forward,
                     .HostMemory("output_size"));
TFO_REGISTER_KERNELS("PsRoiPoolGrad", PsRoiPoolKernels::Grad,
                     .HostMemory("features_shape"));
TFO_REGISTER_KERNELS("PsRoiAlign", PsRoiAlignKernels::Forward,
                     .HostMemory("output_size"));
TFO_REGISTER_KERNELS("PsRoiAlignGrad", PsRoiAlignKernels::Grad,
                     .HostMemory("features_shape"));
TFO_REGISTER_KERNELS("PsRoiAlignBoxesGrad", PsRoiAlignKernels::BoxesGrad);
TFO_REGISTER_KERNELS("MultiscaleRoiAlign", MultiscaleRoiAlignKernels::Forward,
                     .HostMemory("output_size"));
TFO_REGISTER_KERNELS("MultiscaleRoiAlignGrad", MultiscaleRoiAlignKernels::Grad,
                     .HostMemory("features_shapes"));
TFO_REGISTER_KERNELS("MultiscaleRoiAlignBoxesGrad",
                     MultiscaleRoiAlignKernels::BoxesGrad);

}  // namespace
}  // namespace tfo
