#include "tensorflow_ops/detection/cc/kernels/roi_check.h"

#include <cmath>

#include "absl/strings/str_cat.h"

namespace tfo {
namespace {

using ::tensorflow::DataType;
using ::tensorflow::DataTypeString;
using ::tensorflow::Tensor;
using ::tensorflow::TensorShape;

// Of bins, and of samples, of a box on an axis; and of samples that a box takes
// a maximum of. A box of more would take seconds whatever the map's size.
constexpr int64_t kMostOnAxis = 1 << 20;
constexpr double kMostMaxSamples = 1 << 24;

template <typename... Parts>
absl::Status Invalid(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}

}  // namespace

absl::Status ReadRoiAttrs(::tensorflow::OpKernelConstruction* ctx,
                          RoiArgs* args) {
  *args = {};
  std::string data_format, box_format;
  args->spatial_scale = 1;
  if (ctx->HasAttr("spatial_scale")) {
    TF_RETURN_IF_ERROR(ctx->GetAttr("spatial_scale", &args->spatial_scale));
  }
  TF_RETURN_IF_ERROR(ctx->GetAttr("data_format", &data_format));
  TF_RETURN_IF_ERROR(ctx->GetAttr("box_format", &box_format));
  args->channels_first = data_format == "NCHW";
  args->yxyx = box_format == "yxyx";
  if (!(args->spatial_scale > 0) || !std::isfinite(args->spatial_scale)) {
    return Invalid("spatial_scale is ", args->spatial_scale,
                   ", expected a positive, finite number");
  }
  return absl::OkStatus();
}

absl::Status CheckFeatures(const char* name, const TensorShape& shape,
                           RoiArgs* args) {
  TF_RETURN_IF_ERROR(
      CheckShape(name, shape, {-1, -1, -1, -1},
                 args->channels_first ? "[N, C, H, W]" : "[N, H, W, C]"));
  const int first = args->channels_first ? 2 : 1;
  args->batch = shape.dim_size(0);
  args->height = shape.dim_size(first);
  args->width = shape.dim_size(first + 1);
  args->channels = shape.dim_size(args->channels_first ? 1 : 3);
  const bool fits = args->width == 0 || args->height <= INT32_MAX / args->width;
  if (!fits || args->width > INT32_MAX || args->height > INT32_MAX) {
    return Invalid(name, " is ", shape.DebugString(),
                   ": height * width must be below 2^31");
  }
  return absl::OkStatus();
}

template <typename Device>
absl::Status CheckBoxes(const Tensor& boxes, const Tensor& box_indices,
                        DataType coordinates, RoiArgs* args) {
  if (boxes.dtype() != coordinates) {
    return Invalid("boxes are ", DataTypeString(boxes.dtype()), ", expected ",
                   DataTypeString(coordinates), " with these features");
  }
  TF_RETURN_IF_ERROR(CheckShape("boxes", boxes.shape(), {-1, 4}, "[K, 4]"));
  args->num_boxes = boxes.dim_size(0);
  TF_RETURN_IF_ERROR(CheckShape(
      "box_indices", box_indices.shape(), {args->num_boxes},
      absl::StrCat("[K] with boxes' K = ", args->num_boxes).c_str()));
  if constexpr (std::is_same_v<Device, Cpu>) {
    const int32_t* indices = Data<int32_t>(box_indices);
    for (int64_t k = 0; k < args->num_boxes; ++k) {
      if (indices[k] < 0 || indices[k] >= args->batch) {
        return Invalid("box_indices[", k, "] is ", indices[k],
                       ", expected [0, ", args->batch,
                       "): features hold that many images");
      }
    }
  }
  return absl::OkStatus();
}
template absl::Status CheckBoxes<Cpu>(const Tensor&, const Tensor&, DataType,
                                      RoiArgs*);
template absl::Status CheckBoxes<Gpu>(const Tensor&, const Tensor&, DataType,
                                      RoiArgs*);

absl::Status CheckOutputSize(const Tensor& output_size, RoiArgs* args) {
  TF_RETURN_IF_ERROR(
      CheckShape("output_size", output_size.shape(), {2}, "(height, width)"));
  const int32_t* size = Data<int32_t>(output_size);
  for (int i = 0; i < 2; ++i) {
    if (size[i] < 1 || size[i] > kMostOnAxis) {
      return Invalid("output_size is (", size[0], ", ", size[1],
                     "), expected (height, width) in [1, 2^20]");
    }
  }
  args->pooled_height = size[0];
  args->pooled_width = size[1];
  return absl::OkStatus();
}

absl::Status CheckPooled(const char* name, const TensorShape& shape,
                         RoiArgs* args) {
  const int64_t k = args->num_boxes, c = args->channels;
  const std::string expected =
      args->channels_first ? absl::StrCat("[", k, ", ", c, ", height, width]")
                           : absl::StrCat("[", k, ", height, width, ", c, "]");
  TF_RETURN_IF_ERROR(
      args->channels_first
          ? CheckShape(name, shape, {k, c, -1, -1}, expected.c_str())
          : CheckShape(name, shape, {k, -1, -1, c}, expected.c_str()));
  const int first = args->channels_first ? 2 : 1;
  args->pooled_height = shape.dim_size(first);
  args->pooled_width = shape.dim_size(first + 1);
  if (args->pooled_height > kMostOnAxis || args->pooled_width > kMostOnAxis) {
    return Invalid(name, " is ", shape.DebugString(),
                   ", expected (height, width) of at most 2^20");
  }
  return absl::OkStatus();
}

absl::Status CheckSamples(const RoiArgs& args, int32_t sampling_ratio,
                          bool max) {
  const int64_t height = args.pooled_height * sampling_ratio,
                width = args.pooled_width * sampling_ratio;
  if (height > kMostOnAxis || width > kMostOnAxis ||
      (max && 1. * height * width > kMostMaxSamples)) {
    return Invalid("sampling_ratio ", sampling_ratio, " makes ", height, " x ",
                   width, " samples of a box with ", args.pooled_height, " x ",
                   args.pooled_width, " bins, expected at most 2^20 on an axis",
                   max ? ", and 2^24 with mode max" : "");
  }
  // VisitSamples makes at most so many calls on an axis.
  const double samples = (2.0 * args.height + 6) * (2.0 * args.width + 6);
  if (!max || samples < INT32_MAX) return absl::OkStatus();
  return Invalid("features are ", args.height, " x ", args.width,
                 " pixels: too many for mode max");
}

absl::Status PooledShape(const RoiArgs& args, TensorShape* shape) {
  const int64_t height = args.pooled_height, width = args.pooled_width;
  if (args.channels_first) {
    return TensorShape::BuildTensorShape(
        {args.num_boxes, args.channels, height, width}, shape);
  }
  return TensorShape::BuildTensorShape(
      {args.num_boxes, height, width, args.channels}, shape);
}

}  // namespace tfo
