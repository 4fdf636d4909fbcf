// Inner loops of quantized_matmul_cpu.cc, for float inputs. The raw numbers of
// 8 bits are q, those of 4 bits are q + 8 if signed.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_QUANTIZED_MATMUL_QUANTIZED_MATMUL_SIMD_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_QUANTIZED_MATMUL_QUANTIZED_MATMUL_SIMD_H_

#include <cstdint>

#include "tensorflow_ops/core/cc/simd/cpu_dispatch.h"
#include "tensorflow_ops/nn/cc/kernels/quantized_matmul/stored_bytes.h"

namespace tfo {

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

    // sums += (products - zero * x_sum) * scale; a null scale is 1, a null
    // zero 0.
    void AddProducts(const float* products, const float* zero, float x_sum,
                     const float* scale, int64_t n, float* sums);
    // sums [columns] -= the sum over groups of (zero + float_zero + offset) *
    // scale * x_sums; both zeros may be null.
    void SubtractZeros(const uint8_t* zero, bool is_signed,
                       const float* float_zero, float offset,
                       const float* scale, const float* x_sums, int64_t groups,
                       int64_t columns, float* sums);)

}  // namespace tfo

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_QUANTIZED_MATMUL_QUANTIZED_MATMUL_SIMD_H_
