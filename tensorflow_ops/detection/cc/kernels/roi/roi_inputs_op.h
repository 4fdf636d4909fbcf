// The attrs and inputs of the region pooling ops: reads them and checks their
// values, in one order for all ops. Shape functions check shapes.
#ifndef TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_ROI_INPUTS_OP_H_
#define TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_ROI_INPUTS_OP_H_

#include <cmath>
#include <limits>
#include <vector>

#include "tensorflow_ops/core/cc/glue/op_util.h"
#include "tensorflow_ops/detection/cc/kernels/roi/roi_axis.h"

namespace tfo {

absl::Status ReadBoxFormat(::tensorflow::OpKernelConstruction* ctx, bool* yxyx);

// Subnormal numbers are 0 in some of TensorFlow's threads, so in all.
inline float Flushed(float x) {
  return std::abs(x) < std::numeric_limits<float>::min() ? 0 : x;
}

absl::Status ReadSpatialScale(::tensorflow::OpKernelConstruction* ctx,
                              float* spatial_scale);

// Reads sampling_ratio and, if the op has it, aligned (default: true).
absl::Status ReadSampling(::tensorflow::OpKernelConstruction* ctx,
                          bool has_aligned, RoiSampling* sampling);

// The inputs that an op's sizes are read from.
struct RoiInputNames {
  // The features, [N,H,W,C]; a list has one map per level. Null: the outputs
  // are such.
  const char* features;
  // What was pooled, [K,ph,pw,C] with at most 2^20 bins on an axis. Null:
  // output_size has the values (ph, pw), in [1, 2^20].
  const char* pooled = nullptr;
};

// The sizes that the inputs have.
struct RoiSizes {
  std::vector<FeatureShape> levels;
  PoolGrid grid;
};

// Reads an op's sizes and boxes. On the CPU, each of box_indices
// must lie in [0, N). On a GPU, checking would have to wait for the values;
// there, a box with an index out of range pools zeros.
template <typename Device, typename C>
absl::Status ReadRoiInputs(::tensorflow::OpKernelContext* ctx, bool yxyx,
                           const RoiInputNames& names, RoiSizes* sizes,
                           Boxes<C>* boxes);

// A box has at most 2^20 samples on an axis, sampling_ratio (0: adaptive) for
// each bin.
absl::Status CheckSamples(const PoolGrid& grid, int32_t sampling_ratio);

// The data of an input that is not a list.
template <typename T>
const T* InputData(::tensorflow::OpKernelContext* ctx, const char* name) {
  const ::tensorflow::Tensor* tensor;
  CHECK(ctx->input(name, &tensor).ok()) << name;
  return Data<T>(*tensor);
}

}  // namespace tfo

#endif  // TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_ROI_INPUTS_OP_H_
