// Inner loops of float_product.h for a few rows of inputs, which read the bytes
// of weights where they lie. Raw numbers are those of quantized_matmul_simd.h.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_QUANTIZED_MATMUL_DIRECT_PRODUCT_SIMD_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_QUANTIZED_MATMUL_DIRECT_PRODUCT_SIMD_H_

#include <cstdint>

#include "tensorflow_ops/core/cc/simd/cpu_dispatch.h"
#include "tensorflow_ops/nn/cc/kernels/quantized_matmul/stored_bytes.h"

namespace tfo {

// Rows of inputs that one pass over the bytes multiplies.
inline constexpr int64_t kDirectRows = 4;

TFO_PER_CPU_LEVEL(
    // products [rows][columns] = x [rows][depth] * raw numbers
    // [depth][columns], where stored rows are the depth, from `row` and
    // `column` on; rows <= kDirectRows. Rows of products are `products_stride`
    // apart and have room for whole vectors.
    void MultiplyStoredRows(const StoredBytes& bytes, int64_t row,
                            int64_t column, const float* x, int64_t x_stride,
                            int64_t rows, int64_t depth, int64_t columns,
                            float* products, int64_t products_stride);

    // The same where stored rows are columns of W, for all blocks of the depth.
    // x has rows of arranged blocks of kBlockDepth values. Sums over blocks of
    // the products times scale [column][groups]; null: of the products.
    void DotStoredRows(const StoredBytes& bytes, int64_t column, const float* x,
                       int64_t x_stride, int64_t rows, int64_t columns,
                       const DepthBlock* blocks, int64_t num_blocks,
                       const float* scale, int64_t groups, float* sums,
                       int64_t sums_stride);)

}  // namespace tfo

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_QUANTIZED_MATMUL_DIRECT_PRODUCT_SIMD_H_
