// Inner loops of quantized_matmul.h. A stored row is a row of the kernel's
// bytes [depth, columns] or [columns, depth], unpacked.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_QUANTIZED_MATMUL_QUANTIZED_MATMUL_SIMD_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_QUANTIZED_MATMUL_QUANTIZED_MATMUL_SIMD_H_

#include <cstdint>

#include "tensorflow_ops/core/cc/cpu_dispatch.h"

namespace tfo {

// How bytes hold numbers. kAlong: a byte has neighbors of a stored row,
// kAcross: neighbors of a stored column.
enum class StoredPairs { kNone, kAlong, kAcross };
struct StoredBytes {
  const uint8_t* data;
  const uint8_t* end;
  int64_t stride;  // bytes of a row
  StoredPairs pairs;
  // Raw numbers: those of 8 bits are q, those of 4 bits are q + 8 if signed.
  bool is_signed;
};

// A part of the depth that lies in one group.
struct DepthBlock {
  int64_t begin, depth, group;
};
// The most of it: raw numbers times integers up to 127 have exact float sums,
// 256 * 127 * 255 < 2^24.
inline constexpr int64_t kBlockDepth = 256;
// Rows of inputs that one pass over the bytes multiplies.
inline constexpr int64_t kDirectRows = 4;

TFO_PER_CPU_LEVEL(
    // Raw numbers of `count` values of a stored row, from `first` on, which is
    // even where pairs are kAlong. Writes up to kBlockDepth + 32 values.
    void UnpackRow(const StoredBytes& bytes, int64_t row, int64_t first,
                   int64_t count, float* raw);

    // to[i] = (raw[i] - zero[i]) * scale[i], in panels of `panel` values that
    // are panel_stride apart and have room for whole vectors. scale may be
    // null.
    template <typename C>
    void ScaleRow(const float* raw, const C* zero, const C* scale,
                  int64_t count, int64_t panel, int64_t panel_stride, C* to);

    // products [rows][columns] = x [rows][depth] * raw numbers
    // [depth][columns], where stored rows are the depth, from `row` and
    // `column` on; rows <= kDirectRows. Rows of products are `products_stride`
    // apart and have room for whole vectors.
    void MultiplyStoredRows(const StoredBytes& bytes, int64_t row,
                            int64_t column, const float* x, int64_t x_stride,
                            int64_t rows, int64_t depth, int64_t columns,
                            float* products, int64_t products_stride);

    // Writes raw numbers [depth][columns] of stored rows, of which `depth` is
    // even where pairs are kAcross, as panels for MultiplyTile. Products with
    // them have another order of columns, and factors, until OrderProducts;
    // both handle WordColumns columns at a time.
    int64_t WordColumns(StoredPairs pairs);
    void UnpackPanels(const StoredBytes& bytes, int64_t row, int64_t column,
                      int64_t depth, int64_t columns, float* panels);
    void OrderProducts(StoredPairs pairs, int64_t columns, float* products);

    // Where stored rows are columns of W, writes the x of a block in the order
    // of the bytes' numbers, and divided by their factors. `to` has kBlockDepth
    // values, zero before.
    void ArrangeBlock(StoredPairs pairs, const float* x, int64_t depth,
                      float* to);
    // The raw numbers of a block of a stored row in that order, times factors:
    // those of x that is not zero, and some more. Returns their number.
    int64_t UnpackArranged(const StoredBytes& bytes, int64_t row, int64_t first,
                           int64_t depth, float* to);

    // The same where stored rows are columns of W, for all blocks of the depth.
    // x has rows of arranged blocks of kBlockDepth values. Sums over blocks of
    // the products times scale [column][groups]; null: of the products, and
    // with `exact` as int32.
    void DotStoredRows(const StoredBytes& bytes, int64_t column, const float* x,
                       int64_t x_stride, int64_t rows, int64_t columns,
                       const DepthBlock* blocks, int64_t num_blocks,
                       const float* scale, int64_t groups, bool exact,
                       void* sums, int64_t sums_stride);

    // sums += (products - zero * x_sum) * scale; a null scale is 1, a null
    // zero 0.
    void AddProducts(const float* products, const float* zero, float x_sum,
                     const float* scale, int64_t n, float* sums);
    // sums += products - zero * x_sum, which are integers.
    void AddIntegers(const float* products, const float* zero, float x_sum,
                     int64_t n, int32_t* sums);

    // sums [columns] -= the sum over groups of (zero + offset) * scale *
    // x_sums; zero may be null.
    void SubtractZeros(const uint8_t* zero, bool is_signed, float offset,
                       const float* scale, const float* x_sums, int64_t groups,
                       int64_t columns, float* sums);)

}  // namespace tfo

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_QUANTIZED_MATMUL_QUANTIZED_MATMUL_SIMD_H_
