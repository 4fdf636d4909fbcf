// Multi-scale deformable attention (Zhu et al., Deformable DETR,
// arXiv:2010.04159) and its gradients.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_DEFORMABLE_ATTENTION_DEFORMABLE_ATTENTION_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_DEFORMABLE_ATTENTION_DEFORMABLE_ATTENTION_H_

#include <cstdint>

#include "tensorflow_ops/core/cc/device.h"
#include "tensorflow_ops/core/cc/float16.h"

namespace tfo {

inline constexpr int kMaxAttentionLevels = 16;
// The largest side of a level: float positions still distinguish whole pixels.
inline constexpr int64_t kMaxAttentionSide = int64_t{1} << 24;

// A map of features: some of the pixels of `values`, row by row.
struct AttentionLevel {
  // At most kMaxAttentionSide; height * width is at most 2^31 - 1.
  int64_t height, width;
  int64_t first_pixel;
  int64_t points;  // samples of a query and head
};

// Points go level by level.
struct AttentionShape {
  int64_t batch, pixels, heads, channels, queries, points;
  int num_levels;
  AttentionLevel levels[kMaxAttentionLevels];
};

template <typename T>
struct AttentionInputs : AttentionShape {
  const T* values;                  // [batch, pixels, heads, channels]
  const Accumulator<T>* locations;  // [batch, queries, heads, points, 2]
  const Accumulator<T>* weights;    // [batch, queries, heads, points]
};
template <typename T>
struct DeformableAttentionArgs : AttentionInputs<T> {
  T* output;  // [batch, queries, heads, channels]
};
template <typename T>
struct DeformableAttentionGradArgs : AttentionInputs<T> {
  const T* d_output;
  T* d_values;
  Accumulator<T>*d_locations, *d_weights;
};

// T is float, double, Half or BFloat16; its Accumulator is the type it is
// computed in. The same bits for any number of threads, and with
// gpu.deterministic from run to run on a GPU. Each returns null or a launch's
// error; the Gpu overloads only enqueue.

// Writes all of `output`: for each query and head the sum over points of weight
// times the bilinear sample of the point's level at (x * width - 0.5, y *
// height - 0.5), pixels outside being 0. NaN where a location is NaN. Pixels of
// weight 0 are not read.
template <typename T>
Error DeformableAttention(const Cpu& cpu,
                          const DeformableAttentionArgs<T>& args);
template <typename T>
Error DeformableAttention(const Gpu& gpu,
                          const DeformableAttentionArgs<T>& args);

// Writes all of d_values, d_locations, d_weights. On whole pixels, the slope is
// that of the cell [floor, floor + 1). A NaN location passes no gradient;
// pixels of weight 0 count in slopes only. 16-bit gradients to values are
// summed in float. The GPU needs scratch of
// DeformableAttentionGradScratchBytes<T>.
template <typename T>
Error DeformableAttentionGrad(const Cpu& cpu,
                              const DeformableAttentionGradArgs<T>& args);
template <typename T>
Error DeformableAttentionGrad(const Gpu& gpu,
                              const DeformableAttentionGradArgs<T>& args);
template <typename T>
int64_t DeformableAttentionGradScratchBytes(const AttentionShape& shape,
                                            bool deterministic) {
  // Atomic sums in the type of computation.
  if (deterministic || sizeof(T) == sizeof(Accumulator<T>)) return 0;
  return shape.batch * shape.pixels * shape.heads * shape.channels *
         static_cast<int64_t>(sizeof(Accumulator<T>));
}

}  // namespace tfo

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_DEFORMABLE_ATTENTION_DEFORMABLE_ATTENTION_H_
