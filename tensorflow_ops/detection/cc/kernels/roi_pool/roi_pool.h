// RoI max pooling (Girshick, Fast R-CNN, 2015), its gradient and its gradient's
// gradient. The bins are defined in roi_pool_bins.h.
#ifndef TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_POOL_ROI_POOL_H_
#define TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_POOL_ROI_POOL_H_

#include "tensorflow_ops/core/cc/device.h"
#include "tensorflow_ops/detection/cc/kernels/roi/roi_box.h"

namespace tfo {

// T is float, double, Half or BFloat16. height * width is at most 2^31 - 1. The
// same bits for any number of threads, and with gpu.deterministic from run to
// run on a GPU. Each function returns null or the launch's error; the Gpu
// overloads only enqueue.

// Bins have the shape Pooled().
template <typename T>
struct RoiPoolArgs : RoiSpec {
  Boxes<Coordinate<T>> boxes;
  const T* features;
  T* output;        // of bins
  int32_t* argmax;  // of bins; or null
};
template <typename T>
struct RoiPoolGradArgs : RoiSpec {
  Boxes<Coordinate<T>> boxes;
  const T* d_output;
  const int32_t* argmax;
  T* d_features;
};
template <typename T>
struct RoiPoolGradGradArgs : RoiSpec {
  Boxes<Coordinate<T>> boxes;
  const T* dd_features;
  const int32_t* argmax;
  T* dd_output;
};

// Writes all of `output`: the maximum of each bin's pixels, NaN where one is
// NaN, 0 where the bin has no pixel. Writes all of `argmax`: y * width + x of
// the first maximum (or the first NaN), -1 where the bin has no pixel.
template <typename T>
Error RoiPool(const Cpu& cpu, const RoiPoolArgs<T>& args);
template <typename T>
Error RoiPool(const Gpu& gpu, const RoiPoolArgs<T>& args);

// Writes all of `d_features`: for each pixel, the sum of the d_output whose
// argmax it is, in an order that depends on the boxes only (on a GPU, in any
// order unless gpu.deterministic). 16-bit types are summed in float. `boxes`
// are those of the forward op, and locate the bins. An argmax that RoiPool did
// not write adds to its pixel or to none, but never outside of the image.
template <typename T>
Error RoiPoolGrad(const Cpu& cpu, const RoiPoolGradArgs<T>& args);
template <typename T>
Error RoiPoolGrad(const Gpu& gpu, const RoiPoolGradArgs<T>& args);

// The gradient of RoiPoolGrad, which is linear in d_output: writes all of
// `dd_output`, the value of dd_features at each argmax, 0 where RoiPoolGrad
// adds nothing.
template <typename T>
Error RoiPoolGradGrad(const Cpu& cpu, const RoiPoolGradGradArgs<T>& args);
template <typename T>
Error RoiPoolGradGrad(const Gpu& gpu, const RoiPoolGradGradArgs<T>& args);

}  // namespace tfo

#endif  // TENSORFLOW_OPS_DETECTION_CC_KERNELS_ROI_POOL_ROI_POOL_H_
