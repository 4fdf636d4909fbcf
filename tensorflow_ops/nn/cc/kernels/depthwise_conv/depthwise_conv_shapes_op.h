// The shapes of depthwise_conv2d's tensors, for its shape function and its
// kernels.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_DEPTHWISE_CONV_DEPTHWISE_CONV_SHAPES_OP_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_DEPTHWISE_CONV_DEPTHWISE_CONV_SHAPES_OP_H_

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "tensorflow_ops/core/cc/glue/op_util.h"
#include "tensorflow_ops/nn/cc/kernels/depthwise_conv/depthwise_conv.h"

namespace tfo {

struct DepthwiseConvAttrs {
  std::vector<int32_t> strides, dilations;  // (height, width)
  std::string padding;
  std::vector<int32_t> paddings;  // (top, bottom, left, right) for EXPLICIT

  template <typename Context>
  absl::Status Read(Context* ctx) {
    TF_RETURN_IF_ERROR(ctx->GetAttr("strides", &strides));
    TF_RETURN_IF_ERROR(ctx->GetAttr("dilations", &dilations));
    TF_RETURN_IF_ERROR(ctx->GetAttr("padding", &padding));
    TF_RETURN_IF_ERROR(ctx->GetAttr("paddings", &paddings));
    for (const auto& [name, pair] :
         {std::pair{"strides", &strides}, {"dilations", &dilations}}) {
      if (pair->size() != 2 || (*pair)[0] < 1 || (*pair)[1] < 1) {
        return absl::InvalidArgumentError(
            absl::StrCat(name, " must be two positive numbers"));
      }
    }
    bool fits = paddings.size() == 4;
    for (int32_t n : paddings) fits &= n >= 0;
    return fits ? absl::OkStatus()
                : absl::InvalidArgumentError(
                      "paddings must be four numbers that are not negative");
  }

  // Of axis 0 (height) or 1 (width). Outputs are -1 if the filter is larger.
  ConvAxis Axis(int axis, int64_t size, int64_t taps) const {
    ConvAxis a{size, 0, taps, strides[axis], dilations[axis], 0};
    const int64_t reach = (taps - 1) * a.dilation + 1;
    if (padding == "SAME") {
      a.outputs = (size + a.stride - 1) / a.stride;
      if (a.outputs == 0) return a;
      const int64_t all = (a.outputs - 1) * a.stride + reach - size;
      a.before = std::max<int64_t>(0, all) / 2;
      return a;
    }
    const bool is_explicit = padding == "EXPLICIT";
    a.before = is_explicit ? paddings[2 * axis] : 0;
    const int64_t after = is_explicit ? paddings[2 * axis + 1] : 0;
    const int64_t room = size + a.before + after - reach;
    a.outputs = room < 0 ? -1 : room / a.stride + 1;
    return a;
  }
};

}  // namespace tfo

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_DEPTHWISE_CONV_DEPTHWISE_CONV_SHAPES_OP_H_
