// The shapes of deform_conv2d's tensors, for its shape function and its
// kernels.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_DEFORM_CONV_DEFORM_CONV_SHAPES_OP_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_DEFORM_CONV_DEFORM_CONV_SHAPES_OP_H_

#include <algorithm>
#include <array>
#include <string>

#include "tensorflow_ops/core/cc/glue/conv_attrs.h"
#include "tensorflow_ops/core/cc/glue/op_util.h"
#include "tensorflow_ops/nn/cc/kernels/deform_conv/deform_conv.h"

namespace tfo {

// Dims of a tensor of rank 4.
using FourDims = std::array<int64_t, 4>;

inline std::string ToText(const FourDims& dims) {
  return absl::StrCat("[", dims[0], ",", dims[1], ",", dims[2], ",", dims[3],
                      "]");
}

// Sets `args`. Returns an error if shapes do not match.
inline absl::Status CheckDeformConv(
    const ConvAttrs& attrs, const FourDims& features, const FourDims& offsets,
    const FourDims& filters, const FourDims* mask, DeformConvShape* args) {
  const auto invalid = [](const auto&... parts) {
    return absl::InvalidArgumentError(absl::StrCat(parts...));
  };
  const auto [batch, height, width, channels] = features;
  const auto [kernel_height, kernel_width, of_group, out_channels] = filters;
  if (kernel_height < 1 || kernel_width < 1 || of_group < 1 ||
      out_channels < 1) {
    return invalid("filters must be [height, width, channels / groups, ",
                   "out_channels], all at least 1, got ", ToText(filters));
  }
  if (channels < 1 || channels % of_group != 0) {
    return invalid("features are ", ToText(features),
                   ", expected a multiple of ", of_group,
                   " channels: filters are ", ToText(filters));
  }
  const int64_t groups = channels / of_group;
  if (out_channels % groups != 0) {
    return invalid("filters are ", ToText(filters), ", expected a multiple of ",
                   groups, " output channels: features have ", groups,
                   " groups");
  }
  const bool fits = width == 0 || height <= INT32_MAX / width;
  if (!fits || width > INT32_MAX || height > INT32_MAX) {
    return invalid("features are ", ToText(features),
                   ": height * width must be below 2^31");
  }
  *args = {};
  // A kernel that is too large has no output.
  const int64_t out_height = std::max<int64_t>(
      0, attrs.OutputSize(0, height, kernel_height, &args->top));
  const int64_t out_width = std::max<int64_t>(
      0, attrs.OutputSize(1, width, kernel_width, &args->left));
  const int64_t taps = kernel_height * kernel_width;
  const int64_t offset_groups = offsets[3] / (2 * taps);
  if (offsets[0] != batch || offsets[1] != out_height ||
      offsets[2] != out_width || offset_groups < 1 ||
      offsets[3] != offset_groups * 2 * taps || channels % offset_groups != 0) {
    return invalid("offsets are ", ToText(offsets), ", expected [", batch, ",",
                   out_height, ",", out_width, ",G * ", 2 * taps,
                   "] with G dividing the ", channels, " channels");
  }
  if (mask != nullptr &&
      *mask != FourDims{batch, out_height, out_width, offset_groups * taps}) {
    return invalid("mask is ", ToText(*mask), ", expected ",
                   ToText({batch, out_height, out_width, offset_groups * taps}),
                   ": a number for each pair of offsets");
  }
  const int64_t top = args->top, left = args->left;
  *args = {batch,
           height,
           width,
           channels,
           out_height,
           out_width,
           out_channels,
           kernel_height,
           kernel_width,
           attrs.strides[0],
           attrs.strides[1],
           top,
           left,
           attrs.dilations[0],
           attrs.dilations[1],
           groups,
           offset_groups};
  return absl::OkStatus();
}

}  // namespace tfo

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_DEFORM_CONV_DEFORM_CONV_SHAPES_OP_H_
