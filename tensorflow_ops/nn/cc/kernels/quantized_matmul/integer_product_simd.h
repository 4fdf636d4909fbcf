// Inner loops of integer_product.h: int32 sums of products of integers, modulo
// 2^32. Those of x are within -127 and 127. Weights are bytes: q, or q - 128 if
// q is unsigned and has 8 bits. Numbers of 4 bits are raw
// (quantized_matmul_simd.h), within 0 and 15.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_QUANTIZED_MATMUL_INTEGER_PRODUCT_SIMD_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_QUANTIZED_MATMUL_INTEGER_PRODUCT_SIMD_H_

#include <cstdint>
#include <type_traits>

#include "tensorflow_ops/core/cc/simd/cpu_dispatch.h"
#include "tensorflow_ops/nn/cc/kernels/quantized_matmul/stored_bytes.h"

namespace tfo {

// How loops multiply: pairs of 16 bits, fours of bytes, which need
// HasByteProducts() on aarch64 and at the level avx512, or fours of bytes with
// weights of 4 bits.
enum class IntegerLoop { kPairs, kBytes, kNibbles };
template <IntegerLoop kLoop>
inline constexpr int kNumbersOf = kLoop == IntegerLoop::kPairs ? 2 : 4;

// Neighbors along the depth.
template <int kNumbers>
struct IntegerPack {
  std::conditional_t<kNumbers == 2, int16_t, int8_t> numbers[kNumbers];
};
template <IntegerLoop kLoop>
using PackOf = IntegerPack<kNumbersOf<kLoop>>;

// Bytes that may be read beyond a block of weights, in each direction, packs of
// a multiple of which tiles of AMX consist, and those of rows of x.
inline constexpr int64_t kIntegerRoom = 128, kIntegerTile = 16,
                         kIntegerPad = 32;

TFO_PER_CPU_LEVEL(
    // Writes `count` weights of a stored row, from `first` on, which is even
    // where pairs are kAlong, and up to kIntegerRoom bytes more.
    void UnpackIntegers(const StoredBytes& bytes, int64_t row, int64_t first,
                        int64_t count, int8_t* to);

    // Writes x as `count` packs, with zeros beyond the depth. With `halves`,
    // packs come in pairs of eight numbers: 0 2 4 6, 1 3 5 7.
    template <int kNumbers>
    void PackIntegers(const int8_t* x, int64_t depth, int64_t count,
                      bool halves, IntegerPack<kNumbers>* packs);

    // Writes weights as panels [ceil(columns / PanelColumns<float>())]
    // [ceil(depth / kNumbers)][PanelColumns<float>()]. They are
    // [depth, columns], or if `transposed` [columns, depth], with rows of
    // `stride`. Reads whole panels and packs, which x multiplies by 0.
    template <IntegerLoop kLoop>
    void PackIntegerPanels(const int8_t* weights, int64_t stride,
                           bool transposed, int64_t depth, int64_t columns,
                           PackOf<kLoop>* panels);

    // c [rows, columns] += a * b of `depth` packs. a has rows of kGemmStride
    // packs, c of c_stride; columns is a multiple of PanelColumns<float>().
    template <IntegerLoop kLoop>
    void MultiplyIntegers(const PackOf<kLoop>* a, int64_t rows, int64_t depth,
                          const PackOf<kLoop>* panels, int64_t columns,
                          int32_t* c, int64_t c_stride);

    // The same for few rows of a, which are a_stride packs apart, with weights
    // as PackIntegerPanels reads them: of [depth, columns], and of [columns,
    // depth], where a has zeros up to a multiple of kIntegerPad packs.
    template <int kNumbers>
    void MultiplyFewIntegers(const IntegerPack<kNumbers>* a, int64_t a_stride,
                             int64_t rows, int64_t depth, const int8_t* weights,
                             int64_t stride, int64_t columns, int32_t* c,
                             int64_t c_stride);
    template <int kNumbers>
    void DotIntegers(const IntegerPack<kNumbers>* a, int64_t a_stride,
                     int64_t rows, int64_t depth, const int8_t* weights,
                     int64_t stride, int64_t columns, int32_t* c,
                     int64_t c_stride);

    // The same with stored pairs, whose bits `flip` are flipped: of [depth,
    // columns] in either direction, and of [columns, depth] along the depth.
    // The first leave c in an order of their own. Where pairs are kAcross, a
    // has halves.
    void MultiplyFewNibbles(const IntegerPack<4>* a, int64_t a_stride,
                            int64_t rows, int64_t depth, const int8_t* weights,
                            int64_t stride, uint8_t flip, StoredPairs pairs,
                            int64_t columns, int32_t* c, int64_t c_stride);
    void DotNibbles(const IntegerPack<4>* a, int64_t a_stride, int64_t rows,
                    int64_t depth, const int8_t* weights, int64_t stride,
                    uint8_t flip, int64_t columns, int32_t* c,
                    int64_t c_stride);
    // Writes c in the order of columns: n of them, and up to 127 more.
    void OrderIntegers(const int32_t* c, int64_t n, StoredPairs pairs,
                       int32_t* to);

    // sums += (integers - zero * x_sum - float_zero * x_sum) * scale, where
    // float_zero may be null.
    template <typename C>
    void AddScaledIntegers(const int32_t* integers, const int32_t* zero,
                           const C* float_zero, int32_t x_sum, const C* scale,
                           int64_t n, C* sums);)

namespace cpu_avx512 {
// MultiplyIntegers by tiles of AMX, in an AmxScope. Reads a, and panels, up to
// a multiple of kIntegerTile packs, where a has zeros; a and c have up to 15
// more rows.
void MultiplyIntegerTiles(const IntegerPack<4>* a, int64_t rows, int64_t depth,
                          const IntegerPack<4>* panels, int64_t columns,
                          int32_t* c, int64_t c_stride);
}  // namespace cpu_avx512

}  // namespace tfo

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_QUANTIZED_MATMUL_INTEGER_PRODUCT_SIMD_H_
