// RoIAlign with the maximum of each bin's samples in place of their average
// (mode="max"), its gradients and the gradient of its gradient to features.
// Samples are those of roi_axis.h.
#ifndef TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_ALIGN_MAX_ROI_ALIGN_MAX_H_
#define TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_ALIGN_MAX_ROI_ALIGN_MAX_H_

#include "tensorflow_ops/core/cc/device.h"
#include "tensorflow_ops/detection/cc/kernels/roi/roi_axis.h"

namespace tfo {

struct RoiAlignMaxArgs : RoiArgs {
  RoiSampling sampling;
};

template <typename C>
TFO_HOST_DEVICE static inline Roi<C> ReadRoi(const RoiAlignMaxArgs& args,
                                             const Boxes<C>& boxes, int64_t k) {
  return SampledRoi(ReadBox(boxes, k, args.features.batch, args.spatial_scale),
                    C(args.spatial_scale), args.features.height,
                    args.features.width, args.grid, args.sampling);
}

// T is float, double, Half or BFloat16; height * width is at most 2^31 - 1.
// Each returns null or the launch's error; the Gpu overloads only enqueue.
// Deterministic, on a GPU, too.

// A bin's sample is the one whose value in `features` is largest. NaN counts as
// larger than all, of equal values the first is taken; samples outside of the
// map have the value 0 and come last.

// Writes all of `output`: the value of each bin's sample, 0 where the bin has
// none.
template <typename T>
Error RoiAlignMax(const Cpu& cpu, const RoiAlignMaxArgs& args,
                  const Boxes<Coordinate<T>>& boxes, const T* features,
                  T* output);
template <typename T>
Error RoiAlignMax(const Gpu& gpu, const RoiAlignMaxArgs& args,
                  const Boxes<Coordinate<T>>& boxes, const T* features,
                  T* output);

// Writes all of `d_features`: adds each d_output to the pixels around its bin's
// sample, by their weights. 16-bit types are summed in float.
template <typename T>
Error RoiAlignMaxGrad(const Cpu& cpu, const RoiAlignMaxArgs& args,
                      const Boxes<Coordinate<T>>& boxes, const T* d_output,
                      const T* features, T* d_features);
template <typename T>
Error RoiAlignMaxGrad(const Gpu& gpu, const RoiAlignMaxArgs& args,
                      const Boxes<Coordinate<T>>& boxes, const T* d_output,
                      const T* features, T* d_features);

// The gradient of RoiAlignMaxGrad, which is linear in d_output: writes all of
// `dd_output`, the value of `dd_features` at each bin's sample, 0 where that
// lies outside or the bin has none.
template <typename T>
Error RoiAlignMaxGradGrad(const Cpu& cpu, const RoiAlignMaxArgs& args,
                          const Boxes<Coordinate<T>>& boxes,
                          const T* dd_features, const T* features,
                          T* dd_output);
template <typename T>
Error RoiAlignMaxGradGrad(const Gpu& gpu, const RoiAlignMaxArgs& args,
                          const Boxes<Coordinate<T>>& boxes,
                          const T* dd_features, const T* features,
                          T* dd_output);

// Writes all of `d_boxes` [num_boxes, 4], in the order of boxes: the derivative
// to each coordinate of the sum of d_output times `values` at each bin's
// sample; zeros for an invalid box. Samples move as in RoiAverageBoxesGrad;
// which one is a bin's does not change. The forward op's values are its
// features.
template <typename T>
Error RoiAlignMaxBoxesGrad(const Cpu& cpu, const RoiAlignMaxArgs& args,
                           const Boxes<Coordinate<T>>& boxes, const T* d_output,
                           const T* features, const T* values,
                           Coordinate<T>* d_boxes);
template <typename T>
Error RoiAlignMaxBoxesGrad(const Gpu& gpu, const RoiAlignMaxArgs& args,
                           const Boxes<Coordinate<T>>& boxes, const T* d_output,
                           const T* features, const T* values,
                           Coordinate<T>* d_boxes);

}  // namespace tfo

#endif  // TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_ALIGN_MAX_ROI_ALIGN_MAX_H_
