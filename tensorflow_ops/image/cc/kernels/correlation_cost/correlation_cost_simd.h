// The inner loops of correlation_cost, compiled once per CPU level. They work
// on rows of planes: [channels or displacements, positions] in the type of
// sums, with room after the last position.
#ifndef TENSORFLOW_OPS_IMAGE_CC_KERNELS_CORRELATION_COST_CORRELATION_COST_SIMD_H_
#define TENSORFLOW_OPS_IMAGE_CC_KERNELS_CORRELATION_COST_CORRELATION_COST_SIMD_H_

#include "tensorflow_ops/core/cc/cpu_dispatch.h"
#include "tensorflow_ops/core/cc/float16.h"

namespace tfo {

// The loops may access this many positions after the last.
inline constexpr int64_t kRowSlack = 32;

// A row of planes: element (n, x) is data[n * step + x].
template <typename V>
struct PlaneRow {
  V* data;
  int64_t step;
};

// A row of a tensor [pixels, channels]: channel n of pixel x is
// data[x * pixel_step + n].
template <typename T>
struct TensorRow {
  T* data;
  int64_t pixel_step;
};

// A row of pixels that contributes to a row of a gradient: pixel x adds
// weights[weight + x * weight_pixel + k * weight_step] times the channels from
// source[source + x * channels + k * source_step] on, for steps k in
// [begin[x], end[x]).
struct StepRow {
  int64_t weight, source;
};
struct StepLayout {
  int64_t width, channels;
  int64_t weight_pixel, weight_step, source_step;
  const int64_t *begin, *end;
};

// A cache line for each channel, `step` bytes apart.
struct Prefetch {
  const void* first;
  int64_t step;
};

// Rows of costs that AddDots works on at a time.
inline constexpr int64_t kDotRows = 3;

TFO_PER_CPU_LEVEL(
    // Copies [count, width] elements. Element x goes to position (x0 + x) /
    // phases of phase (x0 + x) % phases; phases are `phase_step` apart. Zeros
    // may follow, to the end of a vector.
    template <typename T>
    void PackRow(const TensorRow<const T>& from, int64_t count, int64_t width,
                 int64_t x0, int64_t phases, int64_t phase_step,
                 const PlaneRow<Accumulator<T>>& to);
    // Multiplies [count, width] elements by `scale` and stores them.
    template <typename T>
    void UnpackRow(const PlaneRow<const Accumulator<T>>& from, int64_t count,
                   int64_t width, Accumulator<T> scale, const TensorRow<T>& to);

    // For `rows` <= kDotRows rows r of a and of sums, and n in [0, count), x in
    // [0, width): sums[r](n, x) += sum over c of a[r](c, x) * b(c, x +
    // offsets[n]). Rows of a and b have one step. Meanwhile does `prefetch`.
    template <typename V>
    void AddDots(const PlaneRow<const V>* a, int64_t rows,
                 const PlaneRow<const V>& b, const int64_t* offsets,
                 int64_t count, int64_t channels, int64_t width,
                 const Prefetch& prefetch, const PlaneRow<V>* sums);
    // sums(c, x) += sum over n of weights(n, x + weight_offsets[n]) * b(c, x +
    // offsets[n]), for c in [0, channels) and x in [0, width).
    template <typename V>
    void AddWeighted(const PlaneRow<const V>& weights,
                     const int64_t* weight_offsets, const PlaneRow<const V>& b,
                     const int64_t* offsets, int64_t count, int64_t channels,
                     int64_t width, const PlaneRow<V>& sums);
    // Writes `scale` times the sums of rows to gradient [width, channels].
    template <typename V>
    void SumSteps(const StepRow* rows, int64_t count, const StepLayout& layout,
                  const V* weights, const V* source, V scale, V* gradient);)

}  // namespace tfo

#endif  // TENSORFLOW_OPS_IMAGE_CC_KERNELS_CORRELATION_COST_CORRELATION_COST_SIMD_H_
