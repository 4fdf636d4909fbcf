#include "tensorflow_ops/core/cc/simd/gemm_simd.h"

#include "tensorflow_ops/core/cc/simd/bfloat16_simd.h"
#include "tensorflow_ops/core/cc/simd/simd.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {
namespace {

// Rows of c in registers: with two vectors each, two of b and one of a they
// fill 31 of AVX-512's 32 registers, 15 of 16 otherwise.
constexpr int kRows = kVectorBytes == 64 ? 14 : 6;

// Packs in vectors: numbers, or two as their bits.
TFO_INLINE FloatVector LoadPacks(const float* from) { return Load(from); }
TFO_INLINE DoubleVector LoadPacks(const double* from) { return Load(from); }
TFO_INLINE Bits32 LoadPacks(const BFloat16Pack* from) {
  Bits32 bits;
  memcpy(&bits, from, sizeof(bits));
  return bits;
}
TFO_INLINE FloatVector BroadcastPack(float value) {
  return Broadcast<FloatVector>(value);
}
TFO_INLINE DoubleVector BroadcastPack(double value) {
  return Broadcast<DoubleVector>(value);
}
TFO_INLINE Bits32 BroadcastPack(BFloat16Pack pack) {
  uint32_t bits;
  memcpy(&bits, &pack, sizeof(bits));
  return Broadcast<Bits32>(bits);
}
template <typename V, typename P>
TFO_INLINE void StorePacks(V v, P* to) {
  memcpy(to, &v, sizeof(v));
}

// Packs whose numbers are neighbors; two numbers as their bits.
template <typename P, typename T>
TFO_INLINE typename Lanes<T>::Vector LoadAlong(const T* from) {
  if constexpr (kPackNumbers<P> == 1) {
    return Load(from);
  } else {
    FloatVector bits;
    memcpy(&bits, from, sizeof(bits));
    return bits;
  }
}

// c and the products of both numbers of the packs a and b. In assembly, since
// not every processor of the level avx512 has the instruction.
TFO_INLINE FloatVector MulAddPacks(Bits32 a, Bits32 b, FloatVector c) {
#ifdef __AVX512F__
  asm("vdpbf16ps %2, %1, %0" : "+v"(c) : "v"(a), "v"(b));
  return c;
#else
  const auto second = [](Bits32 pack) {
    return reinterpret_cast<FloatVector>(pack & 0xFFFF0000u);
  };
  const auto first = [](Bits32 pack) {
    return reinterpret_cast<FloatVector>(pack << 16);
  };
  return MulAdd(first(a), first(b), MulAdd(second(a), second(b), c));
#endif
}

template <typename V>
TFO_INLINE V MulAddPacks(V a, V b, V c) {
  return MulAdd(a, b, c);
}

// kCount rows of c, kPanels panels of two vectors wide. a[m * kRowStep + k *
// kDepthStep] is the pack of row m.
template <int kCount, int kPanels, int64_t kRowStep, int64_t kDepthStep,
          typename P>
TFO_INLINE void MultiplyRows(const P* a, int64_t depth, const P* panels,
                             bool add, Accumulator<P>* c, int64_t c_stride) {
  using Vector = typename Lanes<P>::Vector;
  constexpr int kLanes = Lanes<P>::kCount, kVectors = 2 * kPanels;
  Vector sums[kCount][kVectors] = {};
  for (int64_t k = 0; k < depth; ++k) {
    decltype(LoadPacks(panels)) b[kVectors];
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
      b[v] = LoadPacks(panels + (v / 2 * depth * 2 + v % 2) * kLanes);
    }
#pragma GCC unroll 16
    for (int m = 0; m < kCount; ++m) {
      const auto value = BroadcastPack(a[m * kRowStep]);
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) {
        sums[m][v] = MulAddPacks(value, b[v], sums[m][v]);
      }
    }
    panels += 2 * kLanes;
    a += kDepthStep;
  }
  // Added last: errors grow with the blocks, not with the depth of all.
#pragma GCC unroll 16
  for (int m = 0; m < kCount; ++m) {
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
      Accumulator<P>* const to = c + m * c_stride + v * kLanes;
      Store(add ? Load(to) + sums[m][v] : sums[m][v], to);
    }
  }
}

template <int64_t kRowStep, int64_t kDepthStep, typename P>
TFO_INLINE void Multiply(const P* a, int64_t rows, int64_t depth,
                         const P* panels, int64_t columns, bool add,
                         Accumulator<P>* c, int64_t c_stride) {
  constexpr int kColumns = 2 * Lanes<P>::kCount;
  int64_t j = 0;
  // Four panels: the two sums of one would wait for the latency of additions.
  for (; rows == 1 && j + 4 * kColumns <= columns; j += 4 * kColumns) {
    MultiplyRows<1, 4, kRowStep, kDepthStep>(a, depth, panels + j * depth, add,
                                             c + j, c_stride);
  }
  // A panel stays in the L1 cache while all rows pass.
  for (; j < columns; j += kColumns) {
    const P* const panel = panels + j * depth;
    const auto run = [&](auto count, int64_t m) {
      MultiplyRows<decltype(count)::kValue, 1, kRowStep, kDepthStep>(
          a + m * kRowStep, depth, panel, add, c + m * c_stride + j, c_stride);
    };
    int64_t m = 0;
    // Two rows take the time of four, so kRows + 2 are fours.
    for (; m + kRows <= rows && m + kRows + 2 != rows; m += kRows) {
      run(Constant<kRows>(), m);
    }
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

template <typename T, typename P>
void PackTile(const T* a, int64_t stride, int64_t rows, int64_t depth,
              P* tile) {
  for (int64_t m = 0; m < rows; ++m, a += stride, tile += kGemmStride) {
    if constexpr (kPackNumbers<P> == 2) {
      int64_t k = 0;
      for (; k + 2 * kFloats <= depth; k += 2 * kFloats) {
        StorePacks(LoadAlong<P>(a + k), tile + k / 2);
      }
      if (k == depth) continue;
      tile[(depth - 1) / 2] = {};
      memcpy(tile + k / 2, a + k, (depth - k) * sizeof(T));
    } else {
      // A tail writes whole vectors: rows have room beyond kGemmDepth.
      ForVectors<T>(depth, [&](auto part, int64_t k) {
        Store(part.Load(a + k, 0), tile + k);
      });
    }
  }
}

template <typename T, typename P>
void PackPanels(const T* b, int64_t row_stride, int64_t column_stride,
                int64_t rows, int64_t columns, P* panels) {
  constexpr int kLanes = Lanes<T>::kCount, kColumns = 2 * kLanes;
  constexpr int64_t kNumbers = kPackNumbers<P>;
  // Rows at a time: what is written stays in the L1 cache from column to
  // column.
  constexpr int64_t kBlock = 64;
  const int64_t depth = (rows + kNumbers - 1) / kNumbers;
  // The pack `i` of a column.
  const auto load_one = [&](const T* column, int64_t i) {
    if constexpr (kNumbers == 2) {
      const int64_t row = 2 * i;
      return P{column[row * row_stride],
               row + 1 < rows ? column[(row + 1) * row_stride] : T{}};
    } else {
      return LoadOne(column + i * row_stride);
    }
  };
  for (int64_t j = 0; j < columns; j += kColumns, panels += depth * kColumns) {
    const int64_t n = columns - j < kColumns ? columns - j : kColumns;
    for (int64_t first = 0; first < depth; first += kBlock) {
      const int64_t end = first + kBlock < depth ? first + kBlock : depth;
      if (column_stride == 1) {
        for (int64_t i = first; i < end; ++i) {
          const T* const from = b + i * kNumbers * row_stride + j;
          P* const to = panels + i * kColumns;
          int64_t k = 0;
          ForVectors<T>(n, [&](auto part, int64_t at) {
            auto v = part.Load(from + at, 0);
            if constexpr (kNumbers == 2) {
              const auto second = 2 * i + 1 < rows
                                      ? part.Load(from + row_stride + at, 0)
                                      : FloatVector{};
              v = PackOf(v, second);
            }
            StorePacks(v, to + at);
            k = at + Lanes<T>::kCount;
          });
          for (; k < kColumns; ++k) to[k] = {};
        }
      } else {
        for (int64_t k = 0; k < kColumns; k += kLanes) {
          const T* const from = b + (j + k) * column_stride;
          P* const to = panels + k;
          const int64_t lanes = n - k < kLanes ? n - k : kLanes;
          int64_t i = first;
          if (row_stride == 1) {
            for (; i + kLanes <= end && (i + kLanes) * kNumbers <= rows;
                 i += kLanes) {
              typename Lanes<T>::Vector v[kLanes];
#pragma GCC unroll 16
              for (int m = 0; m < kLanes; ++m) {
                const T* const at = from + m * column_stride + i * kNumbers;
                v[m] = m < lanes ? LoadAlong<P>(at) : decltype(v[m] + v[m]){};
              }
              Transpose(v);
#pragma GCC unroll 16
              for (int m = 0; m < kLanes; ++m) {
                StorePacks(v[m], to + (i + m) * kColumns);
              }
            }
          }
          for (int64_t m = 0; m < kLanes; ++m) {
            for (int64_t rest = i; rest < end; ++rest) {
              to[rest * kColumns + m] =
                  m < lanes ? load_one(from + m * column_stride, rest) : P{};
            }
          }
        }
      }
    }
  }
}

void PackColumns(const float* numbers, int64_t rows, BFloat16Pack* packs) {
  for (int64_t i = 0; i < rows; ++i) {
    const float* const from = numbers + i * kGemmStride;
    StorePacks(NarrowBoth(Load(from), Load(from + kFloats)),
               packs + i * kGemmStride);
  }
}

void PackRows(const float* numbers, int64_t rows, BFloat16Pack* packs) {
  for (int64_t i = 0; i < rows; i += 2, packs += kGemmStride) {
#pragma GCC unroll 2
    for (int x = 0; x < 2 * kFloats; x += kFloats) {
      const float* const from = numbers + i * kGemmStride + x;
      const FloatVector second =
          i + 1 < rows ? Load(from + kGemmStride) : FloatVector{};
      const Words words = NarrowBoth(Load(from), second);
      StorePacks(InterleaveHalves(words), packs + x);
    }
  }
}

template <typename P>
void MultiplyTile(const P* a, int64_t rows, int64_t depth, const P* panels,
                  int64_t columns, bool add, Accumulator<P>* c,
                  int64_t c_stride) {
  Multiply<kGemmStride, 1>(a, rows, depth, panels, columns, add, c, c_stride);
}

template <typename P>
void MultiplyTransposedTile(const P* a, int64_t rows, int64_t depth,
                            const P* panels, int64_t columns, bool add,
                            Accumulator<P>* c, int64_t c_stride) {
  Multiply<1, kGemmStride>(a, rows, depth, panels, columns, add, c, c_stride);
}

template <typename T>
Accumulator<T> GreatestMagnitude(const T* rows, int64_t stride, int64_t count,
                                 int64_t columns) {
  using Index = typename Lanes<T>::Index;
  constexpr auto kSign = typename Lanes<T>::Integer{1}
                         << (8 * sizeof(Accumulator<T>) - 1);
  // Several, which do not wait for each other. Integers compare as the
  // magnitudes with their bits do.
  Index greatest[4] = {};
  const auto take = [](auto part, const T* from, Index& most) {
    const Index bits = reinterpret_cast<Index>(part.Load(from, 0)) & ~kSign;
    most = bits > most ? bits : most;
  };
  int64_t i = 0;
  for (; i + 4 <= count; i += 4, rows += 4 * stride) {
    ForVectors<T>(columns, [&](auto part, int64_t at) {
#pragma GCC unroll 4
      for (int m = 0; m < 4; ++m) {
        take(part, rows + m * stride + at, greatest[m]);
      }
    });
  }
  for (; i < count; ++i, rows += stride) {
    ForVectors<T>(columns, [&](auto part, int64_t at) {
      take(part, rows + at, greatest[0]);
    });
  }
  typename Lanes<T>::Integer most = 0;
  for (const Index& lanes : greatest) {
    for (int x = 0; x < Lanes<T>::kCount; ++x) {
      most = lanes[x] > most ? lanes[x] : most;
    }
  }
  Accumulator<T> magnitude;
  memcpy(&magnitude, &most, sizeof(magnitude));
  return magnitude;
}

#define TFO_INSTANTIATE(T, P)                                                  \
  template void PackTile<T, P>(const T*, int64_t, int64_t, int64_t, P*);       \
  template void PackPanels<T, P>(const T*, int64_t, int64_t, int64_t, int64_t, \
                                 P*)
TFO_INSTANTIATE(float, float);
TFO_INSTANTIATE(double, double);
TFO_INSTANTIATE(Half, float);
TFO_INSTANTIATE(BFloat16, float);
TFO_INSTANTIATE(BFloat16, BFloat16Pack);
#undef TFO_INSTANTIATE
#define TFO_INSTANTIATE(P)                                                     \
  template void MultiplyTile<P>(const P*, int64_t, int64_t, const P*, int64_t, \
                                bool, Accumulator<P>*, int64_t);               \
  template void MultiplyTransposedTile<P>(const P*, int64_t, int64_t,          \
                                          const P*, int64_t, bool,             \
                                          Accumulator<P>*, int64_t)
TFO_INSTANTIATE(float);
TFO_INSTANTIATE(double);
TFO_INSTANTIATE(BFloat16Pack);
#undef TFO_INSTANTIATE
template int64_t PanelColumns<float>();
template int64_t PanelColumns<double>();
#define TFO_INSTANTIATE(T)                                                 \
  template Accumulator<T> GreatestMagnitude<T>(const T*, int64_t, int64_t, \
                                               int64_t)
TFO_FOR_EACH_FLOAT(TFO_INSTANTIATE);
#undef TFO_INSTANTIATE

}  // namespace TFO_CPU_NAMESPACE
}  // namespace tfo
