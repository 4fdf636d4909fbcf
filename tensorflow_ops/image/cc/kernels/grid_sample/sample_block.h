// Shared by the loops over blocks of samples. For *_simd.cc files.
#ifndef TENSORFLOW_OPS_IMAGE_CC_KERNELS_GRID_SAMPLE_SAMPLE_BLOCK_H_
#define TENSORFLOW_OPS_IMAGE_CC_KERNELS_GRID_SAMPLE_SAMPLE_BLOCK_H_

#include "tensorflow_ops/core/cc/simd/simd.h"
#include "tensorflow_ops/image/cc/kernels/grid_sample/grid_sample_simd.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {

template <typename T>
using Vector = typename Lanes<T>::Vector;
template <typename T>
using Sum = Accumulator<T>;

// A vector of pixels of one channel; 0 where the weight is 0.
template <typename T>
TFO_INLINE Vector<T> Gather(const T* image, const int32_t* pixel,
                            Vector<T> weight) {
#ifdef __AVX512F__
  if constexpr (sizeof(T) == 4) {
    const __m512 w = reinterpret_cast<__m512>(weight);
    return reinterpret_cast<Vector<T>>(_mm512_mask_i32gather_ps(
        _mm512_setzero_ps(),
        _mm512_cmp_ps_mask(w, _mm512_setzero_ps(), _CMP_NEQ_UQ),
        _mm512_loadu_si512(pixel), image, 4));
  }
#endif
  Vector<T> values;
  for (int i = 0; i < Lanes<T>::kCount; ++i)
    values[i] = LoadOne(image + pixel[i]);
  return weight != 0 ? values : Vector<T>{};
}

// For bilinear samples i of a block: whether all taps count, are pixels p,
// p + 1, p + width and p + width + 1, the last one is at most `last_pixel`, and
// the first at least `first_pixel`.
template <typename C>
TFO_INLINE bool AllTapsInside(const SampleTaps<C>& taps,
                              const GridSampleSpec& args, int32_t first_pixel,
                              int32_t last_pixel, int64_t count,
                              int32_t* simple) {
  const int32_t step = static_cast<int32_t>(args.width) + 1;
  int32_t all = 1;
  for (int64_t i = 0; i < count; ++i) {
    simple[i] = (taps.weight[0][i] != 0) & (taps.weight[1][i] != 0) &
                (taps.weight[2][i] != 0) & (taps.weight[3][i] != 0) &
                (taps.pixel[0][i] >= first_pixel) &
                (taps.pixel[3][i] <= last_pixel) &
                (taps.pixel[3][i] - taps.pixel[0][i] == step);  // no wrap
    all &= simple[i];
  }
  return all != 0;
}

}  // namespace TFO_CPU_NAMESPACE
}  // namespace tfo

#endif  // TENSORFLOW_OPS_IMAGE_CC_KERNELS_GRID_SAMPLE_SAMPLE_BLOCK_H_
