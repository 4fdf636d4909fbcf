// The transitions of a CRF as factors of plain doubles. Only *_simd.cc files
// include this header.
#ifndef TENSORFLOW_OPS_NN_CC_KERNELS_CRF_CRF_MATRICES_SIMD_H_
#define TENSORFLOW_OPS_NN_CC_KERNELS_CRF_CRF_MATRICES_SIMD_H_

#include <cmath>
#include <cstdint>

#include "tensorflow_ops/nn/cc/kernels/crf/crf_rows_simd.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {

inline constexpr double kLeastScore = -300 * kLn2;  // below the largest

// The range of scores; finite: below +inf, and no NaN.
struct Range {
  double largest;
  bool finite;

  double Shift() const { return largest > -kInfinity ? largest : 0; }
};
template <typename T>
Range RangeOf(const T* values, int64_t n) {
  Range range = {-kInfinity, true};
  for (int64_t i = 0; i < n; ++i) {
    const double x = Widen(values[i]);
    range.finite &= x < kInfinity;
    range.largest = x > range.largest ? x : range.largest;
  }
  return range;
}

// e^(transitions - largest), [tags, stride]; 0 beyond the tags.
struct Matrix {
  int64_t tags, stride;
  double* plain;
};

// Sets `matrix` to e^(transitions - shift), and its transpose.
template <typename Value>
void FillMatrices(const Value* transitions, double shift, const Matrix& matrix,
                  const Matrix& transposed) {
  const int64_t tags = matrix.tags, stride = matrix.stride;
  for (int64_t i = 0; i < tags; ++i) {
    double* const row = matrix.plain + i * stride;
    for (int64_t j = 0; j < stride; ++j) {
      row[j] = j < tags ? LoadOne(transitions + i * tags + j) - shift
                        : -static_cast<double>(INFINITY);
    }
    S::I unused = {};
    for (int64_t j = 0; j < stride; j += kCount) {
      const S exact = ScaledExp(Load(row + j), unused).Normalized();
      Store(Shares(exact, 1.0, 0), row + j);
    }
  }
  for (int64_t i = 0; i < tags * stride; ++i) transposed.plain[i] = 0;
  for (int64_t i = 0; i < tags; ++i) {
    for (int64_t j = 0; j < tags; ++j) {
      transposed.plain[j * stride + i] = matrix.plain[i * stride + j];
    }
  }
}

// Returns whether each transition is forbidden or near enough to the largest.
template <typename Value>
bool PlainSuffices(const Value* transitions, int64_t count, double largest) {
  bool suffices = largest > -INFINITY && largest < INFINITY;
  for (int64_t i = 0; i < count; ++i) {
    const double x = LoadOne(transitions + i);
    suffices &= x == -INFINITY || x - largest >= kLeastScore;
  }
  return suffices;
}

// e^(transitions - largest) of all examples.
class Matrices {
 public:
  template <typename Value>
  Matrices(const Value* transitions, int64_t tags)
      : plain_(2 * tags * StrideOf(tags)),
        forward{tags, StrideOf(tags), plain_.get()},
        backward{tags, StrideOf(tags), plain_.get() + tags * StrideOf(tags)},
        range(RangeOf(transitions, tags * tags)),
        plain_suffices(PlainSuffices(transitions, tags * tags, range.largest)) {
    FillMatrices(transitions, range.Shift(), forward, backward);
  }

 private:
  const AlignedDoubles plain_;

 public:
  const Matrix forward, backward;
  const Range range;
  const bool plain_suffices;
};

}  // namespace TFO_CPU_NAMESPACE
}  // namespace tfo

#endif  // TENSORFLOW_OPS_NN_CC_KERNELS_CRF_CRF_MATRICES_SIMD_H_
