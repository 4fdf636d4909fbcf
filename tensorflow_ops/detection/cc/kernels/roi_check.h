// The arguments that all region pooling ops check, and the attrs they read.
#ifndef TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_CHECK_H_
#define TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_CHECK_H_

#include "tensorflow_ops/core/cc/op_util.h"
#include "tensorflow_ops/detection/cc/kernels/roi_box.h"

namespace tfo {

// The largest sampling_ratio; beyond, samples would outnumber any map's pixels.
inline constexpr int32_t kMostSamples = 1024;

// spatial_scale (if the op has it), data_format and box_format.
absl::Status ReadRoiAttrs(::tensorflow::OpKernelConstruction* ctx,
                          RoiArgs* args);

// features (or their gradient) are [N,H,W,C] or [N,C,H,W]: fills in the sizes.
absl::Status CheckFeatures(const char* name,
                           const ::tensorflow::TensorShape& shape,
                           RoiArgs* args);

// boxes are [K,4] of dtype `coordinates`, and box_indices [K]; on the CPU each
// index lies in [0, N). A GPU would have to wait for the values: there a box of
// no image pools zeros.
template <typename Device>
absl::Status CheckBoxes(const ::tensorflow::Tensor& boxes,
                        const ::tensorflow::Tensor& box_indices,
                        ::tensorflow::DataType coordinates, RoiArgs* args);

// output_size is (height, width), in [1, 2^20] each.
absl::Status CheckOutputSize(const ::tensorflow::Tensor& output_size,
                             RoiArgs* args);

// What was pooled is [K,ph,pw,C] or [K,C,ph,pw], with at most 2^20 bins on an
// axis: fills in ph and pw.
absl::Status CheckPooled(const char* name,
                         const ::tensorflow::TensorShape& shape, RoiArgs* args);

// A box has at most 2^20 samples on an axis, sampling_ratio (0: adaptive) for
// each bin. With `max`, which looks at each, it has at most 2^24; and those of
// a bin are counted in 32 bits: an error, too, where the map could hold more.
absl::Status CheckSamples(const RoiArgs& args, int32_t sampling_ratio,
                          bool max);

// The shape that belongs to the sizes; an error where there are too many
// elements.
absl::Status PooledShape(const RoiArgs& args, ::tensorflow::TensorShape* shape);

}  // namespace tfo

#endif  // TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_CHECK_H_
