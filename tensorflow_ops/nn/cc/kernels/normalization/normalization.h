// Layer, root-mean-square and group normalization: numbers in units of their
// group's deviation, with a factor and an offset for each channel, and the
// gradients.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_NORMALIZATION_NORMALIZATION_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_NORMALIZATION_NORMALIZATION_H_

#include <cstdint>

#include "tensorflow_ops/core/cc/describe.h"
#include "tensorflow_ops/core/cc/device.h"
#include "tensorflow_ops/core/cc/float16.h"

namespace tfo {

// T is float, double, Half or BFloat16. Each example, [pixels, channels], has
// `groups` groups: all pixels of channels / groups adjacent channels. A layer
// norm has one pixel and one group.
struct NormalizationSpec {
  int64_t batch, pixels, channels, groups;
  bool centered = true;  // false: the mean is taken as 0

  TFO_HOST_DEVICE int64_t GroupChannels() const { return channels / groups; }
  // Are groups rows: one pixel, all channels?
  bool IsOfRows() const { return pixels == 1 && groups == 1; }
  // Numbers in a group.
  TFO_HOST_DEVICE int64_t Count() const { return pixels * GroupChannels(); }
};

template <typename V>
void DescribeNormalization(NormalizationSpec& a, V& v) {
  v.Size("batch", &a.batch);
  v.Size("pixels", &a.pixels);
  v.Size("channels", &a.channels);
  v.Required("groups", &a.groups, ">= 1");
  v.Option("centered", true, &a.centered);
  v.Check(a.channels < 0 || a.channels % a.groups == 0, "there are ",
          a.channels, " channels, expected a multiple of ", a.groups,
          ", the number of groups");
}

// y = (x - mean) / sqrt(variance + epsilon) * gamma + beta, where the variance
// is the mean square of x - mean. A NaN or infinity makes its own group NaN.
template <typename T>
struct NormalizationArgs : NormalizationSpec {
  double epsilon;
  const T* x;
  const Accumulator<T>*gamma, *beta;  // beta may be null: 0
  T* y;
  // Of each group: the mean, or 0, and 1 / sqrt(variance + epsilon).
  Accumulator<T>* statistics;
};

template <typename T, typename V>
void Describe(NormalizationArgs<T>& a, V& v) {
  v.In("x", "[batch, pixels, channels]", &a.x);
  v.In("gamma", "[channels]", &a.gamma);
  v.Optional("beta", "[channels]", &a.beta);
  v.Out("y", "[batch, pixels, channels]", &a.y, "x");
  v.Out("statistics", "[batch, groups, 2]", &a.statistics);
  v.Types("T", "Tvalue");
  v.Option("epsilon", &a.epsilon);
  DescribeNormalization(a, v);
}

template <typename T>
struct NormalizationGradArgs : NormalizationSpec {
  const T *d_y, *x;
  const Accumulator<T>*statistics, *gamma;
  T* d_x;
  Accumulator<T>*d_gamma, *d_beta;  // also where there is no beta
};

template <typename T, typename V>
void Describe(NormalizationGradArgs<T>& a, V& v) {
  v.In("d_y", "[batch, pixels, channels]", &a.d_y);
  v.In("x", "[batch, pixels, channels]", &a.x);
  v.In("statistics", "[batch, groups, 2]", &a.statistics);
  v.In("gamma", "[channels]", &a.gamma);
  v.Out("d_x", "[batch, pixels, channels]", &a.d_x, "d_y");
  v.Out("d_gamma", "[channels]", &a.d_gamma);
  v.Out("d_beta", "[channels]", &a.d_beta);
  v.Types("T", "Tvalue");
  DescribeNormalization(a, v);
}

template <typename T>
Error Normalization(const Cpu& cpu, const NormalizationArgs<T>& args);
template <typename T>
Error NormalizationGrad(const Cpu& cpu, const NormalizationGradArgs<T>& args);
template <typename T>
Error Normalization(const Gpu& gpu, const NormalizationArgs<T>& args);
// gpu.scratch has NormalizationGradScratch(args) bytes.
template <typename T>
Error NormalizationGrad(const Gpu& gpu, const NormalizationGradArgs<T>& args);

// Gradients of channels are sums by band of rows, a pixel each, which are added
// in order: the same bits for any number of threads.
inline int64_t NormalizationBands(const NormalizationSpec& a) {
  const int64_t rows = a.batch * a.pixels;
  const int64_t bands = (rows + 15) / 16;
  return bands < 64 ? bands : 64;
}
template <typename T>
int64_t NormalizationGradScratch(const NormalizationGradArgs<T>& args) {
  return NormalizationBands(args) * 2 * args.channels *
         int64_t{sizeof(Accumulator<T>)};
}

}  // namespace tfo

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_NORMALIZATION_NORMALIZATION_H_
