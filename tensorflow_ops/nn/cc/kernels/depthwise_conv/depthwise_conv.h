// Depthwise convolution, in which each channel has its own filter, and its
// gradients.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_DEPTHWISE_CONV_DEPTHWISE_CONV_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_DEPTHWISE_CONV_DEPTHWISE_CONV_H_

#include <cstdint>

#include "tensorflow_ops/core/cc/device.h"
#include "tensorflow_ops/core/cc/float16.h"
#include "tensorflow_ops/core/cc/int_math.h"

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
    const int64_t output = stride == 1 ? place : place / stride;
    const bool is_read = place >= 0 && output * stride == place;
    return is_read && output < outputs ? output : -1;
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
// gpu.scratch has DepthwiseConvGradScratch(args) bytes.
template <typename T>
Error DepthwiseConvGrad(const Gpu& gpu, const DepthwiseConvGradArgs<T>& args);

// On a GPU, a block sums the gradient to a tap of 32 channels over a band of at
// least 8 rows of outputs. About 1056 blocks are enough, 8 for each of 132
// multiprocessors: results do not depend on the GPU's own.
inline int64_t DepthwiseConvBands(const DepthwiseConvShape& s) {
  const int64_t per_band = DivideUp(s.channels, 32) * s.Taps();
  const int64_t most = per_band > 0 ? DivideUp(1056, per_band) : 1;
  const int64_t bands = s.batch * s.y.outputs / 8;
  return bands < 1 ? 1 : bands < most ? bands : most;
}
template <typename T>
int64_t DepthwiseConvGradScratch(const DepthwiseConvGradArgs<T>& args) {
  return DepthwiseConvBands(args) * args.Taps() * args.channels *
         int64_t{sizeof(Accumulator<T>)};
}

}  // namespace tfo

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_DEPTHWISE_CONV_DEPTHWISE_CONV_H_
