// The inner loops of correlation_cost, compiled once per CPU level. They work
// on rows of planes: [channels or displacements, positions] in the type of
// sums, with room behind the last position.
#ifndef TENSORFLOW_OPS_SAMPLING_CC_KERNELS_CORRELATION_COST_SIMD_H_
#define TENSORFLOW_OPS_SAMPLING_CC_KERNELS_CORRELATION_COST_SIMD_H_

#include "tensorflow_ops/core/cc/cpu_dispatch.h"
#include "tensorflow_ops/core/cc/float16.h"

namespace tfo {

// The loops may access so many positions behind the last.
inline constexpr int64_t kRowSlack = 32;

// A row of planes: element (n, x) is data[n * step + x].
template <typename V>
struct PlaneRow {
  V* data;
  int64_t step;
};

// A row of a tensor: element (n, x) is data[n * step + x * pixel_step].
template <typename T>
struct TensorRow {
  T* data;
  int64_t step, pixel_step;
};

TFO_PER_CPU_LEVEL(
    // Copies [count, width] elements. Element x goes to position (x0 + x) /
    // phases of phase (x0 + x) % phases; phases are `phase_step` apart.
    template <typename T>
    void PackRow(const TensorRow<const T>& from, int64_t count, int64_t width,
                 int64_t x0, int64_t phases, int64_t phase_step,
                 const PlaneRow<Accumulator<T>>& to);
    // Multiplies [count, width] elements by `scale` and stores them.
    template <typename T>
    void UnpackRow(const PlaneRow<const Accumulator<T>>& from, int64_t count,
                   int64_t width, Accumulator<T> scale, const TensorRow<T>& to);

    // sums(n, x) += sum over c of a(c, x) * b(c, x + offsets[n]), for n in [0,
    // count) and x in [0, width).
    template <typename V>
    void AddDots(const PlaneRow<const V>& a, const PlaneRow<const V>& b,
                 const int64_t* offsets, int64_t count, int64_t channels,
                 int64_t width, const PlaneRow<V>& sums);
    // sums(c, x) += sum over n of weights(n, x + weight_offsets[n]) * b(c, x +
    // offsets[n]), for c in [0, channels) and x in [0, width).
    template <typename V>
    void AddWeighted(const PlaneRow<const V>& weights,
                     const int64_t* weight_offsets, const PlaneRow<const V>& b,
                     const int64_t* offsets, int64_t count, int64_t channels,
                     int64_t width, const PlaneRow<V>& sums);)

}  // namespace tfo

#endif  // TENSORFLOW_OPS_SAMPLING_CC_KERNELS_CORRELATION_COST_SIMD_H_
