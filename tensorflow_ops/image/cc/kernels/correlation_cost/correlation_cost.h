// The correlation of two feature maps over displacements (FlowNet,
// arXiv:1504.06852, equation 1), and its gradients.
#ifndef TENSORFLOW_OPS_IMAGE_CC_KERNELS_CORRELATION_COST_CORRELATION_COST_H_
#define TENSORFLOW_OPS_IMAGE_CC_KERNELS_CORRELATION_COST_CORRELATION_COST_H_

#include <cstdint>

#include "tensorflow_ops/core/cc/device.h"
#include "tensorflow_ops/core/cc/float16.h"

namespace tfo {

// Of each option.
inline constexpr int64_t kMaxCorrelationOption = 1 << 20;

// Options and sizes of the maps.
struct CorrelationSpec {
  int64_t max_displacement, kernel_size, stride_1, stride_2, padding;
  int64_t batch, height, width, channels;

  // Displacements are -Radius() to Radius() steps of stride_2 on each axis.
  TFO_HOST_DEVICE int64_t Radius() const { return max_displacement / stride_2; }
  TFO_HOST_DEVICE int64_t Side() const { return 2 * Radius() + 1; }
  TFO_HOST_DEVICE int64_t Displacements() const { return Side() * Side(); }
  TFO_HOST_DEVICE int64_t KernelRadius() const { return (kernel_size - 1) / 2; }
  // The first window's centre, in pixels of the padded images.
  TFO_HOST_DEVICE int64_t Border() const {
    return max_displacement + KernelRadius();
  }
  // Of the output; 0 or less if the images are too small.
  TFO_HOST_DEVICE int64_t OutputSize(int64_t size) const {
    const int64_t room = size + 2 * padding - 2 * Border();
    return room <= 0 ? 0 : (room + stride_1 - 1) / stride_1;
  }
  TFO_HOST_DEVICE int64_t OutputHeight() const { return OutputSize(height); }
  TFO_HOST_DEVICE int64_t OutputWidth() const { return OutputSize(width); }
  // Terms of a mean; 1 without channels, where it is 0.
  TFO_HOST_DEVICE int64_t Terms() const {
    return kernel_size * kernel_size * (channels < 1 ? 1 : channels);
  }
};

// Steps between neighbors of a tensor [batch, height, width, channels].
struct ImageSteps {
  int64_t image, row, pixel;
};
TFO_HOST_DEVICE static inline ImageSteps FeatureSteps(
    const CorrelationSpec& args) {
  const int64_t row = args.width * args.channels;
  return {args.height * row, row, args.channels};
}
TFO_HOST_DEVICE static inline ImageSteps CostSteps(
    const CorrelationSpec& args) {
  const int64_t row = args.OutputWidth() * args.Displacements();
  return {args.OutputHeight() * row, row, args.Displacements()};
}

// T is float, double, Half or BFloat16; sums are Accumulator<T>. The same bits
// for any number of threads, and from run to run on a GPU.

template <typename T>
struct CorrelationCostArgs : CorrelationSpec {
  const T *a, *b;  // [batch, height, width, channels]
  T* costs;        // [batch, OutputHeight(), OutputWidth(), Displacements()]
};

// The gradient to one of the maps: to b if to_b, else to a.
template <typename T>
struct CorrelationCostGradArgs : CorrelationSpec {
  const T* d_costs;
  const T* other;  // the other map
  bool to_b;
  T* gradient;
};

// With r = Radius() and y1 = y stride_1 - padding + Border(), likewise x1:
//   costs[y, x, (dy + r) Side() + dx + r] = mean over window (j, i) and
//   channels of a[y1 + j, x1 + i] b[y1 + dy stride_2 + j, x1 + dx stride_2 + i]
// where pixels outside count as 0. Writes all of `costs`.
template <typename T>
Error CorrelationCost(const Cpu& cpu, const CorrelationCostArgs<T>& args);
template <typename T>
Error CorrelationCost(const Gpu& gpu, const CorrelationCostArgs<T>& args);

// Writes all of `gradient`.
template <typename T>
Error CorrelationCostGrad(const Cpu& cpu,
                          const CorrelationCostGradArgs<T>& args);
template <typename T>
Error CorrelationCostGrad(const Gpu& gpu,
                          const CorrelationCostGradArgs<T>& args);

}  // namespace tfo

#endif  // TENSORFLOW_OPS_IMAGE_CC_KERNELS_CORRELATION_COST_CORRELATION_COST_H_
