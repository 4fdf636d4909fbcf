// Inner loops of deformable_attention.h.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_DEFORMABLE_ATTENTION_DEFORMABLE_ATTENTION_SIMD_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_DEFORMABLE_ATTENTION_DEFORMABLE_ATTENTION_SIMD_H_

#include "tensorflow_ops/core/cc/cpu_dispatch.h"
#include "tensorflow_ops/nn/cc/kernels/deformable_attention/deformable_attention.h"

namespace tfo {

// Arrays of points are padded to whole vectors of any level.
inline constexpr int64_t kPointsPadding = 16;

// Each point's level, in arrays of `padded` values.
template <typename C>
struct AttentionPoints {
  int64_t count, padded;
  const C *height, *width;
  const int64_t* first_pixel;
};

// Memory for one query and head, of a thread.
template <typename C>
struct AttentionScratch {
  // [4, padded]: corners, in the level; -1: outside, or nothing to add.
  int32_t *pixels, *added_pixels;
  uintptr_t *rows, *added_rows;  // [4, padded]: their addresses
  C* corners;                    // [4, padded]: their weights
  C* numbers;                    // [kPointNumbers, padded]
  C* upstream;                   // [channels], rounded up to whole vectors
  C* discarded;                  // [channels]: receives sums for pixels outside
  void* zeros;  // [channels] of T: read in place of pixels outside
};
inline constexpr int kPointNumbers = 7;

// The pixels of an image, a row of `stride` for each, at some of its heads.
template <typename T>
struct HeadView {
  T* data;
  int64_t stride;
};

// Queries of an image and some of its heads: their rows in [batch * queries,
// heads], the heads of a query first.
struct AttentionRows {
  int64_t first, count;  // queries
  int64_t heads;         // of an image
  int64_t first_head, my_heads;
};

TFO_PER_CPU_LEVEL(
    template <typename T, typename C = Accumulator<T>>
    void AttendQueries(const AttentionPoints<C>& points, AttentionRows rows,
                       int64_t channels, HeadView<const T> values,
                       const C* locations, const C* weights, T* output,
                       const AttentionScratch<C>& scratch);

    // Adds to d_values, unless its data is null, for the pixels [begin, end) of
    // an image; writes d_locations and d_weights, unless d_locations is null.
    template <typename T, typename C = Accumulator<T>>
    void AttendQueriesGrad(const AttentionPoints<C>& points, AttentionRows rows,
                           int64_t channels, const T* d_output,
                           HeadView<const T> values, const C* locations,
                           const C* weights, HeadView<C> d_values,
                           int64_t begin, int64_t end, C* d_locations,
                           C* d_weights, const AttentionScratch<C>& scratch);)

}  // namespace tfo

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_DEFORMABLE_ATTENTION_DEFORMABLE_ATTENTION_SIMD_H_
