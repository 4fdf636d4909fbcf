// Deformable convolution, v1 (Dai et al., arXiv:1703.06211) and v2 with a mask
// (Zhu et al., arXiv:1811.11168), and its gradients.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_DEFORM_CONV_DEFORM_CONV_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_DEFORM_CONV_DEFORM_CONV_H_

#include <cstdint>

#include "tensorflow_ops/core/cc/device.h"
#include "tensorflow_ops/core/cc/float16.h"

namespace tfo {

// features [batch, height, width, channels], height * width at most 2^31 - 1;
// output [batch, out_height, out_width, out_channels]; filters [kernel_height,
// kernel_width, channels / groups, out_channels]; offsets [batch, out_height,
// out_width, offset_groups, kernel_height, kernel_width, 2], (y, x); mask the
// same without the last dim; bias [out_channels].
struct DeformConvShape {
  int64_t batch, height, width, channels;
  int64_t out_height, out_width, out_channels;
  int64_t kernel_height, kernel_width;
  int64_t stride_y, stride_x;
  int64_t top, left;  // padding
  int64_t dilation_y, dilation_x;
  int64_t groups, offset_groups;  // divide channels; groups out_channels, too

  TFO_HOST_DEVICE int64_t Taps() const { return kernel_height * kernel_width; }
  TFO_HOST_DEVICE int64_t Pixels() const { return height * width; }
  // Places of an image's output.
  TFO_HOST_DEVICE int64_t Outputs() const { return out_height * out_width; }
  // Products that an output sums.
  TFO_HOST_DEVICE int64_t Depth() const { return Taps() * (channels / groups); }
};

template <typename T>
struct DeformConvInputs : DeformConvShape {
  const T* features;
  const Accumulator<T>* offsets;
  const T* filters;
  const T* mask;  // or null
  const T* bias;  // or null
};
template <typename T>
struct DeformConvArgs : DeformConvInputs<T> {
  T* output;
};
template <typename T>
struct DeformConvGradArgs : DeformConvInputs<T> {  // does not read bias
  const T* d_output;
  T* d_features;
  Accumulator<T>* d_offsets;
  T* d_filters;
  T* d_mask;  // null without a mask
  T* d_bias;  // null without a bias
};

// T is float, double, Half or BFloat16; sums and places are of its Accumulator.
// The same bits for any number of threads, and with gpu.deterministic from run
// to run on a GPU. Each returns null or a launch's error; the Gpu overloads
// only enqueue.

// Writes all of `output`: bias + the sum over taps (i, j) and channels c of
// filters[i, j, c] * mask * features[y * stride_y - top + i * dilation_y +
// offset_y, ...][c], bilinear, pixels outside being 0. A NaN offset makes its
// output NaN. The GPU needs scratch of DeformConvScratchBytes<T>, and rounds
// samples to T. The level amx rounds those of BFloat16, and multiplies float
// and Half by tiles if the greatest magnitude of each operand is 0 or within
// 2^-40 and 2^40; numbers below 2^-105 then lose digits.
template <typename T>
Error DeformConv(const Cpu& cpu, const DeformConvArgs<T>& args);
template <typename T>
Error DeformConv(const Gpu& gpu, const DeformConvArgs<T>& args);
template <typename T>
int64_t DeformConvScratchBytes(const DeformConvShape& shape);

// Writes all gradients. On whole pixels, the slope is that of the cell [floor,
// floor + 1): a tap at -1 has one. A NaN offset passes no gradient; pixels of
// weight 0 count in slopes only. The GPU needs scratch of
// DeformConvGradScratchBytes<T>.
template <typename T>
Error DeformConvGrad(const Cpu& cpu, const DeformConvGradArgs<T>& args);
template <typename T>
Error DeformConvGrad(const Gpu& gpu, const DeformConvGradArgs<T>& args);
template <typename T>
int64_t DeformConvGradScratchBytes(const DeformConvShape& shape,
                                   bool deterministic);

}  // namespace tfo

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_DEFORM_CONV_DEFORM_CONV_H_
