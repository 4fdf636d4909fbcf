// Depthwise convolution, in which each channel has its own filter, and its
// gradients.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_DEPTHWISE_CONV_DEPTHWISE_CONV_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_DEPTHWISE_CONV_DEPTHWISE_CONV_H_

#include <cstdint>

#include "tensorflow_ops/core/cc/device.h"
#include "tensorflow_ops/core/cc/float16.h"

namespace tfo {

// Along an image's height or width. Output i reads pixels i * stride - before +
// t * dilation for the taps t; pixels outside are 0.
struct ConvAxis {
  int64_t size, outputs, taps;
  int64_t stride, dilation;
  int64_t before;  // padding

  TFO_HOST_DEVICE int64_t PixelOf(int64_t output, int64_t tap) const {
    return output * stride - before + tap * dilation;
  }
  TFO_HOST_DEVICE bool HasPixel(int64_t pixel) const {
    return pixel >= 0 && pixel < size;
  }
  // The output that reads a pixel by a tap, or -1.
  TFO_HOST_DEVICE int64_t OutputOf(int64_t pixel, int64_t tap) const {
    const int64_t place = pixel + before - tap * dilation;
    const bool is_read = place >= 0 && place % stride == 0;
    return is_read && place / stride < outputs ? place / stride : -1;
  }
};

// input [batch, y.size, x.size, channels]; filter [y.taps, x.taps, channels];
// output [batch, y.outputs, x.outputs, channels].
struct DepthwiseConvShape {
  int64_t batch, channels;
  ConvAxis y, x;

  TFO_HOST_DEVICE int64_t Taps() const { return y.taps * x.taps; }
};

template <typename T>
struct DepthwiseConvArgs : DepthwiseConvShape {
  const T* input;
  const T* filter;
  T* output;
};
template <typename T>
struct DepthwiseConvGradArgs : DepthwiseConvShape {
  const T* d_output;
  const T* input;
  const T* filter;
  T* d_input;
  T* d_filter;
};

// T is float, double, Half or BFloat16; sums are of its Accumulator. The same
// bits for any number of threads, and from run to run on a GPU. Each returns
// null or a launch's error; the Gpu overloads only enqueue.

// Writes all of `output`.
template <typename T>
Error DepthwiseConv(const Cpu& cpu, const DepthwiseConvArgs<T>& args);
template <typename T>
Error DepthwiseConv(const Gpu& gpu, const DepthwiseConvArgs<T>& args);

// Writes both gradients. That of a tap that meets no pixel is 0.
template <typename T>
Error DepthwiseConvGrad(const Cpu& cpu, const DepthwiseConvGradArgs<T>& args);
template <typename T>
Error DepthwiseConvGrad(const Gpu& gpu, const DepthwiseConvGradArgs<T>& args);

}  // namespace tfo

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_DEPTHWISE_CONV_DEPTHWISE_CONV_H_
