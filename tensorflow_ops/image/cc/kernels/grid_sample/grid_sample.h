// Samples images at fractional positions ("places"), and the gradients.
// sample_axis.h defines places and their taps.
#ifndef TENSORFLOW_OPS_IMAGE_CC_KERNELS_GRID_SAMPLE_GRID_SAMPLE_H_
#define TENSORFLOW_OPS_IMAGE_CC_KERNELS_GRID_SAMPLE_GRID_SAMPLE_H_

#include <cstdint>

#include "tensorflow_ops/core/cc/device.h"
#include "tensorflow_ops/core/cc/float16.h"
#include "tensorflow_ops/image/cc/kernels/grid_sample/grid_sample_args.h"

namespace tfo {

// T is float, double, Half or BFloat16; places are Accumulator<T>, and sums are
// computed in it. The same bits for any number of threads. Each function
// returns null or the launch's error; the Gpu overloads only enqueue.

template <typename T>
struct GridSampleArgs : GridSampleSpec {
  const T* features;                // [batch, height, width, channels]
  const Accumulator<T>* grid;       // [batch, samples, 2]
  const Accumulator<T>* direction;  // of grid's shape, or null
  T* output;                        // [batch, samples, channels]
};
template <typename T>
struct GridSampleGradArgs : GridSampleSpec {
  const T* d_output;
  const Accumulator<T>* grid;
  T* d_features;
};
template <typename T>
struct GridSampleGridGradArgs : GridSampleSpec {
  const T *d_output, *features;
  const Accumulator<T>* grid;
  Accumulator<T>* d_grid;
};

// Writes all of `output`: the samples or, with `direction`, their derivative
// along it; that is 0 for NaN places.
template <typename T>
Error GridSample(const Cpu& cpu, const GridSampleArgs<T>& args);
template <typename T>
Error GridSample(const Gpu& gpu, const GridSampleArgs<T>& args);

// The transpose: writes all of `d_features`. On the CPU, and on the GPU if
// gpu.deterministic, adds to each pixel in the order of samples. The Gpu
// overload needs GridSampleGradScratchBytes of scratch memory.
template <typename T>
Error GridSampleGrad(const Cpu& cpu, const GridSampleGradArgs<T>& args);
template <typename T>
Error GridSampleGrad(const Gpu& gpu, const GridSampleGradArgs<T>& args);

// 16-bit gradients are summed in float.
inline int64_t GridSampleGradScratchBytes(const GridSampleSpec& spec,
                                          int64_t element_bytes) {
  return element_bytes == 2 ? 4 * spec.batch * spec.Pixels() * spec.channels
                            : 0;
}

// Writes all of `d_grid`.
template <typename T>
Error GridSampleGridGrad(const Cpu& cpu, const GridSampleGridGradArgs<T>& args);
template <typename T>
Error GridSampleGridGrad(const Gpu& gpu, const GridSampleGridGradArgs<T>& args);

}  // namespace tfo

#endif  // TENSORFLOW_OPS_IMAGE_CC_KERNELS_GRID_SAMPLE_GRID_SAMPLE_H_
