// RoIAlign with the maximum of each bin's samples in place of their average
// (mode="max"), its gradients and the gradient of its gradient to features.
// Samples are those of roi_axis.h.
#ifndef TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_ALIGN_MAX_ROI_ALIGN_MAX_H_
#define TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_ALIGN_MAX_ROI_ALIGN_MAX_H_

#include "tensorflow_ops/core/cc/device.h"
#include "tensorflow_ops/detection/cc/kernels/roi/roi_axis.h"

namespace tfo {

struct RoiAlignMaxSpec : RoiSpec {
  RoiSampling sampling;
};

template <typename C>
TFO_HOST_DEVICE static inline Roi<C> ReadRoi(const RoiAlignMaxSpec& args,
                                             const Boxes<C>& boxes, int64_t k) {
  return SampledRoi(ReadBox(boxes, k, args.map.batch, args.spatial_scale),
                    C(args.spatial_scale), args.map.height, args.map.width,
                    args.grid, args.sampling);
}

// T is float, double, Half or BFloat16; height * width is at most 2^31 - 1.
// Each function returns null or the launch's error; the Gpu overloads only
// enqueue. Deterministic, on a GPU, too.

// A bin's sample is the one whose value in `features` is largest. NaN counts as
// larger than all, of equal values the first is taken; samples outside of the
// map have the value 0 and come last.

// Bins have the shape Pooled().
template <typename T>
struct RoiAlignMaxArgs : RoiAlignMaxSpec {
  Boxes<Coordinate<T>> boxes;
  const T* features;
  T* output;  // of bins
};
template <typename T>
struct RoiAlignMaxGradArgs : RoiAlignMaxSpec {
  Boxes<Coordinate<T>> boxes;
  const T *d_output, *features;
  T* d_features;
};
template <typename T>
struct RoiAlignMaxGradGradArgs : RoiAlignMaxSpec {
  Boxes<Coordinate<T>> boxes;
  const T *dd_features, *features;
  T* dd_output;
};
template <typename T>
struct RoiAlignMaxBoxesGradArgs : RoiAlignMaxSpec {
  Boxes<Coordinate<T>> boxes;
  const T *d_output, *features;
  const T* values;         // of features' shape
  Coordinate<T>* d_boxes;  // [boxes.count, 4], in the order of boxes
};

// Writes all of `output`: the value of each bin's sample, 0 where the bin has
// none.
template <typename T>
Error RoiAlignMax(const Cpu& cpu, const RoiAlignMaxArgs<T>& args);
template <typename T>
Error RoiAlignMax(const Gpu& gpu, const RoiAlignMaxArgs<T>& args);

// Writes all of `d_features`: adds each d_output to the pixels around its bin's
// sample, by their weights. 16-bit types are summed in float.
template <typename T>
Error RoiAlignMaxGrad(const Cpu& cpu, const RoiAlignMaxGradArgs<T>& args);
template <typename T>
Error RoiAlignMaxGrad(const Gpu& gpu, const RoiAlignMaxGradArgs<T>& args);

// The gradient of RoiAlignMaxGrad, which is linear in d_output: writes all of
// `dd_output`, the value of `dd_features` at each bin's sample, 0 where that
// lies outside or the bin has none.
template <typename T>
Error RoiAlignMaxGradGrad(const Cpu& cpu,
                          const RoiAlignMaxGradGradArgs<T>& args);
template <typename T>
Error RoiAlignMaxGradGrad(const Gpu& gpu,
                          const RoiAlignMaxGradGradArgs<T>& args);

// Writes all of `d_boxes`: the derivative to each coordinate of the sum of
// d_output times `values` at each bin's sample; zeros for an invalid box.
// Samples move as in RoiAverageBoxesGrad; which one is a bin's does not change.
// The forward op's values are its features.
template <typename T>
Error RoiAlignMaxBoxesGrad(const Cpu& cpu,
                           const RoiAlignMaxBoxesGradArgs<T>& args);
template <typename T>
Error RoiAlignMaxBoxesGrad(const Gpu& gpu,
                           const RoiAlignMaxBoxesGradArgs<T>& args);

}  // namespace tfo

#endif  // TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_ALIGN_MAX_ROI_ALIGN_MAX_H_
