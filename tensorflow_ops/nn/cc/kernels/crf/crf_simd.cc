#include "tensorflow_ops/nn/cc/kernels/crf/crf_simd.h"

#include "tensorflow_ops/nn/cc/kernels/crf/crf_rows_simd.h"
#include "tensorflow_ops/nn/cc/kernels/rows/reductions_simd.h"
#include "tensorflow_ops/nn/cc/kernels/sequence_losses/scaled_simd.h"

namespace tfo {
namespace TFO_CPU_NAMESPACE {

using S = ScaledVector<double>;
using V = DoubleVector;
inline constexpr int kCount = S::kCount;

template <typename Value>
void CrfMatrices(const Value* transitions, double shift,
                 const CrfMatrix& matrix, const CrfMatrix& transposed) {
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

template <typename T>
void CrfExactRow(const T* scores, double shift, int64_t n, Scaled<double>* to) {
  for (int64_t i = 0; i < n; i += kCount) {
    const int64_t count = n - i < kCount ? n - i : kCount;
    V x = {};
    for (int64_t k = 0; k < count; ++k) x[k] = LoadOne(scores + i + k) - shift;
    S::I unused = {};
    const S exact = ScaledExp(x, unused).Normalized();
    for (int64_t k = 0; k < count; ++k) {
      to[i + k] = {exact.mantissa[k], exact.exponent[k]};
    }
  }
}

double CrfLog(const Scaled<double>& number) {
  return LogOfScaled(number.mantissa, number.exponent);
}

// to[j] = max_i (from[i] + transitions[i][j]); NaN is not above any score.
static TFO_INLINE void BestSums(const double* transitions, const double* from,
                                int64_t tags, int64_t stride, double* to) {
  ForColumnGroups(stride, [&](auto vectors, int64_t at) {
    constexpr int kVectors = decltype(vectors)::kValue;
    V best[kVectors];
#pragma GCC unroll 8
    for (int k = 0; k < kVectors; ++k) best[k] = V{} - INFINITY;
    for (int64_t i = 0; i < tags; ++i) {
      const V way = Broadcast<V>(from[i]);
      const double* const row = transitions + i * stride + at;
#pragma GCC unroll 8
      for (int k = 0; k < kVectors; ++k) {
        best[k] = Max(way + Load(row + k * kCount), best[k]);
      }
    }
#pragma GCC unroll 8
    for (int k = 0; k < kVectors; ++k) Store(best[k], to + at + k * kCount);
  });
}

template <typename T>
double CrfBestWays(const double* transitions, const T* logits, int64_t frames,
                   int64_t tags, int64_t stride, double* ways, double* row) {
  double shifts = 0;
  for (int64_t t = 0; t < frames; ++t) {
    double* const to = ways + t * stride;
    WidenRow(logits + t * tags, tags, stride, row);
    if (t > 0) BestSums(transitions, to - stride, tags, stride, to);
    V top = V{} - INFINITY;
    for (int64_t i = 0; i < stride; i += kCount) top = Max(Load(row + i), top);
    const double shift = FiniteShift(VectorLanes::Max(top)[0]);
    for (int64_t i = 0; i < stride; i += kCount) {
      const V score = Load(row + i) - shift + (t > 0 ? Load(to + i) : V{});
      Store(score == score ? score : V{} - INFINITY, to + i);
    }
    shifts += shift;
  }
  return shifts;
}

// The lowest i with the largest from[i] + transitions[i]; 0 if all are -inf.
static TFO_INLINE int32_t BestBefore(const double* from,
                                     const double* transitions,
                                     int64_t stride) {
  V best = V{} - INFINITY;
  for (int64_t i = 0; i < stride; i += kCount) {
    best = Max(Load(from + i) + Load(transitions + i), best);
  }
  best = VectorLanes::Max(best);
  if (best[0] == -INFINITY) return 0;
  S::I lane;
  for (int k = 0; k < kCount; ++k) lane[k] = k;
  V first =
      Broadcast<V>(INFINITY);  // as doubles, which have a minimum at all levels
  for (int64_t i = 0; i < stride; i += kCount) {
    const V at = __builtin_convertvector(lane + i, V);
    const V score = Load(from + i) + Load(transitions + i);
    first = -Max(score == best ? -at : V{} - INFINITY, -first);
  }
  return static_cast<int32_t>(-VectorLanes::Max(-first)[0]);
}

void CrfTrace(const double* transposed, const double* ways, int64_t frames,
              int64_t stride, int32_t last, int32_t* labels) {
  labels[frames - 1] = last;
  for (int64_t t = frames - 1; t > 0; --t) {
    last =
        BestBefore(ways + (t - 1) * stride, transposed + last * stride, stride);
    labels[t - 1] = last;
  }
}

#define TFO_INSTANTIATE(T)                                               \
  template void CrfExactRow(const T*, double, int64_t, Scaled<double>*); \
  template double CrfBestWays(const double*, const T*, int64_t, int64_t, \
                              int64_t, double*, double*)
TFO_FOR_EACH_FLOAT(TFO_INSTANTIATE);
#undef TFO_INSTANTIATE

template void CrfMatrices(const float*, double, const CrfMatrix&,
                          const CrfMatrix&);
template void CrfMatrices(const double*, double, const CrfMatrix&,
                          const CrfMatrix&);

}  // namespace TFO_CPU_NAMESPACE
}  // namespace tfo
