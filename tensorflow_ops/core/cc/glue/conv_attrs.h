// The attrs of convolutions of images: strides, dilations, padding.
#ifndef TENSORFLOW_OPS_CORE_CC_GLUE_CONV_ATTRS_H_
#define TENSORFLOW_OPS_CORE_CC_GLUE_CONV_ATTRS_H_

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "tensorflow/core/platform/errors.h"

namespace tfo {

struct ConvAttrs {
  std::vector<int32_t> strides, dilations;  // (height, width)
  std::string padding;
  std::vector<int32_t> paddings;  // (top, bottom, left, right) for EXPLICIT

  // Of an InferenceContext or an OpKernelConstruction.
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

  // Sets the padding before the first pixel on axis 0 (height) or 1 (width).
  // Returns the output's size; -1 if the kernel is larger than what it pads.
  int64_t OutputSize(int axis, int64_t size, int64_t kernel,
                     int64_t* before) const {
    const int64_t stride = strides[axis];
    const int64_t reach = (kernel - 1) * dilations[axis] + 1;
    if (padding == "SAME") {
      const int64_t outputs = (size + stride - 1) / stride;
      const int64_t all = (outputs - 1) * stride + reach - size;
      *before = outputs == 0 ? 0 : std::max<int64_t>(0, all) / 2;
      return outputs;
    }
    const bool is_explicit = padding == "EXPLICIT";
    *before = is_explicit ? paddings[2 * axis] : 0;
    const int64_t after = is_explicit ? paddings[2 * axis + 1] : 0;
    const int64_t room = size + *before + after - reach;
    return room < 0 ? -1 : room / stride + 1;
  }
};

}  // namespace tfo

#endif  // TENSORFLOW_OPS_CORE_CC_GLUE_CONV_ATTRS_H_
