// RoIAlign with the maximum of each bin's samples in place of their average
// (mode="max"), its gradients and the gradient of that to features. Samples are
// those of roi_axis.h.
#ifndef TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_ALIGN_MAX_H_
#define TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_ALIGN_MAX_H_

#include "tensorflow_ops/core/cc/device.h"
#include "tensorflow_ops/detection/cc/kernels/roi_axis.h"

namespace tfo {

// T is float, double, Half or BFloat16; height * width is at most 2^31 - 1.
// Each returns null or the launch's error; the Gpu overloads only enqueue.
// Repeatable bit by bit, on a GPU, too.

// A bin's sample is the one whose value in `features` is largest: NaN before
// all, of equals the first; samples outside of the map have the value 0 and
// come last. Writes all of `output`: the value in `values` of each bin's
// sample, 0 where it lies outside or the bin has none. The forward op's values
// are the features; with others this is the gradient's gradient.
template <typename T>
Error RoiAlignMax(const Cpu& cpu, const RoiArgs& args,
                  const RoiSampling& sampling, const T* features,
                  const T* values, const Coordinate<T>* boxes,
                  const int32_t* box_indices, T* output);
template <typename T>
Error RoiAlignMax(const Gpu& gpu, const RoiArgs& args,
                  const RoiSampling& sampling, const T* features,
                  const T* values, const Coordinate<T>* boxes,
                  const int32_t* box_indices, T* output);

// Writes all of `d_features`: adds each d_output to the pixels around its bin's
// sample, by their weights. 16-bit types are summed in float.
template <typename T>
Error RoiAlignMaxGrad(const Cpu& cpu, const RoiArgs& args,
                      const RoiSampling& sampling, const T* d_output,
                      const T* features, const Coordinate<T>* boxes,
                      const int32_t* box_indices, T* d_features);
template <typename T>
Error RoiAlignMaxGrad(const Gpu& gpu, const RoiArgs& args,
                      const RoiSampling& sampling, const T* d_output,
                      const T* features, const Coordinate<T>* boxes,
                      const int32_t* box_indices, T* d_features);

// Writes all of `d_boxes` [num_boxes, 4], in the order of boxes: the derivative
// of the sum of d_output times what RoiAlignMax gives, to each coordinate;
// zeros for an invalid box. Each bin's sample moves as in RoiAverageBoxesGrad;
// which sample it is does not change.
template <typename T>
Error RoiAlignMaxBoxesGrad(const Cpu& cpu, const RoiArgs& args,
                           const RoiSampling& sampling, const T* d_output,
                           const T* features, const T* values,
                           const Coordinate<T>* boxes,
                           const int32_t* box_indices, Coordinate<T>* d_boxes);
template <typename T>
Error RoiAlignMaxBoxesGrad(const Gpu& gpu, const RoiArgs& args,
                           const RoiSampling& sampling, const T* d_output,
                           const T* features, const T* values,
                           const Coordinate<T>* boxes,
                           const int32_t* box_indices, Coordinate<T>* d_boxes);

}  // namespace tfo

#endif  // TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_ALIGN_MAX_H_
