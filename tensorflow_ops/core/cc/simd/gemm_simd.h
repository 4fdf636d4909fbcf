// Matrix products of tiles that fit the caches, for algorithms that make or use
// the tiles of a matrix on the way and never hold the whole.
//
// A product a * b takes b as panels (PackPanels), and a as a tile (PackTile) of
// at most kGemmDepth columns: the caller splits the sum into blocks of this
// depth. Each element of a block is summed in the order of the depth, so
// results do not depend on how rows and columns are partitioned. Levels without
// FMA round differently.
//
// A pack P, what tiles and panels hold, is a number of the type of computation,
// or two of bfloat16 that are neighbors along the depth: their products are
// exact, and subnormal numbers may count as 0. The last pack of an odd depth
// has a 0. At the level avx512, two numbers need HasBFloat16Products().
#ifndef TENSORFLOW_OPS_CORE_CC_SIMD_GEMM_SIMD_H_
#define TENSORFLOW_OPS_CORE_CC_SIMD_GEMM_SIMD_H_

#include <cstdint>
#include <type_traits>

#include "tensorflow_ops/core/cc/float16.h"
#include "tensorflow_ops/core/cc/simd/cpu_dispatch.h"

namespace tfo {

// Columns of a tile: 256 rows of a panel of 32 floats are 32 KiB, an L1 cache.
inline constexpr int64_t kGemmDepth = 256;
// From one row of a tile to the next. Constant, so that the addresses of rows
// need no registers; not a power of two, which would map rows to one cache set.
inline constexpr int64_t kGemmStride = kGemmDepth + 16;

struct BFloat16Pack {
  BFloat16 numbers[2];
};
// Numbers of a pack.
template <typename P>
inline constexpr int64_t kPackNumbers = std::is_same_v<P, BFloat16Pack> ? 2 : 1;
// Packs of n numbers along the depth.
template <typename P>
int64_t PackCount(int64_t n) {
  return (n + kPackNumbers<P> - 1) / kPackNumbers<P>;
}
template <typename C>
C* NumbersOf(C* pack) {
  return pack;
}
inline BFloat16* NumbersOf(BFloat16Pack* pack) { return pack->numbers; }
inline const BFloat16* NumbersOf(const BFloat16Pack* pack) {
  return pack->numbers;
}

TFO_PER_CPU_LEVEL(
    // Columns of a panel: two vectors of C, float or double.
    template <typename C> int64_t PanelColumns();

    // Writes `rows` rows of a, `stride` apart, as a tile of `depth` numbers a
    // row, widened or packed.
    template <typename T, typename P = Accumulator<T>>
    void PackTile(const T* a, int64_t stride, int64_t rows, int64_t depth,
                  P* tile);

    // Writes b [rows, columns], whose element (i, j) is at b[i * row_stride +
    // j * column_stride], as panels [ceil(columns / PanelColumns)][rows]
    // [PanelColumns], widened, with zeros beyond the last column. Packs are of
    // rows; row_stride or column_stride is 1.
    template <typename T, typename P = Accumulator<T>>
    void PackPanels(const T* b, int64_t row_stride, int64_t column_stride,
                    int64_t rows, int64_t columns, P* panels);

    // Round numbers [rows][PanelColumns], with rows of kGemmStride, to packs of
    // columns [rows][PanelColumns / 2] or to packs of rows
    // [ceil(rows / 2)][PanelColumns], which may begin where the numbers do.
    void PackColumns(const float* numbers, int64_t rows, BFloat16Pack* packs);
    void PackRows(const float* numbers, int64_t rows, BFloat16Pack* packs);

    // c [rows, columns] = a [rows, depth] * b, or c += with `add`. a has rows
    // of kGemmStride, c of c_stride; columns is a multiple of PanelColumns.
    template <typename P>
    void MultiplyTile(const P* a, int64_t rows, int64_t depth, const P* panels,
                      int64_t columns, bool add, Accumulator<P>* c,
                      int64_t c_stride);

    // The same with the transpose of a [depth, rows], rows <= kGemmDepth.
    template <typename P>
    void MultiplyTransposedTile(const P* a, int64_t rows, int64_t depth,
                                const P* panels, int64_t columns, bool add,
                                Accumulator<P>* c, int64_t c_stride);

    // The greatest magnitude of the numbers of `count` rows, or infinity or NaN
    // if a number is.
    template <typename T> Accumulator<T> GreatestMagnitude(
        const T* rows, int64_t stride, int64_t count, int64_t columns);)

}  // namespace tfo

#endif  // TENSORFLOW_OPS_CORE_CC_SIMD_GEMM_SIMD_H_
