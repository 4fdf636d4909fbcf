// The OpKernels of the ops whose bins are averages: RoiAlign (its maximum,
// too), PsRoiPool, PsRoiAlign, MultiscaleRoiAlign, and their gradients.
#include <cmath>

#include "absl/strings/str_cat.h"
#include "tensorflow/core/util/determinism.h"
#include "tensorflow_ops/core/cc/op_util.h"
#include "tensorflow_ops/detection/cc/kernels/roi_align_max.h"
#include "tensorflow_ops/detection/cc/kernels/roi_average.h"
#include "tensorflow_ops/detection/cc/kernels/roi_check.h"

namespace tfo {
namespace {

using ::tensorflow::OpKernelConstruction;
using ::tensorflow::OpKernelContext;
using ::tensorflow::Tensor;
using ::tensorflow::TensorShape;

// An attr that the op may not have.
template <typename T>
absl::Status GetAttrIfAny(OpKernelConstruction* ctx, const char* name,
                          T* value) {
  return ctx->HasAttr(name) ? ctx->GetAttr(name, value) : absl::OkStatus();
}

// Reads the attrs of any of the ops: which of them it has says what it does.
absl::Status ReadAverageAttrs(OpKernelConstruction* ctx, RoiAverageArgs* args) {
  *args = {};
  TF_RETURN_IF_ERROR(ReadRoiAttrs(ctx, &args->roi));
  args->bins =
      ctx->HasAttr("sampling_ratio") ? RoiBins::kSamples : RoiBins::kPixels;
  args->sampling = {0, /*aligned=*/true};
  TF_RETURN_IF_ERROR(
      GetAttrIfAny(ctx, "sampling_ratio", &args->sampling.ratio));
  TF_RETURN_IF_ERROR(GetAttrIfAny(ctx, "aligned", &args->sampling.aligned));
  if (args->sampling.ratio > kMostSamples) {
    return absl::InvalidArgumentError(
        absl::StrCat("sampling_ratio is ", args->sampling.ratio,
                     ", expected 0 (adaptive) or at most ", kMostSamples));
  }
  args->order = RoiChannels::kAll;
  if (ctx->HasAttr("channel_order")) {
    std::string order;
    TF_RETURN_IF_ERROR(ctx->GetAttr("channel_order", &order));
    args->order = order == "bin_major" ? RoiChannels::kBinMajor
                                       : RoiChannels::kChannelMajor;
  }
  args->num_levels = 1;
  args->levels[0].spatial_scale = args->roi.spatial_scale;
  if (!ctx->HasAttr("strides")) return absl::OkStatus();

  std::vector<float> strides;
  float box_size, box_stride;
  TF_RETURN_IF_ERROR(ctx->GetAttr("L", &args->num_levels));
  TF_RETURN_IF_ERROR(ctx->GetAttr("strides", &strides));
  TF_RETURN_IF_ERROR(ctx->GetAttr("canonical_box_size", &box_size));
  TF_RETURN_IF_ERROR(ctx->GetAttr("canonical_stride", &box_stride));
  if (args->num_levels > kMostLevels) {
    return absl::InvalidArgumentError(
        absl::StrCat("features are ", args->num_levels, " maps, expected ",
                     kMostLevels, " at most"));
  }
  if (strides.size() != static_cast<size_t>(args->num_levels)) {
    return absl::InvalidArgumentError(
        absl::StrCat("strides are ", strides.size(), " numbers, expected ",
                     args->num_levels, ", as many as features"));
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
                       ", expected positive, rising numbers"));
    }
    args->levels[l].spatial_scale = 1 / strides[l];
    args->levels[l].smallest_box =
        l == 0 ? 0 : box_size * (strides[l] / box_stride);
  }
  args->roi.spatial_scale = args->levels[0].spatial_scale;
  return absl::OkStatus();
}

// The maps' shapes, one batch and number of channels: fills in the sizes.
// shape(l) is the l-th.
template <typename ShapeOf>
absl::Status CheckMaps(const char* name, const ShapeOf& shape,
                       RoiAverageArgs* args) {
  for (int l = args->num_levels - 1; l >= 0; --l) {
    RoiArgs at_level = args->roi;
    TF_RETURN_IF_ERROR(CheckFeatures(name, shape(l), &at_level));
    const bool first = l == args->num_levels - 1;
    if (!first && (at_level.batch != args->roi.batch ||
                   at_level.channels != args->roi.channels)) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, "[", l, "] are ", shape(l).DebugString(), " and ",
                       name, "[", l + 1, "] ", shape(l + 1).DebugString(),
                       ", expected one batch and one number of channels"));
    }
    args->levels[l].height = at_level.height;
    args->levels[l].width = at_level.width;
    args->roi = at_level;
  }
  return absl::OkStatus();
}

// Position-sensitive: a bin has channels of its own.
absl::Status CheckPositionSensitive(const RoiAverageArgs& args) {
  if (args.order == RoiChannels::kAll) return absl::OkStatus();
  const int64_t bins = args.roi.pooled_height * args.roi.pooled_width;
  if (bins > 0 && args.roi.channels % bins == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "features have ", args.roi.channels, " channels, expected a multiple of ",
      args.roi.pooled_height, " * ", args.roi.pooled_width,
      ": each bin has channels of its own"));
}

// d_output is what the forward op returns: [K,ph,pw,C], with C the bin's own
// channels. Fills in ph and pw.
absl::Status CheckDOutput(const TensorShape& shape, RoiAverageArgs* args) {
  if (args->order == RoiChannels::kAll) {
    TF_RETURN_IF_ERROR(CheckPooled("d_output", shape, &args->roi));
    return CheckSamples(args->roi, args->sampling.ratio, /*max=*/false);
  }
  RoiArgs pooled = args->roi;
  if (shape.dims() == 4) {
    pooled.channels = shape.dim_size(args->roi.channels_first ? 1 : 3);
  }
  TF_RETURN_IF_ERROR(CheckPooled("d_output", shape, &pooled));
  args->roi.pooled_height = pooled.pooled_height;
  args->roi.pooled_width = pooled.pooled_width;
  TF_RETURN_IF_ERROR(CheckPositionSensitive(*args));
  if (pooled.channels != args->PooledChannels()) {
    return absl::InvalidArgumentError(
        absl::StrCat("d_output has ", pooled.channels, " channels, expected ",
                     args->PooledChannels(), ", as the forward op"));
  }
  return CheckSamples(args->roi, args->sampling.ratio, /*max=*/false);
}

// Pointers to the maps, on the host.
template <typename T>
struct MapPointers {
  T* maps[kMostLevels];
};
template <typename T>
MapPointers<const T> InputMaps(OpKernelContext* ctx, int first, int count) {
  MapPointers<const T> pointers = {};
  for (int l = 0; l < count; ++l) {
    pointers.maps[l] = Data<T>(ctx->input(first + l));
  }
  return pointers;
}

class RoiAverageOpBase : public OpKernel {
 public:
  explicit RoiAverageOpBase(OpKernelConstruction* ctx) : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, ReadAverageAttrs(ctx, &attrs_));
  }

 protected:
  RoiAverageArgs attrs_;  // with no sizes yet
};

// features..., boxes, box_indices, output_size -> output.
template <typename Device, typename T>
class RoiAverageOp : public RoiAverageOpBase {
 public:
  explicit RoiAverageOp(OpKernelConstruction* ctx) : RoiAverageOpBase(ctx) {
    std::string mode = "avg";
    OP_REQUIRES_OK(ctx, GetAttrIfAny(ctx, "mode", &mode));
    max_ = mode == "max";
  }

  void Compute(OpKernelContext* ctx) override {
    const int levels = attrs_.num_levels;
    const Tensor &boxes = ctx->input(levels),
                 &box_indices = ctx->input(levels + 1);
    RoiAverageArgs args = attrs_;
    OP_REQUIRES_OK(
        ctx, CheckMaps(
                 "features",
                 [&](int l) -> auto& { return ctx->input(l).shape(); }, &args));
    OP_REQUIRES_OK(
        ctx, CheckBoxes<Device>(boxes, box_indices,
                                DataTypeOf<Coordinate<T>>::kValue, &args.roi));
    OP_REQUIRES_OK(ctx, CheckOutputSize(ctx->input(levels + 2), &args.roi));
    OP_REQUIRES_OK(ctx, CheckPositionSensitive(args));
    OP_REQUIRES_OK(ctx, CheckSamples(args.roi, args.sampling.ratio, max_));
    RoiArgs pooled = args.roi;
    pooled.channels = args.PooledChannels();
    TensorShape shape;
    OP_REQUIRES_OK(ctx, PooledShape(pooled, &shape));
    Tensor* output = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, shape, &output));
    if (output->NumElements() == 0) return;
    const auto maps = InputMaps<T>(ctx, 0, levels);
    const auto* const box_data = Data<Coordinate<T>>(boxes);
    const int32_t* const indices = Data<int32_t>(box_indices);
    const Device device = GetDevice<Device>(ctx);
    OP_REQUIRES_OK(
        ctx, ToStatus(max_ ? RoiAlignMax(device, args.roi, args.sampling,
                                         maps.maps[0], maps.maps[0], box_data,
                                         indices, Data<T>(output))
                           : RoiAverage(device, args, maps.maps, box_data,
                                        indices, Data<T>(output))));
  }

 private:
  bool max_;
};

// d_output, boxes, box_indices, a shape for each d_features -> d_features...
template <typename Device, typename T>
class RoiAverageGradOp : public RoiAverageOpBase {
 public:
  using RoiAverageOpBase::RoiAverageOpBase;

  void Compute(OpKernelContext* ctx) override {
    const Tensor &d_output = ctx->input(0), &boxes = ctx->input(1),
                 &box_indices = ctx->input(2);
    RoiAverageArgs args = attrs_;
    TensorShape shapes[kMostLevels];
    for (int l = 0; l < args.num_levels; ++l) {
      const Tensor& shape = ctx->input(3 + l);
      OP_REQUIRES_OK(
          ctx, CheckShape("features_shape", shape.shape(), {4}, "4 numbers"));
      OP_REQUIRES_OK(ctx, TensorShape::BuildTensorShape(shape.flat<int64_t>(),
                                                        &shapes[l]));
    }
    OP_REQUIRES_OK(ctx, CheckMaps(
                            "features_shape",
                            [&](int l) -> auto& { return shapes[l]; }, &args));
    OP_REQUIRES_OK(
        ctx, CheckBoxes<Device>(boxes, box_indices,
                                DataTypeOf<Coordinate<T>>::kValue, &args.roi));
    OP_REQUIRES_OK(ctx, CheckDOutput(d_output.shape(), &args));
    if (d_output.NumElements() == 0) args.roi.num_boxes = 0;  // nothing to add
    MapPointers<T> maps = {};
    for (int l = 0; l < args.num_levels; ++l) {
      Tensor* d_features = nullptr;
      OP_REQUIRES_OK(ctx, ctx->allocate_output(l, shapes[l], &d_features));
      maps.maps[l] = Data<T>(d_features);
    }
    OP_REQUIRES_OK(ctx,
                   ToStatus(Run(GetDevice<Device>(ctx), args, Data<T>(d_output),
                                Data<Coordinate<T>>(boxes),
                                Data<int32_t>(box_indices), maps.maps)));
  }

 private:
  static Error Run(const Cpu& cpu, const RoiAverageArgs& args,
                   const T* d_output, const Coordinate<T>* boxes,
                   const int32_t* box_indices, T* const* d_features) {
    return RoiAverageGrad(cpu, args, d_output, boxes, box_indices, d_features);
  }
  static Error Run(const Gpu& gpu, const RoiAverageArgs& args,
                   const T* d_output, const Coordinate<T>* boxes,
                   const int32_t* box_indices, T* const* d_features) {
    return RoiAverageGrad(gpu, args, ::tensorflow::OpDeterminismRequired(),
                          d_output, boxes, box_indices, d_features);
  }
};

// d_output, features..., boxes, box_indices -> d_boxes.
template <typename Device, typename T>
class RoiAverageBoxesGradOp : public RoiAverageOpBase {
 public:
  using RoiAverageOpBase::RoiAverageOpBase;

  void Compute(OpKernelContext* ctx) override {
    const int levels = attrs_.num_levels;
    const Tensor &d_output = ctx->input(0), &boxes = ctx->input(levels + 1),
                 &box_indices = ctx->input(levels + 2);
    RoiAverageArgs args = attrs_;
    OP_REQUIRES_OK(
        ctx,
        CheckMaps(
            "features",
            [&](int l) -> auto& { return ctx->input(1 + l).shape(); }, &args));
    OP_REQUIRES_OK(
        ctx, CheckBoxes<Device>(boxes, box_indices,
                                DataTypeOf<Coordinate<T>>::kValue, &args.roi));
    OP_REQUIRES_OK(ctx, CheckDOutput(d_output.shape(), &args));
    Tensor* d_boxes = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, boxes.shape(), &d_boxes));
    const auto maps = InputMaps<T>(ctx, 1, levels);
    OP_REQUIRES_OK(
        ctx, ToStatus(RoiAverageBoxesGrad(
                 GetDevice<Device>(ctx), args, Data<T>(d_output), maps.maps,
                 Data<Coordinate<T>>(boxes), Data<int32_t>(box_indices),
                 Data<Coordinate<T>>(d_boxes))));
  }
};

// d_output, features, boxes, box_indices -> d_features.
template <typename Device, typename T>
class RoiAlignMaxGradOp : public RoiAverageOpBase {
 public:
  using RoiAverageOpBase::RoiAverageOpBase;

  void Compute(OpKernelContext* ctx) override {
    const Tensor &d_output = ctx->input(0), &features = ctx->input(1),
                 &boxes = ctx->input(2), &box_indices = ctx->input(3);
    RoiArgs args = attrs_.roi;
    OP_REQUIRES_OK(ctx, CheckFeatures("features", features.shape(), &args));
    OP_REQUIRES_OK(
        ctx, CheckBoxes<Device>(boxes, box_indices,
                                DataTypeOf<Coordinate<T>>::kValue, &args));
    OP_REQUIRES_OK(ctx, CheckPooled("d_output", d_output.shape(), &args));
    OP_REQUIRES_OK(ctx, CheckSamples(args, attrs_.sampling.ratio,
                                     /*max=*/true));
    if (d_output.NumElements() == 0) args.num_boxes = 0;  // nothing to add
    Tensor* d_features = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, features.shape(), &d_features));
    OP_REQUIRES_OK(ctx, ToStatus(RoiAlignMaxGrad(
                            GetDevice<Device>(ctx), args, attrs_.sampling,
                            Data<T>(d_output), Data<T>(features),
                            Data<Coordinate<T>>(boxes),
                            Data<int32_t>(box_indices), Data<T>(d_features))));
  }
};

absl::Status CheckLikeFeatures(const char* name, const Tensor& tensor,
                               const Tensor& features) {
  if (tensor.shape() == features.shape()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      name, " must have features' shape ", features.shape().DebugString(),
      ", got ", tensor.shape().DebugString()));
}

// d_output, features, values, boxes, box_indices -> d_boxes.
template <typename Device, typename T>
class RoiAlignMaxBoxesGradOp : public RoiAverageOpBase {
 public:
  using RoiAverageOpBase::RoiAverageOpBase;

  void Compute(OpKernelContext* ctx) override {
    const Tensor &d_output = ctx->input(0), &features = ctx->input(1),
                 &values = ctx->input(2), &boxes = ctx->input(3),
                 &box_indices = ctx->input(4);
    RoiArgs args = attrs_.roi;
    OP_REQUIRES_OK(ctx, CheckFeatures("features", features.shape(), &args));
    OP_REQUIRES_OK(ctx, CheckLikeFeatures("values", values, features));
    OP_REQUIRES_OK(
        ctx, CheckBoxes<Device>(boxes, box_indices,
                                DataTypeOf<Coordinate<T>>::kValue, &args));
    OP_REQUIRES_OK(ctx, CheckPooled("d_output", d_output.shape(), &args));
    OP_REQUIRES_OK(ctx, CheckSamples(args, attrs_.sampling.ratio,
                                     /*max=*/true));
    Tensor* d_boxes = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, boxes.shape(), &d_boxes));
    OP_REQUIRES_OK(
        ctx,
        ToStatus(RoiAlignMaxBoxesGrad(
            GetDevice<Device>(ctx), args, attrs_.sampling, Data<T>(d_output),
            Data<T>(features), Data<T>(values), Data<Coordinate<T>>(boxes),
            Data<int32_t>(box_indices), Data<Coordinate<T>>(d_boxes))));
  }
};

// dd_features, features, boxes, box_indices, output_size -> dd_output.
template <typename Device, typename T>
class RoiAlignMaxGradGradOp : public RoiAverageOpBase {
 public:
  using RoiAverageOpBase::RoiAverageOpBase;

  void Compute(OpKernelContext* ctx) override {
    const Tensor &dd_features = ctx->input(0), &features = ctx->input(1),
                 &boxes = ctx->input(2), &box_indices = ctx->input(3);
    RoiArgs args = attrs_.roi;
    OP_REQUIRES_OK(ctx, CheckFeatures("features", features.shape(), &args));
    OP_REQUIRES_OK(ctx,
                   CheckLikeFeatures("dd_features", dd_features, features));
    OP_REQUIRES_OK(
        ctx, CheckBoxes<Device>(boxes, box_indices,
                                DataTypeOf<Coordinate<T>>::kValue, &args));
    OP_REQUIRES_OK(ctx, CheckOutputSize(ctx->input(4), &args));
    OP_REQUIRES_OK(ctx, CheckSamples(args, attrs_.sampling.ratio,
                                     /*max=*/true));
    TensorShape shape;
    OP_REQUIRES_OK(ctx, PooledShape(args, &shape));
    Tensor* dd_output = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, shape, &dd_output));
    if (dd_output->NumElements() == 0) return;
    OP_REQUIRES_OK(ctx, ToStatus(RoiAlignMax(
                            GetDevice<Device>(ctx), args, attrs_.sampling,
                            Data<T>(features), Data<T>(dd_features),
                            Data<Coordinate<T>>(boxes),
                            Data<int32_t>(box_indices), Data<T>(dd_output))));
  }
};

TFO_REGISTER_KERNELS("RoiAlign", RoiAverageOp, .HostMemory("output_size"));
TFO_REGISTER_KERNELS("RoiAlignGrad", RoiAverageGradOp,
                     .HostMemory("features_shape"));
TFO_REGISTER_KERNELS("RoiAlignBoxesGrad", RoiAverageBoxesGradOp);
TFO_REGISTER_KERNELS("RoiAlignMaxGrad", RoiAlignMaxGradOp);
TFO_REGISTER_KERNELS("RoiAlignMaxGradGrad", RoiAlignMaxGradGradOp,
                     .HostMemory("output_size"));
TFO_REGISTER_KERNELS("RoiAlignMaxBoxesGrad", RoiAlignMaxBoxesGradOp);
TFO_REGISTER_KERNELS("PsRoiPool", RoiAverageOp, .HostMemory("output_size"));
TFO_REGISTER_KERNELS("PsRoiPoolGrad", RoiAverageGradOp,
                     .HostMemory("features_shape"));
TFO_REGISTER_KERNELS("PsRoiAlign", RoiAverageOp, .HostMemory("output_size"));
TFO_REGISTER_KERNELS("PsRoiAlignGrad", RoiAverageGradOp,
                     .HostMemory("features_shape"));
TFO_REGISTER_KERNELS("PsRoiAlignBoxesGrad", RoiAverageBoxesGradOp);
TFO_REGISTER_KERNELS("MultiscaleRoiAlign", RoiAverageOp,
                     .HostMemory("output_size"));
TFO_REGISTER_KERNELS("MultiscaleRoiAlignGrad", RoiAverageGradOp,
                     .HostMemory("features_shapes"));
TFO_REGISTER_KERNELS("MultiscaleRoiAlignBoxesGrad", RoiAverageBoxesGradOp);

}  // namespace
}  // namespace tfo
