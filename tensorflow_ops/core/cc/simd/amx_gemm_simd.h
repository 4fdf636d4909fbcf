// Products of gemm_simd.h by the tiles of AMX, at the level amx.
//
// A pack has 32 numbers along the depth, each as kTerms numbers of bfloat16
// with this sum: one, the number rounded, or three, exactly, for products with
// the errors of float32. Finite numbers only; of three terms, those below
// 2^-126 count as 0. The last pack of a depth that is no multiple of 32 has
// zeros.
#ifndef TENSORFLOW_OPS_CORE_CC_SIMD_AMX_GEMM_SIMD_H_
#define TENSORFLOW_OPS_CORE_CC_SIMD_AMX_GEMM_SIMD_H_

#include <cstdint>
#include <type_traits>

#include "tensorflow_ops/core/cc/float16.h"
#include "tensorflow_ops/core/cc/simd/gemm_simd.h"

namespace tfo {

template <int kTerms>
struct AmxPack {
  BFloat16 numbers[32 * kTerms];
};
template <int kTerms>
inline constexpr int64_t kPackNumbers<AmxPack<kTerms>> = 32;

template <typename P>
inline constexpr bool kIsAmxPack = false;
template <int kTerms>
inline constexpr bool kIsAmxPack<AmxPack<kTerms>> = true;

// The packs of products of T; rows of a tile, and columns of a panel.
template <typename T>
using AmxPackOf = AmxPack<std::is_same_v<T, BFloat16> ? 1 : 3>;
inline constexpr int64_t kAmxRows = 16, kAmxColumns = 32;

// A number of a panel of `packs` packs by PackAmxPanels.
template <int kTerms>
float AmxPanelNumber(const AmxPack<kTerms>* panel, int64_t packs, int64_t row,
                     int64_t column) {
  const BFloat16* const number =
      panel->numbers + (row - row % 2) * kAmxColumns + 2 * column + row % 2;
  float sum = 0;
  for (int p = kTerms - 1; p >= 0; --p) {
    sum += Widen(number[p * packs * 32 * kAmxColumns]);
  }
  return sum;
}

// Configures the thread's tiles; MultiplyAmx requires one. Code in its scope
// must not configure tiles, too.
class AmxScope {
 public:
  AmxScope() {
#if defined(__x86_64__) && !defined(TFO_EMULATE_AMX)
    struct alignas(64) {
      uint8_t palette = 1, start_row = 0, reserved[14] = {};
      uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
      uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
    } tiles;
    asm volatile("ldtilecfg %0" ::"m"(tiles));
#endif
  }
  ~AmxScope() {
#if defined(__x86_64__) && !defined(TFO_EMULATE_AMX)
    asm volatile("tilerelease" ::: "memory");
#endif
  }
  AmxScope(const AmxScope&) = delete;
  AmxScope& operator=(const AmxScope&) = delete;
};

namespace cpu_avx512 {

// Writes a [rows, depth], whose element (i, k) is at a[i * row_stride + k *
// column_stride], as tiles [ceil(rows / kAmxRows)][row_packs], with zeros
// beyond the last row. row_stride or column_stride is 1.
template <typename T, int kTerms>
void PackAmxRows(const T* a, int64_t row_stride, int64_t column_stride,
                 int64_t rows, int64_t depth, int64_t row_packs,
                 AmxPack<kTerms>* packs);

// PackPanels, with panels [ceil(columns / kAmxColumns)][ceil(rows / 32)]
// [kAmxColumns].
template <typename T, int kTerms>
void PackAmxPanels(const T* b, int64_t row_stride, int64_t column_stride,
                   int64_t rows, int64_t columns, AmxPack<kTerms>* panels);

// c [rows, columns] = a * b of `depth` packs, or c += with `add`. a has rows of
// row_packs, c of c_stride; both have ceil(rows / kAmxRows) * kAmxRows rows.
// columns is a multiple of kAmxColumns.
template <int kTerms>
void MultiplyAmx(const AmxPack<kTerms>* a, int64_t row_packs, int64_t rows,
                 int64_t depth, const AmxPack<kTerms>* panels, int64_t columns,
                 bool add, float* c, int64_t c_stride);

// Multiplies columns of numbers [rows, kAmxColumns] by their factors. A factor
// of 0 makes 0 also of infinity.
void ScaleAmxColumns(const float* factors, int64_t rows, float* numbers);

}  // namespace cpu_avx512

// The scope that products of packs P require.
struct NoScope {};
template <typename P>
using ScopeOf = std::conditional_t<kIsAmxPack<P>, AmxScope, NoScope>;

#ifdef TFO_CPU_NAMESPACE
namespace TFO_CPU_NAMESPACE {

// PackPanels for any packs, in files with a level.
template <typename T, typename P>
void PackPanelsOf(const T* b, int64_t row_stride, int64_t column_stride,
                  int64_t rows, int64_t columns, P* panels) {
  if constexpr (kIsAmxPack<P>) {
    cpu_avx512::PackAmxPanels(b, row_stride, column_stride, rows, columns,
                              panels);
  } else {
    PackPanels<T, P>(b, row_stride, column_stride, rows, columns, panels);
  }
}

}  // namespace TFO_CPU_NAMESPACE
#endif

}  // namespace tfo

#endif  // TENSORFLOW_OPS_CORE_CC_SIMD_AMX_GEMM_SIMD_H_
