#include "tensorflow_ops/detection/cc/kernels/roi/roi_inputs_op.h"

#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"

namespace tfo {
namespace {

using ::tensorflow::DataTypeString;
using ::tensorflow::OpInputList;
using ::tensorflow::OpKernelConstruction;
using ::tensorflow::OpKernelContext;
using ::tensorflow::Tensor;
using ::tensorflow::TensorShape;

// Beyond, samples would outnumber any map's pixels.
constexpr int32_t kMaxSamplingRatio = 1024;
// Of bins, and of samples, of a box on an axis. A box of more would take
// seconds whatever the map's size.
constexpr int64_t kMaxOnAxis = 1 << 20;

template <typename... Parts>
absl::Status Invalid(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}

FeatureShape FeaturesOf(const TensorShape& shape) {
  return {shape.dim_size(0), shape.dim_size(1), shape.dim_size(2),
          shape.dim_size(3)};
}

template <typename Device, typename C>
absl::Status ReadBoxes(OpKernelContext* ctx, bool yxyx, int64_t batch,
                       Boxes<C>* boxes) {
  const Tensor *data, *box_indices;
  TF_RETURN_IF_ERROR(ctx->input("boxes", &data));
  TF_RETURN_IF_ERROR(ctx->input("box_indices", &box_indices));
  constexpr auto kCoordinates = DataTypeOf<C>::kValue;
  if (data->dtype() != kCoordinates) {
    return Invalid("boxes are ", DataTypeString(data->dtype()), ", expected ",
                   DataTypeString(kCoordinates), " with these features");
  }
  const int64_t count = data->dim_size(0);
  const int32_t* const images = Data<int32_t>(*box_indices);
  if constexpr (std::is_same_v<Device, Cpu>) {
    for (int64_t k = 0; k < count; ++k) {
      if (images[k] < 0 || images[k] >= batch) {
        return Invalid("box_indices[", k, "] is ", images[k], ", expected [0, ",
                       batch, "): features has ", batch,
                       batch == 1 ? " image" : " images");
      }
    }
  }
  *boxes = {count, yxyx, Data<C>(*data), images};
  return absl::OkStatus();
}

absl::Status ReadOutputSize(const Tensor& output_size, PoolGrid* grid) {
  const int32_t* size = Data<int32_t>(output_size);
  for (int i = 0; i < 2; ++i) {
    if (size[i] < 1 || size[i] > kMaxOnAxis) {
      return Invalid("output_size is (", size[0], ", ", size[1],
                     "), expected (height, width) in [1, 2^20]");
    }
  }
  *grid = {size[0], size[1]};
  return absl::OkStatus();
}

// Reads the grid of the shape of what was pooled.
absl::Status ReadPooledShape(const char* name, const TensorShape& shape,
                             PoolGrid* grid) {
  *grid = {shape.dim_size(1), shape.dim_size(2)};
  if (grid->height <= kMaxOnAxis && grid->width <= kMaxOnAxis) {
    return absl::OkStatus();
  }
  return Invalid(name, " is ", shape.DebugString(),
                 ", expected (height, width) of at most 2^20");
}

}  // namespace

absl::Status ReadBoxFormat(OpKernelConstruction* ctx, bool* yxyx) {
  std::string box_format;
  TF_RETURN_IF_ERROR(ctx->GetAttr("box_format", &box_format));
  *yxyx = box_format == "yxyx";
  return absl::OkStatus();
}

absl::Status ReadSpatialScale(OpKernelConstruction* ctx, float* spatial_scale) {
  TF_RETURN_IF_ERROR(ctx->GetAttr("spatial_scale", spatial_scale));
  *spatial_scale = Flushed(*spatial_scale);
  if (*spatial_scale > 0 && std::isfinite(*spatial_scale)) {
    return absl::OkStatus();
  }
  return Invalid("spatial_scale is ", *spatial_scale,
                 ", expected a positive, finite number");
}

absl::Status ReadSampling(OpKernelConstruction* ctx, bool has_aligned,
                          RoiSampling* sampling) {
  *sampling = {0, /*aligned=*/true};
  TF_RETURN_IF_ERROR(ctx->GetAttr("sampling_ratio", &sampling->ratio));
  if (has_aligned) {
    TF_RETURN_IF_ERROR(ctx->GetAttr("aligned", &sampling->aligned));
  }
  if (sampling->ratio <= kMaxSamplingRatio) return absl::OkStatus();
  return Invalid("sampling_ratio is ", sampling->ratio,
                 ", expected 0 (adaptive) or at most ", kMaxSamplingRatio);
}

template <typename Device, typename C>
absl::Status ReadRoiInputs(OpKernelContext* ctx, bool yxyx,
                           const RoiInputNames& names, RoiSizes* sizes,
                           Boxes<C>* boxes) {
  if (names.features != nullptr) {
    OpInputList maps;
    TF_RETURN_IF_ERROR(ctx->input_list(names.features, &maps));
    for (const Tensor& map : maps) {
      sizes->levels.push_back(FeaturesOf(map.shape()));
    }
  } else {
    for (int l = 0; l < ctx->num_outputs(); ++l) {
      const TensorShape* shape = OutputShape(l);
      if (shape == nullptr) {
        return Invalid("features_shape has a negative size");
      }
      sizes->levels.push_back(FeaturesOf(*shape));
    }
  }
  TF_RETURN_IF_ERROR(
      ReadBoxes<Device>(ctx, yxyx, sizes->levels[0].batch, boxes));
  const Tensor* tensor;
  if (names.pooled != nullptr) {
    TF_RETURN_IF_ERROR(ctx->input(names.pooled, &tensor));
    return ReadPooledShape(names.pooled, tensor->shape(), &sizes->grid);
  }
  TF_RETURN_IF_ERROR(ctx->input("output_size", &tensor));
  return ReadOutputSize(*tensor, &sizes->grid);
}

#define TFO_INSTANTIATE(Device, C)                \
  template absl::Status ReadRoiInputs<Device, C>( \
      OpKernelContext*, bool, const RoiInputNames&, RoiSizes*, Boxes<C>*)
TFO_INSTANTIATE(Cpu, float);
TFO_INSTANTIATE(Cpu, double);
TFO_INSTANTIATE(Gpu, float);
TFO_INSTANTIATE(Gpu, double);
#undef TFO_INSTANTIATE

absl::Status CheckSamples(const PoolGrid& grid, int32_t sampling_ratio) {
  const int64_t height = grid.height * sampling_ratio,
                width = grid.width * sampling_ratio;
  if (height <= kMaxOnAxis && width <= kMaxOnAxis) return absl::OkStatus();
  return Invalid("sampling_ratio ", sampling_ratio, " takes ", height, " x ",
                 width, " samples of a box with ", grid.height, " x ",
                 grid.width, " bins, expected at most 2^20 on an axis");
}

}  // namespace tfo
