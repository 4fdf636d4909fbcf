#include "tensorflow_ops/core/cc/gemm_simd.h"

#include "tensorflow_ops/core/cc/simd.h"
#include "tensorflow_ops/core/cc/transpose_simd.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {
namespace {

// Rows of c in registers: with two vectors each, two of b and one of a they
// fill 31 of AVX-512's 32 registers, 15 of 16 otherwise.
constexpr int kRows = kVectorBytes == 64 ? 14 : 6;

// kCount rows of c, two vectors wide. a[m * kRowStep + k * kDepthStep] is the
// element of row m.
template <int kCount, int64_t kRowStep, int64_t kDepthStep, typename C>
TFO_INLINE void MultiplyRows(const C* a, int64_t depth, const C* panel,
                             bool add, C* c, int64_t c_stride) {
  using Vector = typename Lanes<C>::Vector;
  constexpr int kLanes = Lanes<C>::kCount;
  Vector sums[kCount][2] = {};
  for (int64_t k = 0; k < depth; ++k) {
    const Vector b0 = Load(panel), b1 = Load(panel + kLanes);
#pragma GCC unroll 16
    for (int m = 0; m < kCount; ++m) {
      const Vector value = Vector{} + a[m * kRowStep];
      sums[m][0] = MulAdd(value, b0, sums[m][0]);
      sums[m][1] = MulAdd(value, b1, sums[m][1]);
    }
    panel += 2 * kLanes;
    a += kDepthStep;
  }
  // Added last: errors grow with the blocks, not with the depth of all.
#pragma GCC unroll 16
  for (int m = 0; m < kCount; ++m) {
    C* const to = c + m * c_stride;
    Store(add ? Load(to) + sums[m][0] : sums[m][0], to);
    Store(add ? Load(to + kLanes) + sums[m][1] : sums[m][1], to + kLanes);
  }
}

template <int64_t kRowStep, int64_t kDepthStep, typename C>
TFO_INLINE void Multiply(const C* a, int64_t rows, int64_t depth,
                         const C* panels, int64_t columns, bool add, C* c,
                         int64_t c_stride) {
  constexpr int kColumns = 2 * Lanes<C>::kCount;
  // A panel stays in the L1 cache while all rows pass.
  for (int64_t j = 0; j < columns; j += kColumns) {
    const C* const panel = panels + j * depth;
    const auto run = [&](auto count, int64_t m) {
      MultiplyRows<decltype(count)::kValue, kRowStep, kDepthStep>(
          a + m * kRowStep, depth, panel, add, c + m * c_stride + j, c_stride);
    };
    int64_t m = 0;
    for (; m + kRows <= rows; m += kRows) run(Constant<kRows>(), m);
    for (; m + 4 <= rows; m += 4) run(Constant<4>(), m);
    for (; m + 2 <= rows; m += 2) run(Constant<2>(), m);
    for (; m < rows; ++m) run(Constant<1>(), m);
  }
}

}  // namespace

template <typename C>
int64_t PanelColumns() {
  return 2 * Lanes<C>::kCount;
}

template <typename T>
void PackTile(const T* a, int64_t stride, int64_t rows, int64_t depth,
              Accumulator<T>* tile) {
  for (int64_t m = 0; m < rows; ++m, a += stride, tile += kGemmStride) {
    // A tail writes whole vectors: rows have room beyond kGemmDepth.
    ForVectors<T>(depth, [&](auto part, int64_t k) {
      Store(part.Load(a + k, 0), tile + k);
    });
  }
}

template <typename T>
void PackPanels(const T* b, int64_t row_stride, int64_t column_stride,
                int64_t rows, int64_t columns, Accumulator<T>* panels) {
  constexpr int kLanes = Lanes<T>::kCount, kColumns = 2 * kLanes;
  // Rows at a time: what is written stays in the L1 cache from column to
  // column.
  constexpr int64_t kBlock = 64;
  for (int64_t j = 0; j < columns; j += kColumns, panels += rows * kColumns) {
    const int64_t n = columns - j < kColumns ? columns - j : kColumns;
    for (int64_t first = 0; first < rows; first += kBlock) {
      const int64_t end = first + kBlock < rows ? first + kBlock : rows;
      if (column_stride == 1) {
        for (int64_t i = first; i < end; ++i) {
          const T* const from = b + i * row_stride + j;
          Accumulator<T>* const to = panels + i * kColumns;
          int64_t k = 0;
          ForVectors<T>(n, [&](auto part, int64_t at) {
            const auto v = part.Load(from + at, 0);
            Store(v, to + at);
            k = at + Lanes<T>::kCount;
          });
          for (; k < kColumns; ++k) to[k] = 0;
        }
      } else {
        for (int64_t k = 0; k < kColumns; k += kLanes) {
          const T* const from = b + (j + k) * column_stride;
          Accumulator<T>* const to = panels + k;
          const int64_t lanes = n - k < kLanes ? n - k : kLanes;
          int64_t i = first;
          if (row_stride == 1 && lanes == kLanes) {
            for (; i + kLanes <= end; i += kLanes) {
              typename Lanes<T>::Vector v[kLanes];
#pragma GCC unroll 16
              for (int m = 0; m < kLanes; ++m) {
                v[m] = Load(from + m * column_stride + i);
              }
              Transpose(v);
#pragma GCC unroll 16
              for (int m = 0; m < kLanes; ++m) {
                Store(v[m], to + (i + m) * kColumns);
              }
            }
          }
          for (int64_t m = 0; m < kLanes; ++m) {
            for (int64_t rest = i; rest < end; ++rest) {
              to[rest * kColumns + m] =
                  m < lanes
                      ? LoadOne(from + m * column_stride + rest * row_stride)
                      : Accumulator<T>{0};
            }
          }
        }
      }
    }
  }
}

template <typename C>
void MultiplyTile(const C* a, int64_t rows, int64_t depth, const C* panels,
                  int64_t columns, bool add, C* c, int64_t c_stride) {
  Multiply<kGemmStride, 1>(a, rows, depth, panels, columns, add, c, c_stride);
}

template <typename C>
void MultiplyTransposedTile(const C* a, int64_t rows, int64_t depth,
                            const C* panels, int64_t columns, bool add, C* c,
                            int64_t c_stride) {
  Multiply<1, kGemmStride>(a, rows, depth, panels, columns, add, c, c_stride);
}

#define TFO_INSTANTIATE_PACK(T)                                             \
  template void PackTile<T>(const T*, int64_t, int64_t, int64_t,            \
                            Accumulator<T>*);                               \
  template void PackPanels<T>(const T*, int64_t, int64_t, int64_t, int64_t, \
                              Accumulator<T>*)
TFO_INSTANTIATE_PACK(float);
TFO_INSTANTIATE_PACK(double);
TFO_INSTANTIATE_PACK(Half);
TFO_INSTANTIATE_PACK(BFloat16);
#undef TFO_INSTANTIATE_PACK
#define TFO_INSTANTIATE(C)                                                     \
  template int64_t PanelColumns<C>();                                          \
  template void MultiplyTile<C>(const C*, int64_t, int64_t, const C*, int64_t, \
                                bool, C*, int64_t);                            \
  template void MultiplyTransposedTile<C>(                                     \
      const C*, int64_t, int64_t, const C*, int64_t, bool, C*, int64_t)
TFO_INSTANTIATE(float);
TFO_INSTANTIATE(double);
#undef TFO_INSTANTIATE

}  // namespace TFO_CPU_NAMESPACE
}  // namespace tfo
