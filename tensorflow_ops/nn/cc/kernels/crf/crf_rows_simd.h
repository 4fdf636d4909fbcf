// Rows of tags as doubles. Only *_simd.cc files include this header.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_CRF_CRF_ROWS_SIMD_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_CRF_CRF_ROWS_SIMD_H_

#include <cstdint>
#include <limits>
#include <memory>

#include "tensorflow_ops/core/cc/simd/math_simd.h"
#include "tensorflow_ops/nn/cc/kernels/crf/crf.h"
#include "tensorflow_ops/nn/cc/kernels/rows/reductions_simd.h"
#include "tensorflow_ops/nn/cc/kernels/sequence_losses/halves_simd.h"
#include "tensorflow_ops/nn/cc/kernels/sequence_losses/scaled_simd.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {

using S = ScaledVector<double>;
using V = DoubleVector;
inline constexpr int kCount = S::kCount;
inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Values beyond its stride that a row needs while logits are widened into it.
inline constexpr int64_t kRowGuard = 16;

// The stride of rows of tags: a multiple of the doubles in the widest vector.
inline int64_t StrideOf(int64_t tags) { return (tags + 7) / 8 * 8; }

// Uninitialized doubles, aligned to the widest vector.
class AlignedDoubles {
 public:
  explicit AlignedDoubles(int64_t n) : memory_(new double[n + 8]) {
    const auto address = reinterpret_cast<uintptr_t>(memory_.get());
    data_ = memory_.get() + (64 - address % 64) % 64 / sizeof(double);
  }
  double* get() const { return data_; }

 private:
  std::unique_ptr<double[]> memory_;
  double* data_;
};

template <typename T>
double CyclesOf(const CrfScores<T>& s) {
  return s.frames * (s.tags * static_cast<double>(s.tags) / 4 + 200) + 500;
}

// Widens n values and pads them with -inf up to `stride` and to a multiple of
// the lanes of T.
template <typename T>
static TFO_INLINE void WidenRow(const T* from, int64_t n, int64_t stride,
                                double* to) {
  using Value = typename Lanes<T>::Value;
  constexpr int kLanes = Lanes<T>::kCount;
  for (int64_t i = (n + kLanes - 1) / kLanes * kLanes; i < stride; ++i) {
    to[i] = -INFINITY;
  }
  ForVectors<T>(n, [&](auto part, int64_t at) {
    const auto v = part.Load(from + at, -static_cast<Value>(INFINITY));
    if constexpr (std::is_same_v<T, double>) {
      Store(v, to + at);
    } else {
      Store(WidenLow(v), to + at);
      Store(WidenHigh(v), to + at + Lanes<double>::kCount);
    }
  });
}

// Narrows n values; reads up to a multiple of the lanes of T.
template <typename T>
static TFO_INLINE void NarrowRow(const double* from, int64_t n, T* to) {
  ForVectors<T>(n, [&](auto part, int64_t at) {
    typename Lanes<T>::Vector v;
    if constexpr (std::is_same_v<T, double>) {
      v = Load(from + at);
    } else {
      v = Narrowed(Load(from + at), Load(from + at + Lanes<double>::kCount));
    }
    part.Store(v, to + at);
  });
}

// Calls body(Constant<k>, at) for groups of k vectors of a row of `stride`
// values: few groups of about the same size, each of which fits into registers.
template <typename Body>
static TFO_INLINE void ForColumnGroups(int64_t stride, const Body& body) {
  constexpr int kCount = Lanes<double>::kCount;
#if defined(__AVX512F__) || defined(__aarch64__)
  constexpr int64_t kMost = 8;
#else
  constexpr int64_t kMost = 4;
#endif
  const int64_t vectors = stride / kCount;
  const int64_t groups = (vectors + kMost - 1) / kMost;
  for (int64_t g = 0; g < groups; ++g) {
    const int64_t first = g * vectors / groups;
    const int64_t at = first * kCount;
    switch ((g + 1) * vectors / groups - first) {
      case 1:
        body(Constant<1>{}, at);
        break;
      case 2:
        body(Constant<2>{}, at);
        break;
      case 3:
        body(Constant<3>{}, at);
        break;
      case 4:
        body(Constant<4>{}, at);
        break;
      case 5:
        if constexpr (kMost > 4) body(Constant<5>{}, at);
        break;
      case 6:
        if constexpr (kMost > 4) body(Constant<6>{}, at);
        break;
      case 7:
        if constexpr (kMost > 4) body(Constant<7>{}, at);
        break;
      default:
        if constexpr (kMost > 4) body(Constant<8>{}, at);
    }
  }
}

}  // namespace TFO_CPU_NAMESPACE
}  // namespace tfo

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_CRF_CRF_ROWS_SIMD_H_
